"""Payne-Hanek argument reduction: x·2/π modulo 4 for any finite x, in integer arithmetic.

|x| = m·2^q with an integer m. Only some 32-bit limbs of 2/π are needed: those whose product with m·2^q is neither
a multiple of 4 nor negligible. Their exact integer product with m has the quadrant in its first two bits, followed by the
fraction (error: 2⁻⁷⁰ in f32, 2⁻¹³⁷ in f64). Each float is at least 2⁻³³ (f32) or 2⁻⁶² (f64) away from a multiple of π/2.

M. Payne and R. Hanek: Radian reduction for trigonometric functions. SIGNUM Newsletter 18 (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from dlc.ir import AffineMap, DenseIntOrFPElementsAttr, IndexType, VectorType, arith, f32, i32, i64, memref
from dlc.passes.loops.formula import Bits, Float, fma, select
from dlc.passes.loops.slow_path import emit_loop
from dlc.passes.structured import ConstantPool, OpBuilder

# ⌊2/π · 2^1280⌋: enough digits for the largest f64.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
TWO_OVER_PI_BITS = 1280
_LIMB_BITS = 32
_LIMB_MASK = (1 << _LIMB_BITS) - 1


def reduce_argument(x: Float) -> tuple[Bits, Float]:
    """Return n, of which only the low two bits are valid, and r with x = n·π/2 + r, |r| ≤ π/4; NaN for infinities.

    `x` is a scalar with |x| ≥ 2⁹ in f32, or |x| ≥ 2²² in f64.
    """
    f = x.format
    is_f32 = f.float_type == f32
    bits = _zero_extend(abs(x).bits())
    mantissa = (bits & ((1 << f.mantissa) - 1)) | (1 << f.mantissa)
    # 2^(q − 2) drops full turns (multiples of 4). A zero limb before the digits keeps the bit position non-negative.
    first_bit = f.bias + f.mantissa + 2 - _LIMB_BITS
    position = bits.unsigned_shift(f.mantissa) - first_bit
    mantissa_limbs = [mantissa] if is_f32 else [mantissa & _LIMB_MASK, mantissa.unsigned_shift(_LIMB_BITS)]
    count = 3 * len(mantissa_limbs)
    last_digit = position.unsigned_shift(5) + count
    digits = _DigitTable(last_digit, (2 * f.bias + 1 - first_bit) // _LIMB_BITS + count)
    limbs = _product(mantissa_limbs, digits, last_digit, position & (_LIMB_BITS - 1), count)
    # As a signed integer, `fraction` is the distance from the nearest multiple of π/2; if it is negative, n is rounded up.
    fraction = (limbs[0] << _LIMB_BITS + 2) | (limbs[1] << 2) | limbs[2].unsigned_shift(_LIMB_BITS - 2)
    n = limbs[0].unsigned_shift(_LIMB_BITS - 2) + fraction.unsigned_shift(63)
    total = fraction.to_float()
    rounding_error = (fraction - total.to_bits()).to_float()
    if not is_f32:
        low_limbs = [((a << 2) & _LIMB_MASK) | b.unsigned_shift(_LIMB_BITS - 2) for a, b in pairwise(limbs[2:5])]
        rounding_error = rounding_error + (
            low_limbs[0].to_float() * 2.0**-_LIMB_BITS + low_limbs[1].to_float() * 2.0 ** (-2 * _LIMB_BITS)
        )
    high = total + rounding_error
    low = (total - high) + rounding_error
    high, low = (Float(x.builder, f, limb.value) for limb in (high, low))
    # The high parts of both factors are so short that their product is exact, so that r is rounded once even without FMA.
    bits, pi_2_head, pi_2_tail = x.by_format(
        (12, 1.5703125, 0.00048382679489661926), (31, 1.5707963267341256, 6.077100506506192e-11)
    )
    unit = 2.0 ** (-2 * _LIMB_BITS)
    head = (high.bits() & -(1 << bits)).as_float()
    tail = (high - head) + low
    r = fma(head, pi_2_head * unit, fma(head, pi_2_tail * unit, tail * ((pi_2_head + pi_2_tail) * unit)))
    # x − x is 0, or NaN if x is not finite.
    r = r + (x - x)
    quadrant, is_negative = _truncate(n, x), x < 0.0
    return (0 - quadrant).choose(is_negative, quadrant), select(is_negative, -r, r)


def _zero_extend(bits: Bits) -> Bits:
    """Zero-extend bits to 64-bit integers."""
    f = bits.format
    if f.width == 64:
        return bits
    return Bits(bits.builder, replace(f, bits_type=i64), bits.builder.insert(arith.ExtUIOp, [bits.value], i64))


def _truncate(wide: Bits, x: Float) -> Bits:
    """Truncate 64-bit integers to the width of `x`."""
    narrow = wide.value if x.format.width == 64 else x.builder.insert(arith.TruncIOp, [wide.value], i32)
    return Bits(x.builder, x.format, narrow)


class _DigitTable:
    """The 32-bit limbs of 2/π in a local table, preceded by a zero limb."""

    def __init__(self, index: Bits, max_index: int) -> None:
        shifts = range(TWO_OVER_PI_BITS, TWO_OVER_PI_BITS - _LIMB_BITS * (max_index + 1), -_LIMB_BITS)
        limbs = [(TWO_OVER_PI >> shift) & _LIMB_MASK if 0 <= shift < TWO_OVER_PI_BITS else 0 for shift in shifts]
        builder, t = index.builder, VectorType(i64, [len(limbs)])
        constants = ConstantPool(builder.constants.function)
        ops = OpBuilder(constants, builder.block, builder.anchor.location, builder.anchor)
        self._array = ops.alloca(i64, (len(limbs),))
        table = constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), limbs), t)
        ops.transfer_write(table, self._array, [0], AffineMap.identity(1))

    def load(self, index: Bits) -> Bits:
        builder = index.builder
        position = builder.insert(arith.IndexCastOp, [index.value], IndexType())
        return Bits(builder, index.format, builder.insert(memref.LoadOp, [self._array, position], i64))


def _product(mantissa_limbs: Sequence[Bits], digits: _DigitTable, last_index: Bits, shift: Bits, count: int) -> Sequence[Bits]:
    """Return the fractional limbs of (… + limb₁·2³² + limb₀) · 0.f₀f₁f₂…

    The factors f₀, f₁, … are `count` digits up to `last_index`, shifted left by `shift` bits. A loop computes a limb in each
    iteration, from the last to the first: unrolled code would be longer than the rest of a formula. A product, a limb and a
    carry fit 64 bits.
    """
    zero, num_carries = shift.constant(0), len(mantissa_limbs)

    def step(index: Bits, digit: Bits, factor: Bits, *carries_and_limbs: Bits) -> tuple[Bits, ...]:
        higher_digit = digits.load(index - 1)
        # Shift within 64 bits, so that a shift by 0 needs no special case.
        higher_factor = (((higher_digit << _LIMB_BITS) | digit) << shift).unsigned_shift(_LIMB_BITS)
        limb, carries = index.constant(0), list[Bits]()
        factors = (higher_factor, factor)[:num_carries]
        for f, mantissa_limb, carry in zip(factors, mantissa_limbs, carries_and_limbs[:num_carries], strict=True):
            total = f * mantissa_limb + limb + carry
            limb = total & _LIMB_MASK
            carries.append(total.unsigned_shift(_LIMB_BITS))
        return (index - 1, higher_digit, higher_factor, *carries, limb, *carries_and_limbs[num_carries:-1])

    start = (last_index, digits.load(last_index), *[zero] * (1 + num_carries + count))
    return emit_loop(zero.constant(count), 1, step, start)[-count:]
