"""The error function and the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Operand, apply, in_wide_type
from dlc.numpy.functions.comparing import greater, less, minimum
from dlc.numpy.functions.elementwise import abs, divide, exp, floor, log, log1p, multiply, square, where
from dlc.numpy.rules import with_tangent
from dlc.special.formulas import chebyshev, floats

__all__ = ["erf", "erfc", "erfcx", "erfinv", "log_ndtr", "ndtr"]


def erf(x: ArrayLike, /) -> Any:
    """2/√π · ∫₀ˣ e^(-t²) dt."""
    return apply(dl.ErfOp, *floats(x))


def erfinv(x: ArrayLike, /) -> Any:
    """The number whose erf is x; ±inf at ±1, nan beyond."""
    return apply(dl.ErfinvOp, *floats(x))


def erfc(x: ArrayLike, /) -> Any:
    """1 - erf(x), without cancellation where that is small."""
    return _erfc(*floats(x))


def erfcx(x: ArrayLike, /) -> Any:
    """e^(x²) · erfc(x), which is about 1 / (√π·x) for large x."""
    return _erfcx(*floats(x))


def ndtr(x: ArrayLike, /) -> Any:
    """The probability of a normal number below x."""
    return _ndtr(*floats(x))


def log_ndtr(x: ArrayLike, /) -> Any:
    """ln(ndtr(x)), also where that is 0."""
    return _log_ndtr(*floats(x))


# Chebyshev's coefficients of ln(e^(z²) erfc(z) / t) for t = 2 / (2 + z) from 0 to 1, computed with 40 digits; the form is that
# of Press et al., Numerical Recipes (3rd edition, 6.2.2).
_TAIL = (
    -1.3026537197817094342, 0.6419697923564902603, 0.01947647320418583631, -0.009561514786808631642, -0.0009465953444820368663,
    0.0003668394978527614519, 4.252332480690777164e-5, -2.027857811253424315e-5, -1.624290004647025513e-6,
    1.303655835580523202e-6, 1.562644172206614318e-8, -8.523809591492654253e-8, 6.529054439098851496e-9,
    5.059343495551468942e-9, -9.913641564930330867e-10, -2.273651222931835856e-10, 9.646791102015526802e-11,
    2.394038083039114745e-12, -6.886027526497553398e-12, 8.944879273090725717e-13, 3.130921399342958078e-13,
    -1.127082236136725237e-13, 3.810905255189232055e-16, 7.106097613609236988e-15, -1.523028201457104304e-15,
    -9.457494571291234e-17, 1.210237189224278992e-16, -2.816663087747176972e-17,
)  # fmt: skip


def _tail(z: Any) -> tuple[Any, Any]:
    """For z ≥ 0, e^(z²) · erfc(z) as t and a logarithm: t · e^logarithm."""
    t = divide(2, z + 2)
    # Single precision needs the first half.
    return t, chebyshev(2 * t - 1, _TAIL if z.dtype.itemsize >= 8 else _TAIL[:15])


def _split_square(x: Any) -> tuple[Any, Any]:
    """x² as an exact number, the square of x rounded to sixteenths, and a small one."""
    near = floor(x * 16) * (1 / 16)
    return square(near), (x - near) * (x + near)


def _below_bell(x: Any, z: Any, part: float) -> Any:
    """e^(-part·x²) times e^(z²) · erfc(z), where part·x² is z²."""
    (t, logarithm), (most, rest) = _tail(z), _split_square(x)
    tail = t * exp(-part * most) * exp(logarithm - part * rest)
    return where(greater(z, 30), 0, tail)


def _erfc_slope(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(exp(-square(operands[0])) * (-2 / math.sqrt(math.pi)), tangents[0])


@in_wide_type
@with_tangent(_erfc_slope)
def _erfc(x: Any) -> Any:
    tail = _below_bell(abs(x), abs(x), 1.0)
    return where(less(x, 0), 2 - tail, tail)


def _erfcx_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(2 * multiply(operands[0], result) - 2 / math.sqrt(math.pi), tangents[0])


@in_wide_type
@with_tangent(_erfcx_slope)
def _erfcx(x: Any) -> Any:
    (t, logarithm), negative = _tail(abs(x)), less(x, 0)
    # Beyond 30 the square's exponential is infinite.
    most, rest = _split_square(where(negative, minimum(abs(x), 30), 0))
    value = t * exp(logarithm)
    return where(negative, 2 * exp(most) * exp(rest) - value, value)


def _ndtr_slope(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(exp(square(operands[0]) * -0.5) * (1 / math.sqrt(2 * math.pi)), tangents[0])


@in_wide_type
@with_tangent(_ndtr_slope)
def _ndtr(x: Any) -> Any:
    tail = _below_bell(abs(x), abs(x) * math.sqrt(0.5), 0.5) * 0.5
    return where(greater(x, 0), 1 - tail, tail)


def _log_ndtr_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    t, logarithm = _tail(abs(operands[0]) * math.sqrt(0.5))
    # The density by the probability, without their common factor where both are small.
    low = multiply(t, exp(logarithm)) * math.sqrt(math.pi / 2)
    high = exp(square(operands[0]) * -0.5 - result) * (1 / math.sqrt(2 * math.pi))
    return multiply(where(less(operands[0], 0), divide(1, low), high), tangents[0])


@in_wide_type
@with_tangent(_log_ndtr_slope)
def _log_ndtr(x: Any) -> Any:
    t, logarithm = _tail(abs(x) * math.sqrt(0.5))
    low = less(x, -1)
    inside = log1p(-_ndtr(where(low, 0, -x)))
    return where(low, logarithm + log(t * 0.5) - square(x) * 0.5, inside)
