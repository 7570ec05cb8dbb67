"""remf: the remainder of a division that truncates, exact for all operands."""

from __future__ import annotations

import math

from dlc.passes.loops.formula import Bits, Bool, Float, fma, select
from dlc.passes.loops.rare import repeat, where_any

# By how many bits a remainder of 53 is shifted before it is divided again.
_STEP = 11


def remf(x: Float, y: Float) -> Float:
    """x − y·trunc(x / y) in f64, exactly, with the sign of x; NaN where x is infinite or y 0.

    With q = trunc(|x| / |y|), r = |x| − q·|y| is a float again: a multiple of the last place of y that is no more than y. The
    quotient may have been rounded up to a whole number, then r is negative. For greater quotients it is long division.
    """
    a, b = abs(x), abs(y)
    quotient = a / b
    q = quotient.trunc()
    if x.place.fused:
        bound, r = 2.0**52, fma(q, -b, a)
    else:
        # Halves of y whose products with q are exact; so are the differences, the first since it nearly cancels.
        high = (b.bits() & -(1 << 27)).as_float()
        bound, r = 2.0**26, (a - q * high) - q * (b - high)
    r = select(r < 0.0, r + b, r)
    r = select(a < b, a, r)

    def is_large(a: Float, b: Float, quotient: Float) -> Bool:
        return (quotient > bound) & (a < math.inf) & (b > 0.0)

    def long(a: Float, b: Float, quotient: Float) -> tuple[Float]:
        return (_long_division(a, b),)

    (r,) = where_any(is_large, long, (a, b, quotient), (r,))
    return r.with_sign_of(x)


def _long_division(a: Float, b: Float) -> Float:
    """a mod b for 0 < b ≤ a < ∞, as m·2ᵉ mod n·2ᶠ = (m·2^(e − f) mod n)·2ᶠ, a few digits at a time; else some number."""
    (e, m), (f, n) = _integer(a), _integer(b)
    # A divisor of 0 is undefined, also where the result is not asked for.
    n = n.choose(b > 0.0, 1)

    def step(count: Bits, r: Bits, n: Bits) -> tuple[Bits, Bits, Bits]:
        shift = count.choose(count < _STEP, _STEP)
        shift = shift.choose(count > 0, 0)
        return count - shift, (r << shift).unsigned_remainder(n), n

    places = e - f
    _, r, _ = repeat(places, _STEP, step, (places, m.unsigned_remainder(n), n))
    # r·2^(f − 1075), by factors of which none overflows.
    return (r.to_float() * 2.0**-52) * (f << b.format.mantissa).as_float()


def _integer(x: Float) -> tuple[Bits, Bits]:
    """The exponent's bits and the digits of x ≥ 0: digits · 2^(exponent − bias − 52); denormals have the exponent 1."""
    f, bits = x.format, x.bits()
    exponent = bits.unsigned_shift(f.mantissa)
    hidden = exponent.constant(1 << f.mantissa).choose(exponent > 0, 0)
    return exponent.choose(exponent > 0, 1), (bits & ((1 << f.mantissa) - 1)) | hidden
