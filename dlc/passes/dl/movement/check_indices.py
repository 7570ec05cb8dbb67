"""Insert bounds checks for data-dependent indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.library_kernels.loops import LoopsOp
from dlc.dialects.dl.movement.index_checks import IndexedOp, fail_if_out_of_bounds
from dlc.dialects.dl.movement.indexing import IndexedRead, ScatterRowsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, SliceOp
from dlc.dialects.dl.programs.control import Control, FailOp, IfOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp
from dlc.ir import Block, BoolAttr, Context, ModuleOp, ModulePass, Operation, SSAValue, ops_of
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

    The checks of a `dl.loops` are among its results; each message becomes a failing branch.

    An op that indexes an axis without elements has nothing to access: a read becomes zeros, a write its operand.

    Requires `expand-transformations`, which masks the indices of inactive batch elements. Leaves no op that is `checked`.
    """

    name = "check-indices"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for inner in ops_of(block, IndexedOp):
                if inner.is_checked:
                    _check(inner)
            for inner in ops_of(block, LoopsOp):
                for check, messages in inner.checked_results:
                    _check_points(DlBuilder(_insertion_point(inner), inner.location), check, messages)
                inner.properties.pop("checks", None)


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


def _check_points(build: DlBuilder, check: SSAValue, messages: Sequence[str]) -> None:
    """Insert a branch for each message that fails if the message applies at a point of a grid."""
    *points, _ = shape_of(check)
    axes = tuple(range(len(points) + 1))

    def column(k: int) -> SSAValue:
        starts, limits = (*(0 for _ in points), k), (*points, k + 1)
        return build(SliceOp, check, starts=starts, limits=limits, strides=(1,) * len(axes))

    numbers, indices = column(0), column(1)
    lowest = build.scalar(np.iinfo(np.int64).min, like=check)
    for number, message in enumerate(messages):
        applies = build(EqualOp, numbers, build.scalar(number, like=check))
        # Integers above the smallest one; several points may have several indices, of which the largest is reported.
        index = build(ReduceMaxOp, build(SelectOp, applies, indices, lowest), axes=axes, keepdims=False)
        passes_body, fails_body = Block(), Block()
        DlBuilder(passes_body, build.location).insert(YieldOp([]))
        DlBuilder(fails_body, build.location).insert(FailOp(message, [index]))
        build.insert(IfOp.of(build(EqualOp, index, lowest), passes_body, fails_body, []))


def _insertion_point(op: Operation) -> Operation:
    """Return the op to insert a check before: the next loop or branch, or the terminator, after earlier checks."""

    def is_insertion_point(other: Operation) -> bool:
        return other.next_op is None or (isinstance(other, Control) and bool(other.results))

    candidate = op.next_op
    while candidate is not None and not is_insertion_point(candidate):
        candidate = candidate.next_op
    assert candidate is not None, "a block ends in a terminator"
    return candidate
