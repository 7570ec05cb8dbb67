"""Large weights of products as integers of few bits, which the compiler chooses itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, DivOp, MaximumOp, MinimumOp, NegOp, SubOp
from dlc.dialects.dl.arithmetic.functions import RoundOp
from dlc.dialects.dl.base import element_type_of, ints, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.ranges import ranges_of
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceMinOp
from dlc.dims import Range
from dlc.ir import Context, ModuleOp, SSAValue, f32, f64
from dlc.passes.base import TargetPass
from dlc.passes.dl.narrow_numbers.few_bit_products import Weights, dot_of_rows, product_in_words, product_of_integers, step
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward

# Smaller ones are read from the cache, and gain nothing.
_LARGE = 1 << 14


@dataclass(frozen=True)
class QuantizeWeightsPass(TargetPass):
    """`quantize-weights{weights="int4" group=32 target="cpu"}`: x · w  ≈  Σ over blocks of s · (x · (q - z)), q of few bits.

        %y = dl.matmul %x, %w   →   %y = dl.matmul_words %x, %words, %s, %z {of = ui4}
                                    %y = dl.matmul_dots %pairs, %words, %row_scale, %row_sums, %s, %z {of = ui4, dot = "i16"}

    Of matrices of weights [K, N] that are large and whose K is a multiple of `group`, in a `dl.dot_general` that is such a
    product too; others stay. Each `group` of weights that follow one another in a column have a scale of their own. Of 8 bits
    they are symmetric, `s = max |w| / 127`; of 4 the smallest is 0 and the largest 15: `s = (max w - min w) / 15`,
    `z = -min w / s`. Each is the nearest of these numbers: off by half a step at most, 1/254 of the largest magnitude of its
    group, or 1/30 of its span. All of it is expressions of weights.

    Up to 32 rows become integers of 16 bits unless `exact_rows`, where the target multiplies pairs: what lies beside a group of
    weights is off by half of 1/32,767 of its largest magnitude at most.
    """

    name = "quantize-weights"
    weights: str = "int8"
    group: int = 32
    exact_rows: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant, ranges = WeightExpressions(), ranges_of(op)
        for block in program_blocks(op):
            rewrite_forward(block, lambda op: self._quantized(op, constant, ranges), MatmulOp, DotGeneralOp)

    def _quantized(
        self, op: MatmulOp | DotGeneralOp, constant: WeightExpressions, ranges: Mapping[str, Range]
    ) -> Sequence[SSAValue] | None:
        if op.rhs not in constant or rank_of(op.rhs) != 2 or not _is_matmul(op):
            return None
        element, (k, columns) = element_type_of(op.rhs), map(int, shape_of(op.rhs))
        if not is_float(element) or element == f64 or k * columns < _LARGE or k % self.group:
            return None
        b = Build(op)
        w = b(ReshapeOp, b(CastOp, op.rhs, to=f32), shape=(k // self.group, self.group, columns))
        weights = _of_8_bits(b, w) if self.weights == "int8" else _of_4_bits(b, w)
        if not self.exact_rows and (dot := dot_of_rows(op.lhs, self.target, ranges, 16)) is not None:
            return [product_of_integers(b, op.lhs, weights, dot)]
        return [product_in_words(b, op.lhs, weights, ranges)]


def _is_matmul(op: MatmulOp | DotGeneralOp) -> bool:
    """Whether the last axis of rows is contracted with the first of a matrix."""
    if isinstance(op, MatmulOp):
        return True
    rows, columns = ints(op.lhs_contract), ints(op.rhs_contract)
    return not ints(op.lhs_batch) and rank_of(op.lhs) > 1 and rows == (rank_of(op.lhs) - 1,) and columns == (0,)


def _of_8_bits(b: Build, w: SSAValue) -> Weights:
    """Weights [B, g, N] as multiples of a scale."""
    scale = step(b, b(ReduceMaxOp, b(AbsOp, w), axes=(1,), keepdims=True), 127)
    steps = b(RoundOp, b(DivOp, w, scale))
    return Weights(b(CastOp, steps, to=ELEMENT_TYPES["int8"]), _row(b, scale), None)


def _of_4_bits(b: Build, w: SSAValue) -> Weights:
    """Weights [B, g, N] as multiples of a scale above the least."""
    low, high = (b(reduction, w, axes=(1,), keepdims=True) for reduction in (ReduceMinOp, ReduceMaxOp))
    scale = step(b, b(SubOp, high, low), 15)
    steps = b(RoundOp, b(DivOp, b(SubOp, w, low), scale))
    # A quotient of what rounding made too small may be beyond the ends.
    steps = b(MaximumOp, b(MinimumOp, steps, b.scalar(15.0, like=w)), b.scalar(0.0, like=w))
    zero = b(DivOp, b(NegOp, low), scale)
    return Weights(b(CastOp, steps, to=ELEMENT_TYPES["uint4"]), _row(b, scale), _row(b, zero))


def _row(b: Build, v: SSAValue) -> SSAValue:
    """Numbers [B, 1, N] as [B, N]."""
    blocks, _, columns = shape_of(v)
    return b(ReshapeOp, v, shape=(blocks, columns))
