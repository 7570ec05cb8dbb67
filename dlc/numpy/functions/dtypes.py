"""Dtypes: supported dtypes, promotion and limits."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np
from ml_dtypes import bfloat16
from numpy import bool_ as bool
from numpy import complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

from dlc.errors import DTypeError
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, as_dtype, is_floating, refuse, result_dtype

__all__ = [
    "bfloat16", "bool", "can_cast", "complex64", "complex128", "finfo", "float16", "float32", "float64", "iinfo", "int8",
    "int16", "int32", "int64", "isdtype", "promote_types", "result_type", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

# The dtypes that the Array API defines.
STANDARD = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip

_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def _dtype(x: Any) -> np.dtype[Any]:
    return np.dtype(x if isinstance(x, type) else getattr(x, "dtype", x))


def result_type(*arrays_and_dtypes: ArrayLike | AnyDType) -> np.dtype[Any]:
    """Return the dtype that arrays, scalars and dtypes promote to, by NumPy 2's rules; Python scalars are weakly typed."""
    return result_dtype(*(np.empty(0, cast(Any, x)) if isinstance(x, type | np.dtype | str) else x for x in arrays_and_dtypes))


def promote_types(type1: AnyDType, type2: AnyDType, /) -> np.dtype[Any]:
    """Return the dtype that two dtypes promote to."""
    return result_type(as_dtype(type1), as_dtype(type2))


def can_cast(from_: AnyDType | Operand, to: AnyDType, /) -> Any:
    """Return whether a dtype, or the dtype of an array, casts to another one without loss."""
    return np.can_cast(_dtype(from_), _dtype(to))


def isdtype(dtype: AnyDType, kind: AnyDType | str | tuple[AnyDType | str, ...]) -> Any:
    """Return whether a dtype is of the given kind: a dtype, a name such as "integral", or a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in cast("tuple[Any, ...]", kind))
    if isinstance(kind, str) and kind in _KINDS:
        return ("f" if is_floating(np.dtype(dtype)) else np.dtype(dtype).kind) in _KINDS[kind]
    return as_dtype(dtype) == as_dtype(kind)


def finfo(dtype: AnyDType, /) -> Any:
    """Return the limits of a floating-point dtype: `eps`, `max`, `min`, `smallest_normal` …"""
    return cast(Any, ml_dtypes.finfo)(_dtype(dtype))


def iinfo(dtype: AnyDType, /) -> Any:
    """Return the limits of an integer dtype: `bits`, `max`, `min`."""
    checked_dtype = _dtype(dtype)
    return (
        np.iinfo(checked_dtype)
        if checked_dtype.kind in "iu"
        else refuse(DTypeError(f"iinfo: {checked_dtype}; expected an integer dtype"))
    )
