"""Elementwise functions: arithmetic and math functions, with NumPy's broadcasting and type promotion."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ArgumentError, DTypeError, ShapeError
from dlc.frontend.trace import Tracer, is_python_scalar
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    convert,
    in_float32_or_wider,
    is_floating,
    is_less,
    is_traced,
    is_weak,
    operand,
    promote,
    promote_to_float,
    refuse,
    result_dtype,
    with_name_and_doc,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.data_dependent import true_indices
from dlc.numpy.namespace import check_device
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = [
    "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "clip", "cos", "cosh",
    "deg2rad", "divide", "divmod", "exp2", "expm1", "fix", "float_power", "floor", "floor_divide", "fmod",
    "log10", "log1p", "log2", "multiply", "negative", "positive", "power", "rad2deg", "reciprocal",
    "remainder", "rint", "round", "sign", "sin", "sinc", "sinh", "square", "subtract", "tan", "tanh", "trunc", "where",
]  # fmt: skip


def _binary(name: str, op: type[DlOp], doc: str, bool_op: type[DlOp] | None = None, hint: str = "") -> Any:
    """Define a binary arithmetic function.

    Bools use the op `bool_op`, or are converted to int8; with `hint`, they raise DTypeError with that advice.
    """

    def function(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        operands = promote(x1, x2)
        if operands[0].dtype == np.bool_:
            if hint:
                refuse(DTypeError(f"{op.name.removeprefix('dl.')} of bools; use {hint}"))
            if bool_op is not None:
                return apply(bool_op, *operands)
            operands = [convert(x, np.int8) for x in operands]
        return apply(op, *operands)

    return with_name_and_doc(function, name, doc)


def _unary(name: str, op: type[DlOp], doc: str, accepts_bools: bool = False) -> Any:
    """Define a unary arithmetic function; bools are returned unchanged if `accepts_bools`, else raise DTypeError."""

    def function(x: ArrayLike, /) -> Any:
        x = operand(x)
        if x.dtype == np.bool_:
            return (
                x if accepts_bools else refuse(DTypeError(f"{op.name.removeprefix('dl.')} of bools; convert them with .astype"))
            )
        return apply(op, x)

    return with_name_and_doc(function, name, doc)


def _float_function(name: str, op: type[DlOp], doc: str) -> Any:
    """Define a function of floats; integers are promoted."""

    def function(x: ArrayLike, /) -> Any:
        return apply(op, *promote_to_float(x, min_dtype=np.float16))

    return with_name_and_doc(function, name, doc)


def _rounding_function(name: str, op: type[DlOp], doc: str) -> Any:
    """Define a rounding function that returns integers unchanged."""

    def function(x: ArrayLike, /) -> Any:
        x = operand(x)
        return apply(op, x) if is_floating(x.dtype) else x

    return with_name_and_doc(function, name, doc)


add = _binary("add", dl.AddOp, "Return x1 + x2; logical or for bools.", dl.OrOp)
subtract = _binary("subtract", dl.SubOp, "Return x1 - x2.", hint="logical_xor or ^")
multiply = _binary("multiply", dl.MulOp, "Return x1 · x2; logical and for bools.", dl.AndOp)
floor_divide = _binary("floor_divide", dl.FloordivOp, "Return floor(x1 / x2); 0 for integer division by 0.")
remainder = _binary("remainder", dl.ModOp, "Return x1 - x2 · floor(x1 / x2), with the sign of x2; 0 for integer division by 0.")
_power = _binary("power", dl.PowOp, "")

negative = componentwise("x")(_unary("negative", dl.NegOp, "Return -x."))
abs = _unary("abs", dl.AbsOp, "Return |x|.", accepts_bools=True)
sign = _unary("sign", dl.SignOp, "Return the sign, -1, 0 or 1; NaN for NaN.")

sqrt = _float_function("sqrt", dl.SqrtOp, "Return √x; NaN for negative x.")
cbrt = _float_function("cbrt", dl.CbrtOp, "Return the cube root, also of negative x.")
exp = _float_function("exp", dl.ExpOp, "Return eˣ.")
exp2 = _float_function("exp2", dl.Exp2Op, "Return 2ˣ.")
expm1 = _float_function("expm1", dl.Expm1Op, "Return eˣ - 1, accurate near 0.")
log = _float_function("log", dl.LogOp, "Return ln x; -inf at 0, NaN for negative x.")
log2 = _float_function("log2", dl.Log2Op, "Return the base-2 logarithm.")
log10 = _float_function("log10", dl.Log10Op, "Return the base-10 logarithm.")
log1p = _float_function("log1p", dl.Log1pOp, "Return ln(1 + x), accurate near 0.")
sin = _float_function("sin", dl.SinOp, "Return sin x, with x in radians.")
cos = _float_function("cos", dl.CosOp, "Return cos x, with x in radians.")
tan = _float_function("tan", dl.TanOp, "Return tan x, with x in radians.")
asin = _float_function("asin", dl.AsinOp, "Return the inverse sine in radians; NaN outside [-1, 1].")
acos = _float_function("acos", dl.AcosOp, "Return the inverse cosine in radians; NaN outside [-1, 1].")
atan = _float_function("atan", dl.AtanOp, "Return the inverse tangent in radians.")
sinh = _float_function("sinh", dl.SinhOp, "Return sinh x.")
cosh = _float_function("cosh", dl.CoshOp, "Return cosh x.")
tanh = _float_function("tanh", dl.TanhOp, "Return tanh x.")
asinh = _float_function("asinh", dl.AsinhOp, "Return the inverse hyperbolic sine.")
acosh = _float_function("acosh", dl.AcoshOp, "Return the inverse hyperbolic cosine; NaN for x < 1.")
atanh = _float_function("atanh", dl.AtanhOp, "Return the inverse hyperbolic tangent; ±inf at ±1, NaN outside.")
rint = _float_function("rint", dl.RoundOp, "Round to the nearest integer, half to even; returns a float.")

floor = _rounding_function("floor", dl.FloorOp, "Return the largest integer ≤ x, as a float.")
ceil = _rounding_function("ceil", dl.CeilOp, "Return the smallest integer ≥ x, as a float.")
trunc = _rounding_function("trunc", dl.TruncOp, "Round toward 0.")
fix = _rounding_function("fix", dl.TruncOp, "Round toward 0.")


def power(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return x1 to the power x2; integers wrap around. Their negative powers are refused, or truncated in traced arrays."""
    if result_dtype(x1, x2).kind in "iu" and _is_negative_exponent(x2):
        refuse(DTypeError("power: an integer to a negative integer power; convert one operand to a float with .astype"))
    return _power(x1, x2)


