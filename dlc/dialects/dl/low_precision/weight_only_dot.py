"""Weight-only products on quantized rows, by packed dot-product instructions of integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    compatible,
    element_type_of,
    ints,
    memoize_by_signature,
    number,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.contractions.contraction import iteration_space
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import Body, Contraction, Structure
from dlc.dialects.dl.low_precision.bit_planes import BitPlanes
from dlc.dialects.dl.low_precision.byte_table import TABLE_BITS, TABLE_SIZE, lookup_bytes
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, DotAccumulator, unpack_words
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    StringAttr,
    TensorType,
    arith,
    bf16,
    f16,
    f32,
    i8,
    i32,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_different

# The element type of the rows for each dot product, and the maximum bits of weights: the unsigned operand, whose sums of pairs
# must fit 16 bits in u8i7.
_LHS_TYPES = {"i16": ELEMENT_TYPES["int16"], "u8i8": ELEMENT_TYPES["int8"], "u8i7": ELEMENT_TYPES["int8"]}
MAX_WEIGHT_BITS = {"i16": 8, "u8i8": 8, "u8i7": 6}
# The bits of the low part of a row integer that is split into two bytes.
_PART_BITS = 8


@irdl_op_definition
class MatmulWeightOnlyDotOp(Contraction):
    """A product of quantized rows with weight-only quantized weights, in blocks of g with a scale each.

    `y[…, n] = Σ_b scale[b, n] · row_scale[…, b] · Σ_k x[…, g·b + k] · (w[b, k, n] - zero[b, n])`.

    `words` [B, W, S, N] are W steps of S words: groups of unsigned weights of `bits` bits as bit planes
    (`low_precision/bit_planes.py`). `dot` names the packed dot product of c row integers: `i16`, two at a time, or `u8i8` and
    `u8i7` with signed 8-bit row integers, four at a time. `lhs` […, B·g·parts/c] holds c of them per i32 word
    (`dl.view_as`): of four consecutive ones the first and third, then the second and fourth for `i16`. With two `parts`,
    row integers are `256·high + low` of signed bytes, and each word of high parts precedes that of the low parts. `row_scale`
    […, B] are the scales of rows. `row_sums` […, B, W] holds for each step the sum of the row integers times their scale as
    f32, or without zero points the start of the integer sum as i32: the row sum times a negated zero point of all weights. This
    is not verified. `scale` [B, N] is f32, f16 or bf16. The sum over the words of a step is exact if i32 holds it; the sum
    over steps is f32.

    `factors` are optional: the zero points, f32 [B, N]; or step scales, i8 [B, W, N], for two-level scales. Weights of step w
    are then multiplied by `scale[b, n] · factors[b, w, n]`, zero points are 0, and `row_scale` […, B, W] has a scale per step.
    With a `table` of 16 unsigned bytes, weights are its entries at the stored integers.

    With `words_per_sum`, for `u8i7` with step scales, sums of steps are multiplied by `factors` as integers: `row_scale` is
    […, B], and the sum over all words of a block is exact if i32 holds it. Sums of pairs of products are added in
    16 bits over `words_per_sum` words. Partial sums may wrap, and the creator of the op proves that the totals fit. `row_sums`
    are the initial values of the first sums of a step, as words of two i16: products of a negated zero point and the row
    integers of elements 4i and 4i + 1, then 4i + 2 and 4i + 3.

    (C1) `dot` is one of those three, `bits` has a layout and is at most 6 for `u8i7`, and `parts` is 1, or 2 for bytes; a
    `table` has 16 entries, with 4 bits and not `u8i7`; `words_per_sum` requires `u8i7`, one part and step scales; (C2) `lhs`
    and `words` are i32, and so is `row_sums` without zero points; `scale` and `factors` are as above, the others are f32; (C3)
    shapes are as above.
    """

    name = "dl.matmul_weight_only_dot"
    lhs = operand_def(TensorType)
    words = operand_def(TensorType)
    row_scale = operand_def(TensorType)
    row_sums = operand_def(TensorType)
    scale = operand_def(TensorType)
    factors = opt_operand_def(TensorType)
    bits = prop_def(IntegerAttr)
    parts = prop_def(IntegerAttr)
    dot = prop_def(StringAttr)
    table = opt_prop_def(DenseArrayBase)
    words_per_sum = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def planes(self) -> BitPlanes:
        """The layout of the weights."""
        return BitPlanes(number(self.bits))

    @property
    def num_parts(self) -> int:
        """The number of parts of a row integer."""
        return number(self.parts)

    @property
    def has_step_scales(self) -> bool:
        """True if steps have scales of their own."""
        return self.factors is not None and element_type_of(self.factors) == i8

    @property
    def has_zero(self) -> bool:
        """True if there are zero points."""
        return self.factors is not None and not self.has_step_scales

    @property
    def has_pairs(self) -> bool:
        """True if two integers, and not four, are multiplied at a time."""
        return PACKED_DOTS[self.dot.data].count == 2

    @property
    def dequantizes_weights(self) -> bool:
        return True

    @property
    def has_step_accumulators(self) -> bool:
        return True

    def infer(self) -> Sequence[Tensor]:
        dot, bits, parts = self.dot.data, number(self.bits), self.num_parts
        if dot not in _LHS_TYPES or not BitPlanes.is_supported(bits) or bits > MAX_WEIGHT_BITS[dot]:
            expected = f"2, 4, 5, 6 or 8 bits, at most 6 for u8i7, and one of {', '.join(_LHS_TYPES)}"
            raise DTypeError(f"dl.matmul_weight_only_dot: weights of {bits} bits, dot {dot!r}; expected {expected} (C1)")
        if not 1 <= parts <= (1 if self.has_pairs else 2):
            raise DTypeError(f"dl.matmul_weight_only_dot: {parts} parts of {dot!r}; expected 1, or 2 of bytes (C1)")
        if self.table is not None and (len(ints(self.table)) != TABLE_SIZE or bits != TABLE_BITS or dot == "u8i7"):
            raise DTypeError(f"dl.matmul_weight_only_dot: table of {bits} bits, dot {dot!r}; expected 4 bits, not u8i7 (C1)")
        if self.words_per_sum is not None and (dot != "u8i7" or parts != 1 or not self.has_step_scales):
            raise DTypeError(
                f"dl.matmul_weight_only_dot: words_per_sum with {parts} parts of {dot!r}; expected 1 of u8i7, step scales (C1)"
            )
        types = [element_type_of(v) for v in self.operands]
        expected_types = [i32, i32, f32, f32 if self.has_zero else i32]
        if types[:4] != expected_types or types[4] not in (f32, f16, bf16) or types[5:] not in ([], [f32], [i8]):
            expected = ", ".join(map(str, expected_types))
            raise DTypeError(f"dl.matmul_weight_only_dot: operands of {types}; expected {expected}, floats, f32 or i8 (C2)")
        (*lead, k), words = shape_of(self.lhs) or (1,), shape_of(self.words)
        if len(words) != 4 or is_known_different(words[2] % self.planes.words, 0):
            raise ShapeError(
                f"dl.matmul_weight_only_dot: words {words}; expected [B, W, S, N] with groups of {self.planes.words} words (C3)"
            )
        blocks, steps, words_per_step, columns = words
        expected = [(*lead, *self._scale_axes), (*lead, blocks, steps), *self._parameter_shapes]
        shapes = [shape_of(v) for v in self.operands[2:]]
        row_words = blocks * steps * self._row_words(words_per_step)
        if is_known_different(k, row_words) or not all(map(compatible, shapes, expected)):
            shape_text = ", ".join(map(str, (shape_of(self.lhs), *shapes)))
            raise ShapeError(f"dl.matmul_weight_only_dot: shapes {shape_text} do not match words {words} (C3)")
        return [tensor_type((*lead, columns), f32)]

    @property
    def _scale_axes(self) -> tuple[Size, ...]:
        """The sizes of the axes of `row_scale` after those of rows: blocks, and steps if they have scales."""
        return shape_of(self.words)[: 2 if self.has_step_scales and self.words_per_sum is None else 1]

    @property
    def _parameter_shapes(self) -> Sequence[tuple[Size, ...]]:
        """The shapes of `scale` and `factors`."""
        blocks, steps, _, columns = shape_of(self.words)
        factors = (blocks, steps, columns) if self.has_step_scales else (blocks, columns)
        return [(blocks, columns), factors][: len(self.operands) - 4]

    def _row_words(self, words_per_step: Size) -> Size:
        """Return the number of words of row integers per step."""
        slots = words_per_step // self.planes.words * self.planes.slots
        return slots * (2 if self.has_pairs else self.num_parts)

    def reference(self, *operands: Array) -> Array:
        x, words, row_scale, row_sums, scale, *factors = operands
        sums = np.einsum("...bwk,bwkn->...bwn", *self.unpack_integers(x, words))
        if self.words_per_sum is not None:
            starts = row_sums.view(np.int16).reshape(*row_sums.shape, 2).sum(-1, dtype=np.int64)
            block_sums = ((sums + starts[..., None]) * factors[0]).sum(-2).astype(np.float32)
            return (block_sums * row_scale[..., None] * scale.astype(np.float32)).sum(-2)
        if not self.has_zero:
            sums = sums + row_sums[..., None]
        sums = sums.astype(np.float32) * row_scale.reshape(*row_scale.shape[: x.ndim], -1)[..., None]
        for values in factors:
            sums = sums * values if self.has_step_scales else sums - row_sums[..., None] * values[:, None]
        return (sums.sum(-2) * scale.astype(np.float32)).sum(-2)

    def unpack_integers(self, x: Array, words: Array) -> tuple[Array, Array]:
        """Return the integers of rows […, B, W, k] and weights [B, W, k, N], both in the order of the weights."""
        integers = unpack_words(x, -1, _LHS_TYPES[self.dot.data]).astype(np.int64)
        size = words.shape[2] // self.planes.words * self.planes.group
        fours = integers.reshape(*x.shape[:-1], *words.shape[:2], size // 4, self.num_parts, 4)
        if self.has_pairs:
            fours = fours[..., [0, 2, 1, 3]]
        weights = (1 << (_PART_BITS * np.arange(self.num_parts)[::-1]))[:, None]
        rows = (fours * weights).sum(-2)
        weights = self.planes.unpack(words).astype(np.int64)
        if self.table is not None:
            weights = np.asarray(ints(self.table))[weights]
        return rows.reshape(*rows.shape[:-2], size), weights

    @memoize_by_signature
    def structure(self) -> Structure:
        *lead, _ = shape_of(self.lhs)
        blocks, steps, words_per_step, columns = shape_of(self.words)
        words, row_words = int(words_per_step), int(self._row_words(words_per_step))
        view = (*lead, blocks, steps, row_words)
        # The steps of an iteration; without `words_per_sum`, one of each block.
        is_block, num_steps = self.words_per_sum is not None, 1 if self.words_per_sum is None else int(steps)

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            *rows, n, b = iterators if is_block else iterators[:-1]
            step_iterators = [AffineExpr.constant(w) for w in range(num_steps)] if is_block else [iterators[-1]]
            row_indices = [[*rows, b, w, AffineExpr.constant(j)] for w in step_iterators for j in range(row_words)]
            weight_indices = [[b, w, AffineExpr.constant(j), n] for w in step_iterators for j in range(words)]
            row_sum_indices = [[*rows, b, w] for w in step_iterators]
            w = step_iterators[0]
            parameter_indices = [[b, w, n] if len(shape) == 3 else [b, n] for shape in self._parameter_shapes]
            return [
                row_indices[0],
                weight_indices[0],
                [*rows, b, w][: len(rows) + len(self._scale_axes)],
                row_sum_indices[0],
                *parameter_indices,
                *row_indices[1:],
                *weight_indices[1:],
                *row_sum_indices[1:],
                *([b, w, n] for w in step_iterators[1:]),
                [*rows, n],
            ]

        counts = {0: num_steps * row_words, 1: num_steps * words, 3: num_steps, 5: num_steps}
        repeated_operands = tuple(k for k, count in counts.items() for _ in range(count - 1))
        row_scales = (*lead, *self._scale_axes)
        distinct_views = (view, shape_of(self.words), row_scales, (*lead, blocks, steps), *self._parameter_shapes)
        views = (*distinct_views, *(distinct_views[k] for k in repeated_operands), (*lead, columns))
        reductions = (blocks,) if is_block else (blocks, steps)
        return replace(iteration_space((*lead, columns), reductions, views, indices), repeated_operands=repeated_operands)

    def accumulate(self, body: Body, total: SSAValue, *elements: SSAValue) -> SSAValue:
        first, word, row_scale, row_sum, scale, *others = elements
        factor = others.pop(0) if self.factors is not None else None
        num_steps = 1 if self.words_per_sum is None else int(shape_of(self.words)[1])
        num_words = num_steps * int(shape_of(self.words)[2])
        num_rows = num_steps * int(self._row_words(shape_of(self.words)[2]))
        rows, others = [first, *others[: num_rows - 1]], others[num_rows - 1 :]
        words, others = [word, *others[: num_words - 1]], others[num_words - 1 :]
        if self.words_per_sum is not None:
            assert factor is not None
            starts, factors = [row_sum, *others[: num_steps - 1]], [factor, *others[num_steps - 1 :]]
            products = self._scaled_integer_sum(body, starts, rows, words, factors)
        else:
            products = self._integer_sum(body, scalar.like(body, 0, word) if self.has_zero else row_sum, rows, words)
        products = scalar.multiply(body, scalar.convert(body, products, i32, f32), row_scale)
        weight_scale = scalar.convert(body, scale, element_type_of(self.scale), f32)
        if factor is not None and self.has_step_scales and self.words_per_sum is None:
            # The same for all rows.
            weight_scale = scalar.multiply(body, weight_scale, scalar.convert(body, factor, i8, f32))
        elif self.has_zero:
            assert factor is not None
            products = scalar.multiply_add(body, body(arith.NegfOp(row_sum)), factor, products)
        return scalar.multiply_add(body, products, weight_scale, total)

    def _extract(self, body: Body, words: Sequence[SSAValue], slot: int) -> Iterator[SSAValue]:
        """Emit the weights of a slot of a group of words, as operands of dot products."""
        planes, slot_words = self.planes, words
        if self.table is not None:
            slot_words = [lookup_bytes(body, ints(self.table), planes.extract(body, words, slot, None))]
            planes, slot = BitPlanes(8), 0
        for half in (0, 1) if self.has_pairs else (None,):
            yield planes.extract(body, slot_words, slot, half)

    def _scaled_integer_sum(
        self,
        body: Body,
        starts: Sequence[SSAValue],
        rows: Sequence[SSAValue],
        words: Sequence[SSAValue],
        factors: Sequence[SSAValue],
    ) -> SSAValue:
        """Emit the sum over the steps of a block of a step scale times the sum of the products of the step."""
        assert self.words_per_sum is not None
        total, num_steps = scalar.like(body, 0, words[0]), len(starts)
        for w, (start, factor) in enumerate(zip(starts, factors, strict=True)):
            low = scalar.convert(body, factor, i8, i32)
            upper = body(arith.ShLIOp(low, scalar.like(body, 16, low)))
            pair = body(arith.OrIOp(body(arith.AndIOp(low, scalar.like(body, (1 << 16) - 1, low))), upper))
            accumulator = DotAccumulator(PACKED_DOTS[self.dot.data], number(self.words_per_sum), total, pair, start)
            step_rows, step_words = (x[w * len(x) // num_steps : (w + 1) * len(x) // num_steps] for x in (rows, words))
            self._accumulate_words(body, [accumulator], step_rows, step_words)
            total = accumulator.finish(body)
        return total

    def _integer_sum(self, body: Body, start: SSAValue, rows: Sequence[SSAValue], words: Sequence[SSAValue]) -> SSAValue:
        """Emit `start` plus the sum of the products of a step."""
        dot, max_words = PACKED_DOTS[self.dot.data], 1
        if dot.pair_sums is not None:
            max_words = dot.max_words_per_sum(((1 << self.planes.bits) - 1) * -int(scalar.limits(dot.weights)[0]))
        accumulators = [DotAccumulator(dot, max_words, start)]
        if self.num_parts == 2:
            factors = scalar.like(body, (1 << 16 | 1) << _PART_BITS, start) if dot.pair_sums is not None else None
            accumulators.insert(0, DotAccumulator(dot, max_words, scalar.like(body, 0, start), factors))
        self._accumulate_words(body, accumulators, rows, words)
        *high, low = (accumulator.finish(body) for accumulator in accumulators)
        for part in high:
            scaled = part if dot.pair_sums is not None else body(arith.ShLIOp(part, scalar.like(body, _PART_BITS, part)))
            low = scalar.add(body, scaled, low)
        return low

    def _accumulate_words(
        self, body: Body, accumulators: Sequence[DotAccumulator], rows: Sequence[SSAValue], words: Sequence[SSAValue]
    ) -> None:
        """Emit the addition of the products of a step to the sum of each part, the high part first."""
        planes, remaining = self.planes, iter(rows)
        for group in range(len(words) // planes.words):
            group_words = words[group * planes.words : (group + 1) * planes.words]
            for slot in range(planes.slots):
                for weights in self._extract(body, group_words, slot):
                    for accumulator in accumulators:
                        accumulator.add(body, weights, next(remaining))
