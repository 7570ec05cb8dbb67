"""Comparison, logic and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.frontend.trace import is_number
from dlc.numpy.apply import ArrayLike, apply, convert, described, dtype_of, is_floating, operand, promote, refuse
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
                # No dtype holds both: below 0 is below all of the other, and what is not is one of its numbers.
                whole = convert(maximum(signed, 0), np.uint64)
                pair, below = ((whole, other), (-1, 0)) if signed is a else ((other, whole), (0, -1))
                return where(less(signed, 0), apply(op, *(np.asarray(x, np.int8) for x in below)), apply(op, *pair))
        return apply(op, a, b)

    return described(function, name, doc)


def _comparable(x1: ArrayLike, x2: ArrayLike) -> list[Any]:
    """The operands with one dtype, or as int64 and uint64.

    A number beyond an integer dtype compares with its elements as ±1 does with 0; how large a traced one is, is not known.
    """
    for number, other in ((x1, x2), (x2, x1)):
        if is_number(number) and isinstance(number, int):
            dtype = operand(other).dtype
            beyond = dtype.kind in "iu" and int(number > np.iinfo(dtype).max) - int(number < np.iinfo(dtype).min)
            if beyond:
                pair = np.int8(beyond), convert(multiply(operand(other), 0), np.int8)
                return list(pair if number is x1 else pair[::-1])
            return promote(x1, x2)
    if is_number(x1) or is_number(x2):
        return promote(x1, x2)
    a, b = operand(x1), operand(x2)
    if a.dtype.kind not in "biu" or b.dtype.kind not in "biu":
        return promote(x1, x2)
    dtype = np.result_type(a.dtype, b.dtype)
    return [convert(x, (np.uint64 if x.dtype == np.uint64 else np.int64) if dtype.kind == "f" else dtype) for x in (a, b)]


def _choosing(name: str, op: type[DlOp], doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        return apply(op, *promote(x1, x2))

    return described(function, name, doc)


def _logical(name: str, op: type[DlOp], doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        return apply(op, convert(x1, np.bool_), convert(x2, np.bool_))

    return described(function, name, doc)


def _bitwise(name: str, op: type[DlOp], of_bools: type[DlOp] | None, doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        operands = promote(x1, x2)
        if operands[0].dtype == np.bool_ and of_bools is not None:
            return apply(of_bools, *operands)
        if is_floating(operands[0].dtype):
            refuse(DTypeError(f"{op.name.removeprefix('dl.')} of {operands[0].dtype}; it is for integers and bools"))
        return apply(op, *(convert(x, np.int8) if x.dtype == np.bool_ else x for x in operands))

    return described(function, name, doc)


def _classifying(name: str, op: type[DlOp], doc: str) -> Any:
    """A question about a float; the answer for integers is no."""

    def function(x: ArrayLike, /) -> Any:
        x = operand(x)
        return apply(op, x) if is_floating(x.dtype) else apply(dl.NotEqualOp, x, x)

    return described(function, name, doc)


equal = _comparison("equal", dl.EqualOp, "x1 == x2.")
not_equal = _comparison("not_equal", dl.NotEqualOp, "x1 != x2.")
less = _comparison("less", dl.LessOp, "x1 < x2.")
less_equal = _comparison("less_equal", dl.LessEqualOp, "x1 <= x2.")
greater = _comparison("greater", dl.GreaterOp, "x1 > x2.")
greater_equal = _comparison("greater_equal", dl.GreaterEqualOp, "x1 >= x2.")
maximum = _choosing("maximum", dl.MaximumOp, "The larger; NaN if either is.")
minimum = _choosing("minimum", dl.MinimumOp, "The smaller; NaN if either is.")
logical_and = _logical("logical_and", dl.AndOp, "Whether both are true (not zero).")
logical_or = _logical("logical_or", dl.OrOp, "Whether one is true (not zero).")
logical_xor = _logical("logical_xor", dl.XorOp, "Whether just one is true (not zero).")
bitwise_and = _bitwise("bitwise_and", dl.BitwiseAndOp, dl.AndOp, "The bits set in both; of bools, whether both are true.")
bitwise_or = _bitwise("bitwise_or", dl.BitwiseOrOp, dl.OrOp, "The bits set in one; of bools, whether one is true.")
bitwise_xor = _bitwise("bitwise_xor", dl.BitwiseXorOp, dl.XorOp, "The bits in which they differ; of bools, whether they do.")
bitwise_left_shift = _bitwise("bitwise_left_shift", dl.ShiftLeftOp, None, "x1 · 2^x2 without the bits that leave the dtype.")
bitwise_right_shift = _bitwise("bitwise_right_shift", dl.ShiftRightOp, None, "The largest whole number ≤ x1 / 2^x2.")
isnan = _classifying("isnan", dl.IsnanOp, "Whether x is not a number.")
isinf = _classifying("isinf", dl.IsinfOp, "Whether x is infinite.")


def logical_not(x: ArrayLike, /) -> Any:
    """Whether it is false (zero)."""
    return apply(dl.NotOp, convert(x, np.bool_))


def bitwise_invert(x: ArrayLike, /) -> Any:
    """Every bit turned over; of bools, whether it is false."""
    x = operand(x)
    if is_floating(x.dtype):
        refuse(DTypeError(f"bitwise_invert of {x.dtype}; it is for integers and bools"))
    return apply(dl.NotOp if x.dtype == np.bool_ else dl.BitwiseNotOp, x)


def isfinite(x: ArrayLike, /) -> Any:
    """Whether x is neither infinite nor NaN."""
    x = operand(x)
    return less(abs(x), np.inf) if is_floating(x.dtype) else apply(dl.EqualOp, x, x)


def isposinf(x: ArrayLike, /) -> Any:
    """Whether x is +inf."""
    x = operand(x)
    return equal(x, np.inf) if is_floating(x.dtype) else isinf(x)


def isneginf(x: ArrayLike, /) -> Any:
    """Whether x is -inf."""
    x = operand(x)
    return equal(x, -np.inf) if is_floating(x.dtype) else isinf(x)


def signbit(x: ArrayLike, /) -> Any:
    """Whether x is negative, -0.0 and NaN with that bit among it."""
    x = operand(x)
    if is_floating(x.dtype):
        bits = element_type(f"int{8 * x.dtype.itemsize}")
        return less(apply(dl.BitcastOp, x, to=bits), 0)
    return isnan(x) if x.dtype == np.bool_ else less(x, 0)


def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The larger; the other one if one is NaN."""
    return _numbers_first(dl.MaximumOp, x1, x2)


