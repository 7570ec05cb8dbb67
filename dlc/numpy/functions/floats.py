"""Floating-point functions: magnitudes, signs, exponentials and special values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.numpy.apply import (
    ArrayLike,
    Operand,
    apply,
    convert,
    in_float32_or_wider,
    is_floating,
    operand,
    promote_to_float,
    refuse,
)
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import (
    bitwise_and,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    equal,
    greater,
    isinf,
    isnan,
    less,
    logical_and,
    logical_or,
    maximum,
    minimum,
    signbit,
)
from dlc.numpy.functions.elementwise import (
    abs,
    add,
    divide,
    exp,
    exp2,
    log1p,
    multiply,
    negative,
    sqrt,
    square,
    subtract,
    trunc,
    where,
)

__all__ = [
    "atan2", "copysign", "fabs", "frexp", "heaviside", "hypot", "ldexp", "logaddexp", "logaddexp2", "modf", "nan_to_num",
    "nextafter", "spacing",
]  # fmt: skip


def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the angle in radians, in [-π, π], of the point (x2, x1); signed zeros are distinguished."""
    return apply(dl.Atan2Op, *promote_to_float(x1, x2, min_dtype=np.float16))


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return √(x1² + x2²) without intermediate overflow; inf if one operand is infinite."""
    return _hypot(*promote_to_float(x1, x2, min_dtype=np.float16))


def _hypot_tangent(length: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """Return the tangent of the hypotenuse, (x·dx + y·dy) / length; 0 where the length is 0."""
    (x, y), (dx, dy) = operands, tangents
    product, is_zero = add(multiply(x, dx), multiply(y, dy)), equal(length, 0)
    return where(is_zero, 0, divide(product, where(is_zero, 1, length)))


@in_float32_or_wider
@with_jvp_rule(_hypot_tangent)
def _hypot(a: Operand, b: Operand) -> Any:
    """Scale by the larger operand, so that no square overflows."""
    a, b = abs(a), abs(b)
    long, short = maximum(a, b), minimum(a, b)
    ratio = divide(short, where(long, long, 1))
    length = multiply(long, sqrt(add(square(ratio), 1)))
    return where(logical_or(isinf(a), isinf(b)), math.inf, length)


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return ln(e^x1 + e^x2) without overflow."""
    a, b = promote_to_float(x1, x2, min_dtype=np.float16)
    return _logaddexp(a, b)


def _difference(a: Operand, b: Operand) -> Any:
    """Return a - b, or 0 for equal infinities. Equal finite values are subtracted, so that the derivative is correct."""
    return where(logical_and(isinf(a), equal(a, b)), 0, subtract(a, b))


