"""Arithmetic and functions of elements, with NumPy's broadcasting and promotion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.frontend.trace import is_number
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    convert,
    described,
    dtype_of,
    has_tracer,
    in_wide_type,
    is_floating,
    operand,
    promote,
    promote_to_float,
    refuse,
)
from dlc.numpy.by_parts import by_parts
from dlc.numpy.namespace import check_device
from dlc.numpy.places import places_of
from dlc.numpy.rules import with_tangent

__all__ = [
    "acos", "acosh", "add", "asin", "asinh", "astype", "atan", "atanh", "cbrt", "ceil", "clip", "cos", "cosh",
    "deg2rad", "divide", "divmod", "exp2", "expm1", "fix", "float_power", "floor", "floor_divide", "fmod",
    "log10", "log1p", "log2", "multiply", "negative", "positive", "power", "rad2deg", "reciprocal",
    "remainder", "rint", "round", "sign", "sin", "sinc", "sinh", "square", "subtract", "tan", "tanh", "trunc", "where",
]  # fmt: skip


def _binary(name: str, op: type[DlOp], doc: str, of_bools: type[DlOp] | None = None, repair: str = "") -> Any:
    """A function of two numbers; bools are what `of_bools` makes of them, int8 without it, or refused with a `repair`."""

    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        operands = promote(x1, x2)
        if operands[0].dtype == np.bool_:
            if repair:
                refuse(DTypeError(f"{op.name.removeprefix('dl.')} of bools; use {repair}"))
            if of_bools is not None:
                return apply(of_bools, *operands)
            operands = [convert(x, np.int8) for x in operands]
        return apply(op, *operands)

    return described(function, name, doc)


def _unary(name: str, op: type[DlOp], doc: str, bools: bool = False) -> Any:
    """A function of one number; of a bool too, which stays what it is, if `bools`."""

    def function(x: ArrayLike, /) -> Any:
        x = operand(x)
        if x.dtype == np.bool_:
            return x if bools else refuse(DTypeError(f"{op.name.removeprefix('dl.')} of bools; convert them with .astype"))
        return apply(op, x)

    return described(function, name, doc)


def _floating(name: str, op: type[DlOp], doc: str) -> Any:
    """A function of one float."""

    def function(x: ArrayLike, /) -> Any:
        return apply(op, *promote_to_float(x, least=np.float16))

    return described(function, name, doc)


def _rounding(name: str, op: type[DlOp], doc: str) -> Any:
    """A function of one number that leaves integers as they are."""

    def function(x: ArrayLike, /) -> Any:
        x = operand(x)
        return apply(op, x) if is_floating(x.dtype) else x

    return described(function, name, doc)


add = _binary("add", dl.AddOp, "x1 + x2; of bools, whether one is true.", dl.OrOp)
subtract = _binary("subtract", dl.SubOp, "x1 - x2.", repair="logical_xor or ^")
multiply = _binary("multiply", dl.MulOp, "x1 · x2; of bools, whether both are true.", dl.AndOp)
floor_divide = _binary("floor_divide", dl.FloordivOp, "The largest whole number ≤ x1 / x2; 0 where an integer is divided by 0.")
remainder = _binary("remainder", dl.ModOp, "x1 - x2 · floor(x1 / x2): the sign of x2; 0 where an integer is divided by 0.")
_power = _binary("power", dl.PowOp, "")

negative = by_parts("x")(_unary("negative", dl.NegOp, "-x."))
abs = _unary("abs", dl.AbsOp, "|x|.", bools=True)
sign = _unary("sign", dl.SignOp, "-1, 0 or 1; NaN for NaN.")

sqrt = _floating("sqrt", dl.SqrtOp, "√x; NaN below 0.")
cbrt = _floating("cbrt", dl.CbrtOp, "The cube root; of negative numbers too.")
exp = _floating("exp", dl.ExpOp, "eˣ.")
exp2 = _floating("exp2", dl.Exp2Op, "2ˣ.")
expm1 = _floating("expm1", dl.Expm1Op, "eˣ - 1, exact near 0.")
log = _floating("log", dl.LogOp, "ln x; -inf at 0, NaN below.")
log2 = _floating("log2", dl.Log2Op, "The logarithm to base 2.")
log10 = _floating("log10", dl.Log10Op, "The logarithm to base 10.")
log1p = _floating("log1p", dl.Log1pOp, "ln(1 + x), exact near 0.")
sin = _floating("sin", dl.SinOp, "sin x, x in radians.")
cos = _floating("cos", dl.CosOp, "cos x, x in radians.")
tan = _floating("tan", dl.TanOp, "tan x, x in radians.")
asin = _floating("asin", dl.AsinOp, "The angle in radians whose sine is x; NaN outside [-1, 1].")
acos = _floating("acos", dl.AcosOp, "The angle in radians whose cosine is x; NaN outside [-1, 1].")
atan = _floating("atan", dl.AtanOp, "The angle in radians whose tangent is x.")
sinh = _floating("sinh", dl.SinhOp, "sinh x.")
cosh = _floating("cosh", dl.CoshOp, "cosh x.")
tanh = _floating("tanh", dl.TanhOp, "tanh x.")
asinh = _floating("asinh", dl.AsinhOp, "arsinh x.")
acosh = _floating("acosh", dl.AcoshOp, "arcosh x; NaN below 1.")
atanh = _floating("atanh", dl.AtanhOp, "artanh x; ±inf at ±1, NaN outside.")
rint = _floating("rint", dl.RoundOp, "The nearest whole number, halves to even, as a float.")

floor = _rounding("floor", dl.FloorOp, "The largest whole number ≤ x.")
ceil = _rounding("ceil", dl.CeilOp, "The smallest whole number ≥ x.")
trunc = _rounding("trunc", dl.TruncOp, "x without its fraction.")
fix = _rounding("fix", dl.TruncOp, "x without its fraction.")


def power(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 to the power of x2; integers wrap around, and of them negative powers that data has are truncated."""
    if not has_tracer(x2) and dtype_of(x1, x2).kind in "iu" and np.any(np.less(operand(x2), 0)):
        refuse(DTypeError("power: an integer to a negative power is no integer; convert one of them with .astype"))
    return _power(x1, x2)


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 / x2; integers become float64 first."""
    return apply(dl.DivOp, *promote_to_float(x1, x2))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 - x2 · trunc(x1 / x2): the sign of x1; 0 where an integer is divided by 0."""
    operands = promote(x1, x2)
    return apply(dl.ModOp, *(convert(x, np.int8) if x.dtype == np.bool_ else x for x in operands), fmod=True)


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Any, Any]:
    """floor_divide and remainder."""
    return floor_divide(x1, x2), remainder(x1, x2)


