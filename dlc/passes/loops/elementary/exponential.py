"""exp, exp2, expm1, sinh, cosh, tanh, ldexp.

All split the argument as x = n·ln 2 + r with an integer n and |r| ≤ ln 2 / 2 (Cody-Waite argument reduction). Then eˣ = 2ⁿ·eʳ,
and eʳ is a polynomial. Errors of approximations are maxima over their interval, in the stated measure.
"""

from __future__ import annotations

import math

from dlc.passes.loops.formula import Bits, Float, fma, polynomial, select

LOG2E = 1.4426950408889634
# log₂e = high + low.
LOG2E_F32 = (1.4426950216293335, 1.9259629911266175e-08)
LOG2E_F64 = (1.4426950408889634, 2.0355273740931033e-17)
# ln 2 = high + low (Cody-Waite), where high is short enough that n·high is exact even without FMA.
LN2_F32 = (0.693359375, -2.1219444e-04)
LN2_F64 = (0.6931471803691238, 1.9082149292705877e-10)

# Minimax polynomial for (eʳ − 1 − r)/r², |r| ≤ ln 2 / 2. Relative errors of eʳ: 3.1e-9 (f32), 3.6e-18 (f64).
EXP_F32 = (0.49999994, 0.16666521, 0.04166839, 0.008368717, 0.0013814598)
EXP_F64 = (
    0.5000000000000011, 0.16666666666666413, 0.04166666666653017, 0.00833333333349459, 0.001388888894362765,
    0.0001984126950630516, 2.480149310095062e-05, 2.7557586614309363e-06, 2.7630247779514635e-07, 2.4999986954561064e-08,
)  # fmt: skip
# The same for eʳ − 1. Relative errors: 2.4e-10 (f32), 2.6e-19 (f64).
EXPM1_F32 = (0.5, 0.16666666, 0.041666362, 0.00833339, 0.0013940627, 0.00019845854)
EXPM1_F64 = (
    0.5, 0.16666666666666677, 0.04166666666666651, 0.008333333333321691, 0.0013888888888962403, 0.00019841269885966317,
    2.4801587172472853e-05, 2.7557244373792367e-06, 2.7557402701250376e-07, 2.510897902019228e-08, 2.087531136699518e-09,
)  # fmt: skip
# Minimax polynomial for (2ʳ − 1)/r, |r| ≤ 1/2. Relative errors of 2ʳ: 2.0e-9 (f32), 3.4e-18 (f64).
EXP2_F32 = (0.6931472, 0.24022648, 0.055503324, 0.009618438, 0.0013398901, 0.00015353298)
EXP2_F64 = (
    0.6931471805599453, 0.2402265069591013, 0.05550410866482008, 0.009618129107594063, 0.0013333558146775282,
    0.00015403530457189913, 1.5252733492681737e-05, 1.321543524044381e-06, 1.0178199685039804e-07, 7.073790907787736e-09,
    4.434764424306773e-10,
)  # fmt: skip
# The same for softmax weights, one term shorter in f32: relative error 9.1e-8.
EXP2_SHORT_F32 = (0.693147, 0.24022242, 0.055507336, 0.009671513, 0.0013264746)
# Minimax rational function tanh y = y·(1 + P·y²)/(1 + Q·y²), |y| ≤ ln 2 / 4. Relative error: 6.6e-10.
TANH_P, TANH_Q = 0.06658719, 0.39992028


def reduce_argument(x: Float, offset: int = 0) -> tuple[Float, Bits, Float]:
    """Return n as a float, the bits of n + offset + rounder (`rounder_bits` not yet subtracted), and the reduced argument r."""
    high, low = x.by_format(LN2_F32, LN2_F64)
    rounder = x.format.rounder + offset
    shifted = fma(x, LOG2E, rounder)
    n = shifted - rounder
    return n, shifted.bits(), fma(n, -low, fma(n, -high, x))


def power_of_two(shifted: Bits, offset: int = 0) -> Float:
    """2^(n + offset), for an exponent in the normal range."""
    f = shifted.format
    return ((shifted + (f.bias + offset - f.rounder_bits)) << f.mantissa).as_float()


def scale(p: Float, n: Float, shifted: Bits) -> Float:
    """p·2ⁿ for n beyond the exponent range, rounded once also where it is subnormal: an instruction, or by two factors."""
    if p.builder.has_ldexp:
        return p.ldexp(n)
    f = p.format
    exponent_sum = shifted + (2 * f.bias - f.rounder_bits)
    first = exponent_sum >> 1
    second = exponent_sum - first
    return (p * (first << f.mantissa).as_float()) * (second << f.mantissa).as_float()


