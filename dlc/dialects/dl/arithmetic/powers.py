"""Powers of two in a byte, float8_e8m0fnu: a code c is 2^(c - 127), and 255 is NaN. There is no zero, no sign, no infinity.

They scale blocks of other narrow numbers. The code is f32's exponent, but for 0, which f32 has among its smallest numbers.
"""

from __future__ import annotations

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Body
from dlc.ir import Float8E8M0FNUType, SSAValue, arith, f32, i8, i32

POWERS = Float8E8M0FNUType()
_MANTISSA, _NAN = 23, 255
# The bits of f32's 2^-127: its one is half way down the mantissa, where there is no exponent. To the nearest, half of the last
# bit is added, which is half of that again below 2^-126.
_SMALLEST, _NAN_BITS = 1 << (_MANTISSA - 1), 0x7FC00000


def widened(x: Array) -> Array:
    """Powers as f32, by NumPy."""
    return x.astype(np.float32)


def narrowed(x: Array, saturate: bool) -> Array:
    """The power nearest to |x|, by NumPy: up from the middle of two; see `dl.cast`."""
    bits = np.abs(x.astype(np.float32)).view(np.int32)
    codes = (bits + np.where(bits < 1 << _MANTISSA, _SMALLEST // 2, _SMALLEST)) >> _MANTISSA
    codes = np.minimum(codes, _NAN - 1) if saturate else codes
    return np.where(bits >= _NAN << _MANTISSA, _NAN, codes).astype(np.uint8).view(numpy_dtype(POWERS))


def decoded(body: Body, code: SSAValue) -> SSAValue:
    """The f32 that a code stands for."""

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, i32)

    code = body(arith.ExtUIOp(code, i32))
    bits = body(arith.ShLIOp(code, literal(_MANTISSA)))
    bits = scalar.select(body, scalar.compare_with(body, "eq", code, 0, i32), literal(_SMALLEST), bits)
    bits = scalar.select(body, scalar.compare_with(body, "eq", code, _NAN, i32), literal(_NAN_BITS), bits)
    return body(arith.BitcastOp(bits, f32))


def encoded(body: Body, x: SSAValue, saturate: bool) -> SSAValue:
    """The code of the power nearest to |x|, of f32."""

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, i32)

    bits = body(arith.AndIOp(body(arith.BitcastOp(x, i32)), literal((1 << 31) - 1)))
    is_small = scalar.compare_with(body, "lt", bits, 1 << _MANTISSA, i32)
    half = scalar.select(body, is_small, literal(_SMALLEST // 2), literal(_SMALLEST))
    code = body(arith.ShRUIOp(scalar.add(body, bits, half), literal(_MANTISSA)))
    if saturate:
        code = body(arith.MinSIOp(code, literal(_NAN - 1)))
    no_number = scalar.compare_with(body, "ge", bits, _NAN << _MANTISSA, i32)
    return body(arith.TruncIOp(scalar.select(body, no_number, literal(_NAN), code), i8))
