"""A value of a program: its array, as the reference computes it, and the bound of its elements' errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import Array
from tests.fuzz.floats import extended, is_float


@dataclass(frozen=True)
class Tracked:
    """An array and the bound of its elements' errors; None where all are exact. `given`: nothing has computed it."""

    array: Array
    error: Array | None = None
    given: bool = False

    @property
    def free(self) -> Array:
        """Where anything goes."""
        return np.isinf(self.errors)

    @property
    def errors(self) -> Array:
        return np.zeros(self.array.shape) if self.error is None else self.error


def difference(got: Array, want: Tracked) -> str | None:
    """How `got` is more than errors away from `want`: the worst element; None if it is not."""
    expected = want.array
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    # Both the reference and the code may be as far off as the bound.
    allowed = 2 * want.errors
    with np.errstate(all="ignore"):
        if is_float(got.dtype):
            a, b = extended(got), extended(expected)
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
            wrong = ~((apart <= allowed) | np.isinf(allowed))
        else:
            wrong = (got != expected) & ~np.isinf(allowed)
            apart = wrong
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements of {got.dtype}{list(got.shape)} differ; at {list(place)} "
        f"{got[place]!r}, expected {expected[place]!r} ± {allowed[place]:.3g}"
    )
