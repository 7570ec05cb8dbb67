"""Storage-only element types: formats that are stored and copied but not computed with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic import e8m0
from dlc.dialects.dl.arithmetic.e8m0 import E8M0
from dlc.dialects.dl.base import Array, is_storage_only
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Body, is_unsigned
from dlc.ir import (
    Attribute,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    SSAValue,
    arith,
    f32,
    f64,
    i8,
    i32,
    i64,
    math,
)


@dataclass(frozen=True)
class LowPrecisionFormat:
    """The encoding of an 8- or 4-bit float: a sign, an exponent with bias `bias`, then `mantissa` bits, `width` bits in all.

    `largest` is the code of the largest finite magnitude; `infinity` and `nan` are the codes of infinity and of one NaN, None
    if the format has none. With `one_zero` there is no -0: its code is the only NaN.
    """

    width: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    one_zero: bool = False

    @property
    def sign(self) -> int:
        """The mask of the sign bit."""
        return 1 << (self.width - 1)

    @property
    def largest_value(self) -> float:
        exponent, fraction = divmod(self.largest, 1 << self.mantissa)
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)


FLOAT_FORMATS: dict[Attribute, LowPrecisionFormat] = {
    Float8E4M3FNType(): LowPrecisionFormat(8, mantissa=3, bias=7, largest=0x7E, nan=0x7F),
    Float8E4M3FNUZType(): LowPrecisionFormat(8, mantissa=3, bias=8, largest=0x7F, nan=0x80, one_zero=True),
    Float8E5M2Type(): LowPrecisionFormat(8, mantissa=2, bias=15, largest=0x7B, infinity=0x7C, nan=0x7E),
    Float8E5M2FNUZType(): LowPrecisionFormat(8, mantissa=2, bias=16, largest=0x7F, nan=0x80, one_zero=True),
    Float4E2M1FNType(): LowPrecisionFormat(4, mantissa=1, bias=1, largest=0x7),
}
# All storage-only float types.
STORAGE_ONLY_FLOATS = (*FLOAT_FORMATS, E8M0)


def decode_array(x: Array, source: Attribute) -> Array:
    """Convert an array of a storage-only type to f32 or i8 with NumPy."""
    if source == E8M0:
        return e8m0.decode_array(x)
    if source not in FLOAT_FORMATS:
        return x.astype(np.int8)
    codes = x.view(np.uint8) & np.uint8(2 * FLOAT_FORMATS[source].sign - 1)
    return codes.view(x.dtype).astype(np.float32)


def encode_array(x: Array, target: Attribute, saturate: bool) -> Array:
    """Convert an array to a storage-only float type with NumPy; see `dl.cast`."""
    if target == E8M0:
        return e8m0.encode_array(x, saturate)
    float_format, wide = FLOAT_FORMATS[target], x.astype(np.float64)
    _, exponent = np.frexp(wide)
    # The spacing of the format's values near x: after rounding to a multiple of it, the conversions are exact.
    spacing = np.ldexp(1.0, np.maximum(exponent - 1, 1 - float_format.bias) - float_format.mantissa)
    rounded = np.where(np.isfinite(wide), np.rint(wide / spacing) * spacing, wide)
    if saturate:
        rounded = np.clip(rounded, -float_format.largest_value, float_format.largest_value)
    return rounded.astype(np.float32).astype(numpy_dtype(target))


@dataclass(frozen=True)
class _FloatLayout:
    """The layout of a standard float type, the intermediate type of conversions, and the integer type of its width."""

    type: Attribute
    integer: Attribute
    mantissa: int
    bias: int


_F32 = _FloatLayout(f32, i32, 23, 127)
_F64 = _FloatLayout(f64, i64, 52, 1023)


def convert(body: Body, x: SSAValue, source: Attribute, target: Attribute, saturate: bool) -> SSAValue:
    """Emit the conversion of `x` from `source` to `target`, at least one of which is storage-only; see `dl.cast`."""
    if source == target:
        return x
    # f32 or i8 represents every value of a storage-only type, so that a conversion in two steps rounds once.
    if source == E8M0:
        x, source = e8m0.decode(body, x), f32
    elif source in FLOAT_FORMATS:
        x, source = decode(body, x, FLOAT_FORMATS[source]), f32
    elif is_storage_only(source):
        x, source = _sign_extend(body, x, source), i8
    if not is_storage_only(target):
        return scalar.convert(body, x, source, target)
    if target == E8M0:
        return e8m0.encode(body, scalar.convert(body, x, source, f32), saturate)
    if target not in FLOAT_FORMATS:
        return _sign_extend(body, scalar.convert(body, scalar.convert(body, x, source, i32), i32, i8), target)
    # f32 represents every source value in the range of a storage-only float exactly, except for f64.
    wide = _F64 if source == f64 else _F32
    return encode(body, scalar.convert(body, x, source, wide.type), FLOAT_FORMATS[target], wide, saturate)


def _sign_extend(body: Body, x: SSAValue, element_type: Attribute) -> SSAValue:
    """Emit the sign- or zero-extension to i8 of a storage-only integer in the lowest bits."""
    width = scalar.bits(element_type)
    if is_unsigned(element_type):
        return body(arith.AndIOp(x, scalar.constant(body, (1 << width) - 1, i8)))
    unused_bits = scalar.constant(body, 8 - width, i8)
    return body(arith.ShRSIOp(body(arith.ShLIOp(x, unused_bits)), unused_bits))


def decode(body: Body, code: SSAValue, float_format: LowPrecisionFormat) -> SSAValue:
    """Emit the f32 value of a code.

    With exponent and mantissa shifted to those of f32, the magnitude is the value times a power of two, denormals included.
    """

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, i32)

    bits = body(arith.ExtUIOp(code, i32))
    magnitude = body(arith.AndIOp(bits, literal(float_format.sign - 1)))
    shifted_value = body(arith.BitcastOp(body(arith.ShLIOp(magnitude, literal(_F32.mantissa - float_format.mantissa))), f32))
    value = scalar.multiply(body, shifted_value, scalar.constant(body, 2.0 ** (_F32.bias - float_format.bias), f32))
    if float_format.infinity is not None:
        infinite = scalar.compare_with(body, "eq", magnitude, float_format.infinity, i32)
        value = scalar.select(body, infinite, scalar.constant(body, float("inf"), f32), value)
    if float_format.nan is not None:
        if float_format.one_zero:
            is_nan = scalar.compare_with(body, "eq", bits, float_format.nan, i32)
        else:
            is_nan = scalar.compare_with(
                body, "gt", magnitude, float_format.largest if float_format.infinity is None else float_format.infinity, i32
            )
        value = scalar.select(body, is_nan, scalar.constant(body, float("nan"), f32), value)
    sign = body(arith.ShLIOp(body(arith.AndIOp(bits, literal(float_format.sign))), literal(32 - float_format.width)))
    return body(arith.BitcastOp(body(arith.OrIOp(body(arith.BitcastOp(value, i32)), sign)), f32))


def encode(body: Body, x: SSAValue, float_format: LowPrecisionFormat, wide: _FloatLayout, saturate: bool) -> SSAValue:
    """Emit the code nearest to `x`, ties to even; values above the largest magnitude as in `dl.cast`.

    Let q be the spacing of the format's values near |x|. The last bit of |x| + 2^mantissa(wide)·q has the value q, so that this
    sum is rounded to a multiple of q.
    """

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, wide.integer)

    def as_bits(value: SSAValue) -> SSAValue:
        return body(arith.BitcastOp(value, wide.integer))

    dropped_bits = literal(wide.mantissa - float_format.mantissa)
    largest = float_format.largest_value
    # Clamping to twice the largest magnitude prevents overflow and keeps values out of range.
    magnitude = body(arith.MinimumfOp(body(math.AbsFOp(x)), scalar.constant(body, 2 * largest, wide.type)))
    exponent = body(arith.ShRUIOp(as_bits(magnitude), literal(wide.mantissa)))
    exponent = body(arith.MaxSIOp(exponent, literal(wide.bias + 1 - float_format.bias)))
    anchor = body(arith.ShLIOp(scalar.add(body, exponent, dropped_bits), literal(wide.mantissa)))
    anchor = body(arith.BitcastOp(anchor, wide.type))
    rounded = scalar.subtract(body, scalar.add(body, magnitude, anchor), anchor)
    scaled = scalar.multiply(body, rounded, scalar.constant(body, 2.0 ** (float_format.bias - wide.bias), wide.type))
    code = body(arith.ShRUIOp(as_bits(scaled), dropped_bits))
    # Formats without NaN and infinity encode these as the largest magnitude.
    overflow_code = (
        float_format.largest
        if saturate or float_format.nan is None
        else float_format.nan
        if float_format.infinity is None
        else float_format.infinity
    )
    is_too_large = scalar.compare_with(body, "gt", rounded, largest, wide.type)
    code = scalar.select(body, is_too_large, literal(overflow_code), code)
    sign = body(arith.ShRUIOp(as_bits(x), literal(scalar.bits(wide.type) - float_format.width)))
    signed_code = body(arith.OrIOp(code, body(arith.AndIOp(sign, literal(float_format.sign)))))
    if float_format.one_zero:
        signed_code = scalar.select(body, scalar.compare_with(body, "eq", code, 0, wide.integer), code, signed_code)
    is_nan = body(arith.CmpfOp(x, x, "uno"))
    signed_code = scalar.select(
        body, is_nan, literal(float_format.sign if float_format.nan is None else float_format.nan), signed_code
    )
    return body(arith.TruncIOp(signed_code, i8))
