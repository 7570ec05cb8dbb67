"""Functions of floats that take care of their infinities, signs and bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.numpy.apply import ArrayLike, Operand, apply, convert, in_wide_type, is_floating, operand, promote_to_float
from dlc.numpy.functions.comparing import (
    bitwise_xor,
    equal,
    greater,
    isinf,
    isnan,
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
from dlc.numpy.rules import with_tangent

__all__ = ["atan2", "copysign", "heaviside", "hypot", "logaddexp", "logaddexp2", "modf", "nan_to_num", "nextafter"]


def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The angle in radians, in [-π, π], of the point with height x1 and width x2; signs of zeros count."""
    return apply(dl.Atan2Op, *promote_to_float(x1, x2, least=np.float16))


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """√(x1² + x2²), without overflow on the way; inf if one is infinite."""
    return _hypot(*promote_to_float(x1, x2, least=np.float16))


def _stretched(length: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """(x·dx + y·dy) / length, 0 where the length is."""
    (x, y), (dx, dy) = operands, tangents
    along, none = add(multiply(x, dx), multiply(y, dy)), equal(length, 0)
    return where(none, 0, divide(along, where(none, 1, length)))


@in_wide_type
@with_tangent(_stretched)
def _hypot(a: Operand, b: Operand) -> Any:
    a, b = abs(a), abs(b)
    long, short = maximum(a, b), minimum(a, b)
    ratio = divide(short, where(long, long, 1))
    length = multiply(long, sqrt(add(square(ratio), 1)))
    return where(logical_or(isinf(a), isinf(b)), math.inf, length)


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """ln(e^x1 + e^x2), without overflow."""
    a, b = promote_to_float(x1, x2, least=np.float16)
    return _logaddexp(a, b)


def _distance(a: Operand, b: Operand) -> Any:
    """a - b, 0 between equal infinities; of equal numbers as well it must be their difference, which has a derivative."""
    return where(logical_and(isinf(a), equal(a, b)), 0, subtract(a, b))


def _shared(total: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """What each is of the sum, times its tangent: half each where they are equal, nothing where the sum is."""
    (a, b), (da, db) = operands, tangents
    share = apply(dl.SigmoidOp, _distance(a, b))
    mixed = add(multiply(share, da), multiply(subtract(1, share), db))
    return where(equal(total, -math.inf), 0, mixed)


def _shared_by_two(total: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """As `_shared` has it, for powers of two."""
    return _shared(total, [multiply(x, math.log(2)) for x in operands], tangents)


@in_wide_type
@with_tangent(_shared)
def _logaddexp(a: Operand, b: Operand) -> Any:
    distance = _distance(a, b)
    return add(maximum(a, b), log1p(exp(negative(abs(distance)))))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """log₂(2^x1 + 2^x2), without overflow."""
    a, b = promote_to_float(x1, x2, least=np.float16)
    return _logaddexp2(a, b)


@in_wide_type
@with_tangent(_shared_by_two)
def _logaddexp2(a: Operand, b: Operand) -> Any:
    distance = _distance(a, b)
    return add(maximum(a, b), multiply(log1p(exp2(negative(abs(distance)))), 1 / math.log(2)))


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """|x1| with the sign of x2."""
    a, b = promote_to_float(x1, x2, least=np.float16)
    return apply(dl.SelectOp, bitwise_xor(signbit(a), signbit(b)), negative(a), a)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The next float after x1 in the direction of x2."""
    a, b = promote_to_float(x1, x2, least=np.float16)
    bits = np.dtype(f"int{8 * a.dtype.itemsize}")
    place = apply(dl.BitcastOp, a, to=element_type(bits))
    # Away from zero the bits count up, as an integer. Zero itself has two patterns; the first float after it is 1.
    outward = equal(greater(b, a), greater(a, 0))
    moved = apply(dl.BitcastOp, add(place, where(outward, np.asarray(1, bits), np.asarray(-1, bits))), to=element_type(a.dtype))
    first = copysign(apply(dl.BitcastOp, np.asarray(1, bits), to=element_type(a.dtype)), b)
    moved = where(equal(a, 0), first, moved)
    return where(equal(a, b), b, where(logical_or(isnan(a), isnan(b)), add(a, b), moved))


def modf(x: ArrayLike, /) -> tuple[Any, Any]:
    """The fraction, with the sign of x, and the whole part."""
    (x,) = promote_to_float(x, least=np.float16)
    whole = trunc(x)
    return copysign(where(isinf(x), 0, subtract(x, whole)), x), whole


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """0 below 0, 1 above, x2 at 0; NaN for NaN."""
    x, at_zero = promote_to_float(x1, x2, least=np.float16)
    return where(isnan(x), x, where(equal(x, 0), at_zero, convert(greater(x, 0), x.dtype)))


def nan_to_num(x: ArrayLike, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """`x` with `nan` for NaN, and for infinities `posinf` and `neginf`: the ends of the dtype's range if None."""
    x = operand(x)
    if not is_floating(x.dtype):
        return x
    limits = cast(Any, ml_dtypes.finfo)(x.dtype)
    above = float(limits.max) if posinf is None else posinf
    below = float(limits.min) if neginf is None else neginf
    return where(isnan(x), nan, where(equal(x, math.inf), above, where(equal(x, -math.inf), below, x)))
