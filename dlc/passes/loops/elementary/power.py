"""powf, rsqrt, cbrt."""

from __future__ import annotations

import math

from dlc.ir import arith, f64, shaped_like
from dlc.passes.loops.elementary import exponential, logarithm
from dlc.passes.loops.formula import Bits, Bool, Float, find_format, fma, polynomial, select
from dlc.passes.loops.slow_path import apply_slow_path

# log₂ e = high + low.
LOG2E_HIGH, LOG2E_LOW = 1.4426950408889634, 2.0355273740931033e-17
# For results of f32, with s = f/(2 + f) and z = s²: log₂(1 + f)/s, minimax: relative error 4.2e-12.
LOG2_OF_F32 = (2.88539008179008, 0.9617966733499754, 0.5770835832865914, 0.4116728258113574, 0.34072802925876083)
# 2ʳ on |r| ≤ 1/2, minimax: relative error 4.0e-11.
EXP2_OF_F32 = (
    0.999999999961682, 0.6931471807284469, 0.24022651198157532, 0.05550410353448463, 0.009618027253674735,
    0.0013333922563126793, 0.00015469291140058448, 1.5201921691277054e-05,
)  # fmt: skip
# The bits of an approximation y to 1/∛a are this constant minus a third of the bits of a (Kahan, Moroz). Then c = a·y³ is
# between 0.664 and 0.787, where this minimax polynomial of c approximates c^(-1/3) with relative error 2.7e-5.
INVERSE_CBRT = 0x548E0000, 0x553C6AAAAAAAB000
INVERSE_CBRT_STEP = (1.73337451, -1.19773389, 0.47207211)


def powf(x: Float, y: Float) -> Float:
    """xʸ = ±2^(y·log₂ |x|), negative for odd y, with the values of IEEE 754 for special cases.

    At most 1 ulp in f32, computed in f64. In f64 at most 2 ulp where the result is within 2^±100, 6 ulp elsewhere.
    """
    if x.format.width == 64:
        return _with_special_cases(x, y, _exp2_of_sum(*_product(y, *_log2(abs(x)))))
    # Positive normal x and finite y need no special cases.
    mantissa, exponent = logarithm.split(x)
    normal_result = _power_in_f64(mantissa, _integer_to_f64(exponent), y)
    (result,) = apply_slow_path(_is_special, _power_of_special, (x, y, normal_result), (normal_result,))
    return result


def _is_special(x: Float, y: Float, power: Float) -> Bool:
    """Return whether x is not a positive normal float, or the power is NaN because y is not finite."""
    return logarithm.is_special(x) | _not(power.equals(power))


def _power_of_special(x: Float, y: Float, power: Float) -> tuple[Float]:
    """xʸ of any f32 values."""
    return (_with_special_cases(x, y, _power_of_nonnegative(abs(x), y)),)


def _with_special_cases(x: Float, y: Float, magnitude: Float) -> Float:
    """Return xʸ given |x|ʸ = magnitude: apply the sign, and the cases that are 1 or NaN."""
    magnitude = select(abs(x).equals(1.0), x.constant(1.0), magnitude)
    half = y * 0.5
    is_integer = y.floor().equals(y)
    is_odd = is_integer & _not(half.floor().equals(half))
    is_negative = x.constant(1.0).copysign(x) < 0.0
    result = select(is_negative & is_odd, -magnitude, magnitude)
    is_undefined = (x < 0.0) & (x > -math.inf) & _not(is_integer)
    result = select(is_undefined, x.constant(math.nan), result)
    return select(y.equals(0.0), x.constant(1.0), result)


def _not(condition: Bool) -> Bool:
    return condition ^ Bool(condition.builder, condition.format, condition.builder.constants.get(1, condition.format.bool_type))


def _power_of_nonnegative(a: Float, y: Float) -> Float:
    """aʸ of f32 values a ≥ 0."""
    scaled, correction = logarithm.normalized(a)
    mantissa, exponent = logarithm.split(scaled)
    e = exponent.to_float() + correction
    # The logarithm is -∞ at 0, and a itself at ∞ and NaN.
    e = select(a < math.inf, select(a.equals(0.0), a.constant(-math.inf), e), a)
    return _power_in_f64(mantissa, _to_f64(e), y)


def _to_f64(x: Float) -> Float:
    return x.convert(shaped_like(x.format.float_type, f64))


def _integer_to_f64(x: Bits) -> Float:
    wide_type = shaped_like(x.format.float_type, f64)
    return Float(x.builder, find_format(wide_type), x.builder.insert(arith.SIToFPOp, [x.value], wide_type))


