"""powf, rsqrt, cbrt."""

from __future__ import annotations

import math

from dlc.ir import f64, shaped_like
from dlc.passes.loops.elementary import exponential, logarithm
from dlc.passes.loops.formula import Bool, Float, fma, polynomial, select

# log₂ e = high + low.
LOG2E_HIGH, LOG2E_LOW = 1.4426950408889634, 2.0355273740931033e-17
# The bits of an approximation to the cube root are a third of the number's bits plus this, after Kahan.
CBRT_F32 = 709958130
CBRT_F64 = 3071306043645493248


def powf(x: Float, y: Float) -> Float:
    """|x|ʸ = 2^(y·log₂ |x|), with a sign for odd y, and IEEE 754's values for the cases that this leaves undefined.

    At most 1 ulp in f32, by way of f64. In f64 at most 2 ulp where the result is within 2^±100, 6 ulp elsewhere.
    """
    a = abs(x)
    if x.format.width == 32:
        wide = shaped_like(x.format.float_type, f64)
        z = y.convert(wide) * logarithm.log2(a.convert(wide))
        magnitude = exponential.exp2(z).convert(x.format.float_type)
    else:
        magnitude = _exp2_of_sum(*_product(y, *_log2(a)))
    magnitude = select(a.equals(1.0), x.constant(1.0), magnitude)
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
    s_low = fma(s, -d_low, fma(-s, d, f)) / d
    z = s * s
    series = s * z * polynomial(z, logarithm.LOG_F64)
    high = s * (2 * LOG2E_HIGH)
    low = fma(s, 2 * LOG2E_HIGH, -high) + fma(s_low, 2 * LOG2E_HIGH, fma(s, 2 * LOG2E_LOW, series * LOG2E_HIGH))
    # Dekker's sum, twice: |e| is 0 or exceeds |high|, which exceeds |low|.
    head = e + high
    tail = (high - (head - e)) + low
    total = head + tail
    return logarithm.with_limits(a, total), tail - (total - head)


def _product(y: Float, high: Float, low: Float) -> tuple[Float, Float]:
    """y·(high + low) as a sum of two floats; the second is 0 where the first is beyond the exponents of the format."""
    p = y * high
    rest = fma(y, low, fma(y, high, -p))
    return p, select(abs(p) < 1100.0, rest, p.constant(0.0))


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
    """An estimate from the exponent, improved by Halley's and Newton's steps. At most 1 ulp in f32 and in f64."""
    # Denormals have few bits to estimate from, and the cube of an estimate may overflow: keep away from both.
    large = abs(x) > 1.0
    a = abs(x) * select(large, x.constant(2.0**-54), x.constant(2.0**54))
    third = (a.bits().to_float() * (1 / 3)).to_bits()
    r = (third + a.by_format(CBRT_F32, CBRT_F64)).as_float()
    for _ in range(a.by_format(1, 2)):
        # Halley: r·(r³ + 2a)/(2r³ + a), which cubes the relative error.
        cube = r * r * r
        r = r * (fma(a, 2.0, cube) / fma(cube, 2.0, a))
    # Newton, with the residual r³ − a to full precision.
    square = r * r
    square_low = fma(r, r, -square)
    residual = fma(r, -square_low, fma(-r, square, a))
    r = r + residual / (square * 3.0)
    r = (r * select(large, x.constant(2.0**18), x.constant(2.0**-18))).with_sign_of(x)
    return select((abs(x) > 0.0) & (abs(x) < math.inf), r, x)
