"""Fused loops: several ops run on each step of a tile, so that intermediate results stay in registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dlc.ir import BlockArgument, BoolAttr, Operation, SSAValue, arith, i1
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.attention.fused_attention import FusedLoop
from dlc.passes.tiling.buffer_views import BufferView, any_nonzero, combine, fill
from dlc.passes.tiling.index_conditions import may_hold_in_tile
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, fold_steps, steps, steps_between
from dlc.passes.tiling.loop_nests import MaskedSelect, NestOp, find_masked_select
from dlc.passes.tiling.tile_body import TileBody


def _may_be_unmasked(builder: OpBuilder, tile_body: TileBody, nest_op: NestOp, select: MaskedSelect, tile: Tile) -> SSAValue:
    """Emit an i1: whether some element of a tile may be unmasked, given an op's masked select."""

    def may_be(condition: SSAValue) -> SSAValue | None:
        if isinstance(condition, BlockArgument):
            return any_nonzero(builder, tile_body.operand_view(builder, nest_op, condition.index, tile))
        return may_hold_in_tile(builder, nest_op, condition, tile)

    unmasked = conjunction(builder, map(may_be, select.conditions))
    return builder.constants.get(BoolAttr.from_bool(True), i1) if unmasked is None else unmasked


def conjunction(builder: OpBuilder, conditions: Iterable[SSAValue | None]) -> SSAValue | None:
    """Return the conjunction of the conditions that are not None; None if there are none."""
    present_conditions = [c for c in conditions if c is not None]
    return reduce(lambda a, b: builder.op(arith.AndIOp(a, b)), present_conditions) if present_conditions else None


def run_fused_loops(
    tile_body: TileBody,
    fused_loops: Sequence[FusedLoop],
    builder: OpBuilder,
    tile: Tile,
    positions: Sequence[int],
    loop_ends: dict[int, Index],
) -> None:
    """Emit the ops at `positions`; the ops of a fused loop share the loops over the dimensions that they have.

    `loop_ends` maps dimensions to loop ends that are computed at run time. The first loop that stops after the last
    unmasked step computes its end, and later loops along the dimension use the same end.
    """
    nest_ops, next_position = tile_body.nest.ops, 0
    for fused_loop in fused_loops:
        tile_body.emit_nest_ops(builder, [nest_ops[k] for k in positions if next_position <= k < fused_loop.first], tile)
        next_position = fused_loop.end
        if loop_ops := [nest_ops[k] for k in positions if fused_loop.first <= k < fused_loop.end]:
            emitter = _FusedLoopEmitter(tile_body, loop_ops, fused_loop.skips_masked, loop_ends)
            dims = {d for op in loop_ops for d in op.dims}
            computes_end = (
                fused_loop.unmasked is not None and fused_loop.unmasked[0] in dims and find_masked_select(loop_ops) is not None
            )
            if fused_loop.unmasked is not None and computes_end and not loop_ends:
                loop_ends[fused_loop.unmasked[0]] = emitter.find_last_unmasked(builder, tile, *fused_loop.unmasked)
            emitter.emit_loops(builder, tile, [(d, step) for d, step in fused_loop.steps if d in dims], {})
    tile_body.emit_nest_ops(builder, [nest_ops[k] for k in positions if k >= next_position], tile)


@dataclass(frozen=True)
class _PartialReduction:
    """Partial results of a reduction along `reduced`: the buffer, the dimensions of its axes, the tile that it covers."""

    buffer: SSAValue
    dims: Sequence[int]
    reduced: int
    tile: Tile

    def ranges(self, builder: OpBuilder, tile: Tile) -> list[tuple[int, IterationRange]]:
        """Return the ranges of the buffer that hold the results of a subrange of the tile."""

        def start(d: int) -> Index:
            tile_start, subrange_start = self.tile[d].tile_offset, tile[d].tile_offset
            return 0 if d == self.reduced or subrange_start is tile_start else builder.subtract(subrange_start, tile_start)

        return [(d, IterationRange(start(d), tile[d].size)) for d in self.dims]


