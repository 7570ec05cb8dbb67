"""Packed dot-product operands (VNNI layout): 32-bit words of low-precision elements, and their dot products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DlOp, Tensor, element_type_of, is_storage_only, shape_of, tensor_type
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, is_unsigned
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    DenseIntOrFPElementsAttr,
    SSAValue,
    TensorType,
    arith,
    bf16,
    f16,
    f32,
    i16,
    i32,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import is_known_different

WORD_BITS = 32


@dataclass(frozen=True)
class PackedDot:
    """The dot product of two words, `Σⱼ aⱼ · bⱼ` of the elements packed in them. The first element is in the lowest bits.

    An integer sum is exact except that it wraps as i32. With `pair_sums`, sums of two adjacent products wrap as that type, and
    so do sums of these over several words. A float sum is f32: the last product is added to the total first, then the one
    before it, each rounded once.
    """

    data: Attribute
    weights: Attribute
    pair_sums: Attribute | None = None

    @property
    def count(self) -> int:
        """The number of elements per word."""
        return WORD_BITS // scalar.bits(self.data)

    @property
    def total(self) -> Attribute:
        """The element type of the sum."""
        return f32 if is_float(self.data) else i32

    def accepts_weights(self, low: int, high: int) -> bool:
        """Return whether integer weights in [low, high] have the type of this product, and exact pair sums for any data."""
        min_weight, max_weight = scalar.limits(self.weights)
        if not min_weight <= low <= high <= max_weight:
            return False
        max_product = max(-low, high, 1) * int(scalar.limits(self.data)[1])
        return self.pair_sums is None or self.max_words_per_sum(max_product) > 0

    def max_words_per_sum(self, max_product: int) -> int:
        """Return how many words' pair sums can be added without overflow of `pair_sums`, for products up to a magnitude."""
        assert self.pair_sums is not None
        return int(scalar.limits(self.pair_sums)[1] // (2 * max_product))

    def accumulate(self, body: Body, total: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """Emit `total` plus the dot product of two i32 words."""
        if self.pair_sums is not None:
            return self.add_pair_sums(body, total, self.multiply_pairs(body, a, b))
        pairs = self._unpack(body, a, b)
        if is_float(self.data):
            return reduce(lambda t, pair: scalar.multiply_add(body, *pair, t), reversed(pairs), total)
        terms = [scalar.multiply(body, *pair) for pair in pairs]
        return scalar.add(body, reduce(lambda x, y: scalar.add(body, x, y), terms), total)

    def multiply_pairs(self, body: Body, a: SSAValue, b: SSAValue) -> Sequence[SSAValue]:
        """Emit the sums of pairs of adjacent products of two words of integers, as i32."""
        terms = [scalar.multiply(body, *pair) for pair in self._unpack(body, a, b)]
        return [scalar.add(body, *terms[j : j + 2]) for j in range(0, self.count, 2)]

    def add_pair_sums(self, body: Body, total: SSAValue, sums: Sequence[SSAValue], factors: SSAValue | None = None) -> SSAValue:
        """Emit `total` plus sums of pairs of products, each of which wraps as `pair_sums`, times two factors in a word.

        The default factors are 1.
        """
        low, high = sums
        upper = body(arith.ShLIOp(high, scalar.like(body, WORD_BITS // 2, high)))
        word = body(arith.OrIOp(body(arith.AndIOp(low, scalar.like(body, (1 << WORD_BITS // 2) - 1, low))), upper))
        factors = scalar.like(body, 1 << WORD_BITS // 2 | 1, word) if factors is None else factors
        return PACKED_DOTS["i16"].accumulate(body, total, word, factors)

    def _unpack(self, body: Body, a: SSAValue, b: SSAValue) -> Sequence[tuple[SSAValue, SSAValue]]:
        """Emit the pairs of elements of two words."""
        return [(unpack_element(body, a, self.data, j), unpack_element(body, b, self.weights, j)) for j in range(self.count)]


class DotAccumulator:
    """A sum of dot products of words of integers.

    Pair sums of up to `words_per_sum` words are added in their type. The first ones may start at a word of two sums. They are
    multiplied by a word of two factors, 1 by default.
    """

    def __init__(
        self,
        dot: PackedDot,
        words_per_sum: int,
        total: SSAValue,
        factors: SSAValue | None = None,
        pair_start: SSAValue | None = None,
    ) -> None:
        self.dot = dot
        self.words_per_sum = words_per_sum
        self.total = total
        self.factors = factors
        self.pair_start = pair_start
        self.pair_sums: Sequence[SSAValue] = ()
        self.num_words = 0

    def add(self, body: Body, a: SSAValue, b: SSAValue) -> None:
        """Emit the addition of the dot product of two i32 words."""
        if self.dot.pair_sums is None:
            self.total = self.dot.accumulate(body, self.total, a, b)
            return
        if self.pair_start is not None:
            # Bits above those of the sum do not matter.
            upper = arith.ShRUIOp(self.pair_start, scalar.like(body, WORD_BITS // 2, self.pair_start))
            self.pair_sums, self.pair_start = (self.pair_start, body(upper)), None
        sums = self.dot.multiply_pairs(body, a, b)
        self.pair_sums = [scalar.add(body, *x) for x in zip(self.pair_sums, sums, strict=True)] if self.pair_sums else sums
        self.num_words += 1
        if self.num_words == self.words_per_sum:
            self.finish(body)

    def finish(self, body: Body) -> SSAValue:
        """Emit the addition of pending pair sums, and return the sum."""
        if self.pair_sums:
            self.total = self.dot.add_pair_sums(body, self.total, self.pair_sums, self.factors)
            self.pair_sums, self.num_words = (), 0
        return self.total


# Dot products by name: element types of data and of weights. CPUs multiply pairs of i16 (vpmaddwd) or bf16 (vdpbf16ps), or
# groups of four bytes (vpdpbusd, or vpmaddubsw with sums of pairs in i16, which are exact for weights of 7 bits); the matrix
# units of GPUs multiply pairs of bf16 or f16 (mma.sync).
PACKED_DOTS: Mapping[str, PackedDot] = {
    "i16": PackedDot(ELEMENT_TYPES["int16"], ELEMENT_TYPES["int16"]),
    "u8i8": PackedDot(ELEMENT_TYPES["uint8"], ELEMENT_TYPES["int8"]),
    "u8i7": PackedDot(ELEMENT_TYPES["uint8"], ELEMENT_TYPES["int8"], pair_sums=ELEMENT_TYPES["int16"]),
    "bf16": PackedDot(bf16, bf16),
    "f16": PackedDot(f16, f16),
}


def unpack_shifts(element_type: Attribute, j: int) -> tuple[int, int]:
    """Return the left shift that aligns element `j` of a word with the top bit, and the right shift that extends it."""
    bits = scalar.bits(element_type)
    return WORD_BITS - bits * (j + 1), WORD_BITS - bits


def unpack_element(body: Body, word: SSAValue, element_type: Attribute, j: int) -> SSAValue:
    """Emit element `j` of a word: an integer as i32, a float as f32; the bits of a bf16 are the upper half of an f32."""
    left_shift, right_shift = unpack_shifts(element_type, j)
    if element_type == f16:
        low = word if left_shift else body(arith.ShRUIOp(word, scalar.like(body, right_shift, word)))
        return body(arith.ExtFOp(body(arith.BitcastOp(body(arith.TruncIOp(low, i16)), f16)), f32))
    if is_float(element_type):
        upper = scalar.like(body, -1 << right_shift, word)
        bits = arith.ShLIOp(word, scalar.like(body, left_shift, word)) if left_shift else arith.AndIOp(word, upper)
        return body(arith.BitcastOp(body(bits), f32))
    if left_shift:
        word = body(arith.ShLIOp(word, scalar.like(body, left_shift, word)))
    shift = arith.ShRUIOp if is_unsigned(element_type) else arith.ShRSIOp
    return body(shift(word, scalar.like(body, right_shift, word)))


def packed_word(element: SSAValue) -> tuple[SSAValue, int]:
    """Return the word that `unpack_element` unpacks to an integer, and its number of elements; other values and 1 otherwise."""
    if not isinstance(element.owner, arith.ShRUIOp | arith.ShRSIOp):
        return element, 1
    word, amount = element.owner.operands
    shift = amount.owner.value if isinstance(amount.owner, arith.ConstantOp) else None
    right_shift = shift.get_values()[0] if isinstance(shift, DenseIntOrFPElementsAttr) and shift.is_splat() else None
    if not isinstance(right_shift, int) or right_shift not in (WORD_BITS // 2, 3 * WORD_BITS // 4):
        return element, 1
    return word.owner.operands[0] if isinstance(word.owner, arith.ShLIOp) else word, WORD_BITS // (WORD_BITS - right_shift)


def unpack_words(words: Array, axis: int, element_type: Attribute) -> Array:
    """Unpack i32 words; the elements of a word are consecutive along `axis`."""
    dtype, axis = numpy_dtype(element_type), axis % words.ndim
    if is_float(element_type):
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(words, axis, -1)).view(dtype), -1, axis)
    left_shifts, right_shifts = zip(
        *(unpack_shifts(element_type, j) for j in range(WORD_BITS // scalar.bits(element_type))), strict=True
    )
    wide = words.view(np.uint32 if is_unsigned(element_type) else np.int32)[..., None]
    elements = (wide << np.array(left_shifts, wide.dtype) >> np.array(right_shifts, wide.dtype)).astype(dtype)
    return np.moveaxis(elements, -1, axis + 1).reshape(
        *words.shape[:axis], len(left_shifts) * words.shape[axis], *words.shape[axis + 1 :]
    )


@irdl_op_definition
class ViewAsOp(DlOp):
    """The bytes of the elements along the last axis of `x` as elements of another size: NumPy's `x.view(to)`.

    The first of several elements in a wider one is in its lowest bits. A view of the same buffer; a bool is a byte.

    (C1) the element types are bool, integers of 8 bits or more, or floats, of different sizes, and `to` is not bool; (C2) `x`
    has an axis, and the last one is a whole number of elements of the type `to`.
    """

    name = "dl.view_as"
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    @property
    def element_bytes(self) -> tuple[int, int]:
        """The sizes of the elements of operand and result."""
        return numpy_dtype(element_type_of(self.x)).itemsize, numpy_dtype(self.to).itemsize

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        if is_storage_only(element) or is_storage_only(self.to) or is_bool(self.to) or len({*self.element_bytes}) == 1:
            expected = "expected numbers of different sizes, or from bool"
            raise DTypeError(f"{self.name}: from {element} to {self.to}; {expected} (C1)")
        source_bytes, result_bytes = self.element_bytes
        if not shape or is_known_different(shape[-1] * source_bytes % result_bytes, 0):
            expected = f"expected a last axis of a multiple of {result_bytes} bytes"
            raise ShapeError(f"{self.name}: x {shape} of {element} to {self.to}; {expected} (C2)")
        return [tensor_type((*shape[:-1], shape[-1] * source_bytes // result_bytes), self.to)]

    def reference(self, *operands: Array) -> Array:
        return np.ascontiguousarray(operands[0]).view(numpy_dtype(self.to))
