"""Expand sigmoids to divisions by 1 + e⁻ˣ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MulOp, NegOp
from dlc.dialects.dl.arithmetic.functions import ExpOp, SigmoidOp
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, f32, f64
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward


@dataclass(frozen=True)
class ExpandSigmoidsPass(ModulePass):
    """`expand-sigmoids`: computes sigmoid(x) = 1 / (1 + e⁻ˣ) and x·sigmoid(x) = x / (1 + e⁻ˣ), in f32 and f64.

        %s = dl.sigmoid %x;  %y = dl.mul %x, %s
    →   %n = dl.neg %x;  %e = dl.exp %n {normal_range};  %d = dl.add %e, 1;  %y = dl.div %x, %d

    A product with a sigmoid, of any factor, takes no multiplication. The formula of `dl.sigmoid` selects a numerator by the
    sign of x, so that subnormal results are computed; here they are 0. Run it after `simplify`, which forms `dl.sigmoid`.
    """

    name = "expand-sigmoids"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, _fold_product, MulOp)
            rewrite_forward(block, _expand, SigmoidOp)


def _fold_product(op: MulOp) -> Sequence[SSAValue] | None:
    """Rewrite y·sigmoid(x) as y / (1 + e⁻ˣ) if the sigmoid has no other use."""
    for sigmoid, factor in ((op.x, op.y), (op.y, op.x)):
        producer = defining_op(sigmoid, SigmoidOp)
        if producer is None or factor is sigmoid or len(list(sigmoid.uses)) != 1 or sigmoid.type != op.result.type:
            continue
        if (denominator := _denominator(producer)) is not None:
            return [DlBuilder(op)(DivOp, factor, denominator)]
    return None


def _expand(op: SigmoidOp) -> Sequence[SSAValue] | None:
    denominator = _denominator(op)
    build = DlBuilder(op)
    return None if denominator is None else [build(DivOp, build.scalar(1.0, like=op.x), denominator)]


def _denominator(op: SigmoidOp) -> SSAValue | None:
    """Return 1 + e⁻ˣ for a sigmoid that is computed in its own type; else None."""
    if element_type_of(op.x) not in (f32, f64):
        return None
    build = DlBuilder(op)
    return build(AddOp, build(ExpOp, build(NegOp, op.x), normal_range=True), build.scalar(1.0, like=op.x))
