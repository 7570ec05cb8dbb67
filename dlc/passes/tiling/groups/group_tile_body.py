"""The code of a work-group's tile, distributed over its work-items: each computes its own register tile.

Barriers are in uniform control flow only, since drivers miscompile barriers in branches. So each op of a group with
barriers has its own bounds guard, inside which a work-item computes all, a part or nothing of its tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dlc.dialects.loop_attributes import UNROLLED
from dlc.ir import Operation, UnitAttr
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import (
    IterationRange,
    RangeSteps,
    Tile,
    TileSteps,
    full_and_partial_tiles,
    nested,
)
from dlc.passes.tiling.loop_nests import NestOp
from dlc.passes.tiling.tile_body import TileBody

# Maximum iterations of a reduction that a work-item unrolls.
_MAX_UNROLLED_REDUCTION_STEPS = 64


class ItemTileBody(TileBody):
    """All ops on one register tile of a work-item, with unrolled short reductions."""

    def annotate(self, op: Operation, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView]) -> None:
        reads_own_buffers = any(k < len(nest_op.op.operands) - 1 for k in operand_views)
        if not reads_own_buffers and 1 < prod(tile[d].size for d in nest_op.reductions) <= _MAX_UNROLLED_REDUCTION_STEPS:
            # Unrolled global loads are issued together.
            op.attributes[UNROLLED] = UnitAttr()


class GroupTileBody(ItemTileBody):
    """All ops on the tile of a work-group, `group_tile`; `tile` is the register tile of a work-item."""

    def __init__(self, group: WorkGroup, plan: GroupTiles, group_tile: Tile) -> None:
        dynamic_extents = {d: extent for d, extent in group.dynamic_extents.items() if d not in plan.distributed_dims}
        super().__init__(group.nest, plan, {d: IterationRange(0, plan.tile(d)) for d in group_tile}, dynamic_extents)
        self.plan = plan
        self.group = group
        self.group_tile: Tile = {**self.tile, **group_tile}

    def run(self, builder: OpBuilder) -> None:
        self.make_locals(builder)
        for item_builder, item_tile in self.item_tiles(builder):
            self.emit_nest_ops(item_builder, self.nest.ops, item_tile)

    def item_tiles(self, builder: OpBuilder) -> TileSteps:
        """Yield the work-item's subtile of the group tile, under a guard if it may be empty."""
        for inner_builder, full_tile in self.full_and_partial_group_tiles(builder):
            yield from self.distribute(inner_builder, full_tile)

    def full_and_partial_group_tiles(self, builder: OpBuilder) -> TileSteps:
        """Yield the tile of a full group, and the partial tiles of the last groups."""
        return full_and_partial_tiles(builder, self.group_tile, self.group.partial_dims, self.nest.extents)

    def distribute(self, builder: OpBuilder, full_tile: Tile) -> TileSteps:
        """Yield the work-item's subtile of a tile, under a guard if it may be empty."""

        def item_steps(b: OpBuilder, tile: Tile, d: int) -> RangeSteps:
            i = self.group.item_indices.get(d, 0)
            if d not in self.group.dynamic_extents:
                yield from item_subranges(b, tile[d], i, self.plan.items.get(d, 1), self.plan.tile(d))
                return
            guarded = self.guard_index(b, d, b.add(tile[d].offset, i))
            yield guarded, tile[d].subrange(guarded, i, 1)

        return nested(builder, full_tile, self.plan.order, item_steps)

    def guard_index(self, builder: OpBuilder, d: int, index: Index) -> OpBuilder:
        """Guard `index < extent` if the extent is symbolic; return the builder inside the guard."""
        extent = self.group.dynamic_extents.get(d)
        return builder if extent is None else builder.branch(builder.compare(index, "ult", builder.size(extent)))

    def unclipped_tile(self, builder: OpBuilder) -> Tile:
        """Return a work-item's register tile without clipping to the extents."""
        starts = {d: builder.multiply(self.group.item_indices.get(d, 0), self.plan.tile(d)) for d in self.plan.order}
        return dict(self.tile) | {d: self.group_tile[d].tile_at(builder, i, self.plan.tile(d)) for d, i in starts.items()}


def item_subranges(builder: OpBuilder, full_range: IterationRange, i: Index, n: int, step: int) -> RangeSteps:
    """Yield the subrange of work-item `i`: at most `step` iterations each for `n` work-items; guarded unless all are equal."""
    num_full_subranges, remainder = divmod(full_range.size, step)
    start = builder.multiply(i, step)
    if num_full_subranges == n or n == 1:
        # A single work-item takes the whole range.
        yield builder, full_range.tile_at(builder, start, step if num_full_subranges else remainder)
        return
    for relation, size in (("ult", step), ("eq", remainder)):
        if size and (relation == "eq" or num_full_subranges):
            inner_builder = builder.branch(builder.compare(i, relation, num_full_subranges))
            yield inner_builder, full_range.tile_at(inner_builder, start, size)