def ldexp(x: Float, n: Float) -> Float:
    """x·2^⌊n⌋, rounded once: an instruction, or three factors.

    The last factor is as far from 1 as possible: where an earlier product is subnormal, the result is 0.
    """
    if x.builder.has_ldexp:
        return x.ldexp(n)
    f = x.format
    rest = n.floor()
    factors: list[Float] = []
    for _ in range(3):
        exponent = rest.at_least(float(1 - f.bias)).at_most(float(f.bias))
        factors.append(((exponent + (f.rounder + f.bias)).bits() << f.mantissa).as_float())
        rest = rest - exponent
    last, middle, first = factors
    return select(n.equals(n), x * first * middle * last, n)


def flushed_scale(p: Float, shifted: Bits) -> Float:
    """p·2ⁿ, where the smallest 2ⁿ is 0, for p below 2 and `shifted` with an offset of bias - 1."""
    return (p + p) * (shifted << p.format.mantissa).as_float()


def reduced_exp(r: Float) -> Float:
    """eʳ for the reduced argument: 1 + (r + r²·q(r)), the largest term added last."""
    return fma(r * r, polynomial(r, r.by_format(EXP_F32, EXP_F64)), r) + 1.0


def exp(x: Float) -> Float:
    """eˣ. At most 1.01 ulp in f32 and 1 in f64."""
    # Beyond these bounds the result is 0 or infinite; they keep n in the range of `scale`.
    x = x.at_least(x.by_format(-104.0, -746.0)).at_most(x.by_format(89.0, 710.0))
    n, shifted, r = reduce_argument(x)
    return scale(reduced_exp(r), n, shifted)


def exp_flushed(x: Float) -> Float:
    """eˣ, 0 below 2^-125.5 (f32) or 2^-1021.5 (f64). At most 1.01 ulp in f32 and 1 in f64."""
    x = x.at_least(x.by_format(-87.3, -708.3)).at_most(x.by_format(89.0, 710.0))
    _, shifted, r = reduce_argument(x, x.format.bias - 1)
    return flushed_scale(reduced_exp(r), shifted)


def exp_at_most_zero(x: Float) -> Float:
    """eˣ for x ≤ 0, and 0 where eˣ is subnormal. At most 1.01 ulp in f32 and 1 in f64.

    Arithmetic on subnormal numbers takes up to a hundred times as long on some processors. The smallest 2ⁿ, below the normal
    numbers, is 0.
    """
    _, shifted, r = reduce_argument(x.at_least(x.by_format(-88.0, -709.0)), x.format.bias)
    return reduced_exp(r) * (shifted << x.format.mantissa).as_float()


def exp_absolute_error(x: Float) -> Float:
    """eˣ for x ≤ 0 with a small absolute error, as softmax weights need: at most 2⁻²² in f32 and 2⁻⁵¹ in f64.

    eˣ = 2ⁿ·2ʳ with x·log₂e = n + r, whose error grows with |x| more slowly than eˣ falls. The smallest 2ⁿ is 0, so that masked
    weights are 0.
    """
    f = x.format
    x = x.at_least(x.by_format(-88.1, -709.1))
    rounder = f.rounder + f.bias
    shifted = fma(x, LOG2E, rounder)
    r = fma(x, LOG2E, rounder - shifted)
    p = fma(r, polynomial(r, x.by_format(EXP2_SHORT_F32, EXP2_F64)), 1.0)
    return p * (shifted.bits() << f.mantissa).as_float()


def exp_normal_range(x: Float) -> Float:
    """eˣ, 0 where it is subnormal and infinite from 2^127.5 (f32) or 2^1023.5 (f64) on. At most 2.1 ulp in f32 and 1 in f64.

    eˣ = 2ⁿ·2ʳ with x·log₂e = n + r, where the smallest 2ⁿ is 0 and the largest one is infinite.
    """
    x = x.at_least(x.by_format(-88.0, -709.0)).at_most(x.by_format(89.0, 710.0))
    if not x.builder.fused:
        _, shifted, r = reduce_argument(x, x.format.bias)
        return reduced_exp(r) * (shifted << x.format.mantissa).as_float()
    high, low = x.by_format(LOG2E_F32, LOG2E_F64)
    rounder = x.format.rounder + x.format.bias
    shifted = fma(x, high, rounder)
    r = fma(x, low, fma(x, high, rounder - shifted))
    p = fma(r, polynomial(r, x.by_format(EXP2_SHORT_F32, EXP2_F64)), 1.0)
    return p * (shifted.bits() << x.format.mantissa).as_float()


