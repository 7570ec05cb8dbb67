"""Places in an arena for buffers that live for parts of a program: deciding, apart from rewriting."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

ALIGNMENT = 64  # bytes


@dataclass(frozen=True)
class Lifetime:
    """A buffer's size in bytes, and the first and last step of the program that touches it."""

    bytes: int
    first: int
    last: int


def place(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT) -> list[int]:
    """An offset for each buffer, a multiple of `alignment`, such that buffers alive in the same step do not overlap.

    Largest first, each into the smallest gap that holds it between those that it meets, or above them: the greedy best
    fit of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
    """
    offsets = [0] * len(buffers)
    placed = _Timeline(_Spans, _Spans.add, buffers)
    for i in _largest_first(buffers):
        needed, periods = _rounded(buffers[i].bytes, alignment), placed.periods(buffers[i])
        end, best = 0, None
        for start, stop in sorted(chain.from_iterable(spans.parts() for spans in placed.taken(periods))):
            gap = start - end
            if gap >= needed and (best is None or gap < best[0]):
                best = gap, end
            end = max(end, stop)
        offsets[i] = best[1] if best is not None else end
        if needed:
            placed.take(periods, (offsets[i], offsets[i] + needed))
    return offsets


def share(buffers: Sequence[Lifetime]) -> list[int]:
    """A slot for each buffer, such that those of one slot are never alive in the same step.

    Largest first, each into the slot that wastes least on it: what follows is never larger.
    """
    largest: list[int] = []
    chosen = [0] * len(buffers)
    placed = _Timeline(set[int], set[int].add, buffers)
    for i in _largest_first(buffers):
        periods = placed.periods(buffers[i])
        taken = set(chain.from_iterable(placed.taken(periods)))
        chosen[i] = min((k for k in range(len(largest)) if k not in taken), key=largest.__getitem__, default=len(largest))
        if chosen[i] == len(largest):
            largest.append(buffers[i].bytes)
        placed.take(periods, chosen[i])
    return chosen


def _largest_first(buffers: Sequence[Lifetime]) -> list[int]:
    return sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first))


class _Spans:
    """A part of the arena: what spans cover together, few however many they are where they lie side by side."""

    def __init__(self) -> None:
        # Apart from one another, in order.
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, span: tuple[int, int]) -> None:
        start, stop = span
        starts, stops = self._starts, self._stops
        first = bisect_left(stops, start)
        if first == len(stops):
            starts.append(start)
            stops.append(stop)
        elif start < starts[first] or stops[first] < stop:
            last = bisect_right(starts, stop)
            if first < last:
                start, stop = min(start, starts[first]), max(stop, stops[last - 1])
            starts[first:last] = [start]
            stops[first:last] = [stop]

    def parts(self) -> Iterable[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)


# By how many bits steps have less, and their number then: those that a life consists of, the fewest; and
# those that it is a part of, or begins or ends within.
_Periods = tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]]
Place = TypeVar("Place")
Places = TypeVar("Places")


class _Timeline(Generic[Place, Places]):
    """The places that buffers have while they are alive: sets of places, which `put` fills.

    A node of a tree is a period of the program, whose eighths are the nodes below; a buffer's life is a few periods. Of each
    period there are the places that were taken for all of it, and those that were taken for a part of it or more.
    """

    def __init__(
        self, empty: Callable[[], Places], put: Callable[[Places, Place], object], buffers: Sequence[Lifetime]
    ) -> None:
        self._put = put
        self._heights = range(3, max((b.last for b in buffers), default=0).bit_length() + 3, 3)
        self._whole: defaultdict[tuple[int, int], Places] = defaultdict(empty)
        self._partly: defaultdict[tuple[int, int], Places] = defaultdict(empty)

    def periods(self, life: Lifetime) -> _Periods:
        inside: list[tuple[int, int]] = []
        low, high, height = life.first, life.last + 1, 0
        while low < high:
            above, below = -(-low >> 3), high >> 3
            if above >= below:
                inside += [(height, k) for k in range(low, high)]
                break
            inside += [(height, k) for k in (*range(low, above << 3), *range(below << 3, high))]
            low, high, height = above, below, height + 3
        around: list[tuple[int, int]] = []
        for height in self._heights:
            low, high = life.first >> height, life.last >> height
            if low << height < life.first or low == high:
                around.append((height, low))
            if low < high and (high + 1) << height > life.last + 1:
                around.append((height, high))
        return inside, around

    def take(self, periods: _Periods, place: Place) -> None:
        inside, around = periods
        for period in inside:
            self._put(self._whole[period], place)
            if period[0]:
                self._put(self._partly[period], place)
        for period in around:
            self._put(self._partly[period], place)

    def taken(self, periods: _Periods) -> list[Places]:
        """What is taken in a step of these periods, or in more of them."""
        inside, around = periods
        # Of a single step nothing is a part.
        met = [(self._partly if period[0] else self._whole).get(period) for period in inside]
        met += [self._whole.get(period) for period in around]
        return [places for places in met if places is not None]


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
