"""Cache blocking: a task runs its reduction block by block (kc); all its register tiles use a block while it is in cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from dlc.arrays import ALIGNMENT_BYTES
from dlc.ir import SSAValue
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.blocking.prefetch import NextBlockPrefetcher
from dlc.passes.tiling.blocking.zero_skipping import NonzeroSpans, branch_unless_masked
from dlc.passes.tiling.buffer_views import BufferView, copy, subview
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, TileSteps, nested_steps
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, leading_reduction
from dlc.passes.tiling.tile_body import LocalBuffer, TileBody
from dlc.passes.tiling.tile_sizes import TRANSPOSE_TILE_ELEMENTS
from dlc.passes.types import memref_of

# A function that emits the loops over the register tiles of a macro tile, and yields a builder and ranges for each.
RegisterTiles = Callable[[OpBuilder, Tile], TileSteps]
# Elements (f32) of a cache line, and maximum elements of a row per copy.
_CACHE_LINE_ELEMENTS, _MAX_COPIED_ELEMENTS = ALIGNMENT_BYTES // 4, 64
# The range of an axis of panels that has a single one.
_FIRST = IterationRange(0, 1)


class BlockedTask:
    """The code of tasks with cache blocks or panels: fill accumulators, add all blocks, run the epilogue.

    Between blocks, accumulators are stored in the destination, or in a buffer of the task if later ops transform
    them. With a single block each register tile runs all ops at once, and its accumulators stay in registers. The buffers of
    panels and accumulators have the size of a full task, `sizes`; partial tasks use a part of them.
    """

    def __init__(
        self, nest: SizedLoopNest, plan: BlockedTiles, builder: OpBuilder, sizes: Mapping[int, int], tiles: RegisterTiles
    ) -> None:
        reduction = leading_reduction(nest)
        assert reduction is not None
        self.nest = nest
        self.plan = plan
        self.tiles = tiles
        self.reduction = reduction
        self.panels = {k: _PackedPanel(nest, plan, reduction, k, {**sizes, **plan.macro_tile}, builder) for k in plan.panels}
        # Operands whose panel depends on the macro tile; the others are packed once per block.
        self.packed_per_macro_tile = [k for k, panel in self.panels.items() if plan.macro_tile.keys() & panel.shared_dims]
        self.packed_once = [k for k in self.panels if k not in self.packed_per_macro_tile]
        self.accumulators: dict[SSAValue, LocalBuffer] = {}
        root = reduction.output.root
        if plan.blocks and root in nest.local_buffers():
            dims = tuple(d for d in reduction.axes() if sizes[d] > 1)
            buffer = builder.alloca(memref_of(root).element_type, tuple(sizes[d] for d in dims), root.name_hint)
            self.accumulators[root] = LocalBuffer(buffer, dims, is_shared=True)
        self.prefetch = [NextBlockPrefetcher(nest, plan, reduction, k) for k in plan.prefetch]
        # The current task.
        self.tile: Tile = {}
        self.spans: NonzeroSpans | None = None

    def emit_task(self, builder: OpBuilder, tile: Tile) -> None:
        """Emit the code of a full or partial task."""
        k = self.plan.zero_trimmed_operand
        self.tile = tile
        self.spans = None if k is None else NonzeroSpans(self.reduction, k, self.plan, tile, builder)
        if self.plan.blocks:
            self.emit_blocks(builder)
        else:
            self.emit_unblocked(builder)

    def emit_unblocked(self, builder: OpBuilder) -> None:
        """Emit all ops on each register tile, with the whole reduction as one block."""
        reduction_ranges = {d: IterationRange(0, self.nest.extents[d]) for d in self.reduction.reductions}
        for body_builder, tile_body in self.packed_tile_bodies(builder, reduction_ranges):
            if self.plan.mask_operand is not None:
                body_builder = branch_unless_masked(body_builder, tile_body, self.plan.mask_operand)
            tile_body.run(body_builder)

    def emit_blocks(self, builder: OpBuilder) -> None:
        """Initialize the accumulators, add all blocks, then emit the following ops."""
        init_op, nest_op, *following_ops = self.nest.ops
        for body_builder, tile_body in self.tile_bodies(builder, self.tile, {}):
            tile_body.emit_nest_ops(body_builder, [init_op], tile_body.tile)
        reduction_ranges = {d: IterationRange(0, self.nest.extents[d]) for d in nest_op.reduced_dims}
        blocks = {d: self.plan.blocks.get(d, r.size) for d, r in reduction_ranges.items()}
        for block_builder, block_ranges in nested_steps(builder, reduction_ranges, blocks, "k"):
            block = {d: IterationRange(r.offset, r.size) for d, r in block_ranges.items()}
            for body_builder, tile_body in self.packed_tile_bodies(block_builder, block):
                tile_body.emit_nest_op(body_builder.with_location(nest_op.op.location), nest_op, tile_body.tile)
        for body_builder, tile_body in self.tile_bodies(builder, self.tile, {}) if following_ops else ():
            tile_body.make_locals(body_builder, excluded=self.accumulators)
            tile_body.emit_nest_ops(body_builder, following_ops, tile_body.tile)

    def packed_tile_bodies(self, builder: OpBuilder, block: Tile) -> Iterator[tuple[OpBuilder, TileBody]]:
        """Pack a block's operands; yield each register tile of the task, after emitting its prefetches."""
        for k in self.packed_once:
            self.panels[k].pack(builder, self.tile, block)
        if self.spans is not None:
            self.spans.find_spans(
                builder, block[self.spans.reduced], lambda ranges: self.tile_body({**self.tile, **ranges}, self.packed_once)
            )
        macro_tile = {d: self.plan.macro_tile[d] for d in self.plan.order if d in self.plan.macro_tile}
        for macro_builder, tile in nested_steps(builder, self.tile, macro_tile, "p"):
            for k in self.packed_per_macro_tile:
                self.panels[k].pack(macro_builder, tile, block)
            for tile_builder, tile_body in self.tile_bodies(macro_builder, tile, block):
                for operand in self.prefetch:
                    operand.emit_prefetches(tile_builder, tile, tile_body.tile, block)
                yield tile_builder, tile_body

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
        self.source = nest_op.operands[k]
        self.axes = nest_op.axes(k)
        access = nest_op.input_accesses[k]
        self.shared_dims = [d for d in self.axes if d not in nest_op.reductions]
        self.reduced_dims = [d for d in nest_op.reduced_dims if d in self.axes]
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
        outer_dims, inner_dims = self.reduced_dims, self.shared_dims
        if self.transposed_dim is not None:
            outer_dims, inner_dims = inner_dims, outer_dims
        ranges = {d: IterationRange(r.offset, r.size) for d, r in {**tile, **block}.items() if d in self.axes}
        sizes = {d: min(self._copy_size(d), ranges[d].size) for d in (*outer_dims, *inner_dims)}
        for body_builder, copied in nested_steps(builder, ranges, sizes, "c"):
            source = subview(body_builder, self.source, [(d, copied[d]) for d in self.axes])
            packed = {d: IterationRange(r.tile_offset, r.size) for d, r in copied.items()}
            copy(body_builder, source, self._view(body_builder, packed))

    def _copy_size(self, d: int) -> int:
        """Return the extent along a dimension of a copy, whose elements are contiguous or transposed in registers."""
        if d in self.shared_dims:
            return min(self.widths[d], _MAX_COPIED_ELEMENTS)
        if d != self.transposed_dim:
            return 1
        return _MAX_COPIED_ELEMENTS if self.is_row_layout else TRANSPOSE_TILE_ELEMENTS

    def view(self, builder: OpBuilder, tile: Tile) -> BufferView:
        """Return the view of the panel that a register tile reads, for all or some k iterations."""
        shared = {
            d: IterationRange(builder.subtract(tile[d].group_offset, self.origin[d]), tile[d].size) for d in self.shared_dims
        }
        return self._view(builder, shared | {d: IterationRange(tile[d].tile_offset, tile[d].size) for d in self.reduced_dims})

    def _view(self, builder: OpBuilder, ranges: Tile) -> BufferView:
        """Return the view of the elements in these ranges, whose offsets are those in the packed block."""
        panels: list[tuple[int, IterationRange]] = []
        interior: list[tuple[int, IterationRange]] = []
        for d in self.shared_dims:
            r, width = ranges[d], self.widths[d]
            if width == 1:
                panel, inner = r, _FIRST
            elif width == self.sizes[d]:
                panel, inner = _FIRST, r
            else:
                panel, inner = IterationRange(builder.floordiv(r.offset, width), 1), IterationRange(0, r.size)
            panels.append((d, panel))
            interior.append((d, inner))
        return subview(builder, self.buffer, [*panels, *((d, ranges[d]) for d in self.reduced_dims), *interior])


def _odd_number_of_lines(size: int) -> int:
    """Round a row up to an odd number of cache lines, so that adjacent rows map to different cache sets."""
    return (
        size + _CACHE_LINE_ELEMENTS + -size % _CACHE_LINE_ELEMENTS + (size // _CACHE_LINE_ELEMENTS % 2) * _CACHE_LINE_ELEMENTS
    )
