"""Products of rows of integers and weights of few bits: a processor multiplies pairs or fours of them in one instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, element_type_of, of_equal_ops, shape_of, tensor_type
from dlc.dialects.dl.contractions.contraction import differ, iteration_space
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import Body, Contraction, Structure, is_unsigned
from dlc.dialects.dl.narrow_numbers.few_bits import FEW_BITS
from dlc.dialects.dl.narrow_numbers.words import DOTS, WORD_BITS, parts_of
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

# The numbers that an instruction takes of rows, and of weights, which have no sign.
_ROWS = {"i16": ELEMENT_TYPES["int16"], "u8i8": ELEMENT_TYPES["int8"]}


@irdl_op_definition
class MatmulDotsOp(Contraction):
    """A product of rows of integers with weights of few bits, in blocks of g that each have scales:
    `y[…, n] = Σ_b scale[b, n] · row_scale[…, b] · Σ_k x[…, g·b + k] · (w[b, k, n] - zero[b, n])`.

    `dot` names the product of words that it goes by: c integers of rows, `i16` of 16 bits, two at a time, or `u8i8` of 8 bits
    with a sign, four at a time. `lhs` […, B·g/c] has c of them to a word of i32 (`dl.words`), `row_scale` […, B] what they are
    multiples of, and `row_sums` […, B, W] the sums of as many as a step's words of weights have places, times their scale:
    others are an error that is not seen. `words` [B, W, S, N] has W steps of S words, and r integers of type `of` to a word,
    c·p of them: place c·j + i is integer p·i + j, so that a shift and a mask make c of each. `scale` and `zero` [B, N] are f32;
    without `zero` it is 0. The sum over the words of a step is exact, as far as i32 holds it, those of steps f32.

    (C1) `of` is an integer type of 4 or 8 bits, `dot` of integers; (C2) `lhs` and `words` are of i32, the others of f32;
    (C3) shapes are as above.
    """

    name = "dl.matmul_dots"
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
    def at_once(self) -> int:
        """How many integers of a row share a word."""
        return DOTS[self.dot.data].count

    @property
    def parts(self) -> int:
        """How many times as many integers a word of weights holds."""
        return WORD_BITS // scalar.bits(self.of) // self.at_once

    @property
    def middle(self) -> int:
        """What is added to integers, so that they have no sign."""
        return 0 if is_unsigned(self.of) else 1 << (scalar.bits(self.of) - 1)

    @property
    def expands_weights(self) -> bool:
        return True

    @property
    def sums_in_steps(self) -> bool:
        return True

    def infer(self) -> Sequence[Tensor]:
        if self.of not in FEW_BITS or self.dot.data not in _ROWS:
            expected = f"{', '.join(map(str, FEW_BITS))}, by {', '.join(_ROWS)}"
            raise DTypeError(f"dl.matmul_dots: weights of {self.of} by {self.dot}; expected {expected} (C1)")
        types = [element_type_of(v) for v in self.operands]
        if types != [i32, i32, *(f32 for _ in types[2:])]:
            raise DTypeError(f"dl.matmul_dots: operands of {types}; expected words of i32, then f32 (C2)")
        (*lead, k), words = shape_of(self.lhs) or (1,), shape_of(self.words)
        if len(words) != 4:
            raise ShapeError(f"dl.matmul_dots: words {words}; expected [B, W, S, N] (C3)")
        blocks, count, step, columns = words
        parameters = [(blocks, columns) for _ in self.operands[4:]]
        expected = [(*lead, blocks), (*lead, blocks, count), *parameters]
        shapes = [shape_of(v) for v in self.operands[2:]]
        if differ(k, blocks * count * step * self.parts) or shapes != expected:
            given = ", ".join(map(str, (shape_of(self.lhs), *shapes)))
            raise ShapeError(f"dl.matmul_dots: rows and scales {given} for words {words}, {self.parts} of rows to each (C3)")
        return [tensor_type((*lead, columns), f32)]

    def reference(self, *operands: Array) -> Array:
        x, words, row_scale, row_sums, scale, *zero = operands
        sums = np.einsum("...bwk,bwkn->...bwn", *self.integers(x, words)).astype(np.float32) * row_scale[..., None, None]
        for z in zero:
            sums = sums - row_sums[..., None] * z[:, None]
        return (sums.sum(-2) * scale).sum(-2)

    def integers(self, x: Array, words: Array) -> tuple[Array, Array]:
        """Those of rows […, B, W, S·r] and of weights [B, W, S·r, N], in the order of places."""
        blocks, count, step, columns = words.shape
        places = step * self.parts * self.at_once
        rows = parts_of(x, -1, _ROWS[self.dot.data]).reshape(*x.shape[:-1], blocks, count, places)
        parts = parts_of(words, 2, self.of).reshape(blocks, count, step, self.at_once, self.parts, columns)
        weights = parts.swapaxes(3, 4).reshape(blocks, count, places, columns)
        return rows.astype(np.int64), weights.astype(np.int64)

    @of_equal_ops
    def structure(self) -> Structure:
        *lead, _ = shape_of(self.lhs)
        blocks, count, step, columns = shape_of(self.words)
        parameters = [(blocks, columns) for _ in self.operands[4:]]
        words, parts = int(step), int(step) * self.parts
        view = (*lead, blocks, count, parts)

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *rows, n, b, w = iterators
            at = [[*rows, b, w, AffineExpr.constant(j)] for j in range(parts)]
            of = [[b, w, AffineExpr.constant(j), n] for j in range(words)]
            return [at[0], of[0], [*rows, b], [*rows, b, w], *([b, n] for _ in parameters), *at[1:], *of[1:], [*rows, n]]

        again = (0,) * (parts - 1) + (1,) * (words - 1)
        given = (view, shape_of(self.words), (*lead, blocks), (*lead, blocks, count), *parameters)
        views = (*given, *(given[k] for k in again), (*lead, columns))
        return replace(iteration_space((*lead, columns), (blocks, count), views, indices), again=again)

    def added(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        first, word, row_scale, row_sum, scale, *rest = elements
        zero, others = (rest[0], rest[1:]) if self.zero is not None else (None, rest)
        last = int(shape_of(self.words)[2]) * self.parts - 1
        rows, words = [first, *others[:last]], [word, *others[last:]]
        if middle := self.middle:
            zero = scalar.like(body, middle, total) if zero is None else scalar.add(body, zero, scalar.like(body, middle, zero))
        products = scalar.like(body, 0, word)
        for j, row in enumerate(rows):
            if not j % self.parts:
                word = words[j // self.parts]
                if middle:
                    # Counted from the least, so that a mask takes integers out of a word.
                    word = body(arith.XOrIOp(word, scalar.like(body, self._in_all(scalar.bits(self.of), middle), word)))
            products = DOTS[self.dot.data].added(body, products, self._part(body, word, j % self.parts), row)
        products = scalar.multiply(body, scalar.convert(body, products, i32, f32), row_scale)
        if zero is not None:
            products = scalar.multiply_add(body, body(arith.NegfOp(row_sum)), zero, products)
        return scalar.multiply_add(body, products, scale, total)

    def _in_all(self, bits: int, number: int) -> int:
        """A word that has a number in all places of so many bits."""
        return sum(number << shift for shift in range(0, WORD_BITS, bits))

    def _part(self, body: Body, word: SSAValue, j: int) -> SSAValue:
        """Places c·j to c·j + c - 1, without their signs, as integers of what the instruction takes."""
        bits = scalar.bits(self.of)
        if j:
            word = body(arith.ShRUIOp(word, scalar.like(body, bits * j, word)))
        mask = self._in_all(WORD_BITS // self.at_once, (1 << bits) - 1)
        return body(arith.AndIOp(word, scalar.like(body, mask, word))) if self.parts > 1 else word