def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 to the power of x2, computed in float64."""
    return apply(dl.PowOp, convert(x1, np.float64), convert(x2, np.float64))


@by_parts("x")
def positive(x: ArrayLike, /) -> Any:
    """x itself."""
    x = operand(x)
    return refuse(DTypeError("positive of bools; convert them with .astype")) if x.dtype == np.bool_ else x


def reciprocal(x: ArrayLike, /) -> Any:
    """1 / x; of integers truncated, 0 at 0."""
    x = operand(x)
    if is_floating(x.dtype):
        return apply(dl.ReciprocalOp, x)
    x = convert(x, np.int8) if x.dtype == np.bool_ else x
    return apply(dl.DivOp, convert(1, x.dtype), x)


def square(x: ArrayLike, /) -> Any:
    """x²."""
    x = operand(x)
    x = convert(x, np.int8) if x.dtype == np.bool_ else x
    return apply(dl.MulOp, x, x)


# 10 to a higher power is no float.
_MOST_DECIMALS = 308


def round(x: ArrayLike, /, decimals: int = 0) -> Any:
    """The nearest number with so many decimals, halves to even."""
    x = operand(x)
    if not -_MOST_DECIMALS <= decimals <= _MOST_DECIMALS:
        refuse(ShapeError(f"round: {decimals} decimals; expected from -{_MOST_DECIMALS} to {_MOST_DECIMALS}"))
    if x.dtype == np.bool_:
        x = convert(x, np.float16)
    if not is_floating(x.dtype):
        return x if decimals >= 0 else convert(round(convert(x, np.float64), decimals), x.dtype)
    if decimals == 0:
        return apply(dl.RoundOp, x)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    to, back = (multiply, divide) if decimals > 0 else (divide, multiply)
    return back(apply(dl.RoundOp, to(x, scale)), scale)


def sinc(x: ArrayLike, /) -> Any:
    """sin(πx) / πx; 1 at 0."""
    return _sinc(*promote_to_float(x))


def _sinc_slope(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """(cos πx - sinc x) / x; near 0, where that has no digits, π·a·Σ (-1)ᵏ·2k·a²ᵏ⁻² / (2k + 1)! from k = 1 on, for a = πx."""
    (x,), (dx,) = operands, tangents
    angle = multiply(x, math.pi)
    near = apply(dl.LessOp, abs(angle), convert(1.0, x.dtype))
    far = where(near, 1, x)
    turned = multiply(far, math.pi)
    away = divide(subtract(cos(turned), divide(sin(turned), turned)), far)
    series: Any = 0.0
    for k in range(10, 0, -1):
        series = add((-1) ** k * 2 * k / math.factorial(2 * k + 1), multiply(square(angle), series))
    return multiply(where(near, multiply(series, multiply(angle, math.pi)), away), dx)


@in_wide_type
@with_tangent(_sinc_slope)
def _sinc(x: Operand) -> Any:
    whole = rint(x)
    half = multiply(whole, 0.5)
    # Of π·x, only what goes beyond whole turns has digits.
    turned = sin(multiply(subtract(x, whole), math.pi))
    turned = where(apply(dl.EqualOp, half, floor(half)), turned, negative(turned))
    return where(x, divide(divide(turned, math.pi), where(x, x, 1)), 1)


def deg2rad(x: ArrayLike, /) -> Any:
    """Degrees as radians."""
    return multiply(*promote_to_float(x, least=np.float16), math.pi / 180)


def rad2deg(x: ArrayLike, /) -> Any:
    """Radians as degrees."""
    return multiply(*promote_to_float(x, least=np.float16), 180 / math.pi)


@by_parts("x1", "x2")
def where(condition: ArrayLike, x1: ArrayLike | None = None, x2: ArrayLike | None = None, /) -> Any:
    """x1 where `condition` is true (not zero), else x2; without both, the places where it is, as `nonzero` gives them."""
    if x1 is None and x2 is None:
        if not operand(condition).ndim:
            refuse(ShapeError("where: a number has no places; give both values, or an array"))
        return tuple(places_of(convert(condition, np.bool_)))
    if x1 is None or x2 is None:
        return refuse(UnsupportedError("where of one value; give both, or none"))
    return apply(dl.SelectOp, convert(condition, np.bool_), *promote(x1, x2))


def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Any:
    """`x` moved into [min, max]; a bound that is None is open."""
    if operand(x).dtype.kind in "iu":
        ends = np.iinfo(operand(x).dtype)
        # What all integers of the dtype keep to is no bound.
        min = None if _is_integer(min) and min < ends.min else min
        max = None if _is_integer(max) and max > ends.max else max
    bounds = [b for b in (min, max) if b is not None]
    dtype = dtype_of(x, *bounds)
    result = convert(x, dtype)
    if min is not None:
        result = apply(dl.MaximumOp, result, convert(min, dtype))
    return result if max is None else apply(dl.MinimumOp, result, convert(max, dtype))


def _is_integer(bound: object) -> TypeGuard[int]:
    return is_number(bound) and isinstance(bound, int)


def astype(x: ArrayLike, dtype: AnyDType, /, *, copy: bool = True, device: str | None = None) -> Any:
    """`x` as `dtype`: floats to integers truncate and saturate, integers to integers wrap."""
    check_device(device)
    return np.array(x) if copy and isinstance(x, np.ndarray) and x.dtype == dtype else convert(x, dtype)
