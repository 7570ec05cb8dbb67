"""Fused loops: several stages run on each part of a tile, so that intermediate results stay in registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dlc.ir import Block, BlockArgument, BoolAttr, Operation, Region, SSAValue, arith, i1, scf
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, combine, fill
from dlc.passes.tiling.index_conditions import may_hold_in_tile
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, steps, steps_between
from dlc.passes.tiling.loop_nests import MaskedSelect, NestStage, find_masked_select, identity_of
from dlc.passes.tiling.online_softmax import match_online_softmax
from dlc.passes.tiling.softmax_rescaling import SoftmaxRescaling
from dlc.passes.tiling.tile_body import TileBody
from dlc.passes.tiling.zero_blocks import any_nonzero
from dlc.passes.types import memref_of


def run_stages(tile_body: TileBody, builder: OpBuilder) -> None:
    """Run all stages of a nest on a tile, in the plan's fused loops; with an online softmax, one key block at a time."""
    positions = range(len(tile_body.nest.stages))
    if tile_body.plan.online_softmax is None:
        _run_stages(tile_body, builder, tile_body.tile, positions, {})
        return
    lane, size = tile_body.plan.online_softmax
    online_softmax = match_online_softmax(tile_body.nest, lane)
    assert online_softmax is not None
    last, per_row = online_softmax.sums[-1], {*online_softmax.initial, *online_softmax.deferred}
    per_block = [k for k in positions if k <= last and k not in per_row]
    rescaling = SoftmaxRescaling(tile_body, online_softmax, builder)
    _run_stages(tile_body, builder, tile_body.tile, online_softmax.initial, {})
    for body_builder, block in steps(builder, tile_body.tile[lane], size, f"b{lane}"):
        # Buffers along the key dimension hold one block, so offsets in them start at 0.
        tile, loop_ends = {**tile_body.tile, lane: IterationRange(block.offset, block.size)}, dict[int, Index]()
        body_builder = _branch_unless_masked(tile_body, body_builder, tile, lane)
        _run_stages(tile_body, body_builder, tile, [k for k in per_block if k < online_softmax.weights], loop_ends)
        rescaling.rescale(body_builder, tile)
        _run_stages(tile_body, body_builder, tile, [k for k in per_block if k >= online_softmax.weights], loop_ends)
    _run_stages(tile_body, builder, tile_body.tile, [*online_softmax.deferred, *positions[last + 1 :]], {})


def _branch_unless_masked(tile_body: TileBody, builder: OpBuilder, tile: Tile, lane: int) -> OpBuilder:
    """Guard a key block so that it is skipped if it is fully masked; return the builder inside the guard.

    The first block is computed unconditionally.
    """
    masked_loops, begin = [s for s in tile_body.plan.fused_loops if s.unmasked is not None], tile[lane].offset
    if not masked_loops or isinstance(begin, int):
        return builder
    stage, select = next(
        found for s in masked_loops if (found := find_masked_select(tile_body.nest.stages[s.first : s.last])) is not None
    )
    unmasked = _conjunction(builder, (may_hold_in_tile(builder, stage, c, tile) for c in select.conditions))
    return builder if unmasked is None else builder.branch(builder.op(arith.OrIOp(builder.compare(begin, "eq", 0), unmasked)))


def _may_be_unmasked(builder: OpBuilder, tile_body: TileBody, stage: NestStage, select: MaskedSelect, tile: Tile) -> SSAValue:
    """Emit an i1: whether the select of a stage may choose the computed value for some element of a tile."""

    def may_be(condition: SSAValue) -> SSAValue | None:
        if isinstance(condition, BlockArgument):
            return any_nonzero(builder, tile_body.operand(builder, stage, condition.index, tile))
        return may_hold_in_tile(builder, stage, condition, tile)

    unmasked = _conjunction(builder, map(may_be, select.conditions))
    return builder.constants.get(BoolAttr.from_bool(True), i1) if unmasked is None else unmasked


def _conjunction(builder: OpBuilder, conditions: Iterable[SSAValue | None]) -> SSAValue | None:
    """Return the conjunction of the conditions that are not None; None if there are none."""
    present = [c for c in conditions if c is not None]
    return reduce(lambda a, b: builder.op(arith.AndIOp(a, b)), present) if present else None