def _logaddexp_tangent(total: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """Return the tangent of logaddexp: the tangents weighted by each term's fraction of the sum; 0 if the sum is 0."""
    (a, b), (da, db) = operands, tangents
    weight = apply(dl.SigmoidOp, _difference(a, b))
    tangent = add(multiply(weight, da), multiply(subtract(1, weight), db))
    return where(equal(total, -math.inf), 0, tangent)


def _logaddexp2_tangent(total: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """Return the tangent of logaddexp2: that of logaddexp for the operands times ln 2."""
    return _logaddexp_tangent(total, [multiply(x, math.log(2)) for x in operands], tangents)


@in_float32_or_wider
@with_jvp_rule(_logaddexp_tangent)
def _logaddexp(a: Operand, b: Operand) -> Any:
    """Return max(a, b) + ln(1 + e^-|a - b|)."""
    distance = _difference(a, b)
    return add(maximum(a, b), log1p(exp(negative(abs(distance)))))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return log₂(2^x1 + 2^x2) without overflow."""
    a, b = promote_to_float(x1, x2, min_dtype=np.float16)
    return _logaddexp2(a, b)


@in_float32_or_wider
@with_jvp_rule(_logaddexp2_tangent)
def _logaddexp2(a: Operand, b: Operand) -> Any:
    """Return max(a, b) + log₂(1 + 2^-|a - b|)."""
    distance = _difference(a, b)
    return add(maximum(a, b), multiply(log1p(exp2(negative(abs(distance)))), 1 / math.log(2)))


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return |x1| with the sign of x2."""
    a, b = promote_to_float(x1, x2, min_dtype=np.float16)
    return apply(dl.SelectOp, bitwise_xor(signbit(a), signbit(b)), negative(a), a)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the next float after x1 toward x2."""
    a, b = promote_to_float(x1, x2, min_dtype=np.float16)
    int_dtype = np.dtype(f"int{8 * a.dtype.itemsize}")
    pattern = apply(dl.BitcastOp, a, to=element_type(int_dtype))
    # As an integer, the bit pattern increases away from zero. Zeros are special: the next float is the smallest subnormal.
    is_away_from_zero = equal(greater(b, a), greater(a, 0))
    stepped = apply(
        dl.BitcastOp,
        add(pattern, where(is_away_from_zero, np.asarray(1, int_dtype), np.asarray(-1, int_dtype))),
        to=element_type(a.dtype),
    )
    smallest_subnormal = copysign(apply(dl.BitcastOp, np.asarray(1, int_dtype), to=element_type(a.dtype)), b)
    stepped = where(equal(a, 0), smallest_subnormal, stepped)
    return where(equal(a, b), b, where(logical_or(isnan(a), isnan(b)), add(a, b), stepped))


def spacing(x: ArrayLike, /) -> Any:
    """Return the distance from x to the next float away from zero, with the sign of x."""
    return _spacing(*promote_to_float(x, min_dtype=np.float16))


@with_jvp_rule(lambda y, _, __: np.zeros(y.shape, y.dtype))
def _spacing(x: Operand) -> Any:
    return subtract(nextafter(x, copysign(np.asarray(np.inf, x.dtype), x)), x)


def fabs(x: ArrayLike, /) -> Any:
    """Return the magnitude as a float."""
    return abs(*promote_to_float(x, min_dtype=np.float16))


def frexp(x: ArrayLike, /) -> tuple[Any, Any]:
    """Return mantissa and exponent: x = mantissa · 2^exponent, with a magnitude of the mantissa in [0.5, 1).

    Zeros, infinities and NaN are their own mantissa, with exponent 0. Exponents are int32.
    """
    (x,) = promote_to_float(x, min_dtype=np.float16)
    return _mantissa(x), _exponent(x)


# d(x · 2^-e) = dx · 2^-e
@with_jvp_rule(lambda _, primals, tangents: ldexp(tangents[0], negative(_exponent(primals[0]))))
def _mantissa(x: Operand) -> Any:
    fields = _ExponentField.of(x)
    without_exponent = bitwise_and(fields.bits, np.asarray(~(fields.mask << fields.shift), fields.bits.dtype))
    half = np.asarray((fields.mask >> 1) - 1 << fields.shift, fields.bits.dtype)
    mantissa = apply(dl.BitcastOp, bitwise_or(without_exponent, half), to=element_type(fields.dtype))
    return where(fields.is_normal, convert(mantissa, x.dtype), x)


def _exponent(x: Operand) -> Any:
    fields = _ExponentField.of(x)
    bias = fields.mask >> 1
    exponent = subtract(fields.biased, where(fields.is_tiny, np.int32(bias - 1 + fields.shift + 1), np.int32(bias - 1)))
    return where(fields.is_normal, exponent, np.int32(0))


@dataclass(frozen=True)
class _ExponentField:
    """The bits of floats, where subnormal ones are scaled to normal ones.

    Attributes:
        dtype: The dtype of the floats, of at least 32 bits.
        bits: Their bits, as integers.
        shift: The position of the exponent in them.
        mask: The largest value of the exponent.
        biased: The exponent, as int32.
        is_tiny: Whether a float is subnormal or 0. It is scaled by 2 to the power of `shift` + 1.
        is_normal: Whether a float is neither 0 nor infinite nor NaN.
    """

    dtype: np.dtype[Any]
    bits: Any
    shift: int
    mask: int
    biased: Any
    is_tiny: Any
    is_normal: Any

    @staticmethod
    def of(x: Operand) -> _ExponentField:
        wide: Any = convert(x, np.float32) if x.dtype.itemsize < 4 else x
        info = np.finfo(wide.dtype)
        shift, mask, integer = info.nmant, (1 << info.nexp) - 1, np.dtype(f"i{wide.dtype.itemsize}")
        is_tiny = less(abs(wide), info.tiny)
        bits: Any = apply(dl.BitcastOp, where(is_tiny, multiply(wide, 2.0 ** (shift + 1)), wide), to=element_type(integer))
        biased = bitwise_and(convert(bitwise_right_shift(bits, integer.type(shift)), np.int32), np.int32(mask))
        is_normal = logical_and(greater(biased, 0), less(biased, mask))
        return _ExponentField(wide.dtype, bits, shift, mask, biased, is_tiny, is_normal)


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return x1 · 2^x2 for integers x2."""
    (x,), n = promote_to_float(x1, min_dtype=np.float16), operand(x2)
    if n.dtype.kind not in "iu":
        refuse(DTypeError(f"ldexp: x2 of dtype {n.dtype}; expected integers"))
    # Half-precision floats cannot represent all exponents.
    compute_dtype = np.promote_types(x.dtype, np.float32)
    return convert(apply(dl.LdexpOp, convert(x, compute_dtype), convert(n, compute_dtype)), x.dtype)


def modf(x: ArrayLike, /) -> tuple[Any, Any]:
    """Return the fractional part, with the sign of x, and the integral part."""
    (x,) = promote_to_float(x, min_dtype=np.float16)
    integer_part = trunc(x)
    return copysign(where(isinf(x), 0, subtract(x, integer_part)), x), integer_part


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the step function: 0 for x1 < 0, 1 for x1 > 0, x2 at 0; NaN for NaN."""
    x, at_zero = promote_to_float(x1, x2, min_dtype=np.float16)
    return where(isnan(x), x, where(equal(x, 0), at_zero, convert(greater(x, 0), x.dtype)))


def nan_to_num(x: ArrayLike, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Replace NaN by `nan`, and infinities by `posinf` and `neginf`, by default the largest and the lowest finite value."""
    x = operand(x)
    if not is_floating(x.dtype):
        return x
    limits = cast(Any, ml_dtypes.finfo)(x.dtype)
    above = float(limits.max) if posinf is None else posinf
    below = float(limits.min) if neginf is None else neginf
    return where(isnan(x), nan, where(equal(x, math.inf), above, where(equal(x, -math.inf), below, x)))
