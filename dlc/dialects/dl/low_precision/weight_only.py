"""Weight-only quantization: products with int4 and int8 weights, several to a 32-bit word in memory.

A matrix product with few rows is bound by the memory bandwidth of its weights. Weights therefore stay integers of 4 or 8 bits
in memory, and only the product that reads them converts them to floats, in registers: `MatmulWeightOnlyOp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.logic import BitwiseAndOp, BitwiseOrOp, ShiftLeftOp
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    compatible,
    element_type_of,
    flag,
    is_storage_only,
    memoize_by_signature,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import iteration_space
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Composite, Contraction, Structure
from dlc.dialects.dl.low_precision.packed_dot import WORD_BITS, unpack_element, unpack_words
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    Attribute,
    BoolAttr,
    SSAValue,
    TensorType,
    arith,
    f32,
    f64,
    i32,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import is_known_different

# The element types of packed weights.
WEIGHT_ONLY_TYPES = tuple(ELEMENT_TYPES[name] for name in ("int4", "uint4", "int8", "uint8"))
_UI8 = ELEMENT_TYPES["uint8"]


@irdl_op_definition
class PackNibblesOp(Composite):
    """Packs pairs of 4-bit integers along the last axis of `x`: `[…, 2n]` becomes ui8 `[…, n]`, the first in the low bits.

    (C1) `x` is of 4-bit integers; (C2) its last axis has an even size.
    """

    name = "dl.pack_nibbles"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        if element not in WEIGHT_ONLY_TYPES or not is_storage_only(element):
            raise DTypeError(f"dl.pack_nibbles: element type {element}; expected 4-bit integers (C1)")
        if not shape or not isinstance(shape[-1], int) or shape[-1] % 2:
            raise ShapeError(f"dl.pack_nibbles: x {shape}; expected a last axis of even static size (C2)")
        return [tensor_type((*shape[:-1], shape[-1] // 2), _UI8)]

    def reference(self, *operands: Array) -> Array:
        nibbles = operands[0].view(np.uint8) & np.uint8(15)
        return nibbles[..., 0::2] | (nibbles[..., 1::2] << np.uint8(4))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        nibbles = build(CastOp, operands[0], to=_UI8)
        nibbles = build(BitwiseAndOp, nibbles, build.scalar(15, like=nibbles))
        *lead, n = shape_of(self.result)
        pairs = build(ReshapeOp, nibbles, shape=(*lead, n, 2))
        zeros, ones = [0] * len(lead), [1] * (len(lead) + 2)
        low, high = (build(SliceOp, pairs, starts=(*zeros, 0, k), limits=(*lead, n, k + 1), strides=ones) for k in range(2))
        byte = build(BitwiseOrOp, low, build(ShiftLeftOp, high, build.scalar(4, like=high)))
        return [build(ReshapeOp, byte, shape=(*lead, n))]


@irdl_op_definition
class MatmulWeightOnlyOp(Contraction):
    """A weight-only quantized product: `y[…, n] = Σ_b scale[b, n] · Σ_k x[…, g·b + k] · (w[b, k, n] - zero[b, n])`.

    `words` [B, W, N] are i32 words of r integers of type `of` each, consecutive along k, the first in the lowest bits: blocks
    of g = r·W weights. `scale` and `zero` [B, N] are f32; without `zero` it is 0. Sums are f32. With `scale_weights` each
    weight is multiplied by its scale, once for all rows; else the sum over each word is scaled.

    (C1) `of` is an integer type of 4 or 8 bits; (C2) `words` is i32 of rank 3, `scale` and `zero` are f32 [B, N]; (C3) the last
    axis of `lhs` has B·W·r elements; (C4) `lhs` has a float type of at most 32 bits, which is the result's.
    """

    name = "dl.matmul_weight_only"
    lhs = operand_def(TensorType)
    words = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = opt_operand_def(TensorType)
    of = prop_def(Attribute)
    scale_weights = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def count(self) -> int:
        """The number of weights per word."""
        return WORD_BITS // scalar.bits(self.of)

    @property
    def dequantizes_weights(self) -> bool:
        return True

    def infer(self) -> Sequence[Tensor]:
        element, (*lead, k) = element_type_of(self.lhs), shape_of(self.lhs) or (1,)
        if self.of not in WEIGHT_ONLY_TYPES:
            raise DTypeError(
                f"dl.matmul_weight_only: weights of {self.of}; expected {', '.join(map(str, WEIGHT_ONLY_TYPES))} (C1)"
            )
        if not is_float(element) or element == f64:
            raise DTypeError(f"dl.matmul_weight_only: lhs of {element}; expected floats of 32 bits or fewer (C4)")
        parameters = [v for v in (self.scale, self.zero) if v is not None]
        types = [element_type_of(v) for v in (self.words, *parameters)]
        if types != [i32, *(f32 for _ in parameters)]:
            raise DTypeError(f"dl.matmul_weight_only: types {types}; expected words of i32, scale and zero of f32 (C2)")
        words = shape_of(self.words)
        if len(words) != 3 or not all(compatible(shape_of(v), (words[0], words[2])) for v in parameters):
            shapes = [shape_of(v) for v in parameters]
            raise ShapeError(
                f"dl.matmul_weight_only: words {words}, scale and zero {shapes}; expected [B, W, N] and [B, N] (C2)"
            )
        if is_known_different(k, words[0] * words[1] * self.count):
            raise ShapeError(
                f"dl.matmul_weight_only: lhs {shape_of(self.lhs)}, words {words} of {self.count} weights each (C3)"
            )
        return [tensor_type((*lead, words[2]), element)]

    def reference(self, *operands: Array) -> Array:
        x, words, scale, *zero = operands
        weights = unpack_words(words, 1, self.of).astype(np.float32)
        for z in zero:
            weights = weights - z[:, None]
        weights = (weights * scale[:, None]).reshape(-1, words.shape[2])
        return (x.astype(np.float32, copy=False) @ weights).astype(numpy_dtype(element_type_of(self.result)))

    @memoize_by_signature
    def structure(self) -> Structure:
        *lead, _ = shape_of(self.lhs)
        blocks, words, columns = shape_of(self.words)
        parameters = [shape_of(v) for v in self.operands[2:]]
        other_elements = range(1, self.count)
        view = (*lead, blocks, words, self.count)

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *rows, n, b, w = iterators
            element_indices = [[*rows, b, w, AffineExpr.constant(j)] for j in range(self.count)]
            return [element_indices[0], [b, w, n], *([b, n] for _ in parameters), *element_indices[1:], [*rows, n]]

        views = (view, shape_of(self.words), *parameters, *(view for _ in other_elements), (*lead, columns))
        return replace(
            iteration_space((*lead, columns), (blocks, words), views, indices), repeated_operands=(0,) * len(other_elements)
        )

    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        first, word, scale, *optional_elements = elements
        zero, other_elements = (
            (optional_elements[0], optional_elements[1:]) if self.zero is not None else (None, optional_elements)
        )
        wide, element = total.type, element_type_of(self.lhs)
        x = [scalar.convert(body, v, element, wide) for v in (first, *other_elements)]
        weights = [scalar.convert(body, unpack_element(body, word, self.of, j), i32, wide) for j in range(self.count)]
        if not flag(self.scale_weights):
            return scalar.multiply_add(body, _dot_minus_zero(body, x, weights, zero), scale, total)
        # t + Σⱼ xⱼ · ((wⱼ - z) · s)
        if zero is not None:
            weights = [scalar.subtract(body, w, zero) for w in weights]
        return _add_products(body, x, [scalar.multiply(body, w, scale) for w in weights], total)


# Σⱼ xⱼ · (wⱼ - z) = Σⱼ xⱼ · wⱼ - z · Σⱼ xⱼ: sums of the few row elements replace subtractions from the many weights.
def _dot_minus_zero(body: Body, x: Sequence[SSAValue], weights: Sequence[SSAValue], zero: SSAValue | None) -> SSAValue:
    products = _add_products(body, x[1:], weights[1:], scalar.multiply(body, x[0], weights[0]))
    if zero is None:
        return products
    negated_sum = body(arith.NegfOp(reduce(lambda a, b: scalar.add(body, a, b), x)))
    return scalar.multiply_add(body, negated_sum, zero, products)


def _add_products(body: Body, x: Sequence[SSAValue], weights: Sequence[SSAValue], start: SSAValue) -> SSAValue:
    """Emit `start + Σⱼ xⱼ · wⱼ`."""
    return reduce(lambda t, term: scalar.multiply_add(body, *term, t), zip(x, weights, strict=True), start)
