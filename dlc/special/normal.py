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


# ln(e^(z²) erfc(z) / t) for t = 2 / (2 + z) from 0 to 1, in powers of 2t - 1 from the highest on: of Chebyshev's series,
# computed with 40 digits, and of its first half, which is enough for single precision; the form is that of Press et al.,
# Numerical Recipes (3rd edition, 6.2.2).
_TAIL_F64 = (
    -1.8902306008944537e-09, 4.06088214696972e-09, 1.1172352263623759e-08, -3.9171820510271855e-08, 1.4448658046252676e-09,
    1.5334345920908177e-07, -2.495832761719667e-07, -1.6849800720653297e-07, 1.2500276612569754e-06, -1.27231190486887e-06,
    -2.947986876998259e-06, 8.562623420121286e-06, 1.3772664134464417e-07, -3.0187884551394243e-05, 3.17451797494374e-05,
    7.14010141275703e-05, -0.0001743029472030762, -9.37350311709817e-05, 0.000673678795580235, -0.00014624686337800336,
    -0.002345812500482853, 0.001758933557799016, 0.008824938557060623, -0.009872689366389959, -0.0468956102311753,
    0.04734330684190443, 0.6726432239776567, -0.6717940840566923,
)  # fmt: skip
_TAIL_F32 = (
    -8.121255169990927e-06, 2.0723070957778818e-05, 4.179589658624269e-05, -0.00015463379082966594, -7.119731281770681e-05,
    0.0006579538477710235, -0.00015613427318947993, -0.002339277724052592, 0.0017613393646453846, 0.00882355817764504,
    -0.009872980459293995, -0.046895482160995, 0.04734332036738016, 0.6726432205460084, -0.6717940841603572,
)  # fmt: skip


def _tail(z: Any) -> tuple[Any, Any]:
    """For z ≥ 0, e^(z²) · erfc(z) as t and a logarithm: t · e^logarithm."""
    t = divide(2, z + 2)
    return t, polynomial(2 * t - 1, _TAIL_F64 if z.dtype.itemsize >= 8 else _TAIL_F32)


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
    # Half of x first: its square overflows before the result does.
    return where(low, logarithm + log(t * 0.5) - multiply(x, x * 0.5), inside)
