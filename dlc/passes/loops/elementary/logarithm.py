"""log, log2, log10, log1p, asinh, acosh, atanh.

A positive x is 2ᵉ·(1 + f) with √½ ≤ 1 + f < √2, so that log x = e·ln 2 + log(1 + f).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dlc.passes.loops.elementary.exponential import LN2_F32, LN2_F64
from dlc.passes.loops.formula import Bits, Bool, Float, fma, polynomial, select
from dlc.passes.loops.slow_path import apply_slow_path

# (log(1 + f) − f + f²/2)/f³, minimax in log(1 + f): relative error 5.8e-9.
LOG_F32 = (0.3333333, -0.25000823, 0.20001228, -0.16623336, 0.14201717, -0.13160361, 0.12761968, -0.07634499)
# With s = f/(2 + f) and z = s²: (2·atanh(s)/s − 2)/z, minimax in atanh: relative error 1.2e-18.
LOG_F64 = (
    0.6666666666666734, 0.39999999999414326, 0.285714287424735, 0.22222198563602746, 0.18183564861641938,
    0.15314035941845763, 0.14796104553383108,
)  # fmt: skip
LOG2E = 1.4426950408889634
# log10 2 = high + low.
LOG10_2_F32 = (0.30103, -1.4320989e-08)
LOG10_2_F64 = (0.3010299956639812, -2.8037281277851704e-18)
LOG10E = 0.4342944819032518


def split(x: Float) -> tuple[Float, Bits]:
    """Split a positive normal float into 1 + f and the exponent e."""
    f = x.format
    bits = x.bits()
    # Adding the distance from √½ to 1 carries into the exponent from √2 on.
    exponent = (bits - f.bits_of(math.sqrt(0.5))) >> f.mantissa
    return (bits - (exponent << f.mantissa)).as_float(), exponent


def log_of_mantissa(f: Float) -> Float:
    """log(1 + f)."""
    half_square = f * f * 0.5
    if f.format.width == 32:
        # f − (f²/2 − f³·P(f)): small terms are added first.
        return f - fma(f * f * f, -polynomial(f, LOG_F32), half_square)
    # log(1 + f) = 2·atanh(s) = f − (f²/2 − s·(f²/2 + z·P(z)))
    s = f / (f + 2.0)
    z = s * s
    return f - (half_square - s * fma(z, polynomial(z, LOG_F64), half_square))


def normalized(x: Float) -> tuple[Float, Float]:
    """Scale subnormals to normal floats; return the scaled x and the exponent correction."""
    f = x.format
    is_subnormal = x < f.min_normal
    scaled = select(is_subnormal, x * 2.0 ** (f.mantissa + 1), x)
    return scaled, select(is_subnormal, x.constant(-(f.mantissa + 1)), x.constant(0.0))


def with_limits(x: Float, y: Float) -> Float:
    """Return y where x is positive and finite, else the logarithm's limits: −∞ at ±0, NaN below, x itself at ∞ and NaN."""
    y = select(x < math.inf, y, x)
    y = select(x.equals(0.0), x.constant(-math.inf), y)
    return select(x < 0.0, x.constant(math.nan), y)


def is_special(x: Float) -> Bool:
    """Return whether x is not a positive normal float."""
    f = x.format
    min_normal_bits = f.bits_of(f.min_normal)
    return (x.bits() - min_normal_bits).is_at_least_unsigned(f.bits_of(math.inf) - min_normal_bits)


def _from_exponent_and_mantissa(x: Float, combine: Callable[[Float, Float], Float]) -> Float:
    """Return `combine(e, log(1 + f))`; subnormal and special x take the slow path."""

    def of_normal(x: Float) -> tuple[Float, Float]:
        mantissa, exponent = split(x)
        return exponent.to_float(), log_of_mantissa(mantissa - 1.0)

    def of_any(x: Float) -> tuple[Float]:
        scaled, correction = normalized(x)
        e, y = of_normal(scaled)
        return (with_limits(x, combine(e + correction, y)),)

    (y,) = apply_slow_path(is_special, of_any, (x,), (combine(*of_normal(x)),))
    return y


def add_exponent(e: Float, y: Float) -> Float:
    """e·ln 2 + y, with ln 2 in two parts."""
    high, low = e.by_format(LN2_F32, LN2_F64)
    return fma(e, high, fma(e, low, y))


def log(x: Float) -> Float:
    """log x. At most 2 ulp in f32 and in f64."""
    return _from_exponent_and_mantissa(x, add_exponent)


def log2(x: Float) -> Float:
    """log₂ x = e + log(1 + f)·log₂ e, exact at powers of two. At most 3 ulp in f32 and in f64."""
    return _from_exponent_and_mantissa(x, lambda e, y: fma(y, LOG2E, e))


def log10(x: Float) -> Float:
    """log₁₀ x = e·log₁₀ 2 + log(1 + f)·log₁₀ e. At most 3 ulp in f32 and in f64."""
    high, low = x.by_format(LOG10_2_F32, LOG10_2_F64)
    return _from_exponent_and_mantissa(x, lambda e, y: fma(e, high, fma(e, low, y * LOG10E)))


def log1p(x: Float) -> Float:
    """log(1 + x) = log u + c/u, where u is 1 + x rounded and c its rounding error. At most 3 ulp in f32 and f64."""
    u = x + 1.0
    # Knuth's TwoSum: u + c = 1 + x exactly.
    u_minus_one = u - 1.0
    c = (1.0 - (u - u_minus_one)) + (x - u_minus_one)
    mantissa, exponent = split(u)
    y = add_exponent(exponent.to_float(), log_of_mantissa(mantissa - 1.0) + c / u)
    y = select(x < math.inf, y, x)
    y = select(x.equals(-1.0), x.constant(-math.inf), y)
    y = select(x < -1.0, x.constant(math.nan), y)
    # The sums lose the sign of zero; the result's sign is that of x.
    return y.copysign(x)


def _log1p_or_large(small: Float, x: Float, large: Float) -> Float:
    """log(1 + small), but for x > 2⁶⁰, whose square may overflow, log(1 + large) + ln 2, where large = x."""
    is_large = x > 2.0**60
    return log1p(select(is_large, large, small)) + select(is_large, x.constant(math.log(2)), x.constant(0.0))


def asinh(x: Float) -> Float:
    """With a = |x|: log1p(a + a²/(1 + √(a² + 1))). At most 3 ulp in f32 and in f64."""
    a = abs(x)
    square = a * a
    return _log1p_or_large(a + square / ((square + 1.0).sqrt() + 1.0), a, a).copysign(x)


def acosh(x: Float) -> Float:
    """With t = x − 1: log1p(t + √(2t + t²)); NaN below 1. At most 3 ulp in f32 and in f64."""
    t = x - 1.0
    y = _log1p_or_large(t + fma(t, t, t + t).sqrt(), x, x)
    return select(x < 1.0, x.constant(math.nan), y)


def atanh(x: Float) -> Float:
    """With a = |x|: log1p(2a/(1 − a))/2. At most 3 ulp in f32 and in f64."""
    a = abs(x)
    return (log1p((a + a) / (1.0 - a)) * 0.5).copysign(x)
