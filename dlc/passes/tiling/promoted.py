"""An operand of a contraction in a group's memory: its items fetch a part into registers, then put it where all read it.

Between the two there may be other work, which then does not wait for what comes from far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.sizes import strides_of
from dlc.dims import Size
from dlc.ir import SSAValue
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.leaf import Local, part_of
from dlc.passes.tiling.nests import Stage
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.ranges import Range, Tile
from dlc.passes.tiling.structured_ops import operand_maps
from dlc.passes.tiling.windows import Window, copy
from dlc.passes.types import memref_of

# Elements that an item fetches at once, where they are contiguous.
_LANES = (1, 2, 4)
_PADDING = 4


@dataclass(frozen=True)
class Fetchers:
    """The items of a group that fetch together: how many there are, and the number of each.

    `shared` gives a buffer that they share, for a key, with elements like another's and of a shape and name.
    """

    count: int
    number: Index
    shared: Callable[[object, SSAValue, tuple[int, ...], str | None], SSAValue]


@dataclass(frozen=True)
class _Share:
    """What an item fetches at once: `widths` of the operand at `places`, which it puts at `starts`.

    Along what is reduced places count from the start of a part. `items` of the group have such a share.
    """

    places: Mapping[int, Index]
    starts: Mapping[int, Index]
    widths: Mapping[int, int]
    items: int
    registers: SSAValue


class Promoted:
    """Operand `k`: the part of it that a group needs, some iterations of dimension `d` at a time.

    `origin` is where the group begins along the dimensions that stages share. Of those in `ends` there may be less than it
    covers, of this extent: what is fetched from behind the end is the last elements instead, which enter no sum that is kept.
    """

    def __init__(
        self,
        plan: TilePlan,
        stage: Stage,
        k: int,
        d: int,
        origin: Mapping[int, Index],
        ends: Mapping[int, Size],
        items: Fetchers,
    ) -> None:
        self.items = items
        self.origin = origin
        self.ends = ends
        self.source = stage.op.operands[k]
        one = {x: Range(0, 1) for x in stage.dims if x >= 0}
        self.axes = [part_of(None, e, stage.dims, one)[0] for e in operand_maps(stage.op)[k].results]
        self.sizes = {x: plan.covered(x) if x in plan.order else 1 for x in self.axes}
        # The reduced dimension first, so that a register tile reads adjacent elements. Items that fetch along it write to
        # columns: a longer row puts these in different banks.
        # What has one place is no axis: there would be nothing between columns but padding.
        dims = (*(x for x in self.axes if x == d), *(x for x in self.axes if x in plan.order and self.sizes[x] > 1))
        shape = tuple(plan.promote[d] if x == d else self.sizes[x] for x in dims)
        turned = self.axes[-1] == d and len(dims) > 1
        padded = (*shape[:-1], shape[-1] + _PADDING) if turned else shape
        self.local = Local(items.shared((stage.op, k), self.source, padded, self.source.name_hint), dims, shared=True)
        self.reduced = d
        self._shares: dict[int, list[_Share]] = {}

    def prepare(self, place: Place, size: int) -> None:
        """Finds out where the items begin to fetch parts of so many iterations, before any of these."""
        self._shares[size] = list(self._shared_out(place, {**self.sizes, self.reduced: size}))

    def fetch(self, place: Place, part: Tile) -> None:
        """Each item reads its share of a part of the operand; items that are neighbours read what is adjacent in memory."""
        for at, share in self._mine(place, part[self.reduced].size):
            reduced = {x: at.add(r.offset, share.places[x]) for x, r in part.items() if x in share.places}
            places = {**share.places, **reduced}
            source = _window(at, self.source, [(x, Range(places[x], share.widths[x])) for x in self.axes])
            copy(at, source, (share.registers, source[1]))

    def put(self, place: Place, size: int) -> None:
        """Each item writes what it has fetched, of a part of so many iterations, to the memory of the group."""
        for at, share in self._mine(place, size):
            target = _window(at, self.local.buffer, [(x, Range(share.starts[x], share.widths[x])) for x in self.local.dims])
            copy(at, (share.registers, target[1]), target)

    def window(self, place: Place, tile: Tile) -> Window:
        """What a register tile reads of the group's memory, at a part of the reduced dimension that counts from its start."""
        return _window(place, self.local.buffer, [(x, Range(tile[x].grouped, tile[x].size)) for x in self.local.dims])

    def _mine(self, place: Place, size: int) -> Iterator[tuple[Place, _Share]]:
        """The shares that an item has of a part, where it has them."""
        for share in self._shares[size]:
            at = place
            if share.items < self.items.count:
                at = at.branch(at.compare(self.items.number, "ult", share.items))
            yield at, share

    def _shared_out(self, place: Place, sizes: Mapping[int, int]) -> Iterator[_Share]:
        """A part of these sizes in shares of a few adjacent elements, and where each share of an item begins."""
        lanes = self._lanes(sizes)
        widths = {x: lanes if x == self.axes[-1] else 1 for x in self.axes}
        counts = [sizes[x] // widths[x] for x in self.axes]
        element = memref_of(self.source).element_type
        for first in range(0, prod(counts), self.items.count):
            numbers = zip(self.axes, digits(place, self.items.number, first, counts), strict=True)
            starts = {x: place.multiply(number, widths[x]) for x, number in numbers}
            places = {x: self._known(place, x, start, widths[x]) for x, start in starts.items()}
            name = f"{self.source.name_hint or 'x'}_next"
            registers = place.alloca(element, (lanes,) if lanes > 1 else (), name)
            yield _Share(places, starts, widths, min(self.items.count, prod(counts) - first), registers)

    def _known(self, place: Place, x: int, start: Index, width: int) -> Index:
        """Where in the operand an item reads that begins at `start` of what the group covers: within its end."""
        at = place.add(self.origin.get(x, 0), start)
        if x not in self.ends:
            return at
        return place.minimum(at, place.subtract(place.size(self.ends[x]), width))

    def _lanes(self, sizes: Mapping[int, int]) -> int:
        """How many elements are read at once of a row: as many as all rows have, one behind the other, at aligned places."""
        *apart, last = strides_of(self.source)
        inner = self.axes[-1]
        whole = [sizes[inner], *apart, *([self.ends[inner]] if inner in self.ends else [])]
        if last != 1 or not all(isinstance(size, int) for size in whole):
            return 1
        return max(n for n in _LANES if all(int(size) % n == 0 for size in whole))


def digits(place: Place, number: Index, more: int, counts: Sequence[int]) -> list[Index]:
    """The digits of number + more, each below its count, the last one the lowest; the sum is below the product of all."""
    found: list[Index] = []
    left = prod(counts)
    for count in reversed(counts):
        left //= count
        if left == 1:
            # The highest digit that may be more than 0.
            found.insert(0, place.add(number, more))
            number, more = 0, 0
            continue
        if more % count:
            number, more = place.add(number, more), 0
        found.insert(0, place.remainder(number, count))
        number, more = place.floordiv(number, count), more // count
    return found


def _window(place: Place, buffer: SSAValue, parts: Sequence[tuple[int, Range]]) -> Window:
    """The part of a buffer that covers a range of each axis; axes of size 1 go."""
    sizes = [r.size for _, r in parts]
    drop = [i for i, size in enumerate(sizes) if size == 1]
    return place.subview(buffer, [r.offset for _, r in parts], sizes, drop), [x for x, r in parts if r.size > 1]
