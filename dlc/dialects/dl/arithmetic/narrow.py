"""Narrow numbers: element types that are stored and moved but not computed with.

8-bit and 4-bit floats and integers of 4 and 2 bits take one byte an element, as in NumPy arrays of ml_dtypes: their bits are
the lowest, those above mean nothing. Kernels hold them as i8; `dl.cast` is the way to numbers that have arithmetic, and back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic import powers
from dlc.dialects.dl.arithmetic.powers import POWERS
from dlc.dialects.dl.base import Array, is_narrow
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
class Format:
    """How a narrow float says a number: a sign, an exponent of bias `bias`, then `mantissa` bits, in `width` bits.

    `largest` is the code of the largest finite magnitude, `infinity` that of infinity, `nan` one of NaN, where there are
    such; with `one_zero`, the code of -0 is NaN's and the only one.
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
        """The sign's bit."""
        return 1 << (self.width - 1)

    @property
    def largest_value(self) -> float:
        exponent, fraction = divmod(self.largest, 1 << self.mantissa)
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)


FORMATS: dict[Attribute, Format] = {
    Float8E4M3FNType(): Format(8, mantissa=3, bias=7, largest=0x7E, nan=0x7F),
    Float8E4M3FNUZType(): Format(8, mantissa=3, bias=8, largest=0x7F, nan=0x80, one_zero=True),
    Float8E5M2Type(): Format(8, mantissa=2, bias=15, largest=0x7B, infinity=0x7C, nan=0x7E),
    Float8E5M2FNUZType(): Format(8, mantissa=2, bias=16, largest=0x7F, nan=0x80, one_zero=True),
    Float4E2M1FNType(): Format(4, mantissa=1, bias=1, largest=0x7),
}
# All of them.
FLOATS = (*FORMATS, POWERS)


def widened(x: Array, source: Attribute) -> Array:
    """Narrow numbers as f32 or i8, by NumPy."""
    if source == POWERS:
        return powers.widened(x)
    if source not in FORMATS:
        return x.astype(np.int8)
    codes = x.view(np.uint8) & np.uint8(2 * FORMATS[source].sign - 1)
    return codes.view(x.dtype).astype(np.float32)


def narrowed(x: Array, target: Attribute, saturate: bool) -> Array:
    """Numbers as a narrow float, by NumPy; see `dl.cast`."""
    if target == POWERS:
        return powers.narrowed(x, saturate)
    form, wide = FORMATS[target], x.astype(np.float64)
    _, exponent = np.frexp(wide)
    # The distance of the format's numbers near x: rounded to a multiple of it, what follows is exact.
    distance = np.ldexp(1.0, np.maximum(exponent - 1, 1 - form.bias) - form.mantissa)
    rounded = np.where(np.isfinite(wide), np.rint(wide / distance) * distance, wide)
    if saturate:
        rounded = np.clip(rounded, -form.largest_value, form.largest_value)
    return rounded.astype(np.float32).astype(numpy_dtype(target))


@dataclass(frozen=True)
class _Wide:
    """A float that narrow ones are converted through, and the integer of its width."""

    type: Attribute
    integer: Attribute
    mantissa: int
    bias: int


_F32 = _Wide(f32, i32, 23, 127)
_F64 = _Wide(f64, i64, 52, 1023)


def convert(body: Body, x: SSAValue, source: Attribute, target: Attribute, saturate: bool) -> SSAValue:
    """`x` of element type `source` as `target`, of which at least one is narrow; see `dl.cast`."""
    if source == target:
        return x
    # Every value of a narrow type is one of f32 or i8, so that two steps round once.
    if source == POWERS:
        x, source = powers.decoded(body, x), f32
    elif source in FORMATS:
        x, source = decoded(body, x, FORMATS[source]), f32
    elif is_narrow(source):
        x, source = _extended(body, x, source), i8
    if not is_narrow(target):
        return scalar.convert(body, x, source, target)
    if target == POWERS:
        return powers.encoded(body, scalar.convert(body, x, source, f32), saturate)
    if target not in FORMATS:
        return _extended(body, scalar.convert(body, scalar.convert(body, x, source, i32), i32, i8), target)
    # All that is inside the range of a narrow float is exact in f32, but for f64.
    wide = _F64 if source == f64 else _F32
    return encoded(body, scalar.convert(body, x, source, wide.type), FORMATS[target], wide, saturate)