def _is_negative_exponent(x2: ArrayLike) -> bool:
    """Return whether an exponent of `power` is negative, as far as it is known; for a size, the opposite may become a guard."""
    if isinstance(x2, TracedDim):
        return is_less(operand(x2), untraced(x2), 0, "power", "a negative exponent of integers")
    return not is_traced(x2) and bool(np.any(np.less(operand(x2), 0)))


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return x1 / x2; integers are promoted to float64."""
    return apply(dl.DivOp, *promote_to_float(x1, x2))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return x1 - x2 · trunc(x1 / x2), with the sign of x1; 0 for integer division by 0."""
    operands = promote(x1, x2)
    return apply(dl.ModOp, *(convert(x, np.int8) if x.dtype == np.bool_ else x for x in operands), fmod=True)


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Any, Any]:
    """Return floor_divide and remainder."""
    return floor_divide(x1, x2), remainder(x1, x2)


def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return x1 to the power x2, computed in float64."""
    return apply(dl.PowOp, convert(x1, np.float64), convert(x2, np.float64))


@componentwise("x")
def positive(x: ArrayLike, /) -> Any:
    """Return x."""
    x = operand(x)
    return refuse(DTypeError("positive of bools; convert them with .astype")) if x.dtype == np.bool_ else x


def reciprocal(x: ArrayLike, /) -> Any:
    """Return 1 / x; truncated for integers, and 0 for the integer 0."""
    x = operand(x)
    if is_floating(x.dtype):
        return apply(dl.ReciprocalOp, x)
    x = convert(x, np.int8) if x.dtype == np.bool_ else x
    return apply(dl.DivOp, convert(1, x.dtype), x)


def square(x: ArrayLike, /) -> Any:
    """Return x²."""
    x = operand(x)
    x = convert(x, np.int8) if x.dtype == np.bool_ else x
    return apply(dl.MulOp, x, x)


# A higher power of 10 overflows float64.
_MAX_DECIMALS = 308


def round(x: ArrayLike, /, decimals: int = 0) -> Any:
    """Round to the given number of decimals, half to even."""
    x, decimals = operand(x), operator.index(decimals)
    if not -_MAX_DECIMALS <= decimals <= _MAX_DECIMALS:
        refuse(ShapeError(f"round: decimals {decimals}; expected from -{_MAX_DECIMALS} to {_MAX_DECIMALS}"))
    if x.dtype == np.bool_:
        x = convert(x, np.float16)
    if not is_floating(x.dtype):
        return x if decimals >= 0 else convert(round(convert(x, np.float64), decimals), x.dtype)
    if decimals == 0:
        return apply(dl.RoundOp, x)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    scale_up, scale_down = (multiply, divide) if decimals > 0 else (divide, multiply)
    return scale_down(apply(dl.RoundOp, scale_up(x, scale)), scale)


def sinc(x: ArrayLike, /) -> Any:
    """Return sin(πx) / πx; 1 at 0."""
    return _sinc(*promote_to_float(x))


def _sinc_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """Return the tangent (cos πx - sinc x) / x · dx.

    Near 0, where that cancels, use the series π·a·Σ (-1)ᵏ·2k·a²ᵏ⁻² / (2k + 1)!, a = πx.
    """
    (x,), (dx,) = operands, tangents
    angle = multiply(x, math.pi)
    is_near_zero = apply(dl.LessOp, abs(angle), convert(1.0, x.dtype))
    safe_x = where(is_near_zero, 1, x)
    safe_angle = multiply(safe_x, math.pi)
    quotient = divide(subtract(cos(safe_angle), divide(sin(safe_angle), safe_angle)), safe_x)
    series: Any = 0.0
    for k in range(10, 0, -1):
        series = add((-1) ** k * 2 * k / math.factorial(2 * k + 1), multiply(square(angle), series))
    return multiply(where(is_near_zero, multiply(series, multiply(angle, math.pi)), quotient), dx)


@in_float32_or_wider
@with_jvp_rule(_sinc_tangent)
def _sinc(x: Operand) -> Any:
    nearest_integer = rint(x)
    half = multiply(nearest_integer, 0.5)
    # Range reduction: sin(π·x) = ±sin(π·(x - n)) for the nearest integer n keeps the accuracy for large x.
    sine = sin(multiply(subtract(x, nearest_integer), math.pi))
    sine = where(apply(dl.EqualOp, half, floor(half)), sine, negative(sine))
    return where(x, divide(divide(sine, math.pi), where(x, x, 1)), 1)


def deg2rad(x: ArrayLike, /) -> Any:
    """Convert degrees to radians."""
    return multiply(*promote_to_float(x, min_dtype=np.float16), math.pi / 180)


def rad2deg(x: ArrayLike, /) -> Any:
    """Convert radians to degrees."""
    return multiply(*promote_to_float(x, min_dtype=np.float16), 180 / math.pi)


@componentwise("x1", "x2")
def where(condition: ArrayLike, x1: ArrayLike | None = None, x2: ArrayLike | None = None, /) -> Any:
    """Return x1 where `condition` is true (nonzero), else x2; without x1 and x2, `nonzero(condition)`."""
    if x1 is None and x2 is None:
        if not operand(condition).ndim:
            refuse(ShapeError("where: a condition of rank 0 has no axes to index; pass x1 and x2, or an array"))
        return tuple(true_indices(convert(condition, np.bool_)))
    if x1 is None or x2 is None:
        return refuse(ArgumentError("where with only one of x1 and x2; pass both, or neither"))
    return apply(dl.SelectOp, convert(condition, np.bool_), *promote(x1, x2))


def clip(
    x: ArrayLike,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
    /,
    *,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> Any:
    """Limit `x` to the bounds `min` and `max`, which may also be positional; None for no bound."""
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        refuse(DTypeError("clip: two values for a bound; pass min and max, or positional bounds"))
    return _clip(x, a_min if min is None else min, a_max if max is None else max)


def _clip(x: ArrayLike, min: ArrayLike | None, max: ArrayLike | None) -> Any:
    if operand(x).dtype.kind in "iu":
        limits = np.iinfo(operand(x).dtype)
        # A bound outside of the dtype's range is as good as the dtype's own limit: every element satisfies it.
        min = _limit(dl.MaximumOp, min, limits.min)
        max = _limit(dl.MinimumOp, max, limits.max)
    bounds = [b for b in (min, max) if b is not None]
    dtype = result_dtype(x, *bounds)
    result = convert(x, dtype)
    if min is not None:
        result = apply(dl.MaximumOp, result, convert(min, dtype))
    return result if max is None else apply(dl.MinimumOp, result, convert(max, dtype))


def _limit(op: type[dl.MinimumOp | dl.MaximumOp], bound: ArrayLike | None, limit: int) -> ArrayLike | None:
    """Return the minimum or maximum of a weakly typed integer and a limit, weakly typed; other bounds unchanged."""
    if isinstance(bound, int) and is_python_scalar(bound):
        return min(bound, limit) if op is dl.MinimumOp else max(bound, limit)
    if bound is None or not is_weak(bound) or (number := operand(bound)).dtype.kind not in "iu":
        return bound
    own_limits = np.iinfo(number.dtype)
    if not own_limits.min <= limit <= own_limits.max:
        return bound
    limited = apply(op, number, np.asarray(limit, number.dtype))
    return Tracer(limited.owner, limited.value, weak=True)


def astype(x: ArrayLike, dtype: AnyDType, /, *, copy: bool = True, device: str | None = None) -> Any:
    """Cast `x` to `dtype`: floats to integers truncate and saturate, integers to integers wrap."""
    check_device(device)
    return np.array(x) if copy and isinstance(x, np.ndarray) and x.dtype == dtype else convert(x, dtype)
