"""Memory effects of loop nests, to find nests of a kernel that are independent and may run concurrently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from dlc.ir import SSAValue, memref
from dlc.passes.tiling.affine_access import AffineAccess, root_of
from dlc.passes.tiling.loop_nests import LoopNest

# Enumerate sets of at most this many elements; compare larger sets by their bounds.
_MAX_ENUMERATED_ELEMENTS = 1 << 12


class StridedRange(NamedTuple):
    """The offsets `stride · i` for i < size; the size is None if it is dynamic."""

    stride: int
    size: int | None


class StridedElements(NamedTuple):
    """The elements of a buffer at `offset + Σ stride · i`, with i < size for each range in `ranges`."""

    offset: int
    ranges: tuple[StridedRange, ...]

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The smallest and the largest offset, if they are static."""
        low = high = self.offset
        for stride, size in self.ranges:
            if size is None:
                return None
            low, high = min(low, low + stride * (size - 1)), max(high, high + stride * (size - 1))
        return low, high

    def delinearize(self, base: int) -> tuple[StridedElements, StridedElements] | None:
        """Split offsets into (high, low) with offset = base · high + low and 0 ≤ low < base.

        Return None if `high` and `low` are not independent strided sets.
        """
        high = [StridedRange(stride // base, size) for stride, size in self.ranges if stride % base == 0]
        low = StridedElements(self.offset % base, tuple(s for s in self.ranges if s.stride % base))
        if (bounds := low.bounds) is None or bounds[0] < 0 or bounds[1] >= base:
            return None
        return StridedElements(self.offset // base, tuple(high)), low

    def offset_set(self) -> set[int] | None:
        """Return all offsets; None if there are too many, or a dynamic number of them."""
        sizes = [s.size for s in self.ranges]
        static_sizes = [size for size in sizes if size is not None]
        if len(static_sizes) < len(sizes) or prod(static_sizes) > _MAX_ENUMERATED_ELEMENTS:
            return None
        return {
            self.offset + sum(s.stride * i for s, i in zip(self.ranges, indices, strict=True))
            for indices in product(*map(range, static_sizes))
        }


@dataclass(frozen=True)
class MemoryEffects:
    """The elements of each buffer that a nest reads and writes; None if any element may be accessed."""

    reads: Sequence[tuple[SSAValue, StridedElements | None]]
    writes: Sequence[tuple[SSAValue, StridedElements | None]]

    @staticmethod
    def of(nest: LoopNest) -> MemoryEffects:
        """Return the memory effects of a nest."""
        reads: list[tuple[SSAValue, StridedElements | None]] = []
        writes: list[tuple[SSAValue, StridedElements | None]] = []
        for nest_op in nest.ops:
            reads += [(a.root, _strided_elements(a, nest)) for a in nest_op.inputs]
            loads = (o for o in nest_op.body.walk() if isinstance(o, memref.LoadOp))
            reads += [(root_of(o.memref)[0], None) for o in loads]
            output = nest_op.output
            # An accumulating op also reads its output, at the offsets that it writes: the write covers that read.
            writes.append((output.root, None if nest_op.scatter_dim is not None else _strided_elements(output, nest)))
        return MemoryEffects(reads, writes)

    def is_independent(self, other: MemoryEffects) -> bool:
        """Return whether two nests may run in any order, or concurrently."""
        return not any(
            may_overlap(a, b)
            for writes, accesses in ((self.writes, [*other.reads, *other.writes]), (other.writes, self.reads))
            for (root, a), (other_root, b) in product(writes, accesses)
            if root is other_root
        )


def may_overlap(a: StridedElements | None, b: StridedElements | None) -> bool:
    """Return whether two sets of elements of one buffer may intersect."""
    if a is None or b is None:
        return True
    for base in sorted({abs(s.stride) for s in (*a.ranges, *b.ranges)}, reverse=True):
        if base > 1 and (parts_a := a.delinearize(base)) is not None and (parts_b := b.delinearize(base)) is not None:
            (high_a, a), (high_b, b) = parts_a, parts_b
            if _are_disjoint(high_a, high_b):
                return False
    return not _are_disjoint(a, b)


def _are_disjoint(a: StridedElements, b: StridedElements) -> bool:
    """Return whether two sets of elements provably do not intersect."""
    offsets, other_offsets = a.offset_set(), b.offset_set()
    if offsets is not None and other_offsets is not None:
        return not offsets & other_offsets
    bounds, other_bounds = a.bounds, b.bounds
    return bounds is not None and other_bounds is not None and (bounds[1] < other_bounds[0] or other_bounds[1] < bounds[0])


def _strided_elements(a: AffineAccess, nest: LoopNest) -> StridedElements | None:
    """Return the elements of an access; None for symbolic strides or offsets."""
    ranges: list[StridedRange] = []
    for t in a.terms:
        extent = nest.extents[t.iterator]
        count = t.num_values(extent) if isinstance(extent, int) else t.modulus or None
        if not isinstance(t.stride, int) or not isinstance(count, int | None):
            return None
        ranges.append(StridedRange(t.stride, count))
    return StridedElements(a.offset, tuple(ranges)) if isinstance(a.offset, int) else None