def _extended(body: Body, x: SSAValue, element_type: Attribute) -> SSAValue:
    """The i8 that the lowest bits are as a narrow integer."""
    width = scalar.bits(element_type)
    if is_unsigned(element_type):
        return body(arith.AndIOp(x, scalar.constant(body, (1 << width) - 1, i8)))
    unused = scalar.constant(body, 8 - width, i8)
    return body(arith.ShRSIOp(body(arith.ShLIOp(x, unused)), unused))


def decoded(body: Body, code: SSAValue, form: Format) -> SSAValue:
    """The f32 that a code stands for.

    Moved to the place of f32's exponent and mantissa, the magnitude is the value times a power of two, denormals included.
    """

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, i32)

    bits = body(arith.ExtUIOp(code, i32))
    magnitude = body(arith.AndIOp(bits, literal(form.sign - 1)))
    placed = body(arith.BitcastOp(body(arith.ShLIOp(magnitude, literal(_F32.mantissa - form.mantissa))), f32))
    value = scalar.multiply(body, placed, scalar.constant(body, 2.0 ** (_F32.bias - form.bias), f32))
    if form.infinity is not None:
        infinite = scalar.compare_with(body, "eq", magnitude, form.infinity, i32)
        value = scalar.select(body, infinite, scalar.constant(body, float("inf"), f32), value)
    if form.nan is not None:
        if form.one_zero:
            is_nan = scalar.compare_with(body, "eq", bits, form.nan, i32)
        else:
            is_nan = scalar.compare_with(body, "gt", magnitude, form.largest if form.infinity is None else form.infinity, i32)
        value = scalar.select(body, is_nan, scalar.constant(body, float("nan"), f32), value)
    sign = body(arith.ShLIOp(body(arith.AndIOp(bits, literal(form.sign))), literal(32 - form.width)))
    return body(arith.BitcastOp(body(arith.OrIOp(body(arith.BitcastOp(value, i32)), sign)), f32))


def encoded(body: Body, x: SSAValue, form: Format, wide: _Wide, saturate: bool) -> SSAValue:
    """The code nearest to `x`, ties to even; beyond the largest magnitude as `dl.cast` says.

    With q the distance of the format's numbers near |x|, |x| + 2^mantissa(wide)·q has q as the value of its last bit, so that
    this sum is rounded to a multiple of q.
    """

    def literal(value: int) -> SSAValue:
        return scalar.constant(body, value, wide.integer)

    def as_bits(value: SSAValue) -> SSAValue:
        return body(arith.BitcastOp(value, wide.integer))

    dropped = literal(wide.mantissa - form.mantissa)
    largest = form.largest_value
    # Below twice the largest nothing overflows, and it is as far outside as anything.
    magnitude = body(arith.MinimumfOp(body(math.AbsFOp(x)), scalar.constant(body, 2 * largest, wide.type)))
    exponent = body(arith.ShRUIOp(as_bits(magnitude), literal(wide.mantissa)))
    exponent = body(arith.MaxSIOp(exponent, literal(wide.bias + 1 - form.bias)))
    anchor = body(arith.ShLIOp(scalar.add(body, exponent, dropped), literal(wide.mantissa)))
    anchor = body(arith.BitcastOp(anchor, wide.type))
    rounded = scalar.subtract(body, scalar.add(body, magnitude, anchor), anchor)
    scaled = scalar.multiply(body, rounded, scalar.constant(body, 2.0 ** (form.bias - wide.bias), wide.type))
    code = body(arith.ShRUIOp(as_bits(scaled), dropped))
    # Formats without NaN and infinity have nothing but the largest to say instead.
    beyond = form.largest if saturate or form.nan is None else form.nan if form.infinity is None else form.infinity
    outside = scalar.compare_with(body, "gt", rounded, largest, wide.type)
    code = scalar.select(body, outside, literal(beyond), code)
    sign = body(arith.ShRUIOp(as_bits(x), literal(scalar.bits(wide.type) - form.width)))
    signed = body(arith.OrIOp(code, body(arith.AndIOp(sign, literal(form.sign)))))
    if form.one_zero:
        signed = scalar.select(body, scalar.compare_with(body, "eq", code, 0, wide.integer), code, signed)
    nan = body(arith.CmpfOp(x, x, "uno"))
    signed = scalar.select(body, nan, literal(form.sign if form.nan is None else form.nan), signed)
    return body(arith.TruncIOp(signed, i8))
