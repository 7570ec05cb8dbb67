"""Sums of rows by weights that are made of them: what attention is, and which of its rows need not be whole."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.dialects.dl.arithmetic.elementwise import MulOp, SelectOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, Reduction, RowComposite
from dlc.dialects.dl.reductions.normalization import SoftmaxOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp
from dlc.ir import AffineDimExpr, AffineExpr, SSAValue
from dlc.passes.dl.rewriting import splat


def sums_rows(op: Contraction, value: SSAValue) -> bool:
    """Whether a contraction sums over the last axis of `value`, its first operand, alone, and has all others in its result."""
    structure = op.structure()
    reduced = [d for d, r in enumerate(structure.reductions) if r]
    *outer, last = structure.maps[0].results
    return (
        op.operands[0] is value
        and op.operands[1] is not value
        and structure.views[0] == shape_of(value)
        and [last] == [AffineExpr.dimension(d) for d in reduced]
        and all(isinstance(e, AffineDimExpr) for e in outer)
    )


def sums_run(second: Contraction, members: Iterable[DlOp]) -> bool:
    """Whether blocks of rows are enough for what a contraction sums: no other op asks for more of them than their maximum.

    Its weights are a softmax, but for what treats all weights of a row alike. Requires weights of 32 bits or more: exponentials
    are weighed anew as often as there are blocks.
    """
    value = second.operands[0]
    while (found := of_rows(value)) is not None:
        value = found[2]
    softmax = value.owner
    if not isinstance(softmax, SoftmaxOp) or numpy_dtype(element_type_of(value)).itemsize < 4:
        return False
    scores = softmax.operands[0]
    whole = [op for op in members if isinstance(op, RowComposite | Reduction) and op is not softmax]
    return all(isinstance(op, ReduceMaxOp) and op.operands[0] is scores for op in whole)


def of_rows(value: SSAValue) -> tuple[DlOp, int, SSAValue] | None:
    """The op that makes weights of others, one factor or choice for each row; which operand they are, and they."""
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
            return op, k, weights
    return None