def exp2(x: Float) -> Float:
    """2ˣ = 2ⁿ·2ʳ with r = x − n, exact. At most 1 ulp in f32 and in f64, 1.2 where fma rounds twice."""
    return scale(*_reduced_exp2(x.at_least(x.by_format(-151.0, -1076.0)).at_most(x.by_format(128.0, 1024.0))))


def exp2_flushed(x: Float) -> Float:
    """2ˣ, 0 below 2^-125.5 (f32) or 2^-1021.5 (f64). At most 1 ulp in f32 and in f64, 1.2 where fma rounds twice."""
    bounded = x.at_least(x.by_format(-126.0, -1022.0)).at_most(x.by_format(128.0, 1024.0))
    power, _, shifted = _reduced_exp2(bounded, x.format.bias - 1)
    return flushed_scale(power, shifted)


def _reduced_exp2(x: Float, offset: int = 0) -> tuple[Float, Float, Bits]:
    """Return 2ʳ, n, and the bits of n + offset + rounder."""
    rounder = x.format.rounder + offset
    shifted = x + rounder
    n = shifted - rounder
    r = x - n
    return fma(r, polynomial(r, x.by_format(EXP2_F32, EXP2_F64)), 1.0), n, shifted.bits()


def reduced_expm1(x: Float) -> tuple[Bits, Float]:
    """Return n (in the low bits) and eʳ − 1, so that eˣ − 1 = 2ⁿ·(eʳ − 1) + (2ⁿ − 1)."""
    _, shifted, r = reduce_argument(x)
    return shifted, fma(r * r, polynomial(r, x.by_format(EXPM1_F32, EXPM1_F64)), r)


def expm1(x: Float) -> Float:
    """eˣ − 1. At most 2 ulp in f32 and in f64."""
    # Below the first bound the result rounds to −1.
    bounded = x.at_least(x.by_format(-20.0, -40.0)).at_most(x.by_format(89.0, 710.0))
    shifted, e = reduced_expm1(bounded)
    # Half of the result, since 2ⁿ itself may overflow where eˣ does not.
    half_power = power_of_two(shifted, -1)
    half = fma(e, half_power, half_power - 0.5)
    # The sum loses the sign of zero; the result's sign is that of x.
    return (half + half).copysign(x)


def quarter_expm1(x: Float) -> Float:
    """(eˣ − 1)/4 for x ≥ 0, which does not overflow where sinh x is finite."""
    shifted, e = reduced_expm1(x.at_most(x.by_format(89.5, 710.5)))
    power = power_of_two(shifted, -2)
    return fma(e, power, power - 0.25)


def sinh(x: Float) -> Float:
    """With m = e^|x| − 1: sinh |x| = (m + m/(m + 1))/2. At most 3 ulp in f32 and in f64."""
    m = quarter_expm1(abs(x))
    half = m + m / fma(m, 4.0, 1.0)
    return (half + half).copysign(x)


def cosh(x: Float) -> Float:
    """With E = e^|x|: cosh x = E/2 + 1/(2E). At most 2 ulp in f32 and in f64."""
    quarter = quarter_expm1(abs(x)) + 0.25
    return fma(quarter, 2.0, 0.125 / quarter)


def tanh(x: Float) -> Float:
    """tanh x. At most 3 ulp in f32 and in f64.

    With |x| = n·ln 2 / 2 + y and tanh y = q/p, f32 computes (2ⁿ − 1 + (2ⁿ + 1)·q/p) / (2ⁿ + 1 + (2ⁿ − 1)·q/p), by the addition
    theorem; f64 computes m/(m + 2) with m = e^(2|x|) − 1.
    """
    if x.format.width == 32:
        # From 9.01 on tanh rounds to 1.
        a, rounder = abs(x).at_most(9.1), x.format.rounder + x.format.bias
        shifted = fma(a, 2 * LOG2E, rounder)
        y = fma(shifted - rounder, -math.log(2) / 2, a)
        square = y * y
        p, q = fma(square, TANH_Q, 1.0), fma(y * square, TANH_P, y)
        power = (shifted.bits() << x.format.mantissa).as_float()
        power_minus_one, power_plus_one = power - 1.0, power + 1.0
        return (fma(power_minus_one, p, power_plus_one * q) / fma(power_plus_one, p, power_minus_one * q)).copysign(x)
    shifted, e = reduced_expm1((abs(x) * 2.0).at_most(40.0))
    power = power_of_two(shifted)
    m = fma(e, power, power - 1.0)
    return (m / (m + 2.0)).copysign(x)
