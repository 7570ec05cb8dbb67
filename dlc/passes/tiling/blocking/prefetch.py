"""Software prefetch: each register tile prefetches some rows of an operand's next cache block or batch entry."""

from __future__ import annotations

from itertools import chain, product
from math import prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.prefetch import L2_READ_HINTS
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.types import memref_of


class NextBlockPrefetcher:
    """Prefetch an operand's next cache block, of which each k iteration reads a contiguous row.

    If the reduction is one block, the rows of the next product of the batch are prefetched instead.

    Register tiles that read the same columns of the operand share the prefetches: tile t of n prefetches ⌈rows / n⌉
    rows, starting at row t · ⌈rows / n⌉.
    """

    def __init__(self, nest: SizedLoopNest, plan: BlockedTiles, nest_op: NestOp, k: int) -> None:
        access = nest_op.input_accesses[k]
        self.plan = plan
        self.source = nest_op.operands[k]
        self.axes = nest_op.axes(k)
        self.line_elements = ALIGNMENT_BYTES // numpy_dtype(memref_of(self.source).element_type).itemsize
        self.reduced_dims = [d for d in nest_op.reduced_dims if d in self.axes]
        self.row_dim = next(d for d in self.axes if access.stride(d) == 1 and d not in self.reduced_dims)
        self.sharing_dims = [d for d in plan.order if d not in self.axes]
        # The dimension of the innermost loop over blocks, or over batch entries.
        blocks = (d for d in reversed(nest_op.dims) if d in plan.blocks and plan.blocks[d] < nest.extents[d])
        self.advancing_dim = next(chain(blocks, (d for d in reversed(plan.order) if nest_op.is_batch_dim(d))))

    def emit_prefetches(self, builder: OpBuilder, macro_tile: Tile, tile: Tile, block: Tile) -> None:
        """Emit one register tile's prefetches of the block after `block`; `macro_tile` contains `tile`."""
        share_index: Index = 0
        num_shares = 1
        for d in self.sharing_dims:
            tiles = -(-macro_tile[d].size // self.plan.tile(d))
            tile_index = builder.floordiv(builder.subtract(tile[d].group_offset, macro_tile[d].tile_offset), self.plan.tile(d))
            share_index = builder.add(builder.multiply(share_index, tiles), tile_index)
            num_shares *= tiles
        rows = -(-prod(block[d].size for d in self.reduced_dims) // num_shares)
        first = builder.multiply(share_index, rows)
        dims = [*(d for d in self.axes if d not in (*self.reduced_dims, self.row_dim)), self.row_dim]
        positions = [range(0, tile[d].size, self.line_elements if d == self.row_dim else 1) for d in dims]
        for n, *position in product(range(rows), *positions):
            coordinates = self.step_coordinates(builder, builder.add(first, n), block)
            for d, i in zip(dims, position, strict=True):
                coordinates[d] = builder.add(tile[d].offset, i + (d == self.advancing_dim))
            builder.prefetch(self.source, [coordinates[d] for d in self.axes], L2_READ_HINTS)

    def step_coordinates(self, builder: OpBuilder, n: Index, block: Tile) -> dict[int, Index]:
        """Return the coordinates of k iteration n of the next block along the reduced dimensions."""
        coordinates: dict[int, Index] = {}
        for d in reversed(self.reduced_dims):
            r: IterationRange = block[d]
            inner = n if d == self.reduced_dims[0] else builder.remainder(n, r.size)
            n = builder.floordiv(n, r.size)
            coordinates[d] = builder.add(builder.add(r.offset, r.size if d == self.advancing_dim else 0), inner)
        return coordinates
