"""Insert bounds checks for data-dependent indices."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.movement.index_checks import IndexedOp, fail_if_out_of_bounds
from dlc.dialects.dl.movement.indexing import IndexedRead, ScatterRowsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.dialects.dl.programs.control import Control
from dlc.ir import BoolAttr, Context, ModuleOp, ModulePass, Operation, ops_of
from dlc.passes.dl.index_ranges import compute_interval
from dlc.passes.dl.rewriting import program_blocks, replace


@dataclass(frozen=True)
class CheckIndicesPass(ModulePass):
    """`check-indices`: inserts one bounds check for all indices of an op that is `checked`.

        %y = dl.gather %x, %i {axis = 0, checked = true}
    →   %y = dl.gather %x, %i {axis = 0, in_bounds = true}
        %u = dl.cast (dl.add %i, 5) to ui64;  %m = dl.reduce_max %u;  %inside = dl.less %m, 10
        dl.if %inside { dl.yield } { %n = dl.sub (dl.cast %m to i64), 5;  dl.fail "…index {} is outside axis 0 of size 5" (%n) }

    For an axis of size n an index i is in bounds if -n ≤ i < n, that is i + n < 2n as unsigned integers, so comparing their
    maximum is enough. Indices that interval analysis proves in bounds, such as those of an argmax, are not checked. An
    out-of-bounds access is clamped or dropped, so the check may come later than the access. It is inserted before the next loop
    or branch, or at the end of the block, where the host waits for the device anyway.

    An op that indexes an axis without elements has nothing to access: a read becomes zeros, a write its operand.

    Requires `expand-transformations`, which masks the indices of inactive batch elements. Leaves no op that is `checked`.
    """

    name = "check-indices"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for inner in ops_of(block, IndexedOp):
                if inner.is_checked:
                    _check(inner)


def _check(op: IndexedOp) -> None:
    del op.properties["checked"]
    indices = op.operands[1]
    low, high = compute_interval(indices)
    for k, axis in enumerate(op.indexed_axes):
        size = shape_of(op.operands[0])[axis]
        if low == high == 0 or (isinstance(size, int) and -size <= low and high < size):
            continue
        fail_if_out_of_bounds(DlBuilder(_insertion_point(op), op.location), op, indices, k)
    if op.has_empty_indexed_axis:
        (result,), build = op.results, DlBuilder(op, op.location)
        nothing = build(BroadcastToOp, build.scalar(0, like=result), shape=shape_of(result))
        replace(op, [nothing if isinstance(op, IndexedRead) else op.operands[0]])
        return
    op.properties.pop("reported_axes", None)
    if isinstance(op, IndexedRead | ScatterRowsOp):
        op.properties["in_bounds"] = BoolAttr.from_bool(True)


def _insertion_point(op: Operation) -> Operation:
    """Return the op to insert a check before: the next loop or branch, or the terminator, after earlier checks."""

    def is_insertion_point(other: Operation) -> bool:
        return other.next_op is None or (isinstance(other, Control) and bool(other.results))

    candidate = op.next_op
    while candidate is not None and not is_insertion_point(candidate):
        candidate = candidate.next_op
    assert candidate is not None, "a block ends in a terminator"
    return candidate
