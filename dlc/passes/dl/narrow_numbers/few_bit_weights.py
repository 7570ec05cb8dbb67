"""Products with dequantised weights, whose integers stay in memory as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import SubOp
from dlc.dialects.dl.base import element_type_of, flag, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import MatmulOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.dialects.dl.narrow_numbers.few_bits import FEW_BITS
from dlc.dialects.dl.narrow_numbers.quantization import DequantizeOp
from dlc.dialects.dl.narrow_numbers.words import WORD_BITS
from dlc.dialects.dl.programs.ranges import ranges_of
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.scalar import bits
from dlc.dims import Range
from dlc.ir import Context, ModuleOp, SSAValue, f32, f64
from dlc.passes.base import TargetPass
from dlc.passes.dl.narrow_numbers.few_bit_products import Weights, dot_of_rows, product_in_words, product_of_integers, rows_of
from dlc.passes.dl.rewriting import defining, program_blocks, rewrite_forward, splat

# Each register tile makes floats of the weights anew: with more rows that costs more than to read them from memory.
_MANY_ROWS = 32
_SIGNED = {ELEMENT_TYPES[f"uint{n}"]: ELEMENT_TYPES[f"int{n}"] for n in (4, 8)}


@dataclass(frozen=True)
class FewBitWeightsPass(TargetPass):
    """`few-bit-weights{target="cpu"}`: x · ((w - z) · s)  =  Σ over blocks of s · (x · (w - z)), w integers of 4 or 8 bits.

        %w = dl.dequantize %q, %s, %z {axis = 0};  %y = dl.matmul %x, %w
    →   %words = dl.words (dl.transpose (dl.reshape %q));  %y = dl.matmul_words %x, %words, %s, %z {of = ui4}

    `%q` are weights [K, N], perhaps transposed, with scales and zero points for all, for each column, or for blocks along K.
    Words of what follows one another along K, and zero points in floats, are expressions of weights, evaluated once. A zero
    point in the middle of the range, the same for all, makes them integers with a sign instead.

    Of few rows the sums over words are multiplied by scales, of more the weights, which all rows share. Where the product
    `rounds_rows`, rows become integers: of 8 bits if the target multiplies bytes, of 16 if it multiplies pairs, up to as many
    rows as those are for.

    Blocks hold whole words, and rows that stay floats are 32 at most; others stay, and are dequantised as an expression of
    weights. Requires `dl.dequantize` whole.
    """

    name = "few-bit-weights"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant, ranges = WeightExpressions(), ranges_of(op)
        for block in program_blocks(op):
            rewrite_forward(block, lambda op: self._in_words(op, constant, ranges), MatmulOp)

    def _in_words(self, op: MatmulOp, constant: WeightExpressions, ranges: Mapping[str, Range]) -> Sequence[SSAValue] | None:
        if op.rhs not in constant or rank_of(op.rhs) != 2:
            return None
        element, transpose = element_type_of(op.rhs), defining(op.rhs, TransposeOp)
        stored = defining(op.rhs if transpose is None else transpose.x, DequantizeOp)
        if stored is None or element == f64 or element_type_of(stored.x) not in FEW_BITS:
            return None
        dot = dot_of_rows(op.lhs, self.target, ranges, 8) if flag(op.rounds_rows) else None
        if rows_of(op.lhs, ranges) > _MANY_ROWS and dot is None:
            return None
        b = Build(op)
        weights = _dequantized(b, stored, transpose is not None)
        if weights is None:
            return None
        if dot is not None:
            return [product_of_integers(b, op.lhs, weights, dot)]
        return [product_in_words(b, op.lhs, weights, ranges)]


def _dequantized(b: Build, stored: DequantizeOp, is_transposed: bool) -> Weights | None:
    """Weights [K, N], or [N, K] if transposed, as words; None where blocks do not hold whole words, or are not along K."""
    along_k = stored.channel_axis == (1 if is_transposed else 0)
    per_place = any(rank_of(v) == 1 and shape_of(v) != (1,) for v in (stored.scale, stored.zero_point))
    if along_k if per_place else stored.block_count is not None and not along_k:
        return None
    integers = b(TransposeOp, stored.x, permutation=(1, 0)) if is_transposed else stored.x
    k, columns = (int(s) for s in shape_of(integers))
    blocks, of = stored.block_count or 1, element_type_of(stored.x)
    if not k or not columns or k % (blocks * (WORD_BITS // bits(of))):
        return None

    def parameter(v: SSAValue) -> SSAValue:
        """A scale or zero point [B, N]."""
        v = b(CastOp, v, to=f32)
        if rank_of(v) == 2:
            return b(TransposeOp, v, permutation=(1, 0)) if is_transposed else v
        return b(BroadcastToOp, v, shape=(blocks, columns))

    zero, middle = splat(stored.zero_point), 1 << (bits(of) - 1)
    if is_unsigned(of) and zero == middle:
        of, zero = _SIGNED[of], 0
        wide = b(CastOp, integers, to=ELEMENT_TYPES["int16"])
        integers = b(CastOp, b(SubOp, wide, b.scalar(middle, like=wide)), to=of)
    integers = b(ReshapeOp, integers, shape=(blocks, k // blocks, columns))
    return Weights(integers, parameter(stored.scale), None if zero == 0 else parameter(stored.zero_point))
