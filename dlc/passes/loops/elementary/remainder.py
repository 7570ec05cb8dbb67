"""arith.remf: C's fmod, exact."""

from __future__ import annotations

import math

from dlc.passes.loops.formula import Bits, Bool, Float, fma, select
from dlc.passes.loops.slow_path import apply_slow_path_per_element, emit_loop

# Quotient bits per step of the long division: a 53-bit remainder shifted by 11 fits 64 bits.
_BITS_PER_STEP = 11


def remf(x: Float, y: Float) -> Float:
    """x − y·trunc(x / y) in f64, exactly, with the sign of x; NaN where x is infinite or y is 0.

    With q = trunc(|x| / |y|), r = |x| − q·|y| is representable: a multiple of ulp(y), at most |y|. If the quotient was
    rounded up to an integer, r is negative and is corrected. Quotients above `bound` take the slow path, long division.
    """
    a, b = abs(x), abs(y)
    quotient = a / b
    q = quotient.trunc()
    if x.builder.fused:
        bound, r = 2.0**52, fma(q, -b, a)
    else:
        # Split y into high and low parts (Dekker), whose products with q are exact. So are the differences: the first one is
        # of nearby values.
        high = (b.bits() & -(1 << 27)).as_float()
        bound, r = 2.0**26, (a - q * high) - q * (b - high)
    r = select(r < 0.0, r + b, r)
    r = select(a < b, a, r)

    def is_large(a: Float, b: Float, quotient: Float) -> Bool:
        return (quotient > bound) & (a < math.inf) & (b > 0.0)

    def slow_path(a: Float, b: Float, quotient: Float) -> tuple[Float]:
        return (_long_division(a, b),)

    (r,) = apply_slow_path_per_element(is_large, slow_path, (a, b, quotient), (r,))
    return r.copysign(x)


def _long_division(a: Float, b: Float) -> Float:
    """a mod b for 0 < b ≤ a < ∞, as (m·2^(e − f) mod n)·2ᶠ with a = m·2ᵉ and b = n·2ᶠ.

    Each step divides 11 bits. The result is arbitrary for other arguments.
    """
    (e, m), (f, n) = _exponent_and_mantissa(a), _exponent_and_mantissa(b)
    # Avoid undefined division by 0 in elements whose result is unused.
    n = n.choose(b > 0.0, 1)

    def step(count: Bits, r: Bits, n: Bits) -> tuple[Bits, Bits, Bits]:
        shift = count.choose(count < _BITS_PER_STEP, _BITS_PER_STEP)
        shift = shift.choose(count > 0, 0)
        return count - shift, (r << shift).unsigned_remainder(n), n

    exponent_difference = e - f
    _, r, _ = emit_loop(exponent_difference, _BITS_PER_STEP, step, (exponent_difference, m.unsigned_remainder(n), n))
    # r·2^(f − 1075) as two factors, neither of which overflows.
    return (r.to_float() * 2.0**-52) * (f << b.format.mantissa).as_float()


def _exponent_and_mantissa(x: Float) -> tuple[Bits, Bits]:
    """Return exponent bits and integer mantissa of x ≥ 0: mantissa · 2^(exponent − bias − 52); subnormals have exponent 1."""
    f, bits = x.format, x.bits()
    exponent = bits.unsigned_shift(f.mantissa)
    hidden_bit = exponent.constant(1 << f.mantissa).choose(exponent > 0, 0)
    return exponent.choose(exponent > 0, 1), (bits & ((1 << f.mantissa) - 1)) | hidden_bit
