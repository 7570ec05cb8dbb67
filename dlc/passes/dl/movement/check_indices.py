"""Indices that data decides are found to be inside."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.movement.indexed import Indexed, fail_outside
from dlc.dialects.dl.movement.indexing import ScatterRowsOp, Taking
from dlc.dialects.dl.programs.control import Control
from dlc.ir import BoolAttr, Context, ModuleOp, ModulePass, Operation, ops_of
from dlc.passes.dl.index_ranges import interval_of
from dlc.passes.dl.rewriting import program_blocks


@dataclass(frozen=True)
class CheckIndicesPass(ModulePass):
    """`check-indices`: one check of all indices of an op whose indices must be inside.

        %y = dl.gather %x, %i {axis = 0, checked = true}
    →   %y = dl.gather %x, %i {axis = 0, inside = true}
        %u = dl.cast (dl.add %i, 5) to ui64;  %m = dl.reduce_max %u;  %inside = dl.less %m, 10
        dl.if %inside { dl.yield } { %n = dl.sub (dl.cast %m to i64), 5;  dl.fail "…index {} is outside axis 0 of size 5" (%n) }

    For an axis of size n an index i is inside if -n ≤ i < n, which is i + n < 2n among unsigned numbers; so the largest of them
    says it of all. Indices that are seen to be inside, such as those of an argmax, are not checked. What is outside is read and
    written in bounds, or not at all, so that a check may come later: before the next loop or branch, or at the end of its
    block, where a device is waited for anyway.

    Requires `expand-transformations`, which knows which lanes an index is for. Leaves no op that is `checked`.
    """

    name = "check-indices"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for inner in ops_of(block, Indexed):
                if inner.is_checked:
                    _check(inner)


def _check(op: Indexed) -> None:
    del op.properties["checked"]
    indices = op.operands[1]
    low, high = interval_of(indices)
    for k, axis in enumerate(op.named_axes):
        size = shape_of(op.operands[0])[axis]
        if low == high == 0 or (isinstance(size, int) and -size <= low and high < size):
            continue
        fail_outside(Build(_place(op), op.location), op, indices, k)
    op.properties.pop("said_axes", None)
    if isinstance(op, Taking | ScatterRowsOp):
        op.properties["inside"] = BoolAttr.from_bool(True)


def _place(op: Operation) -> Operation:
    """What a check goes before, behind checks that are there."""

    def ends(other: Operation) -> bool:
        return other.next_op is None or (isinstance(other, Control) and bool(other.results))

    following = op.next_op
    while following is not None and not ends(following):
        following = following.next_op
    assert following is not None, "a block ends in a terminator"
    return following
