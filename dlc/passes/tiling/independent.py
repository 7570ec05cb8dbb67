"""Which nests of a kernel may run at once: none touches what the other one writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from dlc.dims import Size
from dlc.ir import SSAValue, memref
from dlc.passes.tiling.access import Access, root_of
from dlc.passes.tiling.nests import OpenNest

# Places that are compared one by one; of more than these their range is.
_FEW = 1 << 12


class Steps(NamedTuple):
    """`count` places, `stride` apart; None where their number is known only when the kernel runs."""

    stride: int
    count: int | None


class Places(NamedTuple):
    """Elements of a buffer: `offset + Σ stride · i` for i < count."""

    offset: int
    steps: tuple[Steps, ...]

    @property
    def ends(self) -> tuple[int, int] | None:
        """The first place and the last one, if they are known."""
        low = high = self.offset
        for stride, count in self.steps:
            if count is None:
                return None
            low, high = min(low, low + stride * (count - 1)), max(high, high + stride * (count - 1))
        return low, high

    def digits(self, base: int) -> tuple[Places, Places] | None:
        """The places as `base · high + low`, low < base; None where one does not follow from steps of its own."""
        whole = [Steps(stride // base, count) for stride, count in self.steps if stride % base == 0]
        low = Places(self.offset % base, tuple(s for s in self.steps if s.stride % base))
        if (ends := low.ends) is None or ends[0] < 0 or ends[1] >= base:
            return None
        return Places(self.offset // base, tuple(whole)), low

    def each(self) -> set[int] | None:
        """All of them, where they are few."""
        counts = [s.count for s in self.steps]
        known = [c for c in counts if c is not None]
        if len(known) < len(counts) or prod(known) > _FEW:
            return None
        return {
            self.offset + sum(s.stride * i for s, i in zip(self.steps, place, strict=True))
            for place in product(*map(range, known))
        }


@dataclass(frozen=True)
class Touched:
    """What a nest reads and writes of each buffer; None: it may be any element."""

    reads: Sequence[tuple[SSAValue, Places | None]]
    writes: Sequence[tuple[SSAValue, Places | None]]

    @staticmethod
    def of(nest: OpenNest) -> Touched:
        reads: list[tuple[SSAValue, Places | None]] = []
        writes: list[tuple[SSAValue, Places | None]] = []
        for stage in nest.stages:
            reads += [(a.root, _places(a, nest)) for a in stage.accesses[:-1] if a is not None]
            loads = (o for o in stage.op.regions[0].walk() if isinstance(o, memref.LoadOp))
            reads += [(root_of(o.memref)[0], None) for o in loads]
            written = stage.output
            # What it adds to, it reads: at the same places.
            writes.append((written.root, None if stage.scattered is not None else _places(written, nest)))
        return Touched(reads, writes)

    def is_independent(self, other: Touched) -> bool:
        """Whether it does not matter which of two nests runs first, or whether both do at once."""
        return not any(
            meet(a, b)
            for mine, theirs in ((self.writes, [*other.reads, *other.writes]), (other.writes, self.reads))
            for (root, a), (other_root, b) in product(mine, theirs)
            if root is other_root
        )


def meet(a: Places | None, b: Places | None) -> bool:
    """Whether elements of one buffer may be the same."""
    if a is None or b is None:
        return True
    for base in sorted({abs(s.stride) for s in (*a.steps, *b.steps)}, reverse=True):
        if base > 1 and (first := a.digits(base)) is not None and (second := b.digits(base)) is not None:
            if _apart(first[0], second[0]):
                return False
            a, b = first[1], second[1]
    return not _apart(a, b)


def _apart(a: Places, b: Places) -> bool:
    """Whether two sets of places are known to have none in common."""
    each, others = a.each(), b.each()
    if each is not None and others is not None:
        return not each & others
    ends, other_ends = a.ends, b.ends
    return ends is not None and other_ends is not None and (ends[1] < other_ends[0] or other_ends[1] < ends[0])


def _places(a: Access, nest: OpenNest) -> Places | None:
    steps: list[Steps] = []
    for t in a.terms:
        extent: Size = nest.extents[t.iterator]
        count = -(-extent // t.divisor) if isinstance(extent, int) else None
        if t.modulus:
            count = t.modulus if count is None else min(count, t.modulus)
        if not isinstance(t.stride, int):
            return None
        steps.append(Steps(t.stride, count))
    return Places(a.offset, tuple(steps)) if isinstance(a.offset, int) else None
