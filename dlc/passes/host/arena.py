"""Places in an arena for buffers that live for parts of a program: deciding, apart from rewriting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64  # bytes


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
    offsets = [0] * len(buffers)
    placed: list[int] = []
    for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first)):
        needed = _rounded(buffers[i].bytes, alignment)
        taken = sorted(
            (offsets[j], offsets[j] + _rounded(buffers[j].bytes, alignment)) for j in placed if buffers[i].meets(buffers[j])
        )
        end, best = 0, None
        for start, stop in taken:
            gap = start - end
            if gap >= needed and (best is None or gap < best[0]):
                best = gap, end
            end = max(end, stop)
        offsets[i] = best[1] if best is not None else end
        placed.append(i)
    return offsets


def share(buffers: Sequence[Lifetime]) -> list[int]:
    """A slot for each buffer, such that those of one slot are never alive in the same step.

    Largest first, each into the slot that wastes least on it: what follows is never larger.
    """
    slots: list[list[int]] = []
    chosen = [0] * len(buffers)
    for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first)):
        free = [k for k, members in enumerate(slots) if not any(buffers[i].meets(buffers[j]) for j in members)]
        if not free:
            free = [len(slots)]
            slots.append([])
        chosen[i] = min(free, key=lambda k: max((buffers[j].bytes for j in slots[k]), default=0))
        slots[chosen[i]].append(i)
    return chosen


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
