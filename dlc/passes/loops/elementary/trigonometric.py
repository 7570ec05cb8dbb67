"""sin, cos, tan, asin, acos, atan, atan2.

x = n·π/2 + r with |r| ≤ π/4 (Cody-Waite argument reduction): sine and cosine of r are polynomials; n selects the function and
its sign. π/2 is split into three parts, accurate for |x| ≤ 10⁵ in f32 and |x| ≤ 10⁹ in f64. Without hardware FMA it is split
into four; the first three are short, so that their products with n are exact for |x| ≤ 3·10³ and 5·10⁶. Larger |x| take the
slow path (payne_hanek.py).
"""

from __future__ import annotations

import math

from dlc.passes.loops.elementary import payne_hanek
from dlc.passes.loops.formula import Bits, Bool, Float, fma, polynomial, select
from dlc.passes.loops.slow_path import apply_slow_path_per_element

PI_2_PARTS_F32 = (1.5707964, -4.371139e-08, -1.7151245e-15)
PI_2_PARTS_F64 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
# Parts for targets without FMA. All but the last one have at most 12 (f32) and 31 (f64) bits. The second part is a multiple
# of ulp(1)/2, so that the second difference is exact.
PI_2_PARTS_NO_FMA_F32 = (1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5633440682570896e-12)
PI_2_PARTS_NO_FMA_F64 = (1.5707963267341256, 6.077105485502443e-11, -4.978996249574486e-17, -9.403137205957857e-27)

# Minimax polynomials in r² for (sin r − r)/r³ and (cos r − 1 + r²/2)/r⁴. Relative errors of sin: 3.8e-9 (f32), 3.7e-18
# (f64); of cos: 1.2e-10, 5.7e-20.
SIN_F32 = (-0.16666655, 0.008332156, -0.00019514632)
SIN_F64 = (
    -0.1666666666666663, 0.008333333333322007, -0.0001984126982949556, 2.7557313587426672e-06, -2.5050742258292385e-08,
    1.5895901212083792e-10,
)  # fmt: skip
COS_F32 = (0.041666646, -0.001388731, 2.4432418e-05)
COS_F64 = (
    0.041666666666666595, -0.0013888888888872895, 2.480158728874818e-05, -2.755731414862275e-07, 2.0875696572660016e-09,
    -1.1358310501433752e-11,
)  # fmt: skip
# Minimax polynomial in s² for (asin s − s)/s³, s ≤ ½. Relative errors of asin: 4.9e-9 (f32), 1.5e-17 (f64).
ASIN_F32 = (0.16666752, 0.074952886, 0.0454716, 0.024172941, 0.04217828)
ASIN_F64 = (
    0.16666666666665403, 0.07500000000338744, 0.04464285682683891, 0.03038195920060643, 0.022371756476737868,
    0.017359729150672434, 0.01388498861497261, 0.012170868961857368, 0.00652065832254749, 0.01954867789805446,
    -0.01625686898399063, 0.03193501213498473,
)  # fmt: skip
# Minimax polynomial in s² for (atan s − s)/s³, s ≤ 1. Relative errors of atan: 1.7e-8 (f32), 2.8e-17 (f64).
ATAN_F32 = (-0.33333153, 0.1999377, -0.14211029, 0.10665883, -0.07551925, 0.043208092, -0.0163654, 0.0029200094)
ATAN_F64 = (
    -0.33333333333331855, 0.19999999999754722, -0.14285714271318753, 0.11111110678308221, -0.09090901228137493,
    0.07692212851970895, -0.06665859770204138, 0.05877304529217111, -0.05239219814680648, 0.04673909004327025,
    -0.04092542589267266, 0.03406608093677838, -0.025824398197888024, 0.016975510153377765, -0.009182576054555297,
    0.003854850756327213, -0.0011636372999202335, 0.00022291998218896416, -2.0247445238669803e-05,
)  # fmt: skip


def reduce_argument(x: Float) -> tuple[Bits, Float]:
    """Return (n, r): n in the low bits of an integer; r is NaN for infinities."""
    shifted = fma(x, 2 / math.pi, x.format.rounder)
    n = shifted - x.format.rounder
    if x.builder.fused:
        parts, bound = x.by_format((PI_2_PARTS_F32, 1e5), (PI_2_PARTS_F64, 1e9))
        r = x
        for part in parts:
            r = fma(n, -part, r)
    else:
        (first, second, third, last), bound = x.by_format((PI_2_PARTS_NO_FMA_F32, 3e3), (PI_2_PARTS_NO_FMA_F64, 5e6))
        start, third_product = (x - n * first) - n * second, n * third
        # Only the third difference rounds; its rounding error is added with the last part, so that r is rounded once.
        head = start - third_product
        r = head + (((start - head) - third_product) - n * last)

    def is_large(x: Float) -> Bool:
        return abs(x) > bound

    return apply_slow_path_per_element(is_large, payne_hanek.reduce_argument, (x,), (shifted.bits(), r))


