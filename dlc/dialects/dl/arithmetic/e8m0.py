"""float8_e8m0fnu, a power of two in one byte: the code c is 2^(c - 127), and 255 is NaN. It has no zero, sign or infinity.

Such values scale blocks of other low-precision values. The code is the exponent of f32, except for code 0, which is a denormal
in f32.
"""

from __future__ import annotations

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Body
from dlc.ir import Float8E8M0FNUType, SSAValue, arith, f32, i8, i32

E8M0 = Float8E8M0FNUType()
_F32_MANTISSA_BITS, _NAN_CODE = 23, 255
# The bits of the f32 value 2^-127, a denormal: the highest mantissa bit. Rounding to nearest adds half of the last bit of the
# exponent, and half of that below 2^-126.
_F32_BITS_OF_MIN, _F32_BITS_OF_NAN = 1 << (_F32_MANTISSA_BITS - 1), 0x7FC00000


def decode_array(x: Array) -> Array:
    """Convert powers of two to f32 with NumPy."""
    return x.astype(np.float32)


def encode_array(x: Array, saturate: bool) -> Array:
    """Return the power nearest to |x| with NumPy; a tie rounds up; see `dl.cast`."""
    bits = np.abs(x.astype(np.float32)).view(np.int32)
    codes = (bits + np.where(bits < 1 << _F32_MANTISSA_BITS, _F32_BITS_OF_MIN // 2, _F32_BITS_OF_MIN)) >> _F32_MANTISSA_BITS
    codes = np.minimum(codes, _NAN_CODE - 1) if saturate else codes
    return np.where(bits >= _NAN_CODE << _F32_MANTISSA_BITS, _NAN_CODE, codes).astype(np.uint8).view(numpy_dtype(E8M0))


def decode(body: Body, code: SSAValue) -> SSAValue:
    """Emit the f32 value of a code."""

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, i32)

    code = body(arith.ExtUIOp(code, i32))
    bits = body(arith.ShLIOp(code, literal(_F32_MANTISSA_BITS)))
    bits = scalar.select(body, scalar.compare_with(body, "eq", code, 0, i32), literal(_F32_BITS_OF_MIN), bits)
    bits = scalar.select(body, scalar.compare_with(body, "eq", code, _NAN_CODE, i32), literal(_F32_BITS_OF_NAN), bits)
    return body(arith.BitcastOp(bits, f32))


def encode(body: Body, x: SSAValue, saturate: bool) -> SSAValue:
    """Emit the code of the power nearest to |x|, an f32."""

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, i32)

    bits = body(arith.AndIOp(body(arith.BitcastOp(x, i32)), literal((1 << 31) - 1)))
    is_small = scalar.compare_with(body, "lt", bits, 1 << _F32_MANTISSA_BITS, i32)
    rounding_offset = scalar.select(body, is_small, literal(_F32_BITS_OF_MIN // 2), literal(_F32_BITS_OF_MIN))
    code = body(arith.ShRUIOp(scalar.add(body, bits, rounding_offset), literal(_F32_MANTISSA_BITS)))
    if saturate:
        code = body(arith.MinSIOp(code, literal(_NAN_CODE - 1)))
    is_nan_or_infinity = scalar.compare_with(body, "ge", bits, _NAN_CODE << _F32_MANTISSA_BITS, i32)
    return body(arith.TruncIOp(scalar.select(body, is_nan_or_infinity, literal(_NAN_CODE), code), i8))
