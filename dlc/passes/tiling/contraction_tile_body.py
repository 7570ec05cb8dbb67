"""A contraction by a work-group: items copy chunks of operands to local memory, then compute their register tiles.

Every item has one register tile or several (`tiles_per_item` of the plan). Along a dimension their distance is what
all items cover with one tile each, so that for each tile adjacent items access adjacent memory.

    fetch chunk 0;  for each chunk: { barrier;  store it to local memory;  barrier;  fetch the next chunk;  multiply }

Global loads are software-pipelined one chunk ahead: nothing waits for them until the items have multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from dlc.dialects.loop_attributes import UNROLLED
from dlc.dims import Size
from dlc.ir import UnitAttr, gpu
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import copy, fill
from dlc.passes.tiling.group_tile_body import GroupTileBody, WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile
from dlc.passes.tiling.local_memory_operands import FetchingItems, LocalMemoryOperand, delinearize
from dlc.passes.tiling.loop_nests import identity_of
from dlc.passes.tiling.plan import promoted_stage
from dlc.passes.tiling.tile_body import LocalBuffer


class _ItemTile(NamedTuple):
    """One of an item's register tiles: its index along each dimension, its ranges without remainders, its accumulators."""

    numbers: Mapping[int, int]
    tile: Tile
    sums: LocalBuffer


