"""x·2/π modulo 4 for any finite x, by integers: the reduction of Payne and Hanek.

|x| = m·2^q with an integer m. Of the digits of 2/π, in limbs of half a word, those are picked of which m·2^q makes neither
whole turns nor nothing; their product with m, an exact one of integers, has the quadrant in its first two bits, and then the
fraction, to 2⁻⁷⁰ in f32 and 2⁻¹³⁷ in f64. No float of these formats comes as near to a multiple of π/2 as 2⁻³³ and 2⁻⁶².

M. Payne and R. Hanek: Radian reduction for trigonometric functions. SIGNUM Newsletter 18 (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dlc.passes.loops.formula import Bits, Float, fma

# ⌊2/π · 2^1280⌋: enough for the greatest f64.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
DIGITS = 1280
# Limbs of 2/π that are multiplied, and those of the product's fraction that are used.
_FACTORS, _FRACTION = 6, 5


def reduce(x: Float) -> tuple[Bits, Float]:
    """n, of which the low two bits count, and r with x = n·π/2 + r, |r| ≤ π/4; NaN for infinities and NaN.

    Meant for |x| ≥ 2⁹ in f32 and 2²² in f64; below, n and r are some numbers.
    """
    f = x.format
    limb = f.width // 2
    mask = (1 << limb) - 1
    bits = abs(x).bits()
    mantissa = (bits & ((1 << f.mantissa) - 1)) | (1 << f.mantissa)
    # 2^(q − 2): whole turns are multiples of 4. One limb of zeros before the digits, so that there is no negative place.
    first = f.bias + f.mantissa + 2 - limb
    place = bits.unsigned_shift(f.mantissa) - first
    digits = _picked(place.unsigned_shift(limb.bit_length() - 1), limb, 2 * f.bias + 1 - first)
    shift = place & (limb - 1)
    aligned = [((a << shift) | b.unsigned_shift(limb - shift)) & mask for a, b in pairwise(digits)]
    fraction = _product(mantissa & mask, mantissa.unsigned_shift(limb), aligned, limb)
    n = fraction[0].unsigned_shift(limb - 2)
    rest = [((a << 2) & mask) | b.unsigned_shift(limb - 2) for a, b in pairwise(fraction)]
    # From a half on the next multiple is nearer: its complement is left over, and negative.
    above = rest[0].unsigned_shift(limb - 1)
    rest = [r ^ ((0 - above) & mask) for r in rest]
    high, low = _as_floats(rest, limb)
    sign = (above << (f.width - 1)) ^ (x.bits() & -(1 << (f.width - 1)))
    pi_2_high, pi_2_low = x.by_format((1.5707964, -4.371139e-08), (1.5707963267948966, 6.123233995736766e-17))
    r = fma(high, pi_2_high, fma(high, pi_2_low, low * pi_2_high))
    negative = x.bits() >> (f.width - 1)
    n = ((n + above) ^ negative) - negative
    # x − x is 0, or NaN for what is not finite.
    return n, (r.bits() ^ sign).as_float() + (x - x)


def _picked(first: Bits, limb: int, greatest: int) -> list[Bits]:
    """The limbs of 2/π from `first` on, by halving the choice: those 2^k further on where bit k of `first` is set."""
    stages = (greatest // limb).bit_length()
    ends = (DIGITS - limb * k for k in range(_FACTORS + (1 << stages)))
    words = [(TWO_OVER_PI >> end) & ((1 << limb) - 1) if 0 <= end < DIGITS else 0 for end in ends]
    choice: list[Bits] = [first.constant(word) for word in words]
    for k in reversed(range(stages)):
        is_set = (first & (1 << k)).equals(1 << k)
        choice = [far.choose(is_set, near) for near, far in zip(choice, choice[1 << k :], strict=False)]
    return choice


def _product(low: Bits, high: Bits, factors: Sequence[Bits], limb: int) -> list[Bits]:
    """The first limbs after the point of (high·2^limb + low) · 0.f₀f₁f₂…; each sum of two products and a carry fits a word."""
    mask = (1 << limb) - 1

    def times(factor: Bits) -> list[Bits]:
        carry, limbs = low.constant(0), list[Bits]()
        for f in reversed(factors):
            total = f * factor + carry
            limbs.insert(0, total & mask)
            carry = total.unsigned_shift(limb)
        return limbs

    # A product's limb k, and the next one's of the higher half, have the same weight.
    carry, limbs = low.constant(0), list[Bits]()
    of_low, of_high = times(low), times(high)
    for a, b in reversed(list(zip(of_low, [*of_high[1:], low.constant(0)], strict=True))):
        total = a + b + carry
        limbs.insert(0, total & mask)
        carry = total.unsigned_shift(limb)
    return limbs[:_FRACTION]


def _as_floats(limbs: Sequence[Bits], limb: int) -> tuple[Float, Float]:
    """The fraction 0.l₀l₁l₂l₃ as a float and what it lacks; each limb is a float exactly, and greater than all after it."""
    *rest, total = (digits.to_float() * 2.0 ** (-limb * (k + 1)) for k, digits in enumerate(limbs))
    lost: Float | None = None
    for t in reversed(rest):
        s = t + total
        error = (t - s) + total
        lost = error if lost is None else lost + error
        total = s
    assert lost is not None
    return total, lost
