"""Error functions and the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Operand, apply, in_float32_or_wider
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, greater, less, logical_and, minimum
from dlc.numpy.functions.elementwise import abs, divide, exp, log, log1p, multiply, rint, sqrt, square, where
from dlc.special.evaluation import in_float64, polynomial, promote_floats

__all__ = ["erf", "erfc", "erfcx", "erfinv", "log_ndtr", "ndtr", "ndtri"]


def erf(x: ArrayLike, /) -> Any:
    """Return 2/√π · ∫₀ˣ e^(-t²) dt."""
    return apply(dl.ErfOp, *promote_floats(x))


def erfinv(x: ArrayLike, /) -> Any:
    """Return the inverse of erf; ±inf at ±1, nan beyond."""
    return apply(dl.ErfinvOp, *promote_floats(x))


def erfc(x: ArrayLike, /) -> Any:
    """Return 1 - erf(x) without cancellation for large x."""
    return _erfc(*promote_floats(x))


def erfcx(x: ArrayLike, /) -> Any:
    """Return e^(x²) · erfc(x), about 1 / (√π·x) for large x."""
    return _erfcx(*promote_floats(x))


def ndtr(x: ArrayLike, /) -> Any:
    """Return the cumulative distribution function of the standard normal distribution."""
    return _ndtr(*promote_floats(x))


def log_ndtr(x: ArrayLike, /) -> Any:
    """Return ln(ndtr(x)), also where ndtr(x) underflows."""
    return _log_ndtr(*promote_floats(x))


def ndtri(p: ArrayLike, /) -> Any:
    """Return the x at which ndtr(x) is p; -inf at 0, inf at 1, nan beyond. Computed in float64."""
    return _ndtri(*promote_floats(p))


# ln(e^(z²) erfc(z) / t) / (t - 1) for t = 2 / (2 + z) from 0 to 1, in powers of 2t - 1, the highest first: a Chebyshev
# expansion computed with 40 digits, and its first half, which is enough for float32. Source of the form: Press et al.,
# Numerical Recipes (3rd edition, 6.2.2).
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
    """Return e^(z²) · erfc(z) for z ≥ 0 as (t, logarithm): t · e^logarithm."""
    t = divide(2, z + 2)
    return t, (t - 1) * polynomial(2 * t - 1, _TAIL_F64 if z.dtype.itemsize >= 8 else _TAIL_F32)


def _split_square(x: Any) -> tuple[Any, Any]:
    """Return x² as the sum of an exact term, the square of x rounded to 1/128, and a small correction."""
    rounded = rint(x * 128) * (1 / 128)
    return square(rounded), (x - rounded) * (x + rounded)


def _scaled_tail(x: Any, z: Any, fraction: float) -> Any:
    """Return e^(-fraction·x²) · e^(z²) · erfc(z), where fraction·x² = z²."""
    (t, logarithm), (exact, remainder) = _tail(z), _split_square(x)
    tail = t * exp(-fraction * exact) * exp(logarithm - fraction * remainder)
    return where(greater(z, 30), 0, tail)


def _erfc_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(exp(-square(operands[0])) * (-2 / math.sqrt(math.pi)), tangents[0])


@in_float32_or_wider
@with_jvp_rule(_erfc_tangent)
def _erfc(x: Any) -> Any:
    tail = _scaled_tail(abs(x), abs(x), 1.0)
    return where(less(x, 0), 2 - tail, tail)


def _erfcx_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(2 * multiply(operands[0], result) - 2 / math.sqrt(math.pi), tangents[0])


@in_float32_or_wider
@with_jvp_rule(_erfcx_tangent)
def _erfcx(x: Any) -> Any:
    (t, logarithm), negative = _tail(abs(x)), less(x, 0)
    # e^(x²) overflows for |x| > 30.
    exact, remainder = _split_square(where(negative, minimum(abs(x), 30), 0))
    value = t * exp(logarithm)
    # Multiply by 2 last: the exponential of the rounded square may be the largest finite float.
    return where(negative, exp(exact) * (2 * exp(remainder)) - value, value)


def _ndtr_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(exp(square(operands[0]) * -0.5) * (1 / math.sqrt(2 * math.pi)), tangents[0])


@in_float32_or_wider
@with_jvp_rule(_ndtr_tangent)
def _ndtr(x: Any) -> Any:
    tail = _scaled_tail(abs(x), abs(x) * math.sqrt(0.5), 0.5) * 0.5
    return where(greater(x, 0), 1 - tail, tail)


def _log_ndtr_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    t, logarithm = _tail(abs(operands[0]) * math.sqrt(0.5))
    # density / probability; for x < 0 the common factor e^(-x²/2), which underflows, is cancelled.
    low = multiply(t, exp(logarithm)) * math.sqrt(math.pi / 2)
    high = exp(square(operands[0]) * -0.5 - result) * (1 / math.sqrt(2 * math.pi))
    return multiply(where(less(operands[0], 0), divide(1, low), high), tangents[0])


@in_float32_or_wider
@with_jvp_rule(_log_ndtr_tangent)
def _log_ndtr(x: Any) -> Any:
    t, logarithm = _tail(abs(x) * math.sqrt(0.5))
    is_low = less(x, -1)
    central_value = log1p(-_ndtr(where(is_low, 0, -x)))
    # x · (x / 2): x² overflows before the result does.
    return where(is_low, logarithm + log(t * 0.5) - multiply(x, x * 0.5), central_value)


# Rational approximations of Cephes (Moshier), as numerators and denominators. Around p = ½: (x/√2π - w) / w³ in powers of w²,
# where w = p - ½. For small p, with z = √(-2 ln p): (z - ln(z)/z - |x|) · z in powers of 1/z, for z below and above 8.
_QUANTILE_CENTRAL = (
    (-59.963350101410789, 98.001075418599966, -56.676285746907030, 13.931260938727968, -1.2391658386738126),
    (1.0, 1.9544885833814176, 4.6762791289888153, 86.360242139089059, -225.46268785411937, 200.26021238006066,
     -82.037225616833334, 15.905622512621170, -1.1833162112133000),
)  # fmt: skip
_QUANTILE_TAIL = (
    (4.0554489230596242, 31.525109459989387, 57.162819224642129, 44.080507389320083, 14.684956192885803, 2.1866330685079027,
     -0.14025607917135450, -0.035042462682784820, -8.5745678515468541e-4),
    (1.0, 15.779988325646675, 45.390763512887921, 41.317203825467203, 15.042538569290750, 2.5046494620830942,
     -0.14218292285478779, -0.038080640769157828, -9.3325948089545743e-4),
)  # fmt: skip
_QUANTILE_FAR_TAIL = (
    (3.2377489177694604, 6.9152288906898421, 3.9388102529247444, 1.3330346081580754, 0.20148538954917908,
     0.012371663481782002, 3.0158155350823542e-4, 2.6580697468673755e-6, 6.2397453918498329e-9),
    (1.0, 6.0242703936474201, 3.6798356385616086, 1.3770209948908133, 0.21623699359449664, 0.013420400608854318,
     3.2801446468212774e-4, 2.8924786474538068e-6, 6.7901940800998127e-9),
)  # fmt: skip
_MIN_FAR_TAIL_ARGUMENT = 8.0


def _ratio(x: Any, coefficients: tuple[Sequence[float], Sequence[float]]) -> Any:
    return divide(polynomial(x, coefficients[0]), polynomial(x, coefficients[1]))


def _ndtri_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(exp(square(result) * 0.5) * math.sqrt(2 * math.pi), tangents[0])


@in_float64
@with_jvp_rule(_ndtri_tangent)
def _ndtri(p: Any) -> Any:
    is_upper = greater(p, 0.5)
    # The distance from the nearer end; 1 - p is exact.
    tail = where(is_upper, 1 - p, p)
    is_central, is_inside = greater(tail, math.exp(-2)), greater(tail, 0)
    w = where(is_central, p - 0.5, 0)
    central = (w + w * square(w) * _ratio(square(w), _QUANTILE_CENTRAL)) * math.sqrt(2 * math.pi)
    z = sqrt(-2 * log(where(logical_and(is_inside, less(tail, 0.5)), tail, 0.25)))
    inverse, is_far = divide(1, z), greater(z, _MIN_FAR_TAIL_ARGUMENT)
    correction = where(is_far, _ratio(inverse, _QUANTILE_FAR_TAIL), _ratio(inverse, _QUANTILE_TAIL))
    magnitude = where(is_inside, z - (log(z) + correction) * inverse, where(equal(tail, 0), math.inf, math.nan))
    return where(is_central, central, where(is_upper, magnitude, -magnitude))
