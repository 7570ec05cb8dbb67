"""Weights of few bits: several to a word of 32 bits in memory, floats in registers only.

A product of a matrix and a few rows is bound by the memory that its weights come from. So they stay integers of 4 or 8 bits,
and the step of the product that reads them makes floats of them: `MatmulWordsOp` is the one place that does.
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
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, is_narrow, of_equal_ops, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import differ, iteration_space
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Composite, Contraction, Structure
from dlc.dialects.dl.movement.shaping import ReshapeOp, SliceOp
from dlc.dialects.dl.narrow_numbers.words import WORD_BITS, part, parts_of
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

# What a word may hold.
FEW_BITS = tuple(ELEMENT_TYPES[name] for name in ("int4", "uint4", "int8", "uint8"))
_UI8 = ELEMENT_TYPES["uint8"]


@irdl_op_definition
class PackNibblesOp(Composite):
    """Integers of 4 bits along the last axis of `x`, two to a byte: `[…, 2n]` becomes `[…, n]` of ui8, the first the lower.

    (C1) `x` is of integers of 4 bits; (C2) its last axis has an even size.
    """

    name = "dl.pack_nibbles"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        if element not in FEW_BITS or not is_narrow(element):
            raise DTypeError(f"dl.pack_nibbles: element type {element}; expected integers of 4 bits (C1)")
        if not shape or not isinstance(shape[-1], int) or shape[-1] % 2:
            raise ShapeError(f"dl.pack_nibbles: two share a byte, but the last axis of {shape} is not even (C2)")
        return [tensor_type((*shape[:-1], shape[-1] // 2), _UI8)]

    def reference(self, *operands: Array) -> Array:
        nibbles = operands[0].view(np.uint8) & np.uint8(15)
        return nibbles[..., 0::2] | (nibbles[..., 1::2] << np.uint8(4))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        b = Build(self)
        nibbles = b(CastOp, operands[0], to=_UI8)
        nibbles = b(BitwiseAndOp, nibbles, b.scalar(15, like=nibbles))
        *lead, n = shape_of(self.result)
        pairs = b(ReshapeOp, nibbles, shape=(*lead, n, 2))
        zeros, ones = [0] * len(lead), [1] * (len(lead) + 2)
        low, high = (b(SliceOp, pairs, starts=(*zeros, 0, k), limits=(*lead, n, k + 1), strides=ones) for k in range(2))
        byte = b(BitwiseOrOp, low, b(ShiftLeftOp, high, b.scalar(4, like=high)))
        return [b(ReshapeOp, byte, shape=(*lead, n))]


@irdl_op_definition
class MatmulWordsOp(Contraction):
    """A product with weights of few bits: `y[…, n] = Σ_b scale[b, n] · Σ_k x[…, g·b + k] · (w[b, k, n] - zero[b, n])`.

    `words` [B, W, N] has r integers of type `of` to a word of i32, which follow one another along k, the first in the lowest
    bits: blocks of g = r·W. `scale` and `zero` [B, N] are f32; without `zero` it is 0. Sums are f32. With `scale_weights` each
    weight is multiplied by its scale, which all rows share, else the sum over each word.

    (C1) `of` is an integer type of 4 or 8 bits; (C2) `words` has rank 3, `scale` and `zero` are as its blocks; (C3) the last
    axis of `lhs` has B·W·r elements; (C4) `lhs` is of floats of 32 bits or fewer, whose type the result has.
    """

    name = "dl.matmul_words"
    lhs = operand_def(TensorType)
    words = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = opt_operand_def(TensorType)
    of = prop_def(Attribute)
    scale_weights = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def count(self) -> int:
        """How many integers a word holds."""
        return WORD_BITS // scalar.bits(self.of)

    @property
    def expands_weights(self) -> bool:
        return True

    def infer(self) -> Sequence[Tensor]:
        element, (*lead, k) = element_type_of(self.lhs), shape_of(self.lhs) or (1,)
        if self.of not in FEW_BITS:
            raise DTypeError(f"dl.matmul_words: weights of {self.of}; expected {', '.join(map(str, FEW_BITS))} (C1)")
        if not is_float(element) or element == f64:
            raise DTypeError(f"dl.matmul_words: lhs of {element}; expected floats of 32 bits or fewer (C4)")
        parameters = [v for v in (self.scale, self.zero) if v is not None]
        types = [element_type_of(v) for v in (self.words, *parameters)]
        if types != [i32, *(f32 for _ in parameters)]:
            raise DTypeError(f"dl.matmul_words: {types}; expected words of i32, scale and zero of f32 (C2)")
        words = shape_of(self.words)
        if len(words) != 3 or any(shape_of(v) != (words[0], words[2]) for v in parameters):
            shapes = [shape_of(v) for v in parameters]
            raise ShapeError(f"dl.matmul_words: words {words}, scale and zero {shapes}; expected [B, W, N] and [B, N] (C2)")
        if differ(k, words[0] * words[1] * self.count):
            raise ShapeError(f"dl.matmul_words: lhs {shape_of(self.lhs)} for words {words}, {self.count} weights to each (C3)")
        return [tensor_type((*lead, words[2]), element)]

    def reference(self, *operands: Array) -> Array:
        x, words, scale, *zero = operands
        weights = parts_of(words, 1, self.of).astype(np.float32)
        for z in zero:
            weights = weights - z[:, None]
        weights = (weights * scale[:, None]).reshape(-1, words.shape[2])
        return (x.astype(np.float32, copy=False) @ weights).astype(numpy_dtype(element_type_of(self.result)))

    @of_equal_ops
    def structure(self) -> Structure:
        *lead, _ = shape_of(self.lhs)
        blocks, words, columns = shape_of(self.words)
        parameters = [shape_of(v) for v in self.operands[2:]]
        others = range(1, self.count)
        view = (*lead, blocks, words, self.count)

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *rows, n, b, w = iterators
            at = [[*rows, b, w, AffineExpr.constant(j)] for j in range(self.count)]
            return [at[0], [b, w, n], *([b, n] for _ in parameters), *at[1:], [*rows, n]]

        views = (view, shape_of(self.words), *parameters, *(view for _ in others), (*lead, columns))
        return replace(iteration_space((*lead, columns), (blocks, words), views, indices), again=(0,) * len(others))

    def added(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        first, word, scale, *rest = elements
        zero, others = (rest[0], rest[1:]) if self.zero is not None else (None, rest)
        wide, element = total.type, element_type_of(self.lhs)
        x = [scalar.convert(body, v, element, wide) for v in (first, *others)]
        weights = [scalar.convert(body, part(body, word, self.of, j), i32, wide) for j in range(self.count)]
        if not flag(self.scale_weights):
            return scalar.multiply_add(body, _less_zero(body, x, weights, zero), scale, total)
        # t + Σⱼ xⱼ · ((wⱼ - z) · s)
        if zero is not None:
            weights = [scalar.subtract(body, w, zero) for w in weights]
        return _sum(body, x, [scalar.multiply(body, w, scale) for w in weights], total)


# Σⱼ xⱼ · wⱼ - z · Σⱼ xⱼ: numbers of rows are fewer than weights.
def _less_zero(body: Body, x: Sequence[SSAValue], weights: Sequence[SSAValue], zero: SSAValue | None) -> SSAValue:
    products = _sum(body, x[1:], weights[1:], scalar.multiply(body, x[0], weights[0]))
    if zero is None:
        return products
    minus = body(arith.NegfOp(reduce(lambda a, b: scalar.add(body, a, b), x)))
    return scalar.multiply_add(body, minus, zero, products)


def _sum(body: Body, x: Sequence[SSAValue], weights: Sequence[SSAValue], start: SSAValue) -> SSAValue:
    """`start + Σⱼ xⱼ · wⱼ`"""
    return reduce(lambda t, term: scalar.multiply_add(body, *term, t), zip(x, weights, strict=True), start)