def _run_stages(
    tile_body: TileBody, builder: OpBuilder, tile: Tile, positions: Sequence[int], loop_ends: dict[int, Index]
) -> None:
    """Run the stages at `positions` in order; stages of a fused loop share loops over the dimensions that they have.

    `loop_ends` maps dimensions to the ends of their loops. A loop that stops after the last unmasked part computes its
    end, and later loops along the same dimension use it.
    """
    stages, done = tile_body.nest.stages, 0
    for fused_loop in tile_body.plan.fused_loops:
        tile_body.stages(builder, [stages[k] for k in positions if done <= k < fused_loop.first], tile)
        done = fused_loop.last
        if inside := [stages[k] for k in positions if fused_loop.first <= k < fused_loop.last]:
            emitter = _FusedLoopEmitter(tile_body, inside, fused_loop.skips, loop_ends)
            dims = {d for s in inside for d in s.dims}
            computes_end = (
                fused_loop.unmasked is not None and fused_loop.unmasked[0] in dims and find_masked_select(inside) is not None
            )
            if fused_loop.unmasked is not None and computes_end and not loop_ends:
                loop_ends[fused_loop.unmasked[0]] = emitter.find_last_unmasked(builder, tile, *fused_loop.unmasked)
            emitter.emit_loops(builder, tile, [(d, step) for d, step in fused_loop.steps if d in dims], {})
    tile_body.stages(builder, [stages[k] for k in positions if k >= done], tile)


@dataclass(frozen=True)
class _PartialReduction:
    """Partial results of a reduction along `reduced`: a buffer, the dimensions of its axes, and the tile that it covers."""

    buffer: SSAValue
    dims: Sequence[int]
    reduced: int
    tile: Tile

    def ranges(self, builder: OpBuilder, tile: Tile) -> list[tuple[int, IterationRange]]:
        """Return the ranges of the buffer that hold the results for a part of the tile."""

        def start(d: int) -> Index:
            tile_start, part_start = self.tile[d].tile_offset, tile[d].tile_offset
            return 0 if d == self.reduced or part_start is tile_start else builder.subtract(part_start, tile_start)

        return [(d, IterationRange(start(d), tile[d].size)) for d in self.dims]


