"""Dtypes: what there is, what operands promote to, and the limits of each."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np
from ml_dtypes import bfloat16
from numpy import bool_ as bool
from numpy import float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

from dlc.errors import DTypeError
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, dtype_of, given_dtype, is_floating, refuse

__all__ = [
    "bfloat16", "bool", "can_cast", "finfo", "float16", "float32", "float64", "iinfo", "int8", "int16", "int32", "int64",
    "isdtype", "promote_types", "result_type", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

# Those that the Array API names.
STANDARD = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
)  # fmt: skip

_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def _dtype(x: Any) -> np.dtype[Any]:
    return np.dtype(x if isinstance(x, type) else getattr(x, "dtype", x))


def result_type(*arrays_and_dtypes: ArrayLike | AnyDType) -> np.dtype[Any]:
    """The dtype that arrays, numbers and dtypes promote to: NumPy 2's rules, under which a number has no dtype of its own."""
    return dtype_of(*(np.empty(0, cast(Any, x)) if isinstance(x, type | np.dtype | str) else x for x in arrays_and_dtypes))


def promote_types(type1: AnyDType, type2: AnyDType, /) -> np.dtype[Any]:
    """The dtype that two dtypes promote to."""
    return result_type(given_dtype(type1), given_dtype(type2))


def can_cast(from_: AnyDType | Operand, to: AnyDType, /) -> Any:
    """Whether a dtype, or an array's, becomes another one without loss."""
    return np.can_cast(_dtype(from_), _dtype(to))


def isdtype(dtype: AnyDType, kind: AnyDType | str | tuple[AnyDType | str, ...]) -> Any:
    """Whether a dtype is one, or of one kind, of `kind`: a dtype, a name such as "integral", or a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in cast("tuple[Any, ...]", kind))
    if isinstance(kind, str) and kind in _KINDS:
        return ("f" if is_floating(np.dtype(dtype)) else np.dtype(dtype).kind) in _KINDS[kind]
    return given_dtype(dtype) == given_dtype(kind)


def finfo(dtype: AnyDType, /) -> Any:
    """The limits of a floating-point dtype, or of an array's: `eps`, `max`, `min`, `smallest_normal` …"""
    return cast(Any, ml_dtypes.finfo)(_dtype(dtype))


def iinfo(dtype: AnyDType, /) -> Any:
    """The limits of an integer dtype, or of an array's: `bits`, `max`, `min`."""
    given = _dtype(dtype)
    return np.iinfo(given) if given.kind in "iu" else refuse(DTypeError(f"iinfo: {given}; expected a dtype of integers"))
