"""What bounds must know of float types: their spacing, their limits, and numbers beyond them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype

_FLOATS = {numpy_dtype(t) for name, t in ELEMENT_TYPES.items() if "float" in name}
# Units in the last place within which functions are, of the library and of the generated code together.
FUNCTION_ULPS = 12


def is_float(dtype: np.dtype) -> bool:
    """Whether it is a dtype of floats; ml_dtypes has integers too that NumPy knows nothing of."""
    return dtype in _FLOATS or dtype == np.longdouble


def extended(x: Array) -> Array:
    # ml_dtypes convert to NumPy's own types only.
    return (
        x.astype(np.float64).astype(np.longdouble)
        if x.dtype.kind == "V"
        else x.astype(np.longdouble)
        if is_float(x.dtype)
        else x
    )


def computed_in(dtype: np.dtype) -> np.dtype:
    """What a 16-bit float is computed in."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def unit_of(dtype: np.dtype) -> float:
    """The relative error of one operation in the type that a sum is kept in."""
    return float(ml_dtypes.finfo(computed_in(dtype)).eps)


def largest_of(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max) if is_float(dtype) else np.inf


def smallest_of(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).smallest_normal)


def least_of(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).smallest_subnormal) if is_float(dtype) else 0.0


def spacing(x: Array) -> Array:
    """The distance between an element and the next number of its type; 0 for integers, infinities and NaN."""
    if not is_float(x.dtype):
        return np.zeros(x.shape)
    info = ml_dtypes.finfo(x.dtype)
    magnitudes = np.abs(x.astype(np.float64))
    _, exponents = np.frexp(np.maximum(magnitudes, float(info.smallest_normal)))
    return np.where(np.isfinite(magnitudes), np.ldexp(1.0, exponents - 1 - info.nmant), 0.0)


def all_whole(x: Array) -> bool:
    """Whether all elements are whole numbers."""
    x = x.astype(np.float64)
    return bool(np.all(np.isfinite(x) & (x == np.rint(x))))


def finite_magnitudes(x: Array) -> Array:
    """Magnitudes in f64, 0 for what is not finite."""
    x = np.abs(x.astype(np.float64))
    return np.where(np.isfinite(x), x, 0)


def distance(a: Array, b: Array) -> Array:
    """The distance between two results, 0 where they are the same infinity or both NaN; of integers and bools 0 or inf."""
    if not is_float(a.dtype):
        return np.where(a == b, 0.0, np.inf)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))


def kind_in(x: Array, dtype: np.dtype) -> Array:
    """What kind of number `x` becomes in `dtype`: finite 0, infinite ±1, NaN 2."""
    if not is_float(x.dtype) or not is_float(dtype):
        return np.zeros(x.shape)
    x = x.astype(dtype).astype(np.float64)
    return np.where(np.isnan(x), 2, np.where(np.isinf(x), np.sign(x), 0))


def unless_it_may_overflow(exact: Array, error: Array, dtype: np.dtype) -> Array:
    """The error, infinite where it decides whether the result overflows."""
    exact, largest = np.abs(exact), np.longdouble(largest_of(dtype))
    # Half a step above the largest number is where rounding starts to give infinity.
    step = largest * np.longdouble(float(ml_dtypes.finfo(dtype).eps))
    slack = np.maximum(np.where(np.isnan(error), np.inf, error), np.where(error > 0, step * FUNCTION_ULPS, 0))
    certain, possible = exact - slack > largest + step, exact + slack > largest
    error = np.where(certain & np.isfinite(exact), 0, error)
    return np.where(possible & ~certain & (slack > 0), np.inf, error)
