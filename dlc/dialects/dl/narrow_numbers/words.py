"""Words: narrow numbers that share 32 bits, as processors multiply and add them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DlOp, Tensor, element_type_of, is_narrow, shape_of, tensor_type
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Body, is_unsigned
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Attribute, SSAValue, TensorType, arith, bf16, f16, f32, i16, i32, irdl_op_definition, operand_def, result_def

WORD_BITS = 32


@dataclass(frozen=True)
class Dot:
    """The product of two words: `Σⱼ aⱼ · bⱼ` of the numbers in them, the first of each in the lowest bits.

    A sum of integers is exact, but that it wraps as i32. Of floats it is of f32: the last product is added to the total, then
    the one before it, each rounded once.
    """

    data: Attribute
    weights: Attribute

    @property
    def count(self) -> int:
        """How many numbers a word holds."""
        return WORD_BITS // scalar.bits(self.data)

    @property
    def total(self) -> Attribute:
        """The type of the sum."""
        return f32 if is_float(self.data) else i32

    def added(self, body: Body, total: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`total` and the product of two words of i32."""
        pairs = [(part(body, a, self.data, j), part(body, b, self.weights, j)) for j in range(self.count)]
        if is_float(self.data):
            return reduce(lambda t, pair: scalar.multiply_add(body, *pair, t), reversed(pairs), total)
        terms = (scalar.multiply(body, *pair) for pair in pairs)
        return scalar.add(body, reduce(lambda x, y: scalar.add(body, x, y), terms), total)


# By name: operands of data, then of weights. A processor multiplies pairs of i16 (vpmaddwd) or of bf16 (vdpbf16ps), or fours
# of bytes (vpdpbusd), a GPU's matrix units pairs of either half (mma.sync).
DOTS: Mapping[str, Dot] = {
    "i16": Dot(ELEMENT_TYPES["int16"], ELEMENT_TYPES["int16"]),
    "u8i8": Dot(ELEMENT_TYPES["uint8"], ELEMENT_TYPES["int8"]),
    "bf16": Dot(bf16, bf16),
    "f16": Dot(f16, f16),
}


def shifts(element_type: Attribute, j: int) -> tuple[int, int]:
    """How far integer `j` of a word moves up, so that nothing is above it, and then down."""
    bits = scalar.bits(element_type)
    return WORD_BITS - bits * (j + 1), WORD_BITS - bits


def part(body: Body, word: SSAValue, element_type: Attribute, j: int) -> SSAValue:
    """Number `j` of a word: an integer as i32, a float as f32, of which bf16 has the upper half of the bits."""
    up, down = shifts(element_type, j)
    if element_type == f16:
        low = word if up else body(arith.ShRUIOp(word, scalar.like(body, down, word)))
        return body(arith.ExtFOp(body(arith.BitcastOp(body(arith.TruncIOp(low, i16)), f16)), f32))
    if is_float(element_type):
        upper = scalar.like(body, -1 << down, word)
        bits = arith.ShLIOp(word, scalar.like(body, up, word)) if up else arith.AndIOp(word, upper)
        return body(arith.BitcastOp(body(bits), f32))
    if up:
        word = body(arith.ShLIOp(word, scalar.like(body, up, word)))
    shift = arith.ShRUIOp if is_unsigned(element_type) else arith.ShRSIOp
    return body(shift(word, scalar.like(body, down, word)))


def parts_of(words: Array, axis: int, element_type: Attribute) -> Array:
    """The numbers in words of i32, those of one word one after the other along `axis`."""
    dtype, axis = numpy_dtype(element_type), axis % words.ndim
    if is_float(element_type):
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(words, axis, -1)).view(dtype), -1, axis)
    ups, downs = zip(*(shifts(element_type, j) for j in range(WORD_BITS // scalar.bits(element_type))), strict=True)
    wide = words.view(np.uint32 if is_unsigned(element_type) else np.int32)[..., None]
    parts = (wide << np.array(ups, wide.dtype) >> np.array(downs, wide.dtype)).astype(dtype)
    return np.moveaxis(parts, -1, axis + 1).reshape(*words.shape[:axis], len(ups) * words.shape[axis], *words.shape[axis + 1 :])


@irdl_op_definition
class WordsOp(DlOp):
    """The numbers along the last axis of `x`, as many to a word of i32 as fit: NumPy's `x.view(numpy.int32)`.

    `[…, n·r]` becomes `[…, n]`, the first of r numbers in the lowest bits: another name of the same buffer.

    (C1) `x` is of integers or floats of 8 or 16 bits; (C2) it has an axis, whose size is a multiple of r.
    """

    name = "dl.words"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    @property
    def count(self) -> int:
        """How many numbers a word holds."""
        return WORD_BITS // scalar.bits(element_type_of(self.x))

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        is_whole = is_integer(element) and not is_narrow(element) and scalar.bits(element) in (8, 16)
        if not is_whole and element not in (f16, bf16):
            raise DTypeError(f"dl.words: element type {element}; expected integers of 8 or 16 bits, or floats of 16 (C1)")
        if not shape or (isinstance(shape[-1], int) and shape[-1] % self.count):
            raise ShapeError(f"dl.words: {self.count} numbers share a word, but the last axis of {shape} is no multiple (C2)")
        return [tensor_type((*shape[:-1], shape[-1] // self.count), i32)]

    def reference(self, *operands: Array) -> Array:
        return np.ascontiguousarray(operands[0]).view(np.int32)
