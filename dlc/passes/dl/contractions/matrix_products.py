"""Builders of matrix products: from dimension numbers, and in blocks of a contracted axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.dialects.dl.base import element_type_of, ints, normalized_axes, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.ir import Attribute, SSAValue
from dlc.passes.dl.rewriting import defining_op

# An axis of the left operand and its counterpart of the right one.
Pair: TypeAlias = "tuple[int, int]"


def paired_axes(op: MatmulOp | DotGeneralOp) -> tuple[Sequence[Pair], Sequence[Pair]] | None:
    """Return the (lhs, rhs) pairs of batch axes and of contracted axes; None if an operand is broadcast along a batch axis."""
    if isinstance(op, DotGeneralOp):
        return _axis_pairs(op, "batch"), _axis_pairs(op, "contract")
    a, c = shape_of(op.lhs), shape_of(op.rhs)
    if len(c) < 3:
        return [], [(len(a) - 1, 0)]
    if a[:-2] != c[:-2] or len(a) < 2:
        return None
    return [(axis, axis) for axis in range(len(a) - 2)], [(len(a) - 1, len(c) - 2)]


def _axis_pairs(op: DotGeneralOp, kind: str) -> Sequence[Pair]:
    sides = [
        normalized_axes(op.name, ints(op.properties[f"{side}_{kind}"]), rank_of(value))
        for side, value in (("lhs", op.lhs), ("rhs", op.rhs))
    ]
    return list(zip(*sides, strict=True))


def build_dot_general(
    build: DlBuilder, lhs: SSAValue, rhs: SSAValue, batch: Sequence[Pair], contracted: Sequence[Pair], element: Attribute
) -> SSAValue:
    """Build a `dl.dot_general` from pairs of batch and contracted axes, with results of type `element`."""
    (lhs_batch, rhs_batch), (lhs_contract, rhs_contract) = (
        ([x for x, _ in pairs], [y for _, y in pairs]) for pairs in (batch, contracted)
    )
    axes = {"lhs_batch": lhs_batch, "rhs_batch": rhs_batch, "lhs_contract": lhs_contract, "rhs_contract": rhs_contract}
    result_property = {} if element_type_of(lhs) == element_type_of(rhs) == element else {"result": element}
    return build(DotGeneralOp, lhs, rhs, **axes, **result_property)


def blocked_product(
    build: DlBuilder,
    op: MatmulOp | DotGeneralOp,
    batch: Sequence[Pair],
    contracted: Sequence[Pair],
    pair: Pair,
    block_size: int,
    element: Attribute,
) -> SSAValue:
    """Build a product per block of `block_size` elements of a contracted pair of axes, stacked along a new first axis."""
    i, j = pair
    lhs, rhs = split_axis(build, op.lhs, i, block_size), split_axis(build, op.rhs, j, block_size)
    # The blocks are a new batch axis in front of each split axis.
    shifted = [[(x + (x >= i), y + (y >= j)) for x, y in pairs] for pairs in (batch, contracted)]
    return build_dot_general(build, lhs, rhs, [(i, j), *shifted[0]], shifted[1], element)


def split_axis(build: DlBuilder, value: SSAValue, axis: int, block_size: int) -> SSAValue:
    """Split an axis of `value` into blocks of `block_size`; if `value` is a transpose, split the axis of its operand."""
    transpose = defining_op(value, TransposeOp)
    if transpose is not None:
        inner, order = transpose.axes[axis], transpose.axes
        permutation = [n for a in order for n in ((inner, inner + 1) if a == inner else (a + (a > inner),))]
        return build(TransposeOp, split_axis(build, transpose.x, inner, block_size), permutation=permutation)
    shape = shape_of(value)
    return build(ReshapeOp, value, shape=(*shape[:axis], int(shape[axis]) // block_size, block_size, *shape[axis + 1 :]))
