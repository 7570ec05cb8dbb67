"""Weight-only products on quantized rows, by packed dot-product instructions of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, compatible, element_type_of, memoize_by_signature, shape_of, tensor_type
from dlc.dialects.dl.contractions.contraction import iteration_space
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import Body, Contraction, Structure, is_unsigned
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, WORD_BITS, unpack_words
from dlc.dialects.dl.low_precision.weight_only import WEIGHT_ONLY_TYPES
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    Attribute,
    SSAValue,
    StringAttr,
    TensorType,
    arith,
    f32,
    i32,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import is_known_different

# The element type of the rows for each dot product; the other operand holds the weights, as unsigned integers.
_LHS_TYPES = {"i16": ELEMENT_TYPES["int16"], "u8i8": ELEMENT_TYPES["int8"]}


@irdl_op_definition
class MatmulWeightOnlyDotOp(Contraction):
    """A product of quantized rows with weight-only quantized weights, in blocks of g with a scale each.

    `y[…, n] = Σ_b scale[b, n] · row_scale[…, b] · Σ_k x[…, g·b + k] · (w[b, k, n] - zero[b, n])`.

    `dot` names the packed dot product of c row integers: `i16`, two at a time, or `u8i8` with signed 8-bit row integers, four
    at a time. `lhs` […, B·g/c] holds c of them per i32 word (`dl.view_as_i32`), and `row_scale` […, B] their scales. `row_sums`
    […, B, W] holds, for each step, the sum of the row integers: as f32 times their scale, or without `zero` as i32 times the
    negated bias that makes signed weights unsigned (`zero_bias`). This is not verified. `words` [B, W, S, N]
    has W steps of S words of r = c·p integers of type `of`. Integer p·i + j of a word is multiplied by row integer c·j + i, so
    that a shift and a mask extract c integers. `scale` and `zero` [B, N] are f32; without `zero` it is 0. The sum over the
    words of a step is exact if i32 holds it; the sum over steps is f32.

    (C1) `of` is an integer type of 4 or 8 bits, `dot` one of integers; (C2) `lhs` and `words` are i32, and so is `row_sums`
    without `zero`; the others are f32; (C3) shapes are as above.
    """

    name = "dl.matmul_weight_only_dot"
    lhs = operand_def(TensorType)
    words = operand_def(TensorType)
    row_scale = operand_def(TensorType)
    row_sums = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = opt_operand_def(TensorType)
    of = prop_def(Attribute)
    dot = prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def elements_per_word(self) -> int:
        """The number of row integers per word, c."""
        return PACKED_DOTS[self.dot.data].count

    @property
    def subwords(self) -> int:
        """The number of dot-product operands that a word of weights unpacks to, p."""
        return WORD_BITS // scalar.bits(self.of) // self.elements_per_word

    @property
    def zero_bias(self) -> int:
        """The bias that makes signed weights unsigned."""
        return 0 if is_unsigned(self.of) else 1 << (scalar.bits(self.of) - 1)

    @property
    def dequantizes_weights(self) -> bool:
        return True

    @property
    def has_step_accumulators(self) -> bool:
        return True

    def infer(self) -> Sequence[Tensor]:
        if self.of not in WEIGHT_ONLY_TYPES or self.dot.data not in _LHS_TYPES:
            expected = f"{', '.join(map(str, WEIGHT_ONLY_TYPES))} and {', '.join(_LHS_TYPES)}"
            raise DTypeError(f"dl.matmul_weight_only_dot: weights of {self.of}, dot {self.dot}; expected {expected} (C1)")
        types = [element_type_of(v) for v in self.operands]
        sums_type = i32 if self.zero is None else f32
        if types != [i32, i32, f32, sums_type, *(f32 for _ in types[4:])]:
            raise DTypeError(f"dl.matmul_weight_only_dot: operands of {types}; expected i32, i32, f32, {sums_type}, f32 (C2)")
        (*lead, k), words = shape_of(self.lhs) or (1,), shape_of(self.words)
        if len(words) != 4:
            raise ShapeError(f"dl.matmul_weight_only_dot: words {words}; expected [B, W, S, N] (C3)")
        blocks, steps, words_per_step, columns = words
        parameters = [(blocks, columns) for _ in self.operands[4:]]
        expected = [(*lead, blocks), (*lead, blocks, steps), *parameters]
        shapes = [shape_of(v) for v in self.operands[2:]]
        if is_known_different(k, blocks * steps * words_per_step * self.subwords) or not all(map(compatible, shapes, expected)):
            shape_text = ", ".join(map(str, (shape_of(self.lhs), *shapes)))
            raise ShapeError(f"dl.matmul_weight_only_dot: shapes {shape_text} do not match words {words} (C3)")
        return [tensor_type((*lead, columns), f32)]

    def reference(self, *operands: Array) -> Array:
        x, words, row_scale, row_sums, scale, *zero = operands
        sums = np.einsum("...bwk,bwkn->...bwn", *self.unpack_integers(x, words)).astype(np.float32) * row_scale[..., None, None]
        for z in zero:
            sums = sums - row_sums[..., None] * z[:, None]
        return (sums.sum(-2) * scale).sum(-2)

    def unpack_integers(self, x: Array, words: Array) -> tuple[Array, Array]:
        """Return the integers of rows […, B, W, S·r] and weights [B, W, S·r, N], both in the order of the row integers."""
        blocks, steps, words_per_step, columns = words.shape
        per_step = words_per_step * self.subwords * self.elements_per_word
        rows = unpack_words(x, -1, _LHS_TYPES[self.dot.data]).reshape(*x.shape[:-1], blocks, steps, per_step)
        subwords = unpack_words(words, 2, self.of).reshape(
            blocks, steps, words_per_step, self.elements_per_word, self.subwords, columns
        )
        weights = subwords.swapaxes(3, 4).reshape(blocks, steps, per_step, columns)
        return rows.astype(np.int64), weights.astype(np.int64)

    @memoize_by_signature
    def structure(self) -> Structure:
        *lead, _ = shape_of(self.lhs)
        blocks, steps, words_per_step, columns = shape_of(self.words)
        parameters = [(blocks, columns) for _ in self.operands[4:]]
        words, subwords = int(words_per_step), int(words_per_step) * self.subwords
        view = (*lead, blocks, steps, subwords)

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *rows, n, b, w = iterators
            row_indices = [[*rows, b, w, AffineExpr.constant(j)] for j in range(subwords)]
            weight_indices = [[b, w, AffineExpr.constant(j), n] for j in range(words)]
            return [
                row_indices[0],
                weight_indices[0],
                [*rows, b],
                [*rows, b, w],
                *([b, n] for _ in parameters),
                *row_indices[1:],
                *weight_indices[1:],
                [*rows, n],
            ]

        repeated_operands = (0,) * (subwords - 1) + (1,) * (words - 1)
        distinct_views = (view, shape_of(self.words), (*lead, blocks), (*lead, blocks, steps), *parameters)
        views = (*distinct_views, *(distinct_views[k] for k in repeated_operands), (*lead, columns))
        return replace(iteration_space((*lead, columns), (blocks, steps), views, indices), repeated_operands=repeated_operands)

    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        first, word, row_scale, row_sum, scale, *optional_elements = elements
        zero, other_elements = (
            (optional_elements[0], optional_elements[1:]) if self.zero is not None else (None, optional_elements)
        )
        num_other_rows = int(shape_of(self.words)[2]) * self.subwords - 1
        rows, words = [first, *other_elements[:num_other_rows]], [word, *other_elements[num_other_rows:]]
        zero_bias = self.zero_bias
        if zero is not None and zero_bias:
            zero = scalar.add(body, zero, scalar.like(body, zero_bias, zero))
        products = row_sum if zero is None else scalar.like(body, 0, word)
        for j, row in enumerate(rows):
            if not j % self.subwords:
                word = words[j // self.subwords]
                if zero_bias:
                    # Biased to unsigned integers, so that a mask extracts them.
                    word = body(
                        arith.XOrIOp(word, scalar.like(body, self._repeat_in_fields(scalar.bits(self.of), zero_bias), word))
                    )
            products = PACKED_DOTS[self.dot.data].accumulate(
                body, products, self._extract_weights(body, word, j % self.subwords), row
            )
        products = scalar.multiply(body, scalar.convert(body, products, i32, f32), row_scale)
        if zero is not None:
            products = scalar.multiply_add(body, body(arith.NegfOp(row_sum)), zero, products)
        return scalar.multiply_add(body, products, scale, total)

    def _repeat_in_fields(self, bits: int, field: int) -> int:
        """Return a word whose fields of `bits` bits all contain `field`."""
        return sum(field << shift for shift in range(0, WORD_BITS, bits))

    def _extract_weights(self, body: Body, word: SSAValue, j: int) -> SSAValue:
        """Emit the weights for row integers c·j to c·j + c - 1, unsigned, as a dot-product operand."""
        bits = scalar.bits(self.of)
        if j:
            word = body(arith.ShRUIOp(word, scalar.like(body, bits * j, word)))
        mask = self._repeat_in_fields(WORD_BITS // self.elements_per_word, (1 << bits) - 1)
        return body(arith.AndIOp(word, scalar.like(body, mask, word))) if self.subwords > 1 else word
