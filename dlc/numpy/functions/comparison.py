"""Comparison and logic: comparisons, logical and bitwise operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.trace import is_python_scalar
from dlc.numpy.apply import ArrayLike, apply, convert, is_floating, operand, promote, refuse, result_dtype, with_name_and_doc
from dlc.numpy.functions.elementwise import abs, add, multiply, subtract, where

__all__ = [
    "allclose", "array_equal", "array_equiv", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "equal", "fmax", "fmin", "greater", "greater_equal", "isclose", "isfinite", "isinf",
    "isnan", "isneginf", "isposinf", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor",
    "maximum", "minimum", "not_equal", "signbit",
]  # fmt: skip


def _comparison(name: str, op: type[DlOp], doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        a, b = _comparable(x1, x2)
        for signed, other in ((a, b), (b, a)):
            if signed.dtype == np.int64 and other.dtype == np.uint64:
                # No integer dtype represents both: a negative int64 is less than every uint64, others convert to uint64.
                unsigned_value = convert(maximum(signed, 0), np.uint64)
                pair, order_pair = ((unsigned_value, other), (-1, 0)) if signed is a else ((other, unsigned_value), (0, -1))
                return where(less(signed, 0), apply(op, *(np.asarray(x, np.int8) for x in order_pair)), apply(op, *pair))
        return apply(op, a, b)

    return with_name_and_doc(function, name, doc)


def _comparable(x1: ArrayLike, x2: ArrayLike) -> list[Any]:
    """Return the operands with a common dtype, or as int64 and uint64.

    A scalar outside the range of an integer dtype compares with its elements as ±1 does with 0; the value of a traced scalar is
    unknown, so it is promoted.
    """
    for scalar, other in ((x1, x2), (x2, x1)):
        if is_python_scalar(scalar) and isinstance(scalar, int):
            dtype = operand(other).dtype
            overflow_sign = dtype.kind in "iu" and int(scalar > np.iinfo(dtype).max) - int(scalar < np.iinfo(dtype).min)
            if overflow_sign:
                pair = np.int8(overflow_sign), convert(multiply(operand(other), 0), np.int8)
                return list(pair if scalar is x1 else pair[::-1])
            return promote(x1, x2)
    if is_python_scalar(x1) or is_python_scalar(x2):
        return promote(x1, x2)
    a, b = operand(x1), operand(x2)
    if a.dtype.kind not in "biu" or b.dtype.kind not in "biu":
        return promote(x1, x2)
    dtype = np.result_type(a.dtype, b.dtype)
    return [convert(x, (np.uint64 if x.dtype == np.uint64 else np.int64) if dtype.kind == "f" else dtype) for x in (a, b)]


def _extremum(name: str, op: type[DlOp], doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        return apply(op, *promote(x1, x2))

    return with_name_and_doc(function, name, doc)


def _logical(name: str, op: type[DlOp], doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        return apply(op, convert(x1, np.bool_), convert(x2, np.bool_))

    return with_name_and_doc(function, name, doc)


def _bitwise(name: str, op: type[DlOp], bool_op: type[DlOp] | None, doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        operands = promote(x1, x2)
        if operands[0].dtype == np.bool_ and bool_op is not None:
            return apply(bool_op, *operands)
        if is_floating(operands[0].dtype):
            refuse(DTypeError(f"{op.name.removeprefix('dl.')} of {operands[0].dtype}; expected integers or bools"))
        return apply(op, *(convert(x, np.int8) if x.dtype == np.bool_ else x for x in operands))

    return with_name_and_doc(function, name, doc)


def _float_predicate(name: str, op: type[DlOp], doc: str) -> Any:
    """Return a predicate of floats that is False for integers."""

    def function(x: ArrayLike, /) -> Any:
        x = operand(x)
        return apply(op, x) if is_floating(x.dtype) else apply(dl.NotEqualOp, x, x)

    return with_name_and_doc(function, name, doc)


equal = _comparison("equal", dl.EqualOp, "Return x1 == x2.")
not_equal = _comparison("not_equal", dl.NotEqualOp, "Return x1 != x2.")
less = _comparison("less", dl.LessOp, "Return x1 < x2.")
less_equal = _comparison("less_equal", dl.LessEqualOp, "Return x1 <= x2.")
greater = _comparison("greater", dl.GreaterOp, "Return x1 > x2.")
greater_equal = _comparison("greater_equal", dl.GreaterEqualOp, "Return x1 >= x2.")
maximum = _extremum("maximum", dl.MaximumOp, "Return the elementwise maximum; NaN if either operand is NaN.")
minimum = _extremum("minimum", dl.MinimumOp, "Return the elementwise minimum; NaN if either operand is NaN.")
logical_and = _logical("logical_and", dl.AndOp, "Return x1 and x2 as booleans (nonzero is true).")
logical_or = _logical("logical_or", dl.OrOp, "Return x1 or x2 as booleans (nonzero is true).")
logical_xor = _logical("logical_xor", dl.XorOp, "Return whether exactly one operand is true (nonzero).")
bitwise_and = _bitwise("bitwise_and", dl.BitwiseAndOp, dl.AndOp, "Return the bitwise and; logical and for bools.")
bitwise_or = _bitwise("bitwise_or", dl.BitwiseOrOp, dl.OrOp, "Return the bitwise or; logical or for bools.")
bitwise_xor = _bitwise("bitwise_xor", dl.BitwiseXorOp, dl.XorOp, "Return the bitwise exclusive or; logical for bools.")
bitwise_left_shift = _bitwise("bitwise_left_shift", dl.ShiftLeftOp, None, "Return x1 · 2^x2 modulo the dtype's range.")
bitwise_right_shift = _bitwise("bitwise_right_shift", dl.ShiftRightOp, None, "Return floor(x1 / 2^x2), the arithmetic shift.")
isnan = _float_predicate("isnan", dl.IsnanOp, "Return whether x is NaN.")
isinf = _float_predicate("isinf", dl.IsinfOp, "Return whether x is ±inf.")


def logical_not(x: ArrayLike, /) -> Any:
    """Return whether x is false (zero)."""
    return apply(dl.NotOp, convert(x, np.bool_))


def bitwise_invert(x: ArrayLike, /) -> Any:
    """Return the bitwise complement; logical not for bools."""
    x = operand(x)
    if is_floating(x.dtype):
        refuse(DTypeError(f"bitwise_invert of {x.dtype}; expected integers or bools"))
    return apply(dl.NotOp if x.dtype == np.bool_ else dl.BitwiseNotOp, x)


def isfinite(x: ArrayLike, /) -> Any:
    """Return whether x is neither infinite nor NaN."""
    x = operand(x)
    return less(abs(x), np.inf) if is_floating(x.dtype) else apply(dl.EqualOp, x, x)


def isposinf(x: ArrayLike, /) -> Any:
    """Return whether x is +inf."""
    x = operand(x)
    return equal(x, np.inf) if is_floating(x.dtype) else isinf(x)


def isneginf(x: ArrayLike, /) -> Any:
    """Return whether x is -inf."""
    x = operand(x)
    return equal(x, -np.inf) if is_floating(x.dtype) else isinf(x)


def signbit(x: ArrayLike, /) -> Any:
    """Return whether the sign bit of x is set, also of -0.0 and NaN."""
    x = operand(x)
    if is_floating(x.dtype):
        bits = element_type(f"int{8 * x.dtype.itemsize}")
        return less(apply(dl.BitcastOp, x, to=bits), 0)
    return isnan(x) if x.dtype == np.bool_ else less(x, 0)


def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the elementwise maximum; if one operand is NaN, the other one."""
    return _ignoring_nan(dl.MaximumOp, x1, x2)


