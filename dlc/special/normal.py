"""The error function and the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Operand, apply, in_wide_type
from dlc.numpy.functions.comparing import greater, less, minimum
from dlc.numpy.functions.elementwise import abs, divide, exp, log, log1p, multiply, rint, square, where
from dlc.numpy.rules import with_tangent
from dlc.special.formulas import floats, polynomial

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


# ln(e^(z²) erfc(z) / t) / (t - 1) for t = 2 / (2 + z) from 0 to 1, in powers of 2t - 1, the highest first: of the series of
# Chebyshev's polynomials of the logarithm, computed with 40 digits, and of its first half, which is enough for single
# precision; the form is that of Press et al., Numerical Recipes (3rd edition, 6.2.2).
_TAIL_F64 = (
    -3.7804612017889075e-09, 4.341303092150533e-09, 2.6686007619398048e-08, -5.165763340114567e-08, -4.8767901791895134e-08,
    2.579190166262684e-07, -2.41247535717665e-07, -5.78243550130731e-07, 1.9218117723832196e-06, -6.228120373545202e-07,
    -6.518785791351038e-06, 1.0606461048891532e-05, 1.088191433158082e-05, -4.949385477120767e-05, 1.399650472766714e-05,
    0.00015679853298280775, -0.00019180736142334468, -0.0003792774237653081, 0.0009680801673951618, 0.0006755864406391551,
    -0.004016038560326551, -0.0004981714447285195, 0.01715170566939273, -0.0025936730633871904, -0.09638489352573779,
    -0.0016982798419289266, 1.3435881681133846,
)  # fmt: skip
_TAIL_F32 = (
    -1.6242510339981854e-05, 2.520363157557578e-05, 0.00010879542474806116, -0.0002004721569112707, -0.00034286678254668435,
    0.0009730409129953627, 0.0006607723666164028, -0.004017783081488781, -0.0004951043521980119, 0.01715201200309207,
    -0.002593948915495921, -0.09638491323748592, -0.0016982725027255938, 1.3435881685892912,
)  # fmt: skip


def _tail(z: Any) -> tuple[Any, Any]:
    """For z ≥ 0, e^(z²) · erfc(z) as t and a logarithm: t · e^logarithm."""
    t = divide(2, z + 2)
    return t, (t - 1) * polynomial(2 * t - 1, _TAIL_F64 if z.dtype.itemsize >= 8 else _TAIL_F32)


def _split_square(x: Any) -> tuple[Any, Any]:
    """x² as an exact number, the square of x rounded to 128ths, and a small one."""
    near = rint(x * 128) * (1 / 128)
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
    # The square may be rounded up to one whose exponential, twice, is infinite.
    return where(negative, exp(most) * (2 * exp(rest)) - value, value)


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
    # Half of x first: its square overflows before the result does.
    return where(low, logarithm + log(t * 0.5) - multiply(x, x * 0.5), inside)