class ContractionTileBody(GroupTileBody):
    """All stages on the tile of a work-group, for a nest that begins with a contraction."""

    def __init__(self, group: WorkGroup, whole: Tile) -> None:
        super().__init__(group, whole)
        stage = promoted_stage(self.nest)
        assert stage is not None
        self.contraction = stage
        ((self.promoted, self.step),) = self.plan.promote.items()
        self.others = [x for x in stage.dims if x in stage.reductions and x != self.promoted]

    def run(self, builder: OpBuilder) -> None:
        stage = self.contraction
        sums = stage.output.root
        roots = self.local_roots()
        for root in roots:
            if root is not sums:
                self.make_local(builder, root, self.own)
        item_tiles = [self.item_tile(builder, numbers) for numbers in self.numbers()]
        self.accumulate(builder.with_location(stage.op.location), item_tiles)
        following_stages = self.nest.stages[self.nest.stages.index(stage) + 1 :]

        def finish(p: OpBuilder, t: Tile, sums_buffer: LocalBuffer) -> None:
            if sums in roots:
                self.local_buffers[sums] = sums_buffer
            else:
                destination = self.operand(p, stage, len(stage.op.operands) - 1, t)
                copy(
                    p,
                    self.window(
                        p, sums_buffer.buffer, [(x, IterationRange(t[x].tile_offset, t[x].size)) for x in sums_buffer.dims]
                    ),
                    destination,
                )
            self.stages(p, following_stages, t)

        for body_builder, group_tile in self.full_and_remainder_tiles(builder, self.whole, self.group.ragged):
            for item_tile in item_tiles:
                if (item_part := self.part_in_item_tile(body_builder, group_tile, item_tile)) is not None:
                    self.distribute(
                        body_builder,
                        item_part,
                        self.plan.order,
                        lambda p, t, sums_buffer=item_tile.sums: finish(p, t, sums_buffer),
                    )

    # Register tiles of an item

    def numbers(self) -> Iterator[dict[int, int]]:
        """Yield the index of each register tile of an item along every dimension."""
        counts = {d: self.plan.tiles_per_item.get(d, 1) for d in self.plan.order}
        for numbers in product(*map(range, counts.values())):
            yield dict(zip(counts, numbers, strict=True))

    def item_tile(self, builder: OpBuilder, numbers: Mapping[int, int]) -> _ItemTile:
        """Return a register tile with initialized accumulators."""
        tile = dict(self.unclipped_tile(builder))
        for d, number in numbers.items():
            r, start = tile[d], number * self.plan.item_tile_stride(d)
            tile[d] = IterationRange(builder.add(r.offset, start), r.size, 0, builder.add(r.group_offset, start))
        root = self.contraction.output.root
        self.make_local(builder, root, self.own)
        sums = self.local_buffers.pop(root)
        fill(builder, identity_of(self.contraction, self.nest), sums.buffer)
        return _ItemTile(numbers, tile, sums)

    def part_in_item_tile(self, builder: OpBuilder, whole: Tile, item_tile: _ItemTile) -> Tile | None:
        """Return the part of a group tile that is in this register tile of some item; None if there is none."""
        item_part = dict(whole)
        for d, number in item_tile.numbers.items():
            r, start = whole[d], number * self.plan.item_tile_stride(d)
            size = min(self.plan.item_tile_stride(d), r.size - start)
            if size <= 0:
                return None
            item_part[d] = IterationRange(builder.add(r.offset, start), size, r.tile_offset, builder.add(r.group_offset, start))
        return item_part

    # Chunks of the reduction

    def accumulate(self, builder: OpBuilder, item_tiles: Sequence[_ItemTile]) -> None:
        """Accumulate the products: whole chunks of the promoted dimension, then its remainder."""
        stage, d = self.contraction, self.promoted
        num_chunks, remainder = divmod(self.nest.extents[d], self.step)
        items = FetchingItems(self.group.num_items, self.group.linear_index, self.group.shared)
        origin = {x: self.whole[x].offset for x in self.plan.order}
        inputs = [k for k, a in enumerate(stage.accesses[:-1]) if a is not None and a.terms]
        operands = {k: LocalMemoryOperand(self.plan, stage, k, d, origin, self.ends(), items) for k in inputs}
        self.accumulate_parts(builder, operands, item_tiles, IterationRange(0, self.step), num_chunks)
        if remainder:
            self.accumulate_parts(builder, operands, item_tiles, IterationRange(num_chunks * self.step, remainder), 1)

    def ends(self) -> dict[int, Size]:
        """Return the extents of dimensions along which a group may cover more than there is."""
        partial_dims = {x for x in self.plan.order if self.whole[x].size < self.plan.group_tile(x)}
        return {x: self.nest.extents[x] for x in (*self.group.ragged, *partial_dims)} | dict(self.group.dynamic_extents)

    def accumulate_parts(
        self,
        builder: OpBuilder,
        operands: Mapping[int, LocalMemoryOperand],
        item_tiles: Sequence[_ItemTile],
        first: IterationRange,
        count: int,
    ) -> None:
        """Accumulate `count` chunks, the first of them `first`, for each iteration of the other reduced dimensions."""
        counts = [*(self.nest.extents[x] for x in self.others), count]

        def chunk_ranges(p: OpBuilder, linear_index: Index) -> Tile:
            *outer, inner = delinearize(p, linear_index, 0, counts)
            reduced_range = IterationRange(p.add(p.multiply(inner, first.size), first.offset), first.size)
            return {self.promoted: reduced_range, **{x: IterationRange(i, 1) for x, i in zip(self.others, outer, strict=True)}}

        def fetch(p: OpBuilder, linear_index: Index) -> None:
            for operand in operands.values():
                operand.fetch(p, chunk_ranges(p, linear_index))

        def store(p: OpBuilder) -> None:
            p.insert(gpu.BarrierOp())
            for operand in operands.values():
                operand.store(p, first.size)
            p.insert(gpu.BarrierOp())

        for operand in operands.values():
            operand.prepare(builder, first.size)
        fetch(builder, 0)
        last = prod(counts) - 1
        if last == 0:
            store(builder)
            self.multiply(builder, operands, item_tiles, chunk_ranges(builder, 0))
            return
        loop = builder.loop(0, last + 1, 1, name="part")
        inside, linear_index = builder.inside(loop.body.block), loop.body.block.args[0]
        store(inside)
        more = inside.branch(inside.compare(linear_index, "ult", last))
        fetch(more, more.add(linear_index, 1))
        self.multiply(inside, operands, item_tiles, chunk_ranges(inside, linear_index))
        inside.yield_()

    def multiply(
        self, builder: OpBuilder, operands: Mapping[int, LocalMemoryOperand], item_tiles: Sequence[_ItemTile], part: Tile
    ) -> None:
        """Accumulate the products of a chunk in local memory into each register tile, step by step."""
        stage, d = self.contraction, self.promoted
        loop = builder.loop(0, part[d].size, 1, name=f"k{d}")
        loop.attributes[UNROLLED] = UnitAttr()
        inside, k = builder.inside(loop.body.block), loop.body.block.args[0]
        step = {**part, d: IterationRange(inside.add(part[d].offset, k), 1, 0, k)}
        for item_tile in item_tiles:
            tile = {**item_tile.tile, **step}
            windows = {n: operand.window(inside, tile) for n, operand in operands.items()}
            windows[len(stage.op.operands) - 1] = item_tile.sums.buffer, item_tile.sums.dims
            self.emit(inside, stage, {x: tile[x] for x in stage.dims}, windows)
        inside.yield_()
