"""powf, rsqrt, cbrt."""

from __future__ import annotations

import math

from dlc.ir import arith, f64, shaped_like
from dlc.passes.loops.elementary import exponential, logarithm
from dlc.passes.loops.formula import Bits, Bool, Float, fma, format_of, polynomial, select
from dlc.passes.loops.rare import where_any_whole

# log₂ e = high + low.
LOG2E_HIGH, LOG2E_LOW = 1.4426950408889634, 2.0355273740931033e-17
# For results of f32, with s = f/(2 + f) and z = s²: log₂(1 + f)/s, minimax: relative error 4.2e-12.
LOG2_OF_F32 = (2.88539008179008, 0.9617966733499754, 0.5770835832865914, 0.4116728258113574, 0.34072802925876083)
# 2ʳ on |r| ≤ 1/2, minimax: relative error 4.0e-11.
EXP2_OF_F32 = (
    0.999999999961682, 0.6931471807284469, 0.24022651198157532, 0.05550410353448463, 0.009618027253674735,
    0.0013333922563126793, 0.00015469291140058448, 1.5201921691277054e-05,
)  # fmt: skip
# The bits of an approximation to 1/∛a are this less a third of those of a, after Kahan and Moroz: c = a·y³ is within 0.664 and
# 0.787, where c^(1/3) times this polynomial is 1, minimax: off by 2.7e-5.
INVERSE_CBRT = 0x548E0000, 0x553C6AAAAAAAB000
INVERSE_CBRT_STEP = (1.73337451, -1.19773389, 0.47207211)


def powf(x: Float, y: Float) -> Float:
    """|x|ʸ = 2^(y·log₂ |x|), with a sign for odd y, and IEEE 754's values for the cases that this leaves undefined.

    At most 1 ulp in f32, by way of f64. In f64 at most 2 ulp where the result is within 2^±100, 6 ulp elsewhere.
    """
    if x.format.width == 64:
        return _with_cases(x, y, _exp2_of_sum(*_product(y, *_log2(abs(x)))))
    # Of normal numbers above 0 there is nothing else to say, but for those of which nothing comes.
    mantissa, exponent = logarithm.split(x)
    common = _in_f64(mantissa, _widened(exponent), y)
    (result,) = where_any_whole(_is_special, _of_special, (x, y, common), (common,))
    return result


def _is_special(x: Float, y: Float, power: Float) -> Bool:
    """Whether x is not a normal number above 0, or y, from which NaN comes, is not finite."""
    return logarithm.is_special(x) | _not(power.equals(power))


def _of_special(x: Float, y: Float, power: Float) -> tuple[Float]:
    """xʸ of any numbers of f32."""
    return (_with_cases(x, y, _of_any(abs(x), y)),)


def _with_cases(x: Float, y: Float, magnitude: Float) -> Float:
    """xʸ with |x|ʸ = magnitude, where that is a number."""
    magnitude = select(abs(x).equals(1.0), x.constant(1.0), magnitude)
    half = y * 0.5
    whole = y.floor().equals(y)
    odd = whole & _not(half.floor().equals(half))
    negative = x.constant(1.0).with_sign_of(x) < 0.0
    result = select(negative & odd, -magnitude, magnitude)
    undefined = (x < 0.0) & (x > -math.inf) & _not(whole)
    result = select(undefined, x.constant(math.nan), result)
    return select(y.equals(0.0), x.constant(1.0), result)


def _not(condition: Bool) -> Bool:
    return condition ^ Bool(condition.place, condition.format, condition.place.constants.get(1, condition.format.bool_type))


def _of_any(a: Float, y: Float) -> Float:
    """aʸ of numbers of f32 from 0 on."""
    scaled, extra = logarithm.normalized(a)
    mantissa, exponent = logarithm.split(scaled)
    e = exponent.to_float() + extra
    # Where the logarithm is none, it is -∞ at 0, ∞ and NaN at themselves.
    e = select(a < math.inf, select(a.equals(0.0), a.constant(-math.inf), e), a)
    return _in_f64(mantissa, e.convert(shaped_like(a.format.float_type, f64)), y)


def _widened(exponent: Bits) -> Float:
    """An integer as f64."""
    wide = shaped_like(exponent.format.float_type, f64)
    return Float(exponent.place, format_of(wide), exponent.place.insert(arith.SIToFPOp, [exponent.value], wide))


