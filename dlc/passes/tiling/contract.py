"""A contraction by a group: its items bring parts of the operands to local memory, and each multiplies what its sums need.

Every item has one register tile or several, `pieces` of the plan. Along a dimension these lie apart by what all items cover
with one, so that at each piece items that are neighbours read and write what is adjacent.

    fetch part 0;  for each part: { meet;  put it;  meet;  fetch the next part;  multiply }

What comes from far away is asked for a part ahead, and nothing waits for it until the items have multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from dlc.dialects.unrolled import UNROLLED
from dlc.dims import Size
from dlc.ir import UnitAttr, gpu
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.group import Group, GroupLeaf
from dlc.passes.tiling.leaf import Local
from dlc.passes.tiling.nests import identity_of
from dlc.passes.tiling.plan import promoted_stage
from dlc.passes.tiling.promoted import Fetchers, Promoted, digits
from dlc.passes.tiling.ranges import Range, Tile
from dlc.passes.tiling.windows import copy, fill


class _Piece(NamedTuple):
    """One of an item's register tiles: its number along each dimension, where it is if nothing is ragged, and its sums."""

    numbers: Mapping[int, int]
    tile: Tile
    sums: Local


class Contraction(GroupLeaf):
    """All stages on the tile of a group, of a nest that begins with a contraction."""

    def __init__(self, group: Group, whole: Tile) -> None:
        super().__init__(group, whole)
        stage = promoted_stage(self.nest)
        assert stage is not None
        self.contraction = stage
        ((self.promoted, self.step),) = self.plan.promote.items()
        self.others = [x for x in stage.dims if x in stage.reductions and x != self.promoted]

    def run(self, place: Place) -> None:
        stage = self.contraction
        sums = stage.output.root
        roots = self.local_roots()
        for root in roots:
            if root is not sums:
                self.make_local(place, root, self.own)
        pieces = [self.piece(place, numbers) for numbers in self.numbers()]
        self.accumulate(place.located(stage.op.location), pieces)
        rest = self.nest.stages[self.nest.stages.index(stage) + 1 :]

        def finish(p: Place, t: Tile, own: Local) -> None:
            if sums in roots:
                self.locals[sums] = own
            else:
                written = self.operand(p, stage, len(stage.op.operands) - 1, t)
                copy(p, self.window(p, own.buffer, [(x, Range(t[x].within, t[x].size)) for x in own.dims]), written)
            self.stages(p, rest, t)

        for at, whole in self.cases(place, self.whole, self.group.ragged):
            for piece in pieces:
                if (part := self.covered_by(at, whole, piece)) is not None:
                    self.share_out(at, part, self.plan.order, lambda p, t, own=piece.sums: finish(p, t, own))

    # Pieces

    def numbers(self) -> Iterator[dict[int, int]]:
        counts = {d: self.plan.pieces.get(d, 1) for d in self.plan.order}
        for numbers in product(*map(range, counts.values())):
            yield dict(zip(counts, numbers, strict=True))

    def piece(self, place: Place, numbers: Mapping[int, int]) -> _Piece:
        tile = dict(self.nominal(place))
        for d, number in numbers.items():
            r, start = tile[d], number * self.plan.apart(d)
            tile[d] = Range(place.add(r.offset, start), r.size, 0, place.add(r.grouped, start))
        root = self.contraction.output.root
        self.make_local(place, root, self.own)
        sums = self.locals.pop(root)
        fill(place, identity_of(self.contraction, self.nest), sums.buffer)
        return _Piece(numbers, tile, sums)

    def covered_by(self, place: Place, whole: Tile, piece: _Piece) -> Tile | None:
        """The part of a tile that is in this piece of some item; None if there is none."""
        part = dict(whole)
        for d, number in piece.numbers.items():
            r, start = whole[d], number * self.plan.apart(d)
            size = min(self.plan.apart(d), r.size - start)
            if size <= 0:
                return None
            part[d] = Range(place.add(r.offset, start), size, r.within, place.add(r.grouped, start))
        return part

    # Parts of what is reduced

    def accumulate(self, place: Place, pieces: Sequence[_Piece]) -> None:
        """Adds up products: whole steps of the promoted dimension, then what remains of it."""
        stage, d = self.contraction, self.promoted
        whole, rest = divmod(self.nest.extents[d], self.step)
        items = Fetchers(self.group.count, self.group.number, self.group.shared)
        origin = {x: self.whole[x].offset for x in self.plan.order}
        inputs = [k for k, a in enumerate(stage.accesses[:-1]) if a is not None and a.terms]
        operands = {k: Promoted(self.plan, stage, k, d, origin, self.ends(), items) for k in inputs}
        self.in_parts(place, operands, pieces, Range(0, self.step), whole)
        if rest:
            self.in_parts(place, operands, pieces, Range(whole * self.step, rest), 1)

    def ends(self) -> dict[int, Size]:
        """The extents along which a group may cover more than there is."""
        short = {x for x in self.plan.order if self.whole[x].size < self.plan.covered(x)}
        return {x: self.nest.extents[x] for x in (*self.group.ragged, *short)} | dict(self.group.lengths)

    def in_parts(
        self, place: Place, operands: Mapping[int, Promoted], pieces: Sequence[_Piece], first: Range, count: int
    ) -> None:
        """Adds up the products of `count` parts from `first` on, for each iteration of the others that are reduced."""
        counts = [*(self.nest.extents[x] for x in self.others), count]

        def part(p: Place, number: Index) -> Tile:
            *outer, inner = digits(p, number, 0, counts)
            along = Range(p.add(p.multiply(inner, first.size), first.offset), first.size)
            return {self.promoted: along, **{x: Range(i, 1) for x, i in zip(self.others, outer, strict=True)}}

        def fetch(p: Place, number: Index) -> None:
            for operand in operands.values():
                operand.fetch(p, part(p, number))

        def put(p: Place) -> None:
            p.insert(gpu.BarrierOp())
            for operand in operands.values():
                operand.put(p, first.size)
            p.insert(gpu.BarrierOp())

        for operand in operands.values():
            operand.prepare(place, first.size)
        fetch(place, 0)
        last = prod(counts) - 1
        if last == 0:
            put(place)
            self.multiply(place, operands, pieces, part(place, 0))
            return
        loop = place.loop(0, last + 1, 1, name="part")
        inside, number = place.inside(loop.body.block), loop.body.block.args[0]
        put(inside)
        more = inside.branch(inside.compare(number, "ult", last))
        fetch(more, more.add(number, 1))
        self.multiply(inside, operands, pieces, part(inside, number))
        inside.yield_()

    def multiply(self, place: Place, operands: Mapping[int, Promoted], pieces: Sequence[_Piece], part: Tile) -> None:
        """Adds the products of a part that is in local memory to the sums of each piece, iteration by iteration."""
        stage, d = self.contraction, self.promoted
        loop = place.loop(0, part[d].size, 1, name=f"k{d}")
        loop.attributes[UNROLLED] = UnitAttr()
        inside, k = place.inside(loop.body.block), loop.body.block.args[0]
        one = {**part, d: Range(inside.add(part[d].offset, k), 1, 0, k)}
        for piece in pieces:
            tile = {**piece.tile, **one}
            windows = {n: operand.window(inside, tile) for n, operand in operands.items()}
            windows[len(stage.op.operands) - 1] = piece.sums.buffer, piece.sums.dims
            self.emit(inside, stage, {x: tile[x] for x in stage.dims}, windows)
        inside.yield_()
