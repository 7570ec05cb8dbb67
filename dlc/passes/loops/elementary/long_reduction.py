"""x·2/π modulo 4 for any finite x, by integers: the reduction of Payne and Hanek.

|x| = m·2^q with an integer m. Of the digits of 2/π, in limbs of 32 bits, those are picked of which m·2^q makes neither
whole turns nor nothing; their product with m, an exact one of integers, has the quadrant in its first two bits, and then the
fraction, to 2⁻⁷⁰ in f32 and 2⁻¹³⁷ in f64. No float of these formats comes as near to a multiple of π/2 as 2⁻³³ and 2⁻⁶².

M. Payne and R. Hanek: Radian reduction for trigonometric functions. SIGNUM Newsletter 18 (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from dlc.ir import AffineMap, DenseIntOrFPElementsAttr, IndexType, VectorType, arith, f32, i32, i64, memref
from dlc.passes.loops.formula import Bits, Float, fma, select
from dlc.passes.structured import Constants
from dlc.passes.structured import Place as Code

# ⌊2/π · 2^1280⌋: enough for the greatest f64.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
DIGITS = 1280
_LIMB = 32
_MASK = (1 << _LIMB) - 1


def reduce(x: Float) -> tuple[Bits, Float]:
    """n, of which the low two bits count, and r with x = n·π/2 + r, |r| ≤ π/4; NaN for infinities.

    Of a scalar with |x| ≥ 2⁹ in f32 and 2²² in f64.
    """
    f = x.format
    single = f.float_type == f32
    bits = _wide(abs(x).bits())
    mantissa = (bits & ((1 << f.mantissa) - 1)) | (1 << f.mantissa)
    # 2^(q − 2): whole turns are multiples of 4. One limb of zeros before the digits, so that there is no negative place.
    first = f.bias + f.mantissa + 2 - _LIMB
    place = bits.unsigned_shift(f.mantissa) - first
    parts = [mantissa] if single else [mantissa & _MASK, mantissa.unsigned_shift(_LIMB)]
    count = 3 * len(parts)
    digits = _picked(place.unsigned_shift(5), count + 1, (2 * f.bias + 1 - first) // _LIMB)
    shift = place & (_LIMB - 1)
    # A shift by all bits of a limb is one by none of its word.
    aligned = [(((a << _LIMB) | b) << shift).unsigned_shift(_LIMB) for a, b in pairwise(digits)]
    limbs = _product(parts, aligned)
    # As a signed number it is the distance from the nearest multiple; one beyond the quadrant's where it is negative.
    rest = (limbs[0] << _LIMB + 2) | (limbs[1] << 2) | limbs[2].unsigned_shift(_LIMB - 2)
    n = limbs[0].unsigned_shift(_LIMB - 2) + rest.unsigned_shift(63)
    total = rest.to_float()
    lost = (rest - total.to_bits()).to_float()
    if not single:
        behind = [((a << 2) & _MASK) | b.unsigned_shift(_LIMB - 2) for a, b in pairwise(limbs[2:5])]
        lost = lost + (behind[0].to_float() * 2.0**-_LIMB + behind[1].to_float() * 2.0 ** (-2 * _LIMB))
    high = total + lost
    low = (total - high) + lost
    high, low = (Float(x.place, f, part.value) for part in (high, low))
    # The heads of both factors are so short that their product is exact, so that r is rounded once also without fma.
    bits, pi_2_head, pi_2_tail = x.by_format(
        (12, 1.5703125, 0.00048382679489661926), (31, 1.5707963267341256, 6.077100506506192e-11)
    )
    unit = 2.0 ** (-2 * _LIMB)
    head = (high.bits() & -(1 << bits)).as_float()
    tail = (high - head) + low
    r = fma(head, pi_2_head * unit, fma(head, pi_2_tail * unit, tail * ((pi_2_head + pi_2_tail) * unit)))
    # x − x is 0, or NaN for what is not finite.
    r = r + (x - x)
    narrow, negative = _as_bits(n, x), x < 0.0
    return (0 - narrow).choose(negative, narrow), select(negative, -r, r)


def _wide(bits: Bits) -> Bits:
    """Bits as integers of 64 bits, whatever the floats beside them are."""
    f = bits.format
    if f.width == 64:
        return bits
    return Bits(bits.place, replace(f, bits_type=i64), bits.place.insert(arith.ExtUIOp, [bits.value], i64))


def _as_bits(wide: Bits, x: Float) -> Bits:
    """The low bits of integers of 64 bits, as many as a float has."""
    narrow = wide.value if x.format.width == 64 else x.place.insert(arith.TruncIOp, [wide.value], i32)
    return Bits(x.place, x.format, narrow)


def _picked(first: Bits, count: int, greatest: int) -> list[Bits]:
    """So many limbs of 2/π from `first` on, which is no more than `greatest`: from a local array of them."""
    ends = range(DIGITS, DIGITS - _LIMB * (greatest + count), -_LIMB)
    words = [(TWO_OVER_PI >> end) & _MASK if 0 <= end < DIGITS else 0 for end in ends]
    at, t = first.place, VectorType(i64, [len(words)])
    constants = Constants(at.constants.function)
    code = Code(constants, at.block, at.anchor.location, at.anchor)
    array = code.alloca(i64, (len(words),))
    table = constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), words), t)
    code.transfer_write(table, array, [0], AffineMap.identity(1))
    start = at.insert(arith.IndexCastOp, [first.value], IndexType())
    places = (code.value(code.add(start, k)) for k in range(count))
    loads = (code.op(memref.LoadOp.create(operands=[array, place], result_types=[i64])) for place in places)
    return [Bits(at, first.format, word) for word in loads]


def _product(parts: Sequence[Bits], factors: Sequence[Bits]) -> list[Bits]:
    """The limbs after the point of (… + part₁·2³² + part₀) · 0.f₀f₁f₂…; a product, a limb and a carry fit a word."""
    total = [parts[0].constant(0)] * len(factors)
    for k, part in enumerate(parts):
        carry = part.constant(0)
        for j in reversed(range(k, len(factors))):
            sum = factors[j] * part + total[j - k] + carry
            total[j - k] = sum & _MASK
            carry = sum.unsigned_shift(_LIMB)
    return total
