"""Properties of float types for error bounds: spacing, limits, and arithmetic in wider types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype

_FLOATS = {numpy_dtype(t) for name, t in ELEMENT_TYPES.items() if "float" in name}
# The error of functions in ulp, of NumPy and of the generated code together.
FUNCTION_ULPS = 12


def is_float(dtype: np.dtype) -> bool:
    """Return whether a dtype is a float type; NumPy does not classify the types of ml_dtypes."""
    return dtype in _FLOATS or dtype == np.longdouble


def widen(x: Array) -> Array:
    # Types of ml_dtypes convert only to NumPy's own types.
    return (
        x.astype(np.float64).astype(np.longdouble)
        if x.dtype.kind == "V"
        else x.astype(np.longdouble)
        if is_float(x.dtype)
        else x
    )


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which a float type is computed: f32 for half precision."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def epsilon_of(dtype: np.dtype) -> float:
    """Return the relative error of one operation in the type in which sums are accumulated."""
    return float(ml_dtypes.finfo(compute_dtype(dtype)).eps)


def largest_of(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max) if is_float(dtype) else np.inf


def smallest_normal_of(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).smallest_normal)


def smallest_subnormal_of(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).smallest_subnormal) if is_float(dtype) else 0.0


def spacing(x: Array) -> Array:
    """Return the distance from an element to the next value of its type; 0 for integers, infinities and NaN."""
    if not is_float(x.dtype):
        return np.zeros(x.shape)
    info = ml_dtypes.finfo(x.dtype)
    magnitudes = np.abs(x.astype(np.float64))
    _, exponents = np.frexp(np.maximum(magnitudes, float(info.smallest_normal)))
    return np.where(np.isfinite(magnitudes), np.ldexp(1.0, exponents - 1 - info.nmant), 0.0)


def are_integers(x: Array) -> bool:
    """Return whether all elements are integral values."""
    x = x.astype(np.float64)
    return bool(np.all(np.isfinite(x) & (x == np.rint(x))))


def finite_magnitudes(x: Array) -> Array:
    """Return magnitudes in f64, with 0 for infinities and NaN."""
    x = np.abs(x.astype(np.float64))
    return np.where(np.isfinite(x), x, 0)


def distance(a: Array, b: Array) -> Array:
    """Return the distance of two results: 0 if both are the same infinity or NaN; for integers and bools 0 or infinity."""
    if not is_float(a.dtype):
        return np.where(a == b, 0.0, np.inf)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))


def number_class(x: Array, dtype: np.dtype) -> Array:
    """Return the class of `x` converted to `dtype`: 0 for finite, ±1 for infinite, 2 for NaN."""
    if not is_float(x.dtype) or not is_float(dtype):
        return np.zeros(x.shape)
    x = x.astype(dtype).astype(np.float64)
    return np.where(np.isnan(x), 2, np.where(np.isinf(x), np.sign(x), 0))


def unbounded_near_overflow(exact: Array, error: Array, dtype: np.dtype) -> Array:
    """Return the error, infinite where it determines whether the result overflows."""
    exact, largest = np.abs(exact), np.longdouble(largest_of(dtype))
    # Values more than half a spacing above the largest finite value round to infinity.
    step = largest * np.longdouble(float(ml_dtypes.finfo(dtype).eps))
    slack = np.maximum(np.where(np.isnan(error), np.inf, error), np.where(error > 0, step * FUNCTION_ULPS, 0))
    certain, possible = exact - slack > largest + step, exact + slack > largest
    error = np.where(certain & np.isfinite(exact), 0, error)
    return np.where(possible & ~certain & (slack > 0), np.inf, error)