def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the elementwise minimum; if one operand is NaN, the other one."""
    return _ignoring_nan(dl.MinimumOp, x1, x2)


def _ignoring_nan(op: type[DlOp], x1: ArrayLike, x2: ArrayLike) -> Any:
    a, b = promote(x1, x2)
    if not is_floating(a.dtype):
        return apply(op, a, b)
    return apply(dl.SelectOp, isnan(a), b, apply(dl.SelectOp, isnan(b), a, apply(op, a, b)))


def isclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Return whether |x1 - x2| ≤ atol + rtol · |x2|; equal infinities are close, and NaN is close to NaN if `equal_nan`."""
    dtype = result_dtype(x1, x2, 1.0)
    a, b = convert(x1, dtype), convert(x2, dtype)
    is_close = logical_and(less_equal(abs(subtract(a, b)), add(multiply(abs(b), rtol), atol)), isfinite(b))
    is_close = logical_or(is_close, equal(a, b))
    return logical_or(is_close, logical_and(isnan(a), isnan(b))) if equal_nan else is_close


def allclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Return whether all elements are close, as a bool of rank 0."""
    return _all(isclose(x1, x2, rtol, atol, equal_nan=equal_nan))


def array_equal(x1: ArrayLike, x2: ArrayLike, /, *, equal_nan: bool = False) -> Any:
    """Return whether shapes and all elements are equal, as a bool of rank 0."""
    a, b = operand(x1), operand(x2)
    if a.shape != b.shape:
        return np.asarray(False)
    is_equal = equal(a, b)
    return _all(logical_or(is_equal, logical_and(isnan(a), isnan(b))) if equal_nan else is_equal)


def array_equiv(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return whether the arrays broadcast and all their elements are equal, as a bool of rank 0."""
    try:
        return _all(equal(x1, x2))
    except ShapeError:
        return np.asarray(False)


def _all(x: Any) -> Any:
    return apply(dl.ReduceAllOp, x, axes=tuple(range(x.ndim)), keepdims=False)
