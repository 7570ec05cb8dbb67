"""Weight-only quantized products: the weights stay int4 or int8 in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import SubOp
from dlc.dialects.dl.base import element_type_of, number, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.low_precision.packed_dot import WORD_BITS
from dlc.dialects.dl.low_precision.quantization import DequantizeOp
from dlc.dialects.dl.low_precision.weight_only import WEIGHT_ONLY_TYPES
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.scalar import bits
from dlc.ir import Context, ModuleOp, SSAValue, f32, f64
from dlc.passes.base import TargetPass
from dlc.passes.dl.low_precision.weight_only_products import (
    BlockQuantizedWeights,
    choose_row_dot,
    matmul_float_rows,
    matmul_quantized_rows,
    representative_rows,
)
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward, splat
from dlc.shapes.ranges import SizeRange

# Each register tile dequantizes the weights again: with more rows that costs more than reading float weights from memory.
_MAX_FLOAT_ROWS = 32
_SIGNED_TYPE = {ELEMENT_TYPES[f"uint{n}"]: ELEMENT_TYPES[f"int{n}"] for n in (4, 8)}


@dataclass(frozen=True)
class WeightOnlyContractionsPass(TargetPass):
    """`weight-only-contractions{target="cpu"}`: x · ((w - z) · s)  =  Σ over blocks of s · (x · (w - z)), w int4 or int8.

        %w = dl.dequantize %q, %s, %z {axis = 0};  %y = dl.matmul %x, %w
    →   %words = dl.view_as_i32 (dl.transpose (dl.reshape %q));  %y = dl.matmul_weight_only %x, %words, %s, %z {of = ui4}

    `%q` are weights [K, N], possibly transposed, with scales and zero points per tensor, per column, or per block along K.
    The packed words and the float zero points are weight expressions, evaluated once. If all zero points are the
    midpoint of the unsigned range, the weights become signed integers without a zero point.

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
        element, transpose = element_type_of(op.rhs), defining_op(op.rhs, TransposeOp)
        dequantize = defining_op(op.rhs if transpose is None else transpose.x, DequantizeOp)
        if dequantize is None or element == f64 or element_type_of(dequantize.x) not in WEIGHT_ONLY_TYPES:
            return None
        build = DlBuilder(op)
        weights = _split_into_blocks(build, dequantize, transpose is not None)
        if weights is None:
            return None
        min_bits = op.min_lhs_bits
        dot = None if min_bits is None else choose_row_dot(op.lhs, weights, self.target, ranges, number(min_bits))
        if representative_rows(op.lhs, ranges) > _MAX_FLOAT_ROWS and dot is None:
            return None
        if dot is not None:
            return [matmul_quantized_rows(build, op.lhs, weights, dot)]
        return [matmul_float_rows(build, op.lhs, weights, ranges)]


def _split_into_blocks(build: DlBuilder, dequantize: DequantizeOp, is_transposed: bool) -> BlockQuantizedWeights | None:
    """Return weights [K, N], or [N, K] if transposed, split into blocks along K.

    None if a block does not consist of whole words, or blocks do not run along K.
    """
    along_k = dequantize.channel_axis == (1 if is_transposed else 0)
    has_per_channel_parameters = any(rank_of(v) == 1 and shape_of(v) != (1,) for v in (dequantize.scale, dequantize.zero_point))
    if along_k if has_per_channel_parameters else dequantize.block_count is not None and not along_k:
        return None
    integers = build(TransposeOp, dequantize.x, permutation=(1, 0)) if is_transposed else dequantize.x
    k, columns = (int(s) for s in shape_of(integers))
    blocks, weight_type = dequantize.block_count or 1, element_type_of(dequantize.x)
    if not k or not columns or k % (blocks * (WORD_BITS // bits(weight_type))):
        return None

    def parameter(v: SSAValue) -> SSAValue:
        """Return a scale or zero point as [B, N]."""
        v = build(CastOp, v, to=f32)
        if rank_of(v) == 2:
            return build(TransposeOp, v, permutation=(1, 0)) if is_transposed else v
        return build(BroadcastToOp, v, shape=(blocks, columns))

    zero, midpoint = splat(dequantize.zero_point), 1 << (bits(weight_type) - 1)
    if is_unsigned(weight_type) and zero == midpoint:
        weight_type, zero = _SIGNED_TYPE[weight_type], 0
        as_int16 = build(CastOp, integers, to=ELEMENT_TYPES["int16"])
        integers = build(CastOp, build(SubOp, as_int16, build.scalar(midpoint, like=as_int16)), to=weight_type)
    integers = build(ReshapeOp, integers, shape=(blocks, k // blocks, columns))
    return BlockQuantizedWeights(integers, parameter(dequantize.scale), None if zero == 0 else parameter(dequantize.zero_point))
