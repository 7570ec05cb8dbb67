"""Weight-only quantization of large matrices to int4 or int8, with scales that the compiler computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, DivOp, MaximumOp, MinimumOp, NegOp, SubOp
from dlc.dialects.dl.arithmetic.functions import RoundOp
from dlc.dialects.dl.base import element_type_of, ints, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceMinOp
from dlc.ir import Context, ModuleOp, SSAValue, f32, f64
from dlc.passes.base import TargetPass
from dlc.passes.dl.low_precision.weight_only_products import (
    BlockQuantizedWeights,
    choose_row_dot,
    matmul_float_rows,
    matmul_quantized_rows,
    nonzero_step,
)
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.ranges import SizeRange

# Smaller matrices are read from the cache, and gain nothing.
_MIN_WEIGHT_ELEMENTS = 1 << 14


@dataclass(frozen=True)
class QuantizeWeightsPass(TargetPass):
    """`quantize-weights{weights="int4" group=32 target="cpu"}`: x · w  ≈  Σ over blocks of s · (x · (q - z)), q int4 or int8.

        %y = dl.matmul %x, %w
    →   %y = dl.matmul_weight_only %x, %words, %s, %z {of = ui4}
    or  %y = dl.matmul_weight_only_dot %pairs, %words, %row_scale, %row_sums, %s, %z {bits = 4, parts = 1, dot = "i16"}

    Applies to large weight matrices [K, N] whose K is a multiple of `group`, also in an equivalent `dl.dot_general`. Each
    `group` of consecutive weights in a column has its own scale. int8 is symmetric, `s = max |w| / 127`; int4 maps the minimum
    to 0 and the maximum to 15: `s = (max w - min w) / 15`, `z = -min w / s`. Weights are rounded to nearest: the error is at
    most half a step, 1/254 of the largest magnitude of the group (int8), or 1/30 of its range (int4). Quantized weights are
    weight expressions, evaluated once.

    Up to 32 rows are quantized to int16 unless `exact_rows`, on targets with i16 pair products: the error of a row segment is
    at most half of 1/32,767 of its largest magnitude.
    """

    name = "quantize-weights"
    weights: str = "int8"
    group: int = 32
    exact_rows: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant, ranges = WeightExpressions(), size_ranges(op)
        for block in program_blocks(op):
            rewrite_forward(block, lambda op: self._rewrite(op, constant, ranges), MatmulOp, DotGeneralOp)

    def _rewrite(
        self, op: MatmulOp | DotGeneralOp, constant: WeightExpressions, ranges: Mapping[str, SizeRange]
    ) -> Sequence[SSAValue] | None:
        if op.rhs not in constant or rank_of(op.rhs) != 2 or not _is_matmul(op):
            return None
        element, (k, columns) = element_type_of(op.rhs), map(int, shape_of(op.rhs))
        if not is_float(element) or element == f64 or k * columns < _MIN_WEIGHT_ELEMENTS or k % self.group:
            return None
        build = DlBuilder(op)
        w = build(ReshapeOp, build(CastOp, op.rhs, to=f32), shape=(k // self.group, self.group, columns))
        weights = _quantize_int8(build, w) if self.weights == "int8" else _quantize_uint4(build, w)
        if not self.exact_rows and (dot := choose_row_dot(op.lhs, weights, self.target, ranges, 16)) is not None:
            return matmul_quantized_rows(build, op.lhs, weights, dot, self.target)[:1]
        return [matmul_float_rows(build, op.lhs, weights, ranges)]


def _is_matmul(op: MatmulOp | DotGeneralOp) -> bool:
    """Return whether the op contracts the last axis of rows with the first axis of a matrix."""
    if isinstance(op, MatmulOp):
        return True
    rows, columns = ints(op.lhs_contract), ints(op.rhs_contract)
    return not ints(op.lhs_batch) and rank_of(op.lhs) > 1 and rows == (rank_of(op.lhs) - 1,) and columns == (0,)


def _quantize_int8(build: DlBuilder, weights: SSAValue) -> BlockQuantizedWeights:
    """Quantize weights [B, g, N] symmetrically to int8."""
    scale = nonzero_step(build, build(ReduceMaxOp, build(AbsOp, weights), axes=(1,), keepdims=True), 127)
    steps = build(RoundOp, build(DivOp, weights, scale))
    return BlockQuantizedWeights(build(CastOp, steps, to=ELEMENT_TYPES["int8"]), _drop_unit_axis(build, scale), None)


def _quantize_uint4(build: DlBuilder, weights: SSAValue) -> BlockQuantizedWeights:
    """Quantize weights [B, g, N] to uint4 between their minimum and maximum."""
    low, high = (build(reduction, weights, axes=(1,), keepdims=True) for reduction in (ReduceMinOp, ReduceMaxOp))
    scale = nonzero_step(build, build(SubOp, high, low), 15)
    steps = build(RoundOp, build(DivOp, build(SubOp, weights, low), scale))
    # A scale that was rounded down makes quotients exceed the range.
    steps = build(MaximumOp, build(MinimumOp, steps, build.scalar(15.0, like=weights)), build.scalar(0.0, like=weights))
    zero = build(DivOp, build(NegOp, low), scale)
    return BlockQuantizedWeights(
        build(CastOp, steps, to=ELEMENT_TYPES["uint4"]), _drop_unit_axis(build, scale), _drop_unit_axis(build, zero)
    )


def _drop_unit_axis(build: DlBuilder, v: SSAValue) -> SSAValue:
    """Reshape [B, 1, N] to [B, N]."""
    blocks, _, columns = shape_of(v)
    return build(ReshapeOp, v, shape=(blocks, columns))
