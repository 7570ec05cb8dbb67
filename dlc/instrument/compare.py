"""Whether two arrays are the same result: relative to the largest magnitude, so that another order of summation passes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How far apart results of passes that only reorder arithmetic may lie: sums of thousands of terms, formulas of library
# precision. A quantised result may differ by one step. Other integers and bools are exact.
_TOLERANCES = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "float8_e4m3fn": 0.15,
    "float8_e5m2": 0.3,
    "int8": 8e-3,
    "uint8": 8e-3,
    "int4": 0.15,
    "uint4": 0.15,
}


def deviation(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference as a fraction of the largest finite magnitude; infinite where NaN or infinities differ."""
    if got.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0))
    largest = float(np.abs(b[finite]).max(initial=0))
    return difference / largest if largest else difference


def tolerance_of(arrays: Iterable[NDArray[Any]]) -> float:
    """The deviation allowed to what is computed with these arrays: that of the coarsest dtype among them."""
    return max((_TOLERANCES.get(array.dtype.name, 0.0) for array in arrays), default=0.0)


def worst(got: Iterable[NDArray[Any]], expected: Iterable[NDArray[Any]]) -> tuple[int, float]:
    """The place and the deviation of the results that lie furthest apart; (0, 0) where there are none."""
    deviations = [deviation(a, b) for a, b in zip(got, expected, strict=True)]
    place = int(np.argmax(deviations)) if deviations else 0
    return place, deviations[place] if deviations else 0.0
