"""A contraction by a work-group: work-items copy chunks of operands to local memory, then compute their register tiles.

A work-item has one register tile or several (`tiles_per_item` of the plan). The tiles of all work-items are
interleaved, so that adjacent work-items access adjacent memory.

    fetch chunk 0;  for each chunk: { barrier;  store it to local memory;  barrier;  fetch the next chunk;  multiply }

Global loads are software-pipelined: a chunk is fetched while the work-items multiply the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import NamedTuple

from dlc.dialects.loop_attributes import UNROLLED
from dlc.ir import UnitAttr, gpu
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import copy, fill
from dlc.passes.tiling.groups.group_tile_body import GroupTileBody
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.local_memory_operands import LocalMemoryOperand, delinearize
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile
from dlc.passes.tiling.loop_nests import SizedLoopNest, identity_of, promoted_contraction
from dlc.passes.tiling.plan import size_text
from dlc.passes.tiling.tile_body import LocalBuffer
from dlc.shapes.dims import Size
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class PromotedTiles(GroupTiles):
    """Register tiles of a contraction whose operands are copied to local memory in chunks of a reduced dimension.

    Attributes:
        promoted_dim: The reduced dimension.
        chunk_size: The k iterations per chunk.
        tiles_per_item: The number of register tiles of a work-item along shared dimensions; the tiles of different
            work-items are interleaved. 1 without an entry.
    """

    promoted_dim: int
    chunk_size: int
    tiles_per_item: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def needs_barriers(self) -> bool:
        return True

    def group_tile(self, d: int) -> int:
        return self.item_tile_stride(d) * self.tiles_per_item.get(d, 1)

    def check(self, nest: SizedLoopNest) -> None:
        for d, n in self.tiles_per_item.items():
            if d not in nest.shared_dims or n < 1:
                raise ValueError(f"tiles_per_item[d{d}] = {n}: must be a shared dimension")
        super().check(nest)
        contraction = promoted_contraction(nest)
        if contraction is None:
            raise ValueError(f"promoted_dim d{self.promoted_dim}: the nest must begin with a contraction of plain operands")
        d, size = self.promoted_dim, self.chunk_size
        if d not in contraction.reductions or not 1 <= size <= nest.extents[d] or nest.dynamic_dims & contraction.reductions:
            raise ValueError(
                f"promoted_dim d{d} in chunks of {size}: must be a reduced dimension, all of them static, "
                "with 1 ≤ size ≤ its extent"
            )

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        if self.tiles_per_item:
            sizes = size_text(self.tiles_per_item)
            yield f"register tiles per work-item, interleaved with those of the other work-items: {sizes}"
        yield f"promoted to local memory, shared by the work-items of a group: d{self.promoted_dim}: {self.chunk_size}"


class _ItemTile(NamedTuple):
    """One register tile of an item: its index along each dimension, its ranges (not clipped), and its accumulators."""

    indices: Mapping[int, int]
    tile: Tile
    accumulators: LocalBuffer


class PromotedTileBody(GroupTileBody):
    """All ops on the tile of a work-group, for a nest that begins with a contraction."""

    def __init__(self, group: WorkGroup, plan: PromotedTiles, group_tile: Tile) -> None:
        super().__init__(group, plan, group_tile)
        self.promoted_plan = plan
        nest_op = promoted_contraction(self.nest)
        assert nest_op is not None
        self.contraction = nest_op
        self.promoted, self.chunk_size = plan.promoted_dim, plan.chunk_size
        self.outer_reductions = [x for x in nest_op.reduced_dims if x != self.promoted]

    def run(self, builder: OpBuilder) -> None:
        nest_op = self.contraction
        output_root = nest_op.output.root
        self.make_locals(builder, excluded=(output_root,))
        item_tiles = [self.make_item_tile(builder, indices) for indices in self.tile_indices()]
        self.accumulate(builder.with_location(nest_op.op.location), item_tiles)
        for body_builder, group_tile in self.full_and_partial_group_tiles(builder):
            for item_tile in item_tiles:
                if (clipped_tile := self.clip_to_item_tile(body_builder, group_tile, item_tile)) is not None:
                    for epilogue_builder, tile in self.distribute(body_builder, clipped_tile):
                        self.emit_epilogue(epilogue_builder, tile, item_tile.accumulators)

    def emit_epilogue(self, builder: OpBuilder, tile: Tile, accumulators: LocalBuffer) -> None:
        """Run the ops after the contraction (or only a store) on the accumulators of a tile."""
        nest_op, root = self.contraction, self.contraction.output.root
        if root in self.nest.local_buffers():
            self.local_buffers[root] = accumulators
        else:
            destination = self.output_view(builder, nest_op, tile)
            ranges = [(x, IterationRange(tile[x].tile_offset, tile[x].size)) for x in accumulators.dims]
            copy(builder, self.subview(builder, accumulators.buffer, ranges), destination)
        self.emit_nest_ops(builder, self.nest.ops[self.nest.ops.index(nest_op) + 1 :], tile)

    # Register tiles of a work-item

    def tile_indices(self) -> Iterator[dict[int, int]]:
        """Yield the index of each register tile of a work-item along every dimension."""
        counts = {d: self.promoted_plan.tiles_per_item.get(d, 1) for d in self.plan.order}
        for indices in product(*map(range, counts.values())):
            yield dict(zip(counts, indices, strict=True))

    def make_item_tile(self, builder: OpBuilder, indices: Mapping[int, int]) -> _ItemTile:
        """Return the register tile of a work-item at these indices, with initialized accumulators."""
        tile = dict(self.unclipped_tile(builder))
        for d, index in indices.items():
            tile[d] = tile[d].tile_at(builder, index * self.plan.item_tile_stride(d), tile[d].size)
        root = self.contraction.output.root
        self.make_local(builder, root)
        accumulators = self.local_buffers.pop(root)
        fill(builder, identity_of(self.contraction, self.nest), accumulators.buffer)
        return _ItemTile(indices, tile, accumulators)

    def clip_to_item_tile(self, builder: OpBuilder, group_tile: Tile, item_tile: _ItemTile) -> Tile | None:
        """Return the part of a group tile that the work-items' register tiles at these indices cover; None if it is empty."""
        clipped_tile = dict(group_tile)
        for d, index in item_tile.indices.items():
            r, start = group_tile[d], index * self.plan.item_tile_stride(d)
            size = min(self.plan.item_tile_stride(d), r.size - start)
            if size <= 0:
                return None
            clipped_tile[d] = r.tile_at(builder, start, size)
        return clipped_tile

    # Chunks of the reduction

    def accumulate(self, builder: OpBuilder, item_tiles: Sequence[_ItemTile]) -> None:
        """Accumulate the products: all full chunks of the promoted dimension, then its remainder."""
        nest_op, d = self.contraction, self.promoted
        num_chunks, remainder = divmod(self.nest.extents[d], self.chunk_size)
        origin = {x: self.group_tile[x].offset for x in self.plan.order}
        inputs = [k for k, a in nest_op.input_accesses.items() if a.terms]
        sizes = {d: self.chunk_size} | {x: self.plan.group_tile(x) for x in self.plan.order}
        operands = {k: LocalMemoryOperand(self.group, nest_op, k, d, sizes, origin, self.ends()) for k in inputs}
        self.accumulate_chunks(builder, operands, item_tiles, IterationRange(0, self.chunk_size), num_chunks)
        if remainder:
            self.accumulate_chunks(builder, operands, item_tiles, IterationRange(num_chunks * self.chunk_size, remainder), 1)

    def ends(self) -> dict[int, Size]:
        """Return the extents of the dimensions along which a group may exceed them."""
        clipped_dims = {x for x in self.plan.order if self.group_tile[x].size < self.plan.group_tile(x)}
        return {x: self.nest.extents[x] for x in (*self.group.partial_dims, *clipped_dims)} | dict(self.group.dynamic_extents)

    def accumulate_chunks(
        self,
        builder: OpBuilder,
        operands: Mapping[int, LocalMemoryOperand],
        item_tiles: Sequence[_ItemTile],
        first: IterationRange,
        count: int,
    ) -> None:
        """Accumulate `count` chunks, starting with `first`, for each iteration of the other reduced dimensions."""
        iteration_counts = [*(self.nest.extents[x] for x in self.outer_reductions), count]

        def chunk_ranges(chunk_builder: OpBuilder, linear_index: Index) -> Tile:
            *outer_indices, chunk_index = delinearize(chunk_builder, linear_index, 0, iteration_counts)
            reduced_range = IterationRange(
                chunk_builder.add(chunk_builder.multiply(chunk_index, first.size), first.offset), first.size
            )
            return {
                self.promoted: reduced_range,
                **{x: IterationRange(index, 1) for x, index in zip(self.outer_reductions, outer_indices, strict=True)},
            }

        def fetch(chunk_builder: OpBuilder, linear_index: Index) -> None:
            for operand in operands.values():
                operand.fetch(chunk_builder, chunk_ranges(chunk_builder, linear_index))

        def store(chunk_builder: OpBuilder) -> None:
            chunk_builder.insert(gpu.BarrierOp())
            for operand in operands.values():
                operand.store(chunk_builder, first.size)
            chunk_builder.insert(gpu.BarrierOp())

        for operand in operands.values():
            operand.prepare(builder, first.size)
        fetch(builder, 0)
        last_chunk = prod(iteration_counts) - 1
        if last_chunk == 0:
            store(builder)
            self.multiply(builder, operands, item_tiles, chunk_ranges(builder, 0))
            return
        for body_builder, linear_index in builder.each(0, last_chunk + 1, 1, "part"):
            store(body_builder)
            next_builder = body_builder.branch(body_builder.compare(linear_index, "ult", last_chunk))
            fetch(next_builder, next_builder.add(linear_index, 1))
            self.multiply(body_builder, operands, item_tiles, chunk_ranges(body_builder, linear_index))

    def multiply(
        self, builder: OpBuilder, operands: Mapping[int, LocalMemoryOperand], item_tiles: Sequence[_ItemTile], chunk: Tile
    ) -> None:
        """Multiply the chunk in local memory into the accumulators of each register tile, step by step."""
        nest_op, d = self.contraction, self.promoted
        loop = builder.loop(0, chunk[d].size, 1, name=f"k{d}")
        loop.attributes[UNROLLED] = UnitAttr()
        body_builder, k = builder.at_block_end(loop.body.block), loop.body.block.args[0]
        step = {**chunk, d: IterationRange(body_builder.add(chunk[d].offset, k), 1, 0, k)}
        for item_tile in item_tiles:
            tile = {**item_tile.tile, **step}
            operand_views = {n: operand.view(body_builder, tile) for n, operand in operands.items()}
            operand_views[nest_op.output_position] = item_tile.accumulators.buffer, item_tile.accumulators.dims
            self.emit_op(body_builder, nest_op, tile, operand_views)
        body_builder.yield_()
