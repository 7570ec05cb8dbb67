"""Cotangents to be accumulated: masked cotangents, and cotangents of slices."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import dl
from dlc.passes.autodiff.term import Term, where


@dataclass(frozen=True)
class Cotangent:
    """`value` where `mask` holds, else 0; see Note [Masked cotangents]."""

    value: Term
    mask: Term | None = None

    def term(self) -> Term:
        """Return the cotangent as a single value."""
        return self.value if self.mask is None else where(self.mask, self.value, 0)

    def masked(self, condition: Term) -> Cotangent:
        """Return the cotangent where another condition holds too."""
        return Cotangent(self.value, condition if self.mask is None else self.mask & condition)

    def row_mask(self, axes: Sequence[int]) -> Term | None:
        """Return the rows along `axes` where the mask holds anywhere, with axes of size 1; None for all rows."""
        if self.mask is None:
            return None
        mask = self.mask.reshape(*[1] * (len(self.value.shape) - len(self.mask.shape)), *self.mask.shape)
        is_of_rows = all(mask.shape[axis] == 1 for axis in axes)
        return mask if is_of_rows else mask.op(dl.ReduceAnyOp, axes=tuple(axes), keepdims=True)


def sum_cotangents(segments: Sequence[Cotangent]) -> Cotangent:
    """Sum cotangents; the sum is masked if all of them are."""
    if len(segments) == 1:
        return segments[0]
    terms, masks = (
        [cotangent.term() for cotangent in segments],
        [cotangent.mask for cotangent in segments if cotangent.mask is not None],
    )
    mask = functools.reduce(lambda a, b: a | b, masks) if len(masks) == len(segments) else None
    return Cotangent(sum(terms[1:], terms[0]), mask)


@dataclass(frozen=True)
class SliceCotangent:
    """The cotangent of a slice that begins at `starts`; elsewhere it is 0."""

    value: Term
    starts: tuple[int, ...]


def sum_slices(slices: Sequence[SliceCotangent], shape: tuple[int, ...]) -> Term:
    """Sum slices into a value of this shape, by one concatenation if they are disjoint along a single axis."""
    axes = {a for slice_ in slices for a, size in enumerate(slice_.value.shape) if size != shape[a]}
    if len(slices) == 1 or len(axes) != 1:
        return _sum(slices, shape)
    (axis,) = axes
    sorted_slices = sorted(slices, key=lambda slice_: slice_.starts[axis])
    limits = [slice_.starts[axis] + int(slice_.value.shape[axis]) for slice_ in sorted_slices]
    if any(slice_.starts[axis] < limit for slice_, limit in zip(sorted_slices[1:], limits, strict=False)):
        return _sum(slices, shape)
    segments: list[Term] = []
    for k, (slice_, previous_limit) in enumerate(zip(sorted_slices, [0, *limits], strict=False)):
        # Zeros fill the gaps between slices, and after the last one.
        gaps = slice_.starts[axis] - previous_limit, shape[axis] - limits[-1] if k == len(sorted_slices) - 1 else 0
        low, high = ([n if a == axis else 0 for a in range(len(shape))] for n in gaps)
        segments.append(slice_.value.op(dl.PadOp, 0, low=low, high=high) if any(gaps) else slice_.value)
    return segments[0].op(dl.ConcatOp, *segments[1:], axis=axis)


def _sum(slices: Sequence[SliceCotangent], shape: tuple[int, ...]) -> Term:
    """Sum slices, each padded with zeros."""
    padded = [_pad_slice(slice_, shape) for slice_ in slices]
    return sum(padded[1:], padded[0])


def _pad_slice(slice_: SliceCotangent, shape: tuple[int, ...]) -> Term:
    """Pad a slice with zeros to this shape."""
    high = [n - start - int(size) for n, start, size in zip(shape, slice_.starts, slice_.value.shape, strict=True)]
    return slice_.value.op(dl.PadOp, 0, low=slice_.starts, high=high) if any((*slice_.starts, *high)) else slice_.value


# Note [Masked cotangents]
#
# The operand that a select does not choose gets a cotangent of zero. Multiplied with an infinite or undefined partial
# derivative that zero would be NaN: sqrt in `where(x > 0, sqrt(x), 0)` at 0. The zero is structural, so it must win.
# A cotangent therefore carries the condition as a mask: elementwise ops transform the value alone, and the mask is applied
# when any other op reads the cotangent; softmax and other ops on rows also pass on which rows have no cotangent, since a row
# that `where(attends, softmax(scores), 0)` does not choose may be NaN. A sum of masked cotangents is a structural zero where
# no mask holds.
