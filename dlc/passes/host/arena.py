"""Places in an arena for buffers that live for parts of a program: deciding, apart from rewriting."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        needed = _rounded(buffers[i].bytes, alignment)
        end, best = 0, None
        for start, stop in sorted(chain.from_iterable(spans.parts() for spans in placed.meeting(buffers[i]))):
            gap = start - end
            if gap >= needed and (best is None or gap < best[0]):
                best = gap, end
            end = max(end, stop)
        offsets[i] = best[1] if best is not None else end
        if needed:
            placed.add(buffers[i], (offsets[i], offsets[i] + needed))
    return offsets


def share(buffers: Sequence[Lifetime]) -> list[int]:
    """A slot for each buffer, such that those of one slot are never alive in the same step.

    Largest first, each into the slot that wastes least on it: what follows is never larger.
    """
    largest: list[int] = []
    chosen = [0] * len(buffers)
    placed = _Timeline(set[int], set[int].add, buffers)
    for i in _largest_first(buffers):
        taken = set(chain.from_iterable(placed.meeting(buffers[i])))
        chosen[i] = min((k for k in range(len(largest)) if k not in taken), key=largest.__getitem__, default=len(largest))
        if chosen[i] == len(largest):
            largest.append(buffers[i].bytes)
        placed.add(buffers[i], chosen[i])
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
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def parts(self) -> Iterable[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)


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
        self._height = max((b.last for b in buffers), default=0).bit_length() // 3 + 1
        # By how often steps were divided by eight, and what became of their number.
        self._whole: defaultdict[tuple[int, int], Places] = defaultdict(empty)
        self._partly: defaultdict[tuple[int, int], Places] = defaultdict(empty)

    def add(self, life: Lifetime, place: Place) -> None:
        for period in _inside(life):
            self._put(self._whole[period], place)
            if period[0]:
                self._put(self._partly[period], place)
        for period in self._around(life):
            self._put(self._partly[period], place)

    def meeting(self, life: Lifetime) -> Iterator[Places]:
        """What is taken in a step of a life, or in more of them."""
        for period in _inside(life):
            # Of a step nothing is a part.
            taken = self._partly if period[0] else self._whole
            if period in taken:
                yield taken[period]
        for period in self._around(life):
            if period in self._whole:
                yield self._whole[period]

    def _around(self, life: Lifetime) -> Iterator[tuple[int, int]]:
        """The periods that a life is a part of, or begins or ends within."""
        for height in range(1, self._height + 1):
            low, high = life.first >> 3 * height, life.last >> 3 * height
            if low << 3 * height < life.first or low == high:
                yield height, low
            if low < high and (high + 1) << 3 * height > life.last + 1:
                yield height, high


def _inside(life: Lifetime) -> Iterator[tuple[int, int]]:
    """The fewest periods that a life consists of."""
    low, high, height = life.first, life.last + 1, 0
    while low < high:
        above, below = -(-low // 8), high // 8
        if above >= below:
            yield from ((height, k) for k in range(low, high))
            return
        yield from ((height, k) for k in (*range(low, above * 8), *range(below * 8, high)))
        low, high, height = above, below, height + 1


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
