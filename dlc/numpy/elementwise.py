"""Elementwise functions, with NumPy's broadcasting and promotion."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.numpy.apply import ArrayLike, apply, convert, operand, promote, promote_to_float


def _binary(op: type[DlOp], doc: str) -> Any:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        return apply(op, *promote(x1, x2))

    function.__doc__ = doc
    return function


def _unary(op: type[DlOp], doc: str) -> Any:
    def function(x: ArrayLike, /) -> Any:
        return apply(op, operand(x))

    function.__doc__ = doc
    return function


def _floating(op: type[DlOp], doc: str) -> Any:
    def function(x: ArrayLike, /) -> Any:
        return apply(op, *promote_to_float(x))

    function.__doc__ = f"{doc} Integers become float64 first."
    return function


def _logical(op: type[DlOp], doc: str) -> Any:
    def function(*xs: ArrayLike) -> Any:
        return apply(op, *(convert(x, np.bool_) for x in xs))

    function.__doc__ = doc
    return function


add = _binary(dl.AddOp, "x1 + x2.")
subtract = _binary(dl.SubOp, "x1 - x2.")
multiply = _binary(dl.MulOp, "x1 · x2.")
floor_divide = _binary(dl.FloordivOp, "The largest whole number ≤ x1 / x2.")
remainder = _binary(dl.ModOp, "x1 - x2 · floor(x1 / x2): the sign of x2.")
maximum = _binary(dl.MaximumOp, "The larger; NaN if either is.")
minimum = _binary(dl.MinimumOp, "The smaller; NaN if either is.")
equal = _binary(dl.EqualOp, "x1 == x2.")
not_equal = _binary(dl.NotEqualOp, "x1 != x2.")
less = _binary(dl.LessOp, "x1 < x2.")
less_equal = _binary(dl.LessEqualOp, "x1 <= x2.")
greater = _binary(dl.GreaterOp, "x1 > x2.")
greater_equal = _binary(dl.GreaterEqualOp, "x1 >= x2.")
logical_and = _logical(dl.AndOp, "Whether both are true (not zero).")
logical_or = _logical(dl.OrOp, "Whether one is true (not zero).")
logical_not = _logical(dl.NotOp, "Whether it is false (zero).")
negative = _unary(dl.NegOp, "-x.")
abs = _unary(dl.AbsOp, "|x|.")
sign = _unary(dl.SignOp, "-1, 0 or 1; NaN for NaN.")
sqrt = _floating(dl.SqrtOp, "√x; NaN below 0.")
reciprocal = _floating(dl.ReciprocalOp, "1 / x.")
exp = _floating(dl.ExpOp, "eˣ.")
expm1 = _floating(dl.Expm1Op, "eˣ - 1, exact near 0.")
log = _floating(dl.LogOp, "ln x.")
log1p = _floating(dl.Log1pOp, "ln(1 + x), exact near 0.")
log2 = _floating(dl.Log2Op, "The logarithm to base 2.")
sin = _floating(dl.SinOp, "sin x, x in radians.")
cos = _floating(dl.CosOp, "cos x, x in radians.")
tan = _floating(dl.TanOp, "tan x, x in radians.")
tanh = _floating(dl.TanhOp, "tanh x.")
floor = _floating(dl.FloorOp, "The largest whole number ≤ x.")
ceil = _floating(dl.CeilOp, "The smallest whole number ≥ x.")
round = _floating(dl.RoundOp, "The nearest whole number, halves to even.")
isnan = _floating(dl.IsnanOp, "Whether x is not a number.")
isinf = _floating(dl.IsinfOp, "Whether x is infinite.")


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 / x2; integers become float64 first."""
    return apply(dl.DivOp, *promote_to_float(x1, x2))


def power(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 to the power of x2."""
    return apply(dl.PowOp, *promote(x1, x2))


def square(x: ArrayLike, /) -> Any:
    """x²."""
    return multiply(x, x)


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 where `condition` is true, else x2."""
    return apply(dl.SelectOp, convert(condition, np.bool_), *promote(x1, x2))


def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None, /) -> Any:
    """`x` moved into [min, max]; a bound that is None is open."""
    if min is not None:
        x = maximum(x, min)
    return minimum(x, max) if max is not None else operand(x)


def astype(x: ArrayLike, dtype: Any, /) -> Any:
    """`x` as `dtype`: floats to integers truncate and saturate, integers to integers wrap."""
    return convert(x, dtype)