def sine_and_cosine(r: Float) -> tuple[Float, Float]:
    """sin r and cos r for |r| ≤ π/4."""
    t = r * r
    sine = fma(r * t, polynomial(t, r.by_format(SIN_F32, SIN_F64)), r)
    half = t * 0.5
    cosine_head = 1.0 - half
    # Add back the rounding error of 1 − t/2, which is (1 − cosine_head) − t/2.
    return sine, cosine_head + fma(t * t, polynomial(t, r.by_format(COS_F32, COS_F64)), (1.0 - cosine_head) - half)


def flip_sign_by_bit(y: Float, n: Bits, bit: int) -> Float:
    """Return −y where a bit of n is set."""
    sign = (n & (1 << bit)) << (y.format.width - 1 - bit)
    return (y.bits() ^ sign).as_float()


def sin(x: Float) -> Float:
    """sin x: sine, cosine, −sine, −cosine of r for n mod 4 = 0, 1, 2, 3. At most 2 ulp."""
    n, r = reduce_argument(x)
    sine, cosine = sine_and_cosine(r)
    y = flip_sign_by_bit(select((n & 1).equals(0), sine, cosine), n, 1)
    # The polynomial loses the sign of −0.
    return select(x.equals(0.0), x, y)


def cos(x: Float) -> Float:
    """cos x = sin(r + (n + 1)·π/2). At most 2 ulp."""
    n, r = reduce_argument(x)
    sine, cosine = sine_and_cosine(r)
    return flip_sign_by_bit(select((n & 1).equals(0), cosine, sine), n + 1, 1)


def tan(x: Float) -> Float:
    """tan x: sin r / cos r for even n, −cos r / sin r for odd n. At most 4 ulp."""
    n, r = reduce_argument(x)
    sine, cosine = sine_and_cosine(r)
    is_even = (n & 1).equals(0)
    y = flip_sign_by_bit(select(is_even, sine, cosine) / select(is_even, cosine, sine), n, 0)
    return select(x.equals(0.0), x, y)


def small_asin(s: Float, t: Float) -> Float:
    """asin s for 0 ≤ s ≤ ½, where t = s²."""
    return fma(s * t, polynomial(t, s.by_format(ASIN_F32, ASIN_F64)), s)


def _asin_parts(x: Float) -> tuple[Bool, Float]:
    """Return (|x| > ½, y) with y = asin √((1 − |x|)/2) (NaN for |x| > 1) if |x| > ½, else asin |x|."""
    a = abs(x)
    is_large = a > 0.5
    t = select(is_large, (1.0 - a) * 0.5, a * a)
    return is_large, small_asin(select(is_large, t.sqrt(), a), t)


def asin(x: Float) -> Float:
    """For |x| > ½: π/2 − 2·asin √((1 − |x|)/2). At most 3 ulp in f32 and in f64."""
    high, low, _ = x.by_format(PI_2_PARTS_F32, PI_2_PARTS_F64)
    is_large, y = _asin_parts(x)
    return select(is_large, fma(y, -2.0, high) + low, y).copysign(x)


def acos(x: Float) -> Float:
    """π/2 − asin x; 2·asin √((1 − x)/2) for x > ½, and π − that of −x for x < −½. At most 3 ulp in f32 and in f64."""
    high, low, _ = x.by_format(PI_2_PARTS_F32, PI_2_PARTS_F64)
    is_large, y = _asin_parts(x)
    near_one = select(x < 0.0, fma(y, -2.0, 2 * high) + 2 * low, y + y)
    return select(is_large, near_one, high - (y.copysign(x) - low))


def small_atan(s: Float) -> Float:
    """atan s for 0 ≤ s ≤ 1."""
    t = s * s
    return fma(s * t, polynomial(t, s.by_format(ATAN_F32, ATAN_F64)), s)


def atan(x: Float) -> Float:
    """For |x| > 1: π/2 − atan(1/|x|). At most 3 ulp in f32 and in f64."""
    high, low, _ = x.by_format(PI_2_PARTS_F32, PI_2_PARTS_F64)
    a = abs(x)
    is_large = a > 1.0
    y = small_atan(select(is_large, 1.0 / a, a))
    return select(is_large, high - (y - low), y).copysign(x)


def atan2(y: Float, x: Float) -> Float:
    """The angle of (x, y): atan of the smaller over the larger magnitude, adjusted by octant. At most 4 ulp in f32 and f64."""
    high, low, _ = x.by_format(PI_2_PARTS_F32, PI_2_PARTS_F64)
    ax, ay = abs(x), abs(y)
    is_steep = ay > ax
    larger = select(is_steep, ay, ax)
    ratio = select(is_steep, ax, ay) / larger
    # 0/0 is the angle of the positive axis, ∞/∞ that of the diagonal.
    ratio = select((ax + ay).equals(0.0), x.constant(0.0), ratio)
    ratio = select(ax.equals(math.inf) & ay.equals(math.inf), x.constant(1.0), ratio)
    angle = small_atan(ratio)
    angle = select(is_steep, high - (angle - low), angle)
    # Test the sign bit, since −0 counts as negative.
    is_left_half = x.constant(1.0).copysign(x) < 0.0
    return select(is_left_half, 2 * high - (angle - 2 * low), angle).copysign(y)
