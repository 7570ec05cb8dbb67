"""Products with weight-only quantized matrices (int4, int8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, AddOp, DivOp, MulOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import FloorOp, RoundOp
from dlc.dialects.dl.arithmetic.logic import BitwiseAndOp, EqualOp, ShiftLeftOp, ShiftRightOp
from dlc.dialects.dl.base import element_type_of, is_storage_only, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.low_precision.bit_planes import BitPlanes, Plane
from dlc.dialects.dl.low_precision.byte_table import TABLE_BITS
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS, WORD_BITS, ViewAsOp
from dlc.dialects.dl.low_precision.weight_only import MatmulWeightOnlyOp, PackNibblesOp
from dlc.dialects.dl.low_precision.weight_only_dot import MAX_WEIGHT_BITS, MatmulWeightOnlyDotOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.size_ranges import representative
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceSumOp
from dlc.dialects.dl.scalar import bits, limits
from dlc.ir import Attribute, SSAValue, f32, i32
from dlc.passes.dl.index_ranges import compute_interval
from dlc.shapes.ranges import SizeRange
from dlc.target import Target

# Maximum rows whose sums are scaled, in additional accumulators; with more rows the registers do not suffice.
_MAX_ROWS_SCALING_SUMS = 2
_UI8 = ELEMENT_TYPES["uint8"]
# Weight words accumulated in i32 before the sum is converted to float: i32 holds the sum of their products, for int8 too.
_MAX_WORDS_PER_STEP = 8
_BYTES_PER_WORD = WORD_BITS // 8
# Two-level scales that are multiplied as floats take three more instructions per block. With 16 vector registers, instructions
# and not memory limit products with smaller blocks (Zen 5, AVX2, a row times weights in blocks of 16, ps a weight: 2 bits
# 16.2 -> 18.3, 6 bits 22.7 -> 25.0).
_MIN_TWO_LEVEL_BLOCK_ELEMENTS = 32


@dataclass(frozen=True)
class RowDot:
    """A packed dot product for quantized rows, whose integers consist of one or two parts."""

    name: str
    parts: int

    @property
    def max_magnitude(self) -> int:
        """The largest magnitude of a row integer; high and low parts are signed bytes."""
        max_part = int(limits(PACKED_DOTS[self.name].weights)[1])
        return max_part if self.parts == 1 else (max_part << 8) + max_part


@dataclass(frozen=True)
class Codebook:
    """Integers [B, g, N] that are the entries of a table of 16 int8 values at codes [B, g, N]."""

    table: tuple[int, ...]
    codes: SSAValue


@dataclass(frozen=True)
class BlockQuantizedWeights:
    """Quantized weights: int4 or int8 [B, g, N] in B blocks of g, with scales and optional zero points [B, N].

    Attributes:
        scale: The scales, as floats of up to 32 bits.
        zero: The zero points, f32; None is 0.
        two_level_scale: Scales [P, N], a float, and [P, B / P, N], i8, whose product is `scale`; None for one level.
        codebook: The integers as values of a table; None if there is none.
    """

    integers: SSAValue
    scale: SSAValue
    zero: SSAValue | None
    two_level_scale: tuple[SSAValue, SSAValue] | None = None
    codebook: Codebook | None = None

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
        low = compute_interval(self.integers)[0] if self.codebook is None else min(self.codebook.table)
        return max(0, -low)

    @property
    def dot_bits(self) -> int:
        """The bits of the unsigned integers that packed dot products multiply."""
        return self.planes.bits if self.codebook is None else bits(_UI8)

    @property
    def planes(self) -> BitPlanes:
        """The layout of the integers, or of their codes, as operands of packed dot products."""
        if self.codebook is not None:
            return BitPlanes(TABLE_BITS)
        return BitPlanes.smallest(self.bias + compute_interval(self.integers)[1], int(shape_of(self.integers)[1]))

    def words(self, build: DlBuilder) -> SSAValue:
        """Pack the weights into words [B, W, N] of consecutive integers, for products with floats."""
        blocks, size, columns = map(int, shape_of(self.integers))
        split = build(ReshapeOp, self.integers, shape=(blocks, size // self.count, self.count, columns))
        x = build(TransposeOp, split, permutation=(0, 1, 3, 2))
        words = build(ViewAsOp, build(PackNibblesOp, x) if is_storage_only(self.of) else x, to=i32)
        return build(ReshapeOp, words, shape=shape_of(words)[:-1])


def matmul_float_rows(
    build: DlBuilder, x: SSAValue, weights: BlockQuantizedWeights, ranges: Mapping[str, SizeRange]
) -> SSAValue:
    """Multiply float rows `x` with the weights, scaling sums for few rows and weights for more."""
    scale_weights = None if representative_rows(x, ranges) <= _MAX_ROWS_SCALING_SUMS else True
    parameters = [build(CastOp, weights.scale, to=f32), *([] if weights.zero is None else [weights.zero])]
    return build(MatmulWeightOnlyOp, x, weights.words(build), *parameters, of=weights.of, scale_weights=scale_weights)


def matmul_quantized_rows(
    build: DlBuilder, x: SSAValue, weights: BlockQuantizedWeights, dot: RowDot, target: Target
) -> tuple[SSAValue, SSAValue]:
    """Multiply `x` with the weights by packed integer dot products; return the products and the rounded `x`, f32.

    Each row segment that is multiplied by a block of weights, or by a larger block of two-level scales if these are multiplied
    as integers, is quantized to multiples of 1/32,767 of its largest magnitude, or of 1/32,639 or 1/127 of it, as `dot`
    requires.
    """
    *leading, k = shape_of(x)
    blocks, size, _ = map(int, shape_of(weights.integers))
    words_per_sum = _words_per_scaled_sum(weights, dot, target)
    two_level = weights.two_level_scale
    if words_per_sum is None and target.vector_registers < 32 and size < _MIN_TWO_LEVEL_BLOCK_ELEMENTS:
        two_level = None
    segments = blocks if words_per_sum is None or two_level is None else int(shape_of(two_level[0])[0])
    rows = build(ReshapeOp, build(CastOp, x, to=f32), shape=(*leading, segments, int(k) // segments))
    scale = nonzero_step(build, build(ReduceMaxOp, build(AbsOp, rows), axes=(-1,), keepdims=True), dot.max_magnitude)
    multiples = build(RoundOp, build(DivOp, rows, scale))
    row_words = _pack_rows(build, multiples, dot)
    groups = size // weights.planes.group
    groups_per_step = max(
        m for m in range(1, groups + 1) if m == 1 or (groups % m == 0 and m * weights.planes.words <= _MAX_WORDS_PER_STEP)
    )
    steps = groups // groups_per_step
    parameters, bias = [weights.scale], weights.bias
    words, scale_shape = _pack_planes(build, weights, groups_per_step), (segments,)
    if words_per_sum is not None:
        sums = _pair_starts(build, multiples, blocks, bias)
    else:
        sums = build(ReshapeOp, multiples, shape=(*leading, blocks, steps, size // steps))
        sums = build(ReduceSumOp, sums, axes=(-1,), keepdims=False)
        if weights.zero is None:
            sums = build(CastOp, build(MulOp, sums, build.scalar(-float(bias), like=sums)), to=i32)
        else:
            sums = build(MulOp, sums, scale)
            parameters.append(build(AddOp, weights.zero, build.scalar(float(bias), like=weights.zero)))
    if two_level is not None and steps == 1:
        # Each block is a step of a larger block.
        parameters = list(two_level)
        outer_shape = tuple(map(int, shape_of(parameters[1])[:2]))
        words = build(ReshapeOp, words, shape=(*outer_shape, *shape_of(words)[2:]))
        sums = build(ReshapeOp, sums, shape=(*leading, *outer_shape))
        scale_shape = outer_shape if words_per_sum is None else scale_shape
    row_scale = build(ReshapeOp, scale, shape=(*leading, *scale_shape))
    operands = row_words, words, row_scale, sums, *parameters
    table = None if weights.codebook is None else [value + bias for value in weights.codebook.table]
    y = build(
        MatmulWeightOnlyDotOp,
        *operands,
        bits=weights.planes.bits,
        parts=dot.parts,
        dot=dot.name,
        table=table,
        words_per_sum=words_per_sum,
    )
    rounded_rows = build(ReshapeOp, build(MulOp, multiples, scale), shape=(*leading, k))
    return build(CastOp, y, to=element_type_of(x)), rounded_rows


def _words_per_scaled_sum(weights: BlockQuantizedWeights, dot: RowDot, target: Target) -> int | None:
    """Return the words whose pair sums are added in 16 bits if integer sums are multiplied by step scales; else None.

    A block must be one step, and an iteration on a larger block is too long for tiles of many registers. If weights have a
    bias, the sums over a step start at the correction for it: their bound is that of products with weights without bias.
    """
    pair_sums = PACKED_DOTS[dot.name].pair_sums
    if pair_sums is None or dot.parts != 1 or weights.two_level_scale is None or target.vector_registers > 16:
        return None
    low, high = compute_interval(weights.integers)
    words = PACKED_DOTS[dot.name].max_words_per_sum(dot.max_magnitude * max(-low, high, 1))
    step_words = int(shape_of(weights.integers)[1]) // _BYTES_PER_WORD
    fits_step = step_words // weights.planes.slots * weights.planes.words <= _MAX_WORDS_PER_STEP
    return min(words, step_words) if fits_step and (words >= step_words or not weights.bias) else None


def _pair_starts(build: DlBuilder, multiples: SSAValue, blocks: int, bias: int) -> SSAValue:
    """Return `-bias` times the sums of the row integers that each half of the words of a block multiplies, as words of i16."""
    *leading, segments, size = shape_of(multiples)
    words = int(segments) * int(size) // (blocks * _BYTES_PER_WORD)
    pairs = build(ReshapeOp, multiples, shape=(*leading, blocks, words, 2, 2))
    sums = build(ReduceSumOp, pairs, axes=(-3, -1), keepdims=False)
    starts = build(CastOp, build(MulOp, sums, build.scalar(-float(bias), like=sums)), to=ELEMENT_TYPES["int16"])
    return build(ReshapeOp, build(ViewAsOp, starts, to=i32), shape=(*leading, blocks))


def _pack_rows(build: DlBuilder, integers: SSAValue, dot: RowDot) -> SSAValue:
    """Pack row integers […, B, g], as floats, to words […, k] in the order of `dl.matmul_weight_only_dot`."""
    *leading, blocks, size = shape_of(integers)
    fours = build(ReshapeOp, integers, shape=(*leading, int(blocks) * int(size) // _BYTES_PER_WORD, 1, _BYTES_PER_WORD))
    kind, rank = PACKED_DOTS[dot.name].weights, len(leading)
    if dot.parts == 2:
        step = build.scalar(256.0, like=fours)
        high = build(FloorOp, build(DivOp, build(AddOp, fours, build.scalar(128.0, like=fours)), step))
        low = build(SubOp, fours, build(MulOp, high, step))
        fours = build(ConcatOp, high, low, axis=rank + 1)
    elif PACKED_DOTS[dot.name].count == 2:
        pairs = build(ReshapeOp, fours, shape=(*shape_of(fours)[:-2], 2, 2))
        fours = build(TransposeOp, pairs, permutation=(*range(rank + 1), rank + 2, rank + 1))
    flat = build(ReshapeOp, build(CastOp, fours, to=kind), shape=(*leading, int(blocks) * int(size) * dot.parts))
    return build(ViewAsOp, flat, to=i32)


def _pack_planes(build: DlBuilder, weights: BlockQuantizedWeights, groups_per_step: int) -> SSAValue:
    """Pack the weights to words [B, W, S, N] of bit planes."""
    planes, (blocks, size, columns) = weights.planes, map(int, shape_of(weights.integers))
    groups = size // planes.group
    if weights.codebook is not None:
        integers = build(CastOp, weights.codebook.codes, to=_UI8)
    else:
        # The bias makes integers fit a byte, so that wrapping around is exact.
        integers = build(CastOp, weights.integers, to=_UI8)
        integers = build(AddOp, integers, build.scalar(weights.bias, like=integers))

    def plane_bytes(plane: Plane) -> SSAValue:
        """Return the bytes of a plane, [B, groups, words, 4, N]."""
        split = (blocks, groups, planes.slots // plane.slots_per_word, plane.slots_per_word, _BYTES_PER_WORD, columns)
        x = build(ShiftRightOp, integers, build.scalar(plane.first_bit, like=integers))
        x = build(BitwiseAndOp, x, build.scalar((1 << plane.bits) - 1, like=x))
        shifts = build.constant(plane.bits * np.arange(plane.slots_per_word).reshape(-1, 1, 1), _UI8)
        fields = build(ShiftLeftOp, build(ReshapeOp, x, shape=split), shifts)
        return build(ReduceSumOp, fields, axes=(3,), keepdims=False)

    x = build(ConcatOp, *map(plane_bytes, planes.planes), axis=2)
    words = build(ViewAsOp, build(TransposeOp, x, permutation=(0, 1, 2, 4, 3)), to=i32)
    return build(ReshapeOp, words, shape=(blocks, groups // groups_per_step, groups_per_step * planes.words, columns))


def choose_row_dot(
    x: SSAValue, weights: BlockQuantizedWeights, target: Target, ranges: Mapping[str, SizeRange], min_bits: int
) -> RowDot | None:
    """Return the fastest packed dot product for rows quantized to at least `min_bits` bits; None without one.

    Products of bytes that the target accumulates in 32 bits are fastest for any number of rows, since weights are unpacked to
    bytes quickly. Other products are fastest for a limited number.
    """
    for name in target.dot_products:
        if name in MAX_WEIGHT_BITS and weights.dot_bits <= MAX_WEIGHT_BITS[name]:
            dot = RowDot(name, -(-min_bits // bits(PACKED_DOTS[name].weights)))
            return dot if name == "u8i8" or representative_rows(x, ranges) <= target.costs.max_packed_pair_rows else None
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
