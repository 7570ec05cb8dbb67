"""Memory planning: assigns arena offsets and slots to buffers by their lifetimes, independent of the IR."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from dlc.arrays import ALIGNMENT_BYTES


@dataclass(frozen=True)
class Lifetime:
    """A buffer's size in bytes, and the first and last step of the program that accesses it."""

    bytes: int
    first: int
    last: int


def assign_offsets(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT_BYTES) -> list[int]:
    """Return an offset for each buffer, a multiple of `alignment`, such that simultaneously live buffers do not overlap.

    Buffers are placed largest first, each into the smallest sufficient gap between live buffers, or above them: the greedy best
    fit of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
    """
    offsets = [0] * len(buffers)
    timeline = _Timeline(_OccupiedSpans, _OccupiedSpans.add, buffers)
    for i in _largest_first(buffers):
        num_bytes, periods = _align_up(buffers[i].bytes, alignment), timeline.periods(buffers[i])
        end, best = 0, None
        for start, stop in sorted(chain.from_iterable(occupied.spans() for occupied in timeline.occupied(periods))):
            gap = start - end
            if gap >= num_bytes and (best is None or gap < best[0]):
                best = gap, end
            end = max(end, stop)
        offsets[i] = best[1] if best is not None else end
        if num_bytes:
            timeline.occupy(periods, (offsets[i], offsets[i] + num_bytes))
    return offsets


def assign_slots(buffers: Sequence[Lifetime]) -> list[int]:
    """Return a slot for each buffer, such that buffers in the same slot are never live simultaneously.

    Buffers are placed largest first, each into the smallest free slot, which is large enough: later buffers are never larger.
    """
    slot_bytes: list[int] = []
    slot_of_buffer = [0] * len(buffers)
    timeline = _Timeline(set[int], set[int].add, buffers)
    for i in _largest_first(buffers):
        periods = timeline.periods(buffers[i])
        busy_slots = set(chain.from_iterable(timeline.occupied(periods)))
        slot_of_buffer[i] = min(
            (k for k in range(len(slot_bytes)) if k not in busy_slots), key=slot_bytes.__getitem__, default=len(slot_bytes)
        )
        if slot_of_buffer[i] == len(slot_bytes):
            slot_bytes.append(buffers[i].bytes)
        timeline.occupy(periods, slot_of_buffer[i])
    return slot_of_buffer


def _largest_first(buffers: Sequence[Lifetime]) -> list[int]:
    return sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first))


class _OccupiedSpans:
    """A set of occupied spans of the arena, with adjacent and overlapping spans merged."""

    def __init__(self) -> None:
        # Disjoint, in ascending order.
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

    def spans(self) -> Iterable[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)


# Periods, as (shift, step >> shift): the minimal cover of a lifetime, and the larger periods that partially overlap it.
_Periods = tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]]
Slot = TypeVar("Slot")
SlotSet = TypeVar("SlotSet")


class _Timeline(Generic[Slot, SlotSet]):
    """The slots that are occupied at each step of the program; `add` adds a slot to a set.

    It is a tree of periods of the program: the children of a period are its eighths. The lifetime of a buffer is a few periods.
    Each period has two sets: the slots that are occupied throughout, and the slots that are occupied at any time during it.
    """

    def __init__(
        self, empty: Callable[[], SlotSet], add: Callable[[SlotSet, Slot], object], buffers: Sequence[Lifetime]
    ) -> None:
        self._add = add
        self._heights = range(3, max((b.last for b in buffers), default=0).bit_length() + 3, 3)
        self._full: defaultdict[tuple[int, int], SlotSet] = defaultdict(empty)
        self._partial: defaultdict[tuple[int, int], SlotSet] = defaultdict(empty)

    def periods(self, lifetime: Lifetime) -> _Periods:
        cover: list[tuple[int, int]] = []
        low, high, height = lifetime.first, lifetime.last + 1, 0
        while low < high:
            first_parent, last_parent = -(-low >> 3), high >> 3
            if first_parent >= last_parent:
                cover += [(height, k) for k in range(low, high)]
                break
            cover += [(height, k) for k in (*range(low, first_parent << 3), *range(last_parent << 3, high))]
            low, high, height = first_parent, last_parent, height + 3
        overlapping: list[tuple[int, int]] = []
        for height in self._heights:
            low, high = lifetime.first >> height, lifetime.last >> height
            if low << height < lifetime.first or low == high:
                overlapping.append((height, low))
            if low < high and (high + 1) << height > lifetime.last + 1:
                overlapping.append((height, high))
        return cover, overlapping

    def occupy(self, periods: _Periods, slot: Slot) -> None:
        cover, overlapping = periods
        for period in cover:
            self._add(self._full[period], slot)
            if period[0]:
                self._add(self._partial[period], slot)
        for period in overlapping:
            self._add(self._partial[period], slot)

    def occupied(self, periods: _Periods) -> list[SlotSet]:
        """Return the sets of slots that are occupied in any step of these periods."""
        cover, overlapping = periods
        # A period of a single step is never partially occupied.
        sets = [(self._partial if period[0] else self._full).get(period) for period in cover]
        sets += [self._full.get(period) for period in overlapping]
        return [slot_set for slot_set in sets if slot_set is not None]


def _align_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
