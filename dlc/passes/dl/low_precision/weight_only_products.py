"""Products with weight-only quantized matrices (int4, int8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, DivOp, MulOp, SelectOp
from dlc.dialects.dl.arithmetic.functions import RoundOp
from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.base import element_type_of, is_storage_only, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, WORD_BITS, ViewAsI32Op
from dlc.dialects.dl.low_precision.weight_only import MatmulWeightOnlyOp, PackNibblesOp
from dlc.dialects.dl.low_precision.weight_only_dot import MatmulWeightOnlyDotOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.size_ranges import representative
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceSumOp
from dlc.dialects.dl.scalar import bits
from dlc.ir import Attribute, SSAValue, f32, i32
from dlc.shapes.ranges import SizeRange
from dlc.target import Target

# Maximum rows whose sums are scaled, in additional accumulators; with more rows the registers do not suffice.
_MAX_ROWS_SCALING_SUMS = 2
# The largest magnitude of a quantized row element, by packed dot product.
_MAX_MAGNITUDE = {"i16": 32767, "u8i8": 127}
# Weight words accumulated in i32 before the sum is converted to float: i32 holds the sum of their products, for int8 too.
_MAX_WORDS_PER_STEP = 8


@dataclass(frozen=True)
class BlockQuantizedWeights:
    """Quantized weights: int4 or int8 [B, g, N] in B blocks of g, with scales and optional zero points [B, N]."""

    integers: SSAValue
    scale: SSAValue
    zero: SSAValue | None

    @property
    def of(self) -> Attribute:
        return element_type_of(self.integers)

    @property
    def count(self) -> int:
        """The number of integers per 32-bit word."""
        return WORD_BITS // bits(self.of)

    @property
    def bias(self) -> int:
        """The bias that makes the integers unsigned."""
        return 0 if is_unsigned(self.of) else 1 << (bits(self.of) - 1)

    @property
    def parameters(self) -> tuple[SSAValue, ...]:
        return (self.scale,) if self.zero is None else (self.scale, self.zero)

    def step(self) -> int:
        """Return the number of words that `matmul_quantized_rows` accumulates in i32 before it converts the sum to float."""
        num_words = int(shape_of(self.integers)[1]) // self.count
        return next(step for step in range(min(_MAX_WORDS_PER_STEP, num_words), 0, -1) if num_words % step == 0)

    def words(self, build: DlBuilder) -> SSAValue:
        """Pack the weights into words [B, W, N] of consecutive integers."""
        blocks, size, columns = map(int, shape_of(self.integers))
        split = build(ReshapeOp, self.integers, shape=(blocks, size // self.count, self.count, columns))
        x = build(TransposeOp, split, permutation=(0, 1, 3, 2))
        words = build(ViewAsI32Op, build(PackNibblesOp, x) if is_storage_only(self.of) else x)
        return build(ReshapeOp, words, shape=shape_of(words)[:-1])


def matmul_float_rows(
    build: DlBuilder, x: SSAValue, weights: BlockQuantizedWeights, ranges: Mapping[str, SizeRange]
) -> SSAValue:
    """Multiply float rows `x` with the weights, scaling sums for few rows and weights for more."""
    scale_weights = None if representative_rows(x, ranges) <= _MAX_ROWS_SCALING_SUMS else True
    return build(MatmulWeightOnlyOp, x, weights.words(build), *weights.parameters, of=weights.of, scale_weights=scale_weights)


def matmul_quantized_rows(build: DlBuilder, x: SSAValue, weights: BlockQuantizedWeights, dot: str) -> SSAValue:
    """Multiply `x` with the weights by packed integer dot products.

    Each row segment that is multiplied by a block of weights is quantized to multiples of 1/32,767 of its largest magnitude, or
    of 1/127 of it, as `dot` requires. The integers of rows are reordered and not the weights, which all products share.
    """
    *leading, k = shape_of(x)
    blocks, size, columns = map(int, shape_of(weights.integers))
    rows = build(ReshapeOp, build(CastOp, x, to=f32), shape=(*leading, blocks, size))
    scale = nonzero_step(build, build(ReduceMaxOp, build(AbsOp, rows), axes=(-1,), keepdims=True), _MAX_MAGNITUDE[dot])
    multiples = build(RoundOp, build(DivOp, rows, scale))
    integers = _extraction_order(build, build(CastOp, multiples, to=PACKED_DOTS[dot].weights), weights.count, dot)
    row_words = build(ViewAsI32Op, build(ReshapeOp, integers, shape=(*leading, k)))
    words_per_step = weights.step()
    elements_per_step = words_per_step * weights.count
    sums = build(ReshapeOp, multiples, shape=(*leading, blocks, size // elements_per_step, elements_per_step))
    sums = build(ReduceSumOp, sums, axes=(-1,), keepdims=False)
    if weights.zero is None:
        sums = build(CastOp, build(MulOp, sums, build.scalar(-float(weights.bias), like=sums)), to=i32)
    else:
        sums = build(MulOp, sums, scale)
    row_scale = build(ReshapeOp, scale, shape=(*leading, blocks))
    weight_words = build(ReshapeOp, weights.words(build), shape=(blocks, size // elements_per_step, words_per_step, columns))
    y = build(MatmulWeightOnlyDotOp, row_words, weight_words, row_scale, sums, *weights.parameters, of=weights.of, dot=dot)
    return build(CastOp, y, to=element_type_of(x))


def _extraction_order(build: DlBuilder, rows: SSAValue, integers_per_word: int, dot: str) -> SSAValue:
    """Reorder the integers of rows [..., g]: a shift and a mask extract c weights at a time from a word, in this order."""
    c = PACKED_DOTS[dot].count
    if c == integers_per_word:
        return rows
    *leading, size = shape_of(rows)
    words = build(ReshapeOp, rows, shape=(*leading, size // integers_per_word, c, integers_per_word // c))
    rank = len(leading)
    return build(TransposeOp, words, permutation=(*range(rank), rank, rank + 2, rank + 1))


def choose_row_dot(x: SSAValue, target: Target, ranges: Mapping[str, SizeRange], min_bits: int) -> str | None:
    """Return the fastest packed dot product for rows quantized to at least `min_bits` bits; None without one.

    i16 pairs pay for a limited number of rows; bytes for any, since int4 weights are unpacked to bytes quickly.
    """
    for dot in target.dot_products:
        if dot in _MAX_MAGNITUDE and bits(PACKED_DOTS[dot].weights) >= min_bits:
            return dot if dot != "i16" or representative_rows(x, ranges) <= target.costs.max_packed_pair_rows else None
    return None


def representative_rows(x: SSAValue, ranges: Mapping[str, SizeRange]) -> int:
    """Return the representative number of rows of `x`."""
    return prod(representative(s, ranges) for s in shape_of(x)[:-1])


def nonzero_step(build: DlBuilder, span: SSAValue, num_steps: int) -> SSAValue:
    """Return `span / num_steps`, or 1 where that is 0."""
    quotient = build(DivOp, span, build.scalar(float(num_steps), like=span))
    return build(
        SelectOp, build(EqualOp, quotient, build.scalar(0.0, like=quotient)), build.scalar(1.0, like=quotient), quotient
    )
