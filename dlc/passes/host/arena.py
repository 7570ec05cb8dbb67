"""Places in an arena for buffers that live for parts of a program: deciding, apart from rewriting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64  # bytes
_PERIOD = 64  # steps


@dataclass(frozen=True)
class Lifetime:
    """A buffer's size in bytes, and the first and last step of the program that touches it."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive in some step."""
        return self.first <= other.last and other.first <= self.last


def place(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT) -> list[int]:
    """An offset for each buffer, a multiple of `alignment`, such that buffers alive in the same step do not overlap.

    Largest first, each into the smallest gap that holds it between those that it meets, or above them: the greedy best
    fit of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
    """
    spans = [(0, 0)] * len(buffers)
    placed = _Timeline(buffers)
    for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first)):
        needed = _rounded(buffers[i].bytes, alignment)
        end, best = 0, None
        for start, stop in sorted([spans[j] for j in placed.meeting(i)]):
            gap = start - end
            if gap >= needed and (best is None or gap < best[0]):
                best = gap, end
            end = max(end, stop)
        offset = best[1] if best is not None else end
        spans[i] = offset, offset + needed
        placed.add(i)
    return [offset for offset, _ in spans]


def share(buffers: Sequence[Lifetime]) -> list[int]:
    """A slot for each buffer, such that those of one slot are never alive in the same step.

    Largest first, each into the slot that wastes least on it: what follows is never larger.
    """
    largest: list[int] = []
    chosen = [0] * len(buffers)
    placed = _Timeline(buffers)
    for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first)):
        taken = {chosen[j] for j in placed.meeting(i)}
        chosen[i] = min((k for k in range(len(largest)) if k not in taken), key=largest.__getitem__, default=len(largest))
        if chosen[i] == len(largest):
            largest.append(buffers[i].bytes)
        placed.add(i)
    return chosen


class _Timeline:
    """Which of some buffers are alive when others are: found by periods of the program, so that few are looked at."""

    def __init__(self, buffers: Sequence[Lifetime]) -> None:
        self.buffers = buffers
        # By period: which are alive in it, and which of them were not before it.
        self.alive: dict[int, list[int]] = {}
        self.begun: dict[int, list[int]] = {}

    def add(self, i: int) -> None:
        periods = self._periods(i)
        self.begun.setdefault(periods[0], []).append(i)
        for period in periods:
            self.alive.setdefault(period, []).append(i)

    def meeting(self, i: int) -> list[int]:
        """Those that were added and are alive in a step in which buffer `i` is."""
        first, *later = self._periods(i)
        near = [*self.alive.get(first, ()), *(j for period in later for j in self.begun.get(period, ()))]
        return [j for j in near if self.buffers[i].meets(self.buffers[j])]

    def _periods(self, i: int) -> range:
        return range(self.buffers[i].first // _PERIOD, self.buffers[i].last // _PERIOD + 1)


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