class _FusedLoopEmitter:
    """Emit the stages of a fused loop.

    A reduction other than a contraction has a separate partial result for each element of a part along its dimension.
    """

    def __init__(self, tile_body: TileBody, stages: Sequence[NestStage], skips: bool, loop_ends: Mapping[int, Index]) -> None:
        self.tile_body = tile_body
        self.stages = stages
        self.skips = skips
        self.loop_ends = loop_ends

    def emit_loops(
        self, builder: OpBuilder, tile: Tile, loops: Sequence[tuple[int, int]], partials: Mapping[Operation, _PartialReduction]
    ) -> None:
        """Emit nested loops over parts of the tile, outermost first, with all stages in the innermost."""
        if not loops:
            masked_select = find_masked_select(self.stages) if self.skips else None
            if masked_select is None:
                self.run(builder, tile, self.stages, partials)
            else:
                self.run_unless_masked(builder, tile, *masked_select, partials)
            return
        (d, step), *rest = loops
        split = [s for s in self.stages if d in s.reductions and not s.is_contraction]
        # Reductions along contiguous memory have one partial sum per lane.
        contiguous = [s for s in split if any(a.stride(d) == 1 for a in s.inputs)]
        allocated = {s.op: self.partial(builder, s, tile, d, min(step, tile[d].size)) for s in contiguous}
        # The stages without the dimension initialize its reductions: they run before the loop.
        inside = [s for s in self.stages if not split or d in s.dims]
        for stage in self.stages:
            if stage not in inside:
                self.emit(builder, stage, tile)
        skips_zero_blocks = self.skips and self.stages[0].is_contraction
        emitter = _FusedLoopEmitter(self.tile_body, inside, self.skips and not skips_zero_blocks, self.loop_ends)
        for body_builder, part in self.steps(builder, tile[d], d, step):
            part_tile = {**tile, d: part}
            if skips_zero_blocks:
                body_builder = self.branch_unless_zero(body_builder, part_tile)
            emitter.emit_loops(body_builder, part_tile, rest, {**partials, **allocated})
        for stage in contiguous:
            partial = allocated[stage.op]
            target = self.tile_body.operand(builder, stage, len(stage.op.operands) - 1, tile)
            combine(builder.with_location(stage.op.location), stage, (partial.buffer, partial.dims), target)

    def steps(self, builder: OpBuilder, whole: IterationRange, d: int, step: int) -> Iterator[tuple[OpBuilder, IterationRange]]:
        """Yield each part of `step` iterations of a dimension, up to the end in `loop_ends` if it has one."""
        if d in self.loop_ends:
            return steps_between(builder, whole, step, 0, self.loop_ends[d], f"j{d}")
        return steps(builder, whole, step, f"j{d}")

    def find_last_unmasked(self, builder: OpBuilder, tile: Tile, d: int, size: int) -> Index:
        """Emit a scan for the end of the last part of `size` iterations that is not fully masked.

        The first part always counts as unmasked: the softmax of a fully masked row needs at least one element.
        """
        masked_select = find_masked_select(self.stages)
        assert masked_select is not None
        last, select = masked_select
        main = tile[d].size - tile[d].size % size
        loop = builder.loop(size, main, size, [SSAValue.get(builder.value(size))], f"j{d}")
        body_builder, (start, end) = builder.inside(loop.body.block), loop.body.block.args

        def updated_end(body_builder: OpBuilder, start: Index, size: int, end: SSAValue) -> SSAValue:
            part_tile = {**tile, d: tile[d].part(body_builder, start, size)}
            is_unmasked = _may_be_unmasked(body_builder, self.tile_body, last, select, part_tile)
            return body_builder.op(arith.SelectOp(is_unmasked, body_builder.value(body_builder.add(start, size)), end))

        body_builder.yield_(updated_end(body_builder, start, size, end))
        end = loop.results[0]
        return updated_end(builder, main, tile[d].size - main, end) if tile[d].size > main else end

    def run(
        self, builder: OpBuilder, tile: Tile, stages: Iterable[NestStage], partials: Mapping[Operation, _PartialReduction]
    ) -> None:
        """Run stages on one part; reductions in `partials` accumulate their partial results."""
        for stage in stages:
            if stage.op not in partials:
                self.emit(builder, stage, tile)
                continue
            partial = partials[stage.op]
            window = self.tile_body.window(builder, partial.buffer, partial.ranges(builder, tile))
            self.emit(builder, stage, tile, {len(stage.op.operands) - 1: window})

    def run_unless_masked(
        self,
        builder: OpBuilder,
        tile: Tile,
        last: NestStage,
        select: MaskedSelect,
        partials: Mapping[Operation, _PartialReduction],
    ) -> None:
        """Run all stages on a part; if it is fully masked, fill the output of `last` instead of running the stages up to it."""
        unmasked_body, masked_body = Block(), Block()
        num_guarded = self.stages.index(last) + 1
        is_unmasked = _may_be_unmasked(builder, self.tile_body, last, select, tile)
        builder.insert(scf.IfOp(is_unmasked, [], Region(unmasked_body), Region(masked_body)))
        self.run(unmasked_builder := builder.inside(unmasked_body), tile, self.stages[:num_guarded], partials)
        unmasked_builder.yield_()
        masked_builder = builder.inside(masked_body)
        output, _ = self.tile_body.operand(masked_builder, last, len(last.op.operands) - 1, tile)
        fill(masked_builder, select.otherwise, output)
        masked_builder.yield_()
        self.run(builder, tile, self.stages[num_guarded:], partials)

    def branch_unless_zero(self, builder: OpBuilder, tile: Tile) -> OpBuilder:
        """Guard a contraction so that parts where its first operand is all zeros are skipped; return the builder inside."""
        return builder.branch(any_nonzero(builder, self.tile_body.operand(builder, self.stages[0], 0, tile)))

    def partial(self, builder: OpBuilder, stage: NestStage, tile: Tile, d: int, step: int) -> _PartialReduction:
        """Allocate partial results of a reduction along `d`, filled with its identity."""
        _, result_dims = self.tile_body.operand(builder, stage, len(stage.op.operands) - 1, tile)
        dims = [*result_dims, *([d] if step > 1 else [])]
        shape = tuple(step if axis == d else tile[axis].size for axis in dims)
        buffer = builder.alloca(memref_of(stage.op.operands[-1]).element_type, shape, "partial")
        fill(builder, identity_of(stage, self.tile_body.nest), buffer)
        return _PartialReduction(buffer, dims, d, tile)

    def emit(self, builder: OpBuilder, stage: NestStage, tile: Tile, windows: Mapping[int, BufferView] | None = None) -> None:
        stage_tile = {d: tile[d] for d in stage.dims if d >= 0}
        self.tile_body.emit(builder.with_location(stage.op.location), stage, stage_tile, windows)
