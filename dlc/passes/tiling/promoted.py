"""An operand of a contraction in a group's memory: its items fetch a part into registers, then put it where all read it.

Between the two there may be other work, which then does not wait for what comes from far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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

    `shared` gives a buffer that they share, for a key, with elements like another's and of a shape and name. `lengths` are the
    extents that are known only when the kernel runs.
    """

    count: int
    number: Index
    shared: Callable[[object, SSAValue, tuple[int, ...], str | None], SSAValue]
    lengths: Mapping[int, Size]


@dataclass(frozen=True)
class _Share:
    """What an item fetches at once: a range of each dimension, from the start of the part; `items` of the group have one."""

    ranges: Mapping[int, Range]
    items: int
    registers: SSAValue


class Promoted:
    """Operand `k`: the part of it that a group needs, some iterations of dimension `d` at a time.

    `sizes` are those that a part may have along each dimension: at the end of a ragged one it has fewer.
    """

    def __init__(
        self, place: Place, plan: TilePlan, stage: Stage, k: int, d: int, sizes: Mapping[int, Sequence[int]], items: Fetchers
    ) -> None:
        self.items = items
        self.source = stage.op.operands[k]
        whole = {x: Range(0, 1) for x in stage.dims if x >= 0}
        self.axes = [part_of(None, e, stage.dims, whole)[0] for e in operand_maps(stage.op)[k].results]
        # The reduced dimension first, so that a register tile reads adjacent elements. Items that fetch along it write to
        # columns: a longer row puts these in different banks.
        dims = (*(x for x in self.axes if x == d), *(x for x in self.axes if x in plan.order))
        shape = tuple(plan.promote[d] if x == d else plan.covered(x) for x in dims)
        turned = self.axes[-1] == d and len(dims) > 1
        padded = (*shape[:-1], shape[-1] + _PADDING) if turned else shape
        self.local = Local(items.shared((stage.op, k), self.source, padded, self.source.name_hint), dims, shared=True)
        # What is fetched in one branch or in another is in the same registers.
        self._registers: dict[tuple[int, int], SSAValue] = {}
        each = [sizes.get(x, (1,)) for x in self.axes]
        self._shares = {part: list(self._shared_out(place, part)) for part in product(*each)}

    def fetch(self, place: Place, part: Tile) -> None:
        """Each item reads its share of a part of the operand; items that are neighbours read what is adjacent in memory."""
        for at, share in self._mine(place, part):
            ranges = [(x, share.ranges[x]) for x in self.axes]
            source = _window(at, self.source, [(x, Range(at.add(part[x].offset, r.offset), r.size)) for x, r in ranges])
            copy(at, source, (share.registers, source[1]))

    def put(self, place: Place, part: Tile) -> None:
        """Each item writes what it has fetched to the memory of the group."""
        for at, share in self._mine(place, part):
            target = _window(at, self.local.buffer, [(x, share.ranges[x]) for x in self.local.dims])
            copy(at, (share.registers, target[1]), target)

    def window(self, place: Place, tile: Tile) -> Window:
        """What a register tile reads of the group's memory, at a part of the reduced dimension that counts from its start."""
        return _window(place, self.local.buffer, [(x, Range(tile[x].grouped, tile[x].size)) for x in self.local.dims])

    def _mine(self, place: Place, part: Tile) -> Iterator[tuple[Place, _Share]]:
        """The shares that an item has of a part, where it has them."""
        for share in self._shares[tuple(part[x].size for x in self.axes)]:
            at = place
            if share.items < self.items.count:
                at = at.branch(at.compare(self.items.number, "ult", share.items))
            for x in self.axes:
                if (extent := self.items.lengths.get(x)) is not None:
                    at = at.branch(at.compare(at.add(part[x].offset, share.ranges[x].offset), "ult", at.size(extent)))
            yield at, share

    def _shared_out(self, place: Place, sizes: Sequence[int]) -> Iterator[_Share]:
        """A part of these sizes in shares of a few adjacent elements, and where each share of an item begins."""
        lanes = self._lanes(sizes[-1])
        widths = [*(1 for _ in sizes[1:]), lanes]
        counts = [size // width for size, width in zip(sizes, widths, strict=True)]
        element = memref_of(self.source).element_type
        for first in range(0, prod(counts), self.items.count):
            starts = digits(place, self.items.number, first, counts)
            each = zip(self.axes, starts, widths, strict=True)
            ranges = {x: Range(place.multiply(start, width), width) for x, start, width in each}
            if (first, lanes) not in self._registers:
                name = f"{self.source.name_hint or 'x'}_next"
                self._registers[first, lanes] = place.alloca(element, (lanes,) if lanes > 1 else (), name)
            yield _Share(ranges, min(self.items.count, prod(counts) - first), self._registers[first, lanes])

    def _lanes(self, size: int) -> int:
        """How many elements are read at once of a row: as many as all rows have, one behind the other, at aligned places."""
        *apart, last = strides_of(self.source)
        if last != 1 or self.axes[-1] in self.items.lengths:
            return 1
        return max(n for n in _LANES if size % n == 0 and all(isinstance(s, int) and s % n == 0 for s in apart))


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