def _power_in_f64(mantissa: Float, e: Float, y: Float) -> Float:
    """(mantissa·2ᵉ)ʸ of f32 values, computed in f64 with a relative error of at most 2⁻³¹."""
    f = _to_f64(mantissa - 1.0)
    s = f / (f + 2.0)
    log2 = fma(s, polynomial(s * s, LOG2_OF_F32), e)
    # Beyond these bounds the result is 0 or infinite.
    z = (_to_f64(y) * log2).at_least(-160.0).at_most(160.0)
    shifted = z + z.format.rounder
    n = shifted - z.format.rounder
    power = polynomial(z - n, EXP2_OF_F32)
    power = power.ldexp(n) if power.builder.has_ldexp else (power.bits() + (shifted.bits() << z.format.mantissa)).as_float()
    return power.convert(mantissa.format.float_type)


def _log2(a: Float) -> tuple[Float, Float]:
    """log₂ a as an unevaluated sum of two floats, for a ≥ 0."""
    scaled, correction = logarithm.normalized(a)
    mantissa, exponent = logarithm.split(scaled)
    e = exponent.to_float() + correction
    # log m = 2·atanh s with s = (m − 1)/(m + 1), the quotient to twice the precision.
    f = mantissa - 1.0
    d = mantissa + 1.0
    d_low = mantissa - (d - 1.0)
    s = f / d
    s_low = -fma(s, d_low, _product_error(s, d, f)) / d
    z = s * s
    series = s * z * polynomial(z, logarithm.LOG_F64)
    high = s * (2 * LOG2E_HIGH)
    low = _product_error(s, s.constant(2 * LOG2E_HIGH), high) + fma(
        s_low, 2 * LOG2E_HIGH, fma(s, 2 * LOG2E_LOW, series * LOG2E_HIGH)
    )
    # Dekker's FastTwoSum, twice: |e| is 0 or exceeds |high|, which exceeds |low|.
    head = e + high
    tail = (high - (head - e)) + low
    total = head + tail
    return logarithm.with_limits(a, total), tail - (total - head)


def _product(y: Float, high: Float, low: Float) -> tuple[Float, Float]:
    """y·(high + low) as an unevaluated sum of two floats; the second is 0 if the first is beyond the exponent range."""
    p = y * high
    low_product = fma(y, low, _product_error(y, high, p))
    return p, select(abs(p) < 1100.0, low_product, p.constant(0.0))


def _product_error(a: Float, b: Float, p: Float) -> Float:
    """a·b − p for p ≈ a·b: exact with FMA, else to a relative 2⁻¹⁰⁶ by Dekker's product."""
    if p.builder.fused:
        return fma(a, b, -p)
    a_high, b_high = _high_half(a), _high_half(b)
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _exp2_of_sum(high: Float, low: Float) -> Float:
    """2^(high + low)."""
    # Beyond these bounds the result is 0 or infinite, whatever is in `low`.
    bounded = high.at_least(-1076.0).at_most(1025.0)
    shifted = bounded + bounded.format.rounder
    n = shifted - bounded.format.rounder
    r = (bounded - n) + low
    p = fma(r, polynomial(r, exponential.EXP2_F64), 1.0)
    return exponential.scale(p, n, shifted.bits())


def rsqrt(x: Float) -> Float:
    """1/√x. At most 2 ulp in f32 and in f64."""
    return 1.0 / x.sqrt()


def cbrt(x: Float) -> Float:
    """∛x. At most 1 ulp in f32 and in f64. With y ≈ a^(-1/3), p = a·y² is corrected by the residual 1 − p·y."""
    f = x.format
    # Scale subnormals, whose significand is too short for the estimate.
    a = abs(x)
    is_subnormal = a < f.min_normal
    scale_bits = x.by_format(24, 54)
    a = select(is_subnormal, a * 2.0**scale_bits, a)
    # Subtract a third of the leading bits from the constant: off by 3 %, and y by 2.7e-5 after one polynomial step.
    shift = f.width - f.mantissa
    start = f.rounder + (x.by_format(*INVERSE_CBRT) - (1 << (f.width - 1))) / 2.0**shift
    y = (fma((a.bits() >> shift).to_float(), -1 / 3, start).bits() << shift).as_float()
    y = y * polynomial((a * y) * (y * y), INVERSE_CBRT_STEP)
    if f.width == 64:
        e = 1.0 - (a * y) * (y * y)
        y = fma(y, e * polynomial(e, (1 / 3, 2 / 9, 14 / 81)), y)
    # Keep half of the bits, so that the square is exact. Of the rounding error of p a third is left in the end: with
    # e = 1 - p·y, a^(1/3) = p·(1 - e)^(-2/3)·(a·y²/p)^(1/3).
    y = _high_half(y)
    p = a * (y * y)
    if p.builder.fused:
        e = fma(-p, y, 1.0)
    else:
        # Both products are exact.
        high = _high_half(p)
        e = (1.0 - high * y) - (p - high) * y
    r = fma(p, e * polynomial(e, (2 / 3, 5 / 9)), p)
    r = select(is_subnormal, r * 2.0 ** -(scale_bits // 3), r).copysign(x)
    return select(abs(x) < math.inf, r, x)


def _high_half(x: Float) -> Float:
    """Clear the lower half of the mantissa bits."""
    return (x.bits() & -(1 << (x.format.mantissa // 2 + 1))).as_float()
