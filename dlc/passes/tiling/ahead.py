"""What register tiles ask for ahead: their share of what the next block of a contraction reads, or the next of a batch."""

from __future__ import annotations

from itertools import chain, product
from math import prod

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.prefetch import NEAR, PrefetchOp
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.leaf import part_of
from dlc.passes.tiling.nests import Nest, Stage
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.ranges import Range, Tile
from dlc.passes.tiling.structured_ops import operand_maps
from dlc.passes.types import memref_of


class NextBlock:
    """Asks for an operand's next block, of rows that are elements of each step of what is reduced.

    What goes in no blocks is a product of a batch: the next one's rows are asked for.

    All register tiles that read the same columns of the operand share its rows:
    tile t of n asks for ⌈rows / n⌉ of them, from row t · ⌈rows / n⌉ on.
    """

    def __init__(self, nest: Nest, plan: TilePlan, stage: Stage, k: int) -> None:
        access = stage.accesses[k]
        assert access is not None
        self.plan = plan
        self.source = stage.op.operands[k]
        whole = {d: Range(0, e) for d, e in nest.extents.items()}
        self.axes = [part_of(None, e, stage.dims, whole)[0] for e in operand_maps(stage.op)[k].results]
        self.line = ALIGNMENT // numpy_dtype(memref_of(self.source).element_type).itemsize
        self.reduced = [d for d in stage.dims if d in self.axes and d in stage.reductions]
        self.row = next(d for d in self.axes if access.stride(d) == 1 and d not in self.reduced)
        self.sharing = [d for d in plan.order if d not in self.axes]
        # The innermost loop over blocks, or over products.
        blocks = (d for d in reversed(stage.dims) if d in plan.blocks and plan.blocks[d] < nest.extents[d])
        self.along = next(chain(blocks, (d for d in reversed(plan.order) if stage.is_batch(d))))

    def ask(self, place: Place, part: Tile, tile: Tile, block: Tile) -> None:
        """The share of a register tile of a part of the task, for the block behind this one."""
        share: Index = 0
        count = 1
        for d in self.sharing:
            tiles = -(-part[d].size // self.plan.tile(d))
            own = place.floordiv(place.subtract(tile[d].grouped, part[d].within), self.plan.tile(d))
            share = place.add(place.multiply(share, tiles), own)
            count *= tiles
        rows = -(-prod(block[d].size for d in self.reduced) // count)
        first = place.multiply(share, rows)
        others = [range(tile[d].size) for d in self.axes if d not in (*self.reduced, self.row)]
        for n, *places, column in product(range(rows), *others, range(0, tile[self.row].size, self.line)):
            at = self.step(place, place.add(first, n), block)
            beside = iter(places)
            for d in self.axes:
                if d not in at:
                    within = column if d == self.row else next(beside)
                    at[d] = place.add(tile[d].offset, within + 1 if d == self.along else within)
            indices = [place.value(at[d]) for d in self.axes]
            place.insert(PrefetchOp.create(operands=[self.source, *indices], properties=NEAR))

    def step(self, place: Place, n: Index, block: Tile) -> dict[int, Index]:
        """Where step n of the next block is."""
        at: dict[int, Index] = {}
        for d in reversed(self.reduced):
            r: Range = block[d]
            inner = n if d == self.reduced[0] else place.remainder(n, r.size)
            n = place.floordiv(n, r.size)
            at[d] = place.add(place.add(r.offset, r.size if d == self.along else 0), inner)
        return at
