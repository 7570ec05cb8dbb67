"""Indices that data decides are found to be inside."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.activation import casted
from dlc.dialects.dl.base import element_type_of, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.control import Control, FailOp, IfOp
from dlc.dialects.dl.elementwise import AddOp, LessOp, MaximumOp, SubOp
from dlc.dialects.dl.indexing import Taking, outside
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement import SliceOp
from dlc.dialects.dl.program import YieldOp
from dlc.dialects.dl.reduction import ReduceMaxOp
from dlc.dialects.dl.scalar import bits
from dlc.dims import Size
from dlc.ir import Block, Context, IntegerType, ModuleOp, ModulePass, Operation, Signedness, SSAValue, i32, i64
from dlc.passes.dl.index_ranges import interval_of
from dlc.passes.dl.rewriting import program_blocks


@dataclass(frozen=True)
class CheckIndicesPass(ModulePass):
    """`check-indices`: one check of all indices of an op whose indices must be inside.

        %y = dl.gather %x, %i {axis = 0, checked = true}
    →   %y = dl.gather %x, %i {axis = 0}
        %u = dl.cast (dl.add %i, 5) to ui64;  %m = dl.reduce_max %u;  %inside = dl.less %m, 10
        dl.if %inside { dl.yield } { %n = dl.sub (dl.cast %m to i64), 5;  dl.fail "…index {} is outside axis 0 of size 5" (%n) }

    For an axis of size n an index i is inside if -n ≤ i < n, which is i + n < 2n among unsigned numbers; so the largest of them
    says it of all. Indices that are seen to be inside, such as those of an argmax, are not checked. A read is harmless in any
    case, so that a check may come later: before the next loop or branch, or at the end of its block, where a device is waited
    for anyway.

    Requires `expand-transformations`, which knows which lanes an index is for. Leaves no op that is `checked`.
    """

    name = "check-indices"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for inner in list(block.ops):
                if isinstance(inner, Taking) and inner.is_checked:
                    _check(inner)


def _check(op: Taking) -> None:
    del op.properties["checked"]
    _, indices = op.operands
    low, high = interval_of(indices)
    if 0 in shape_of(indices):
        return
    for k, axis in enumerate(op.taken_axes):
        size = shape_of(op.operands[0])[axis]
        if low == high == 0 or (isinstance(size, int) and -size <= low and high < size):
            continue
        b = Build(_place(op), op.location)
        column = _column(b, indices, k) if op.has_columns else indices
        _fail_outside(b, column, size, outside(op, axis, size))


def _place(op: Operation) -> Operation:
    """What a check goes before, behind checks that are there."""

    def ends(other: Operation) -> bool:
        return other.next_op is None or (isinstance(other, Control) and bool(other.results))

    following = op.next_op
    while following is not None and not ends(following):
        following = following.next_op
    assert following is not None, "a block ends in a terminator"
    return following


def _column(b: Build, indices: SSAValue, k: int) -> SSAValue:
    """One integer of each place."""
    *rows, _ = shape_of(indices)
    starts, limits = [*(0 for _ in rows), k], [*rows, k + 1]
    return b(SliceOp, indices, starts=starts, limits=limits, strides=[1] * len(starts))


def _fail_outside(b: Build, indices: SSAValue, size: Size, message: str) -> None:
    """A branch that fails, with the message, if an index is outside an axis of this size."""
    element = element_type_of(indices)
    # Counted from the end there are as many again, but for unsigned ones.
    shift = 0 if is_unsigned(element) else size
    width = 32 if bits(element) <= 32 and isinstance(size, int) and 2 * size < 1 << 31 else 64
    wide = casted(b, indices, i32 if width == 32 else i64)
    shifted = b(AddOp, wide, b.size(shift, like=wide)) if shift else wide
    shifted = casted(b, shifted, IntegerType(width, Signedness.UNSIGNED))
    axes = tuple(range(rank_of(indices)))
    most = b(ReduceMaxOp, shifted, axes=axes, keepdims=False) if axes else shifted
    # Of no indices, the largest is 0: there is no axis without elements to be read.
    limit = b.size(shift + size, like=most)
    limit = limit if isinstance(size, int) else b(MaximumOp, limit, b.scalar(1, like=limit))
    inside = b(LessOp, most, limit)
    then, otherwise = Block(), Block()
    Build(then, b.location).insert(YieldOp([]))
    failing = Build(otherwise, b.location)
    if shift:
        most = casted(failing, most, element_type_of(wide))
        most = failing(SubOp, most, failing.size(shift, like=most))
    numbers = [] if isinstance(size, int) else [failing.size(size, like=tensor_type((), i64))]
    failing.insert(FailOp(message, [casted(failing, most, i64), *numbers]))
    b.insert(IfOp.of(inside, then, otherwise, []))
