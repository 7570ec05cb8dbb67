"""A value of a program with the bound of its error, and the comparison of results with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import Array
from tests.fuzz.floats import is_float, widen


@dataclass(frozen=True)
class BoundedArray:
    """An array as the reference computes it, and a bound of its elements' errors (None: all elements are exact).

    `is_source`: the array is an input, weight or constant; no op has computed it.
    """

    array: Array
    error: Array | None = None
    is_source: bool = False

    @property
    def unbounded(self) -> Array:
        """Mask of elements with an infinite error bound: any value is accepted."""
        return np.isinf(self.errors)

    @property
    def errors(self) -> Array:
        return np.zeros(self.array.shape) if self.error is None else self.error


def difference(got: Array, want: BoundedArray) -> str | None:
    """Describe the worst element of `got` that differs from `want` by more than its bound, or return None."""
    expected = want.array
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    # Both the reference and the compiled code may differ from the exact result by the bound.
    allowed = 2 * want.errors
    with np.errstate(all="ignore"):
        if is_float(got.dtype):
            a, b = widen(got), widen(expected)
            distances = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
            mismatches = ~((distances <= allowed) | np.isinf(allowed))
        else:
            mismatches = (got != expected) & ~np.isinf(allowed)
            distances = mismatches
    if not mismatches.any():
        return None
    index = tuple(int(i) for i in np.argwhere(mismatches)[0])
    return (
        f"{int(mismatches.sum())} of {got.size} elements of {got.dtype}{list(got.shape)} differ; at {list(index)} "
        f"{got[index]!r}, expected {expected[index]!r} ± {allowed[index]:.3g}"
    )