class _FusedLoopEmitter:
    """Emit the ops of a fused loop.

    Reductions other than contractions have separate partial results for each element of a step along their dimension.
    """

    def __init__(
        self, tile_body: TileBody, nest_ops: Sequence[NestOp], skips_masked: bool, loop_ends: Mapping[int, Index]
    ) -> None:
        self.tile_body = tile_body
        self.ops = nest_ops
        self.skips_masked = skips_masked
        self.loop_ends = loop_ends

    def emit_loops(
        self, builder: OpBuilder, tile: Tile, loops: Sequence[tuple[int, int]], partials: Mapping[Operation, _PartialReduction]
    ) -> None:
        """Emit nested loops over the tile, outermost first, with all ops in the innermost loop."""
        if not loops:
            masked_select = find_masked_select(self.ops) if self.skips_masked else None
            if masked_select is None:
                self.run(builder, tile, self.ops, partials)
            else:
                self.run_unless_masked(builder, tile, *masked_select, partials)
            return
        (d, step), *inner_loops = loops
        split_reductions = [op for op in self.ops if d in op.reductions and not op.is_contraction]
        # Reductions along contiguous memory have one partial sum per lane.
        contiguous_reductions = [op for op in split_reductions if any(a.stride(d) == 1 for a in op.inputs)]
        new_partials = {
            nest_op.op: self.allocate_partials(builder, nest_op, tile, d, min(step, tile[d].size))
            for nest_op in contiguous_reductions
        }
        # Ops without the dimension initialize its reductions, so they run before the loop.
        loop_ops = [op for op in self.ops if not split_reductions or d in op.dims]
        for nest_op in self.ops:
            if nest_op not in loop_ops:
                self.emit_nest_op(builder, nest_op, tile)
        skips_zero_blocks = self.skips_masked and self.ops[0].is_contraction
        emitter = _FusedLoopEmitter(self.tile_body, loop_ops, self.skips_masked and not skips_zero_blocks, self.loop_ends)
        if d in self.loop_ends:
            step_ranges = steps_between(builder, tile[d], step, 0, self.loop_ends[d], f"j{d}")
        else:
            step_ranges = steps(builder, tile[d], step, f"j{d}")
        for body_builder, step_range in step_ranges:
            step_tile = {**tile, d: step_range}
            if skips_zero_blocks:
                first_operand = self.tile_body.operand_view(body_builder, self.ops[0], 0, step_tile)
                body_builder = body_builder.branch(any_nonzero(body_builder, first_operand))
            # A shorter last step accumulates into the result itself: a load that is wider than the preceding store would stall.
            is_remainder = step_range.size != min(step, tile[d].size)
            emitter.emit_loops(body_builder, step_tile, inner_loops, partials if is_remainder else {**partials, **new_partials})
        for nest_op in contiguous_reductions:
            partial = new_partials[nest_op.op]
            destination = self.tile_body.output_view(builder, nest_op, tile)
            combine(builder.with_location(nest_op.op.location), nest_op, (partial.buffer, partial.dims), destination)

    def find_last_unmasked(self, builder: OpBuilder, tile: Tile, d: int, size: int) -> Index:
        """Emit a scan for the end of the last step of `size` iterations that is not fully masked.

        The first step always counts as unmasked: the softmax of a fully masked row needs at least one element.
        """
        masked_select = find_masked_select(self.ops)
        assert masked_select is not None
        nest_op, select = masked_select

        def updated_end(body_builder: OpBuilder, start: Index, size: int, end: Sequence[SSAValue]) -> Sequence[SSAValue]:
            step_tile = {**tile, d: tile[d].subrange(body_builder, start, size)}
            is_unmasked = _may_be_unmasked(body_builder, self.tile_body, nest_op, select, step_tile)
            return [body_builder.select(is_unmasked, body_builder.add(start, size), end[0])]

        (end,) = fold_steps(builder, (size, tile[d].size, size), [builder.value(size)], updated_end, f"j{d}")
        return end

    def run(
        self, builder: OpBuilder, tile: Tile, nest_ops: Iterable[NestOp], partials: Mapping[Operation, _PartialReduction]
    ) -> None:
        """Emit ops on a step; reductions in `partials` accumulate into their partial results."""
        for nest_op in nest_ops:
            if nest_op.op not in partials:
                self.emit_nest_op(builder, nest_op, tile)
                continue
            partial = partials[nest_op.op]
            partial_view = self.tile_body.subview(builder, partial.buffer, partial.ranges(builder, tile))
            self.emit_nest_op(builder, nest_op, tile, {nest_op.output_position: partial_view})

    def run_unless_masked(
        self,
        builder: OpBuilder,
        tile: Tile,
        last: NestOp,
        select: MaskedSelect,
        partials: Mapping[Operation, _PartialReduction],
    ) -> None:
        """Emit all ops on a step; if it is fully masked, a fill of the output of `last` replaces those up to `last`."""
        num_guarded = self.ops.index(last) + 1
        is_unmasked = _may_be_unmasked(builder, self.tile_body, last, select, tile)
        unmasked_builder, masked_builder = builder.if_else(is_unmasked)
        self.run(unmasked_builder, tile, self.ops[:num_guarded], partials)
        output, _ = self.tile_body.output_view(masked_builder, last, tile)
        fill(masked_builder, select.masked_value, output)
        self.run(builder, tile, self.ops[num_guarded:], partials)

    def allocate_partials(self, builder: OpBuilder, nest_op: NestOp, tile: Tile, d: int, step: int) -> _PartialReduction:
        """Allocate partial results of a reduction along `d`, filled with its identity."""
        _, result_dims = self.tile_body.output_view(builder, nest_op, tile)
        buffer = self.tile_body.allocate_partials(builder, nest_op, tile, result_dims, step)
        return _PartialReduction(buffer, [*result_dims, *([d] if step > 1 else [])], d, tile)

    def emit_nest_op(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView] | None = None
    ) -> None:
        self.tile_body.emit_op(builder.with_location(nest_op.op.location), nest_op, tile, operand_views)