def _in_f64(mantissa: Float, e: Float, y: Float) -> Float:
    """(mantissa·2ᵉ)ʸ of a mantissa and a power of f32, by arithmetic of f64 that is off by 2⁻³¹ at most."""
    f = (mantissa - 1.0).convert(e.format.float_type)
    s = f / (f + 2.0)
    log2 = fma(s, polynomial(s * s, LOG2_OF_F32), e)
    # Beyond these bounds the result is 0 or infinite.
    z = (y.convert(e.format.float_type) * log2).at_least(-160.0).at_most(160.0)
    shifted = z + z.format.rounder
    power = polynomial(z - (shifted - z.format.rounder), EXP2_OF_F32)
    return (power.bits() + (shifted.bits() << z.format.mantissa)).as_float().convert(mantissa.format.float_type)


def _log2(a: Float) -> tuple[Float, Float]:
    """log₂ a as a sum of two floats, for a ≥ 0."""
    scaled, extra = logarithm.normalized(a)
    mantissa, exponent = logarithm.split(scaled)
    e = exponent.to_float() + extra
    # log m = 2·atanh s with s = (m − 1)/(m + 1), the quotient to twice the precision.
    f = mantissa - 1.0
    d = mantissa + 1.0
    d_low = mantissa - (d - 1.0)
    s = f / d
    s_low = -fma(s, d_low, _rest(s, d, f)) / d
    z = s * s
    series = s * z * polynomial(z, logarithm.LOG_F64)
    high = s * (2 * LOG2E_HIGH)
    low = _rest(s, s.constant(2 * LOG2E_HIGH), high) + fma(s_low, 2 * LOG2E_HIGH, fma(s, 2 * LOG2E_LOW, series * LOG2E_HIGH))
    # Dekker's sum, twice: |e| is 0 or exceeds |high|, which exceeds |low|.
    head = e + high
    tail = (high - (head - e)) + low
    total = head + tail
    return logarithm.with_limits(a, total), tail - (total - head)


def _product(y: Float, high: Float, low: Float) -> tuple[Float, Float]:
    """y·(high + low) as a sum of two floats; the second is 0 where the first is beyond the exponents of the format."""
    p = y * high
    rest = fma(y, low, _rest(y, high, p))
    return p, select(abs(p) < 1100.0, rest, p.constant(0.0))


def _rest(a: Float, b: Float, p: Float) -> Float:
    """a·b − p for a p next to a·b: exact by fma, and but for a bit of 2⁻¹⁰⁶ of it by Dekker's product of halves."""
    if p.place.fused:
        return fma(a, b, -p)
    a_high, b_high = _half(a), _half(b)
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
    return exponential.scale(p, shifted.bits())


def rsqrt(x: Float) -> Float:
    """1/√x. At most 2 ulp in f32 and in f64."""
    return 1.0 / x.sqrt()


def cbrt(x: Float) -> Float:
    """With y ≈ a^(-1/3): p = a·y², and by what p·y lacks to 1 to the full precision. At most 1 ulp in f32 and in f64."""
    f = x.format
    # Denormals have few bits to estimate from.
    a = abs(x)
    tiny = a < f.least_normal
    up = x.by_format(24, 54)
    a = select(tiny, a * 2.0**up, a)
    # A third of the bits, without the last, taken from a constant: off by 3 %, and y by 2.7e-5 after one step.
    shift = f.width - f.mantissa
    start = f.rounder + (x.by_format(*INVERSE_CBRT) - (1 << (f.width - 1))) / 2.0**shift
    y = (fma((a.bits() >> shift).to_float(), -1 / 3, start).bits() << shift).as_float()
    y = y * polynomial((a * y) * (y * y), INVERSE_CBRT_STEP)
    if f.width == 64:
        e = 1.0 - (a * y) * (y * y)
        y = fma(y, e * polynomial(e, (1 / 3, 2 / 9, 14 / 81)), y)
    # Half of the bits, so that the square is exact. What rounding p costs is a third of that in the end:
    # with e = 1 - p·y, a^(1/3) = p·(1 - e)^(-2/3)·(a·y²/p)^(1/3).
    y = _half(y)
    p = a * (y * y)
    if p.place.fused:
        e = fma(-p, y, 1.0)
    else:
        # Both products are exact.
        high = _half(p)
        e = (1.0 - high * y) - (p - high) * y
    r = fma(p, e * polynomial(e, (2 / 3, 5 / 9)), p)
    r = select(tiny, r * 2.0 ** -(up // 3), r).with_sign_of(x)
    return select(abs(x) < math.inf, r, x)


def _half(x: Float) -> Float:
    """x without the lower half of its bits."""
    return (x.bits() & -(1 << (x.format.mantissa // 2 + 1))).as_float()