def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The smaller; the other one if one is NaN."""
    return _numbers_first(dl.MinimumOp, x1, x2)


def _numbers_first(op: type[DlOp], x1: ArrayLike, x2: ArrayLike) -> Any:
    a, b = promote(x1, x2)
    if not is_floating(a.dtype):
        return apply(op, a, b)
    return apply(dl.SelectOp, isnan(a), b, apply(dl.SelectOp, isnan(b), a, apply(op, a, b)))


def isclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Whether |x1 - x2| ≤ atol + rtol · |x2|; infinities are close to themselves, NaN too if `equal_nan`."""
    dtype = dtype_of(x1, x2, 1.0)
    a, b = convert(x1, dtype), convert(x2, dtype)
    near = logical_and(less_equal(abs(subtract(a, b)), add(multiply(abs(b), rtol), atol)), isfinite(b))
    near = logical_or(near, equal(a, b))
    return logical_or(near, logical_and(isnan(a), isnan(b))) if equal_nan else near


def allclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Whether all elements are close, as a bool of rank 0."""
    return _all(isclose(x1, x2, rtol, atol, equal_nan=equal_nan))


def array_equal(x1: ArrayLike, x2: ArrayLike, /, *, equal_nan: bool = False) -> Any:
    """Whether the shapes are equal and all elements are, as a bool of rank 0."""
    a, b = operand(x1), operand(x2)
    if a.shape != b.shape:
        return np.asarray(False)
    same = equal(a, b)
    return _all(logical_or(same, logical_and(isnan(a), isnan(b))) if equal_nan else same)


def array_equiv(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Whether all elements are equal after broadcasting, as a bool of rank 0."""
    return _all(equal(x1, x2))


def _all(x: Any) -> Any:
    return apply(dl.ReduceAllOp, x, axes=tuple(range(x.ndim)), keepdims=False)
