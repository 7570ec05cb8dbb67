"""Cache blocking: a task runs its reduction block by block (kc); all its register tiles use a block while it is in cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from dlc.ir import SSAValue
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.blocking.prefetch import NextBlockPrefetcher
from dlc.passes.tiling.blocking.zero_skipping import NonzeroSpans, branch_unless_masked
from dlc.passes.tiling.buffer_views import BufferView, copy
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, steps
from dlc.passes.tiling.leading_reduction import leading_reduction
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.tiling.structured_ops import operand_maps
from dlc.passes.tiling.tile_body import LocalBuffer, TileBody, axis_range
from dlc.passes.types import memref_of

# A function that emits the loops over the register tiles of a macro tile, and yields a builder and ranges for each.
RegisterTiles = Callable[[OpBuilder, Tile], Iterator[tuple[OpBuilder, Tile]]]
# Contiguous elements per lane of a block that is transposed in registers.
_TRANSPOSED_ELEMENTS = 8
# Elements (f32) of a cache line, and maximum elements of a row per copy.
_CACHE_LINE_ELEMENTS, _MAX_COPIED_ELEMENTS = 16, 64


class TaskBuffers:
    """The buffers of a task with `blocks` or `panels`: packed panels, and accumulators that later ops read.

    `sizes` are the extents of a full task. Partial tasks use a part of the buffers.
    """

    def __init__(self, nest: SizedLoopNest, plan: BlockedTiles, builder: OpBuilder, sizes: Mapping[int, int]) -> None:
        reduction = leading_reduction(nest)
        assert reduction is not None
        self.reduction = reduction
        self.panels = {k: _PackedPanel(nest, plan, reduction, k, {**sizes, **plan.macro_tile}, builder) for k in plan.panels}
        self.accumulators: dict[SSAValue, LocalBuffer] = {}
        root = reduction.output.root
        if plan.blocks and root in nest.local_buffers():
            dims = tuple(d for d in TileBody(nest, plan, {}).axes_of(root) if sizes[d] > 1)
            buffer = builder.alloca(memref_of(root).element_type, tuple(sizes[d] for d in dims), root.name_hint)
            self.accumulators[root] = LocalBuffer(buffer, dims, is_shared=True)


class BlockedTask:
    """One task of a plan with cache blocks or panels: fill accumulators, add all blocks, run the epilogue.

    Between blocks, accumulators are stored in the destination, or in a buffer of the task if later ops transform
    them. With a single block each register tile runs all ops at once, and its accumulators stay in registers.
    """

    def __init__(
        self,
        nest: SizedLoopNest,
        plan: BlockedTiles,
        builder: OpBuilder,
        tile: Tile,
        tiles: RegisterTiles,
        buffers: TaskBuffers,
    ) -> None:
        self.nest = nest
        self.plan = plan
        self.builder = builder
        self.tile = tile
        self.tiles = tiles
        self.reduction = buffers.reduction
        self.panels = buffers.panels
        # Operands whose panel depends on the macro tile; the others are packed once per block.
        self.packed_per_macro_tile = [k for k, panel in self.panels.items() if plan.macro_tile.keys() & panel.shared_dims]
        self.packed_once = [k for k in self.panels if k not in self.packed_per_macro_tile]
        self.accumulators = buffers.accumulators
        self.prefetch = [NextBlockPrefetcher(nest, plan, self.reduction, k) for k in plan.prefetch]
        self.spans = (
            None
            if plan.zero_trimmed_operand is None
            else NonzeroSpans(self.reduction, plan.zero_trimmed_operand, plan, tile, builder)
        )

    def run(self) -> None:
        if self.plan.blocks:
            self.run_blocked()
        else:
            self.run_unblocked()

    def run_unblocked(self) -> None:
        """Run all ops on each register tile, with the whole reduction as one block."""
        reduction_ranges = {d: IterationRange(0, self.nest.extents[d]) for d in self.reduction.reductions}
        for body_builder, tile_body in self.packed_tile_bodies(self.builder, reduction_ranges):
            tile_body.run(
                body_builder
                if self.plan.mask_operand is None
                else branch_unless_masked(body_builder, tile_body, self.plan.mask_operand)
            )

    def find_spans(self, builder: OpBuilder, block: Tile) -> None:
        """Find the nonzero spans of a block, if the plan trims zeros."""
        if self.spans is not None:
            self.spans.find_spans(
                builder, block[self.spans.reduced], lambda ranges: self.tile_body({**self.tile, **ranges}, self.packed_once)
            )

    def run_blocked(self) -> None:
        """Initialize the accumulators, add all blocks, then run the following ops."""
        init_op, _, *following_ops = self.nest.ops
        for body_builder, tile_body in self.tile_bodies(self.builder, self.tile, {}):
            tile_body.emit_nest_ops(body_builder, [init_op], tile_body.tile)
        self.emit_blocks(self.builder, [d for d in self.reduction.dims if d in self.reduction.reductions], {})
        for body_builder, tile_body in self.tile_bodies(self.builder, self.tile, {}) if following_ops else ():
            for root in tile_body.local_roots():
                if root not in self.accumulators:
                    tile_body.make_local(body_builder, root, {d: r.size for d, r in tile_body.tile.items()})
            tile_body.emit_nest_ops(body_builder, following_ops, tile_body.tile)

    def emit_blocks(self, builder: OpBuilder, dims: Sequence[int], block: Tile) -> None:
        """Emit the loops over the blocks of the reduction, and the reduction op inside."""
        if dims:
            d, *inner_dims = dims
            extent = self.nest.extents[d]
            for body_builder, step_range in steps(builder, IterationRange(0, extent), self.plan.blocks.get(d, extent), f"k{d}"):
                self.emit_blocks(body_builder, inner_dims, {**block, d: IterationRange(step_range.offset, step_range.size)})
            return
        nest_op = self.reduction
        for body_builder, tile_body in self.packed_tile_bodies(builder, block):
            tile_body.emit_nest_op(
                body_builder.with_location(nest_op.op.location), nest_op, {d: tile_body.tile[d] for d in nest_op.dims if d >= 0}
            )

    def packed_tile_bodies(self, builder: OpBuilder, block: Tile) -> Iterator[tuple[OpBuilder, TileBody]]:
        """Pack a block's operands; yield each register tile of the task, after emitting its prefetches."""
        for k in self.packed_once:
            self.panels[k].pack(builder, self.tile, block)
        self.find_spans(builder, block)
        for macro_builder, tile in self.macro_tiles(
            builder, self.tile, [d for d in self.plan.order if d in self.plan.macro_tile]
        ):
            for k in self.packed_per_macro_tile:
                self.panels[k].pack(macro_builder, tile, block)
            for tile_builder, tile_body in self.tile_bodies(macro_builder, tile, block):
                for operand in self.prefetch:
                    operand.emit_prefetches(tile_builder, tile, tile_body.tile, block)
                yield tile_builder, tile_body

    def macro_tiles(self, builder: OpBuilder, tile: Tile, dims: Sequence[int]) -> Iterator[tuple[OpBuilder, Tile]]:
        """Emit the loops over the macro tiles of the task; yield the ranges of each."""
        if not dims:
            yield builder, tile
            return
        d, *inner_dims = dims
        for body_builder, step_range in steps(builder, tile[d], self.plan.macro_tile[d], f"p{d}"):
            yield from self.macro_tiles(body_builder, {**tile, d: step_range}, inner_dims)

    def tile_bodies(self, builder: OpBuilder, tile: Tile, block: Tile) -> Iterator[tuple[OpBuilder, TileBody]]:
        """Yield the body of each register tile of a macro tile, for one block of the reduction."""
        for body_builder, ranges in self.tiles(builder, tile):
            tile_body = self.tile_body(
                {**{d: IterationRange(r.offset, r.size, 0, r.tile_offset) for d, r in ranges.items()}, **block}, self.panels
            )
            if self.spans is not None and block:
                tile_body.spans = self.spans.of(body_builder, tile_body.tile)
            yield body_builder, tile_body

    def tile_body(self, tile: Tile, packed_operands: Collection[int]) -> TileBody:
        """Return the body of a register tile that reads `packed_operands` from their panels."""
        tile_body = TileBody(self.nest, self.plan, tile)
        tile_body.local_buffers |= self.accumulators
        tile_body.copies |= {(self.reduction.op, k): self.panels[k].view for k in packed_operands}
        return tile_body


