"""The code of a work-group's tile, distributed over its work-items: each computes its own register tile.

Barriers are in uniform control flow only, since drivers miscompile barriers in branches. So each op of a group with
barriers has its own bounds guard, inside which a work-item computes all, a part or nothing of its tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.item_tile_body import ItemTileBody
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, full_or_remainder
from dlc.passes.tiling.tile_body import Continuation


class GroupTileBody(ItemTileBody):
    """All ops on the tile of a work-group, `group_tile`; `tile` is the register tile of a work-item."""

    def __init__(self, group: WorkGroup, plan: GroupTiles, group_tile: Tile) -> None:
        dynamic_extents = {d: extent for d, extent in group.dynamic_extents.items() if d not in plan.distributed_dims}
        super().__init__(group.nest, plan, {d: IterationRange(0, plan.tile(d)) for d in group_tile}, dynamic_extents)
        self.plan = plan
        self.group = group
        self.item_sizes = {d: r.size for d, r in self.tile.items()}
        self.group_tile = {**self.tile, **group_tile}

    def run(self, builder: OpBuilder) -> None:
        for root in self.local_roots():
            self.make_local(builder, root, self.item_sizes)
        self.for_each_item(builder, lambda item_builder, item_tile: self.emit_nest_ops(item_builder, self.nest.ops, item_tile))

    def for_each_item(self, builder: OpBuilder, body: Continuation) -> None:
        """Emit `body` for the work-item's subtile of the group tile, under a guard if it may be empty."""
        for inner_builder, full_tile in self.full_and_remainder_tiles(builder, self.group_tile, self.group.partial_dims):
            self.distribute(inner_builder, full_tile, self.plan.order, body)

    def full_and_remainder_tiles(
        self, builder: OpBuilder, full_tile: Tile, partial_dims: Sequence[int]
    ) -> Iterator[tuple[OpBuilder, Tile]]:
        """Yield the tile of a full group, and the partial tiles of the last groups along these dimensions."""
        if not partial_dims:
            yield builder, full_tile
            return
        d, *inner_dims = partial_dims
        for inner_builder, tile_range in full_or_remainder(builder, full_tile[d], self.nest.extents[d]):
            yield from self.full_and_remainder_tiles(inner_builder, {**full_tile, d: tile_range}, inner_dims)

    def distribute(self, builder: OpBuilder, tile: Tile, dims: Sequence[int], body: Continuation) -> None:
        """Emit `body` for the work-item's subtile along these dimensions, under a guard if it may be empty."""
        if not dims:
            body(builder, tile)
            return
        d, *inner_dims = dims
        i = self.group.item_indices.get(d, 0)
        if d in self.group.dynamic_extents:
            inner_builder = self.guard_index(builder, d, builder.add(tile[d].offset, i))
            self.distribute(inner_builder, {**tile, d: tile[d].subrange(inner_builder, i, 1)}, inner_dims, body)
            return
        for inner_builder, subrange in item_subranges(builder, tile[d], i, self.plan.items.get(d, 1), self.plan.tile(d)):
            self.distribute(inner_builder, {**tile, d: subrange}, inner_dims, body)

    def guard_index(self, builder: OpBuilder, d: int, index: Index) -> OpBuilder:
        """Guard `index < extent` if the extent is symbolic; return the builder inside the guard."""
        extent = self.group.dynamic_extents.get(d)
        return builder if extent is None else builder.branch(builder.compare(index, "ult", builder.size(extent)))

    def unclipped_tile(self, builder: OpBuilder) -> Tile:
        """Return a work-item's register tile without clipping to the extents."""
        starts = {d: builder.multiply(self.group.item_indices.get(d, 0), self.plan.tile(d)) for d in self.plan.order}
        item_ranges = {d: self.group_tile[d].subrange(builder, start, self.plan.tile(d)) for d, start in starts.items()}
        return {**self.tile, **{d: IterationRange(r.offset, r.size, 0, r.group_offset) for d, r in item_ranges.items()}}


def item_subranges(
    builder: OpBuilder, full_range: IterationRange, i: Index, n: int, step: int
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield the subrange of work-item `i`: at most `step` iterations each for `n` work-items; guarded unless all are equal."""
    num_full_subranges, remainder = divmod(full_range.size, step)
    if num_full_subranges == n or n == 1:
        # A single work-item takes the whole range.
        start, size = builder.multiply(i, step), step if num_full_subranges else remainder
        yield (
            builder,
            IterationRange(
                builder.add(full_range.offset, start), size, full_range.tile_offset, builder.add(full_range.group_offset, start)
            ),
        )
        return
    start = builder.multiply(i, step)
    for relation, size in (("ult", step), ("eq", remainder)):
        if size and (relation == "eq" or num_full_subranges):
            inner_builder = builder.branch(builder.compare(i, relation, num_full_subranges))
            yield (
                inner_builder,
                IterationRange(
                    inner_builder.add(full_range.offset, start),
                    size,
                    full_range.tile_offset,
                    inner_builder.add(full_range.group_offset, start),
                ),
            )
