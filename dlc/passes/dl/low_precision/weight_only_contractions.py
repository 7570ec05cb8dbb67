"""Weight-only quantized products: the weights stay int4 or int8 in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, SubOp
from dlc.dialects.dl.base import element_type_of, number, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, array_of
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.low_precision.bit_planes import BitPlanes
from dlc.dialects.dl.low_precision.byte_table import TABLE_BITS, TABLE_SIZE
from dlc.dialects.dl.low_precision.packed_dot import WORD_BITS
from dlc.dialects.dl.low_precision.quantization import DequantizeOp
from dlc.dialects.dl.low_precision.weight_only import WEIGHT_ONLY_TYPES
from dlc.dialects.dl.movement.indexing import GatherOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.dialects.dl.scalar import bits
from dlc.ir import Context, ModuleOp, SSAValue, bf16, f16, f32, f64, i8
from dlc.passes.base import TargetPass
from dlc.passes.dl.index_ranges import compute_interval
from dlc.passes.dl.low_precision.weight_only_products import (
    BlockQuantizedWeights,
    Codebook,
    choose_row_dot,
    matmul_float_rows,
    matmul_quantized_rows,
    representative_rows,
)
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward, splat
from dlc.shapes.dims import Size
from dlc.shapes.ranges import SizeRange
from dlc.target import Target

# Each register tile dequantizes the weights again: with more rows that costs more than reading float weights from memory.
_MAX_FLOAT_ROWS = 32
# The minimum bits of the sums of rows that minima multiply. Minima cancel most of the product.
_SUM_BITS = 16
_SIGNED_TYPE = {ELEMENT_TYPES[f"uint{n}"]: ELEMENT_TYPES[f"int{n}"] for n in (4, 8)}


@dataclass(frozen=True)
class WeightOnlyContractionsPass(TargetPass):
    """`weight-only-contractions{target="cpu"}`: x · ((w - z) · s)  =  Σ over blocks of s · (x · (w - z)), w int4 or int8.

        %w = dl.dequantize %q, %s, %z {axis = 0};  %y = dl.matmul %x, %w
    →   %words = dl.view_as (dl.transpose (dl.reshape %q));  %y = dl.matmul_weight_only %x, %words, %s, %z {of = ui4}

    `%q` are weights [K, N], possibly transposed, with scales and zero points per tensor, per column, or per block along K.
    The packed words and the float zero points are weight expressions, evaluated once. If all zero points are the
    midpoint of the unsigned range, the weights become signed integers without a zero point.

    For integer dot products, scales that are converted from half precision stay in half precision, and scales that are
    dequantized from int8 with a scale per larger block stay int8 (two-level scales). Weights that constant codes select from a
    table of up to 16 int8 values (a codebook) stay 4-bit codes:

        %q = dl.gather %table, %codes;  %w = dl.dequantize %q, …  →  dl.matmul_weight_only_dot … {bits = 4, table = […]}

    Minima `m`, which the weights add repeated over blocks along K, are multiplied by the sums of rows over these blocks:

        %w = dl.add (dl.dequantize %q, …), (repeat %m);  %y = dl.matmul %x, %w
    →   %y = dl.add (dl.matmul_weight_only_dot …), (dl.matmul (dl.reduce_sum %x), %m)

    The sums of quantized rows are those of the rounded values. Rounding errors are then multiplied by w + m, whose mean is
    near 0, and not by the unsigned w. Quantized minima stay quantized; their rows, the sums, are rounded to int16.

    For few rows the sums over words are scaled; for more rows the weights are, once for all rows. If the product has
    `min_lhs_bits`, rows are quantized: to int8 if that suffices and the target has byte dot products, to int16 if it has
    i16 pairs, up to the number of rows for which that is profitable.

    Blocks must consist of whole words. More than 32 rows must be quantized. Other products stay, with weights dequantized as a
    weight expression. Requires `dl.dequantize` that is not decomposed.
    """

    name = "weight-only-contractions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant, ranges = WeightExpressions(), size_ranges(op)
        for block in program_blocks(op):
            rewrite_forward(block, lambda op: self._rewrite(op, constant, ranges), MatmulOp)

    def _rewrite(self, op: MatmulOp, constant: WeightExpressions, ranges: Mapping[str, SizeRange]) -> Sequence[SSAValue] | None:
        if op.rhs not in constant or rank_of(op.rhs) != 2:
            return None
        transpose = defining_op(op.rhs, TransposeOp)
        matrix, k_axis = (op.rhs, 0) if transpose is None else (transpose.x, 1)
        addition, minima = defining_op(matrix, AddOp), None
        if addition is not None:
            matrix, minima = addition.x, _repeated_blocks(addition.y, k_axis)
            if minima is None:
                return None
        dequantize = defining_op(matrix, DequantizeOp)
        if dequantize is None or element_type_of(matrix) == f64 or element_type_of(dequantize.x) not in WEIGHT_ONLY_TYPES:
            return None
        build = DlBuilder(op)
        weights = _split_into_blocks(build, dequantize, transpose is not None, self.target)
        if weights is None:
            return None
        min_bits, rows = op.min_lhs_bits, op.lhs
        dot = None if min_bits is None else choose_row_dot(rows, weights, self.target, ranges, number(min_bits))
        if representative_rows(rows, ranges) > _MAX_FLOAT_ROWS and dot is None:
            return None
        if dot is None:
            y = matmul_float_rows(build, rows, weights, ranges)
        else:
            y, rows = matmul_quantized_rows(build, rows, weights, dot, self.target)
        if minima is None:
            return [y]
        columns = minima if transpose is None else build(TransposeOp, minima, permutation=(1, 0))
        sums = _block_sums(build, build(CastOp, rows, to=element_type_of(y)), int(shape_of(columns)[0]))
        product = build(MatmulOp, sums, columns, min_lhs_bits=None if min_bits is None else _SUM_BITS)
        return [build(AddOp, y, product)]


def _block_sums(build: DlBuilder, rows: SSAValue, blocks: int) -> SSAValue:
    """Return the sums of rows […, K] over blocks along K."""
    *leading, k = shape_of(rows)
    split = build(ReshapeOp, rows, shape=(*leading, blocks, int(k) // blocks))
    return build(ReduceSumOp, split, axes=(-1,), keepdims=False)


def _repeated_blocks(value: SSAValue, axis: int) -> SSAValue | None:
    """Return the matrix of which `value` repeats each element along `axis`; None if `value` is not of that form."""
    merge = defining_op(value, ReshapeOp)
    broadcast = None if merge is None else defining_op(merge.x, BroadcastToOp)
    split = None if broadcast is None else defining_op(broadcast.x, ReshapeOp)
    if broadcast is None or split is None or rank_of(split.x) != 2:
        return None
    before, after = shape_of(split.x)[: axis + 1], shape_of(split.x)[axis + 1 :]
    if shape_of(split.result) != (*before, 1, *after) or rank_of(broadcast.result) != 3:
        return None
    *repeated, count = shape_of(broadcast.result)[: axis + 2]
    is_merged = shape_of(value) == (*before[:-1], before[-1] * count, *after)
    return split.x if is_merged and tuple(repeated) == before else None


def _split_into_blocks(
    build: DlBuilder, dequantize: DequantizeOp, is_transposed: bool, target: Target
) -> BlockQuantizedWeights | None:
    """Return weights [K, N], or [N, K] if transposed, split into blocks along K.

    None if a block does not consist of whole words, or blocks do not run along K.
    """
    along_k = dequantize.channel_axis == (1 if is_transposed else 0)
    has_per_channel_parameters = any(rank_of(v) == 1 and shape_of(v) != (1,) for v in (dequantize.scale, dequantize.zero_point))
    if along_k if has_per_channel_parameters else dequantize.block_count is not None and not along_k:
        return None
    integers = build(TransposeOp, dequantize.x, permutation=(1, 0)) if is_transposed else dequantize.x
    k, columns = map(int, shape_of(integers))
    blocks, weight_type = dequantize.block_count or 1, element_type_of(dequantize.x)
    if not k or not columns or k % (blocks * (WORD_BITS // bits(weight_type))):
        return None

    def parameter(v: SSAValue) -> SSAValue:
        """Return a scale or zero point as [B, N]."""
        if rank_of(v) == 2:
            return build(TransposeOp, v, permutation=(1, 0)) if is_transposed else v
        return build(BroadcastToOp, v, shape=(blocks, columns))

    zero, midpoint = splat(dequantize.zero_point), 1 << (bits(weight_type) - 1)
    if is_unsigned(weight_type) and zero == midpoint:
        weight_type, zero = _SIGNED_TYPE[weight_type], 0
        as_int16 = build(CastOp, integers, to=ELEMENT_TYPES["int16"])
        integers = build(CastOp, build(SubOp, as_int16, build.scalar(midpoint, like=as_int16)), to=weight_type)
    integers = build(ReshapeOp, integers, shape=(blocks, k // blocks, columns))
    return BlockQuantizedWeights(
        integers,
        parameter(_stored_scale(build, dequantize.scale, target)),
        None if zero == 0 else build(CastOp, parameter(dequantize.zero_point), to=f32),
        None if zero != 0 else _two_level_scale(build, dequantize, parameter, target),
        _codebook(build, dequantize.x, shape_of(integers), is_transposed),
    )


def _codebook(build: DlBuilder, integers: SSAValue, blocks: Sequence[Size], is_transposed: bool) -> Codebook | None:
    """Match integers that constant codes select from a constant table of up to 16 int8 values; `blocks` is [B, g, N]."""
    gather = defining_op(integers, GatherOp)
    table = None if gather is None else defining_op(gather.x, ConstantOp)
    if gather is None or table is None or element_type_of(table.result) != i8 or gather.checked is not None:
        return None
    values, (low, high) = array_of(table.value), compute_interval(gather.indices)
    if values.ndim != 1 or not 0 < len(values) <= TABLE_SIZE or low < 0 or high >= len(values):
        return None
    if int(blocks[1]) % BitPlanes(TABLE_BITS).group:
        return None
    codes = build(TransposeOp, gather.indices, permutation=(1, 0)) if is_transposed else gather.indices
    padded = [*values.tolist(), *[0] * (TABLE_SIZE - len(values))]
    return Codebook(tuple(padded), build(ReshapeOp, codes, shape=blocks))


def _stored_scale(build: DlBuilder, scale: SSAValue, target: Target) -> SSAValue:
    """Return a scale in f32, or in half precision if it is converted from that and the target has such a conversion."""
    cast = defining_op(scale, CastOp)
    if cast is not None and element_type_of(cast.x) in (f16, bf16) and target.has_f16_conversion:
        return cast.x
    return build(CastOp, scale, to=f32)


def _two_level_scale(
    build: DlBuilder, dequantize: DequantizeOp, parameter: Callable[[SSAValue], SSAValue], target: Target
) -> tuple[SSAValue, SSAValue] | None:
    """Return the float scales [P, N] and i8 scales [P, B / P, N] if the scale is itself dequantized along its blocks."""
    scale = defining_op(dequantize.scale, DequantizeOp)
    if scale is None or element_type_of(scale.x) != i8 or splat(scale.zero_point) != 0 or scale.block_count is None:
        return None
    if rank_of(scale.x) != 2 or scale.channel_axis != dequantize.channel_axis:
        return None
    integers, floats = parameter(scale.x), parameter(_stored_scale(build, scale.scale, target))
    blocks, columns = map(int, shape_of(integers))
    return floats, build(ReshapeOp, integers, shape=(scale.block_count, blocks // scale.block_count, columns))
