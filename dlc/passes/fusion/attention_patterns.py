"""Match the second product of attention, P·V, and the ops between it and the softmax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlc.dialects.dl.arithmetic.elementwise import MulOp, SelectOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, Reduction, RowComposite
from dlc.dialects.dl.reductions.normalization import SoftmaxOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp
from dlc.ir import AffineDimExpr, AffineExpr, SSAValue
from dlc.passes.dl.rewriting import splat


class RowScale(NamedTuple):
    """An op that scales or masks rows of softmax weights, which are its operand `operand_index`."""

    op: DlOp
    operand_index: int
    weights: SSAValue


def is_attention_product(op: Contraction, value: SSAValue) -> bool:
    """Return whether a contraction reduces only the last axis of `value`, its first operand, and keeps all other axes."""
    structure = op.structure()
    reduced_dims = [d for d, r in enumerate(structure.reductions) if r]
    *outer, last = structure.maps[0].results
    return (
        op.operands[0] is value
        and op.operands[1] is not value
        and structure.views[0] == shape_of(value)
        and [last] == [AffineExpr.dimension(d) for d in reduced_dims]
        and all(isinstance(e, AffineDimExpr) for e in outer)
    )


def allows_online_softmax(output_op: Contraction, group: Iterable[DlOp]) -> bool:
    """Return whether the kernel can use an online softmax: of the other ops, only a row maximum of its scores needs whole rows.

    The softmax weights may be scaled or masked by row. Their dtype must have at least 32 bits, since sums are rescaled
    once per block.
    """
    value = output_op.operands[0]
    while (row_scale := match_row_scale(value)) is not None:
        value = row_scale.weights
    softmax = value.owner
    if not isinstance(softmax, SoftmaxOp) or numpy_dtype(element_type_of(value)).itemsize < 4:
        return False
    scores = softmax.operands[0]
    row_ops = [op for op in group if isinstance(op, RowComposite | Reduction) and op is not softmax]
    return all(isinstance(op, ReduceMaxOp) and op.operands[0] is scores for op in row_ops)


def match_row_scale(value: SSAValue) -> RowScale | None:
    """Return the op that computes a value if it scales or masks rows of softmax weights; else None."""
    op = value.owner
    if not value.has_one_use():
        return None
    if isinstance(op, MulOp):
        pairs = [(0, op.operands[1]), (1, op.operands[0])]
    elif isinstance(op, SelectOp) and splat(op.y) == 0:
        pairs = [(1, op.condition)]
    else:
        return None
    for k, factor in pairs:
        weights = op.operands[k]
        if weights.type == value.type and rank_of(factor) == rank_of(value) and shape_of(factor)[-1] == 1:
            return RowScale(op, k, weights)
    return None
