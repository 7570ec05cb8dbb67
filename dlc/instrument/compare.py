"""Compare arrays relative to the largest magnitude, so that a different order of summation is accepted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The allowed relative deviation between results whose arithmetic was only reordered: sums of thousands of terms, and functions
# with the precision of a math library. A quantized result may differ by one quantization step. Other integers and bools must be
# equal.
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
    """Return the largest difference relative to the largest finite magnitude; infinite if shapes, NaN or infinities differ."""
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
    """Return the tolerance for results computed from these arrays: that of the least precise dtype."""
    return max((_TOLERANCES.get(array.dtype.name, 0.0) for array in arrays), default=0.0)


def largest_deviation(got: Iterable[NDArray[Any]], expected: Iterable[NDArray[Any]]) -> tuple[int, float]:
    """Return the index and the deviation of the result that deviates most; (0, 0) if there are none."""
    deviations = [deviation(a, b) for a, b in zip(got, expected, strict=True)]
    index = int(np.argmax(deviations)) if deviations else 0
    return index, deviations[index] if deviations else 0.0