class _PackedPanel:
    """A packed copy of an operand's block, in the order in which register tiles read it.

    Its axes are the tile, the reduced dimensions, and the offset in the tile.
    """

    def __init__(
        self, nest: SizedLoopNest, plan: BlockedTiles, nest_op: NestOp, k: int, sizes: Mapping[int, int], builder: OpBuilder
    ) -> None:
        self.plan = plan
        self.nest_op = nest_op
        self.k = k
        self.source = nest_op.op.operands[k]
        full_ranges = {d: IterationRange(0, e) for d, e in nest.extents.items()}
        self.axes = [axis_range(None, e, nest_op.dims, full_ranges)[0] for e in operand_maps(nest_op.op)[k].results]
        access = nest_op.accesses[k]
        assert access is not None
        self.shared_dims = [d for d in self.axes if d not in nest_op.reductions]
        self.reduced_dims = [d for d in nest_op.dims if d in self.axes and d in nest_op.reductions]
        # The reduced dimension that is contiguous in memory, if the lanes are not.
        contiguous_dims = [d for d in self.reduced_dims if access.stride(d) == 1]
        self.transposed_dim = contiguous_dims[0] if contiguous_dims else None
        # Operands that are read as vectors have panels as wide as a register tile. Operands whose elements are broadcast
        # stay in rows, padded to an odd number of cache lines: rows along the reduction, or one panel of full width.
        has_lanes = any(nest_op.output.stride(d) == 1 for d in self.shared_dims)
        self.is_row_layout = self.transposed_dim is not None and not has_lanes
        row_dim = next((d for d in self.axes if access.stride(d) == 1 and not has_lanes), None)
        self.sizes = {d: sizes[d] for d in self.shared_dims}
        self.widths = {d: 1 if self.is_row_layout else sizes[d] if d == row_dim else plan.tile(d) for d in self.shared_dims}
        block_sizes = {d: plan.blocks.get(d, nest.extents[d]) for d in self.reduced_dims}
        shape = (
            *(-(-sizes[d] // self.widths[d]) for d in self.shared_dims),
            *(_odd_number_of_lines(size) if d == row_dim else size for d, size in block_sizes.items()),
            *(_odd_number_of_lines(self.widths[d]) if d == row_dim else self.widths[d] for d in self.shared_dims),
        )
        self.buffer = builder.alloca(memref_of(self.source).element_type, shape, "panel")
        # The offset of the packed macro tile in the task.
        self.origin: Mapping[int, Index] = {}

    def pack(self, builder: OpBuilder, tile: Tile, block: Tile) -> None:
        """Pack the elements of a block that a macro tile needs, in memory order unless lanes are transposed."""
        self.origin = {d: tile[d].tile_offset for d in self.shared_dims}
        dims = (
            [*self.reduced_dims, *self.shared_dims] if self.transposed_dim is None else [*self.shared_dims, *self.reduced_dims]
        )
        self._emit_copies(builder, {**tile, **block}, {}, dims)

    def _emit_copies(self, builder: OpBuilder, full_ranges: Tile, ranges: Tile, dims: Sequence[int]) -> None:
        if dims:
            d, *inner_dims = dims
            transposed_step = (
                (_MAX_COPIED_ELEMENTS if self.is_row_layout else _TRANSPOSED_ELEMENTS) if d == self.transposed_dim else 1
            )
            step = min(self.widths[d], _MAX_COPIED_ELEMENTS) if d in self.shared_dims else transposed_step
            block_range = full_ranges[d]
            for body_builder, step_range in steps(
                builder, IterationRange(block_range.offset, block_range.size), min(step, block_range.size), f"c{d}"
            ):
                self._emit_copies(body_builder, full_ranges, {**ranges, d: step_range}, inner_dims)
            return
        axis_ranges = [(d, ranges[d]) for d in self.axes]
        offsets, sizes = [r.offset for _, r in axis_ranges], [r.size for _, r in axis_ranges]
        drop = [i for i, size in enumerate(sizes) if size == 1]
        source = builder.subview(self.source, offsets, sizes, drop), [d for d, r in axis_ranges if r.size > 1]
        copy(builder, source, self._view(builder, {d: (r.tile_offset, r.size) for d, r in ranges.items()}))

    def view(self, builder: OpBuilder, tile: Tile) -> BufferView:
        """Return the view of the panel that a register tile reads, for all or some k iterations."""
        ranges = {d: (builder.subtract(tile[d].group_offset, self.origin[d]), tile[d].size) for d in self.shared_dims}
        return self._view(builder, ranges | {d: (tile[d].tile_offset, tile[d].size) for d in self.reduced_dims})

    def _view(self, builder: OpBuilder, ranges: dict[int, tuple[Index, int]]) -> BufferView:
        panels: list[tuple[Index, int]] = []
        interior: list[tuple[Index, int]] = []
        for d in self.shared_dims:
            start, size = ranges[d]
            width = self.widths[d]
            is_single_panel = width == self.sizes[d]
            panels.append((start, size) if width == 1 else (0 if is_single_panel else builder.floordiv(start, width), 1))
            interior.append((0, 1) if width == 1 else (start if is_single_panel else 0, size))
        axis_ranges = [*panels, *(ranges[d] for d in self.reduced_dims), *interior]
        dims = [*self.shared_dims, *self.reduced_dims, *self.shared_dims]
        drop = [i for i, (_, size) in enumerate(axis_ranges) if size == 1]
        view = builder.subview(self.buffer, [o for o, _ in axis_ranges], [size for _, size in axis_ranges], drop)
        return view, [d for d, (_, size) in zip(dims, axis_ranges, strict=True) if size > 1]


def _odd_number_of_lines(size: int) -> int:
    """Round a row up to an odd number of cache lines, so that adjacent rows map to different cache sets."""
    return (
        size + _CACHE_LINE_ELEMENTS + -size % _CACHE_LINE_ELEMENTS + (size // _CACHE_LINE_ELEMENTS % 2) * _CACHE_LINE_ELEMENTS
    )
