"""Products of matrices by their axes, and as sums of the products of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.dialects.dl.base import element_type_of, ints, normalized_axes, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.ir import Attribute, SSAValue
from dlc.passes.dl.rewriting import defining

# An axis of the left operand and one of the right.
Pair: TypeAlias = "tuple[int, int]"


def pairs_of(op: MatmulOp | DotGeneralOp) -> tuple[Sequence[Pair], Sequence[Pair]] | None:
    """The axes of both operands that are gone through together, and those that are summed; none where one is repeated."""
    if isinstance(op, DotGeneralOp):
        return _paired(op, "batch"), _paired(op, "contract")
    a, c = shape_of(op.lhs), shape_of(op.rhs)
    if len(c) < 3:
        return [], [(len(a) - 1, 0)]
    if a[:-2] != c[:-2] or len(a) < 2:
        return None
    return [(axis, axis) for axis in range(len(a) - 2)], [(len(a) - 1, len(c) - 2)]


def _paired(op: DotGeneralOp, what: str) -> Sequence[Pair]:
    sides = [
        normalized_axes(op.name, ints(op.properties[f"{side}_{what}"]), rank_of(value))
        for side, value in (("lhs", op.lhs), ("rhs", op.rhs))
    ]
    return list(zip(*sides, strict=True))


def product_of(
    b: Build, lhs: SSAValue, rhs: SSAValue, batch: Sequence[Pair], contracted: Sequence[Pair], element: Attribute
) -> SSAValue:
    """The product of two operands by their pairs of axes, with sums of this type."""
    (lhs_batch, rhs_batch), (lhs_contract, rhs_contract) = (
        ([x for x, _ in those], [y for _, y in those]) for those in (batch, contracted)
    )
    axes = {"lhs_batch": lhs_batch, "rhs_batch": rhs_batch, "lhs_contract": lhs_contract, "rhs_contract": rhs_contract}
    sums = {} if element_type_of(lhs) == element_type_of(rhs) == element else {"result": element}
    return b(DotGeneralOp, lhs, rhs, **axes, **sums)


def product_in_blocks(
    b: Build,
    op: MatmulOp | DotGeneralOp,
    batch: Sequence[Pair],
    contracted: Sequence[Pair],
    pair: Pair,
    part: int,
    element: Attribute,
) -> SSAValue:
    """The products of blocks of `part` along a pair of axes that is summed, one beside the other along a first axis."""
    i, j = pair
    lhs, rhs = cut(b, op.lhs, i, part), cut(b, op.rhs, j, part)
    # Blocks are one more pair of axes, in front of those that were cut.
    moved = [[(x + (x >= i), y + (y >= j)) for x, y in those] for those in (batch, contracted)]
    return product_of(b, lhs, rhs, [(i, j), *moved[0]], moved[1], element)


def cut(b: Build, value: SSAValue, axis: int, part: int) -> SSAValue:
    """`value` with an axis in blocks of `part`, in the order in which it lies in memory."""
    transpose = defining(value, TransposeOp)
    if transpose is not None:
        inner, order = transpose.axes[axis], transpose.axes
        permutation = [n for a in order for n in ((inner, inner + 1) if a == inner else (a + (a > inner),))]
        return b(TransposeOp, cut(b, transpose.x, inner, part), permutation=permutation)
    shape = shape_of(value)
    return b(ReshapeOp, value, shape=(*shape[:axis], int(shape[axis]) // part, part, *shape[axis + 1 :]))
