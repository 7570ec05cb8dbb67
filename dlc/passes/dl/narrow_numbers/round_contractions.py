"""Contractions of f32 with weights, of numbers rounded to 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import ProductSum
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, f32
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward

# The element types by the names of precisions.
_TYPES = {"bf16": ELEMENT_TYPES["bfloat16"], "f16": ELEMENT_TYPES["float16"]}


@dataclass(frozen=True)
class RoundContractionsPass(ModulePass):
    """`round-contractions{precision="bf16"}`: contract(x, w)  ≈  contract(cast x, cast w), casts to 16 bits and sums in f32.

        %y = dl.conv %x, %w   →   %y = dl.conv (dl.cast %x), (dl.cast %w) {result = f32}

    Of contractions of f32 of which one operand is data and the other an expression of weights; those of two that are data, and
    of other types, stay. Requires scales folded and sums in blocks, since weights are rounded once, as they are read.
    """

    name = "round-contractions"
    precision: str = "bf16"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op):
            rewrite_forward(block, lambda inner: self._rounded(inner, constant))

    def _rounded(self, op: DlOp, constant: WeightExpressions) -> Sequence[SSAValue] | None:
        if not isinstance(op, ProductSum) or op.dot is not None or any(element_type_of(v) != f32 for v in op.operands):
            return None
        if sum(v in constant for v in op.operands) != 1:
            return None
        b = Build(op)
        return [
            b(type(op), *(b(CastOp, v, to=_TYPES[self.precision]) for v in op.operands), **{**op.properties, "result": f32})
        ]
