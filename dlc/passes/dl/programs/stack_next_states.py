"""Stack the next states of a scan in place of the previous ones, so that a step writes its state into the stack."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction, Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.ir import Context, ModuleOp, Operation, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import program_blocks
from dlc.shapes.dims import is_static, product
from dlc.shapes.polynomials import is_multiple
from dlc.target import Target


@dataclass(frozen=True)
class StackNextStatesPass(TargetPass):
    """`stack-next-states`: stacks the next states of a scan, after the initial one, in place of the previous states.

        %last, %ys = dl.scan %x { ^bb0(%s):  %t = …;  dl.yield %t, %s }
    →   %last, %ts = dl.scan %x { ^bb0(%s):  %t = …;  dl.yield %t, %t }
        %ys = dl.slice (dl.concat %x, %ts) [0, n)

    The step then writes its state into the stack, and the next step reads it there; a stack of previous states needs a copy in
    each step. Derivatives stack previous states as residuals. The concatenation is a buffer that the scan writes into, and the
    slice is a view. Applies to static states that elementwise ops, contractions or concatenations compute: ops that update
    arrays need a copy either way. Their size is a multiple of the alignment of views in reverse scans, whose slice begins after
    an element, and on devices.
    """

    name = "stack-next-states"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            for scan in [o for o in block.ops if isinstance(o, ScanOp)]:
                _stack_next_states(scan, self.target)


def _stack_next_states(scan: ScanOp, target: Target) -> None:
    last, count = scan.block.last_op, scan.state_count
    assert isinstance(last, YieldOp)
    alignment = target.alignment if scan.is_reverse else target.element_alignment
    states: list[SSAValue] = [*scan.block.args[:count]]
    for position in range(count, len(last.values)):
        previous, output = last.values[position], scan.results[position]
        if previous not in states or not output.first_use:
            continue
        index = states.index(previous)
        next_state = last.values[index]
        is_aligned = is_static(shape_of(output)) and _has_aligned_size(next_state, alignment)
        if is_aligned and _is_written_into_stack(next_state, scan):
            last.operands[position] = next_state
            _prepend(scan, scan.arguments[index], output)


def _is_written_into_stack(next_state: SSAValue, scan: ScanOp) -> bool:
    op = next_state.owner
    is_computed = isinstance(op, Operation) and op.parent is scan.block
    return is_computed and isinstance(op, Elementwise | Contraction | ConcatOp)


def _has_aligned_size(value: SSAValue, alignment: int) -> bool:
    size = product(shape_of(value)) * numpy_dtype(element_type_of(value)).itemsize
    return size != 0 and is_multiple(size, alignment)


def _prepend(scan: ScanOp, initial: SSAValue, next_states: SSAValue) -> None:
    """Replace the uses of the stacked next states by the initial state and all of them but the last computed one."""
    assert scan.next_op is not None
    build, shape = DlBuilder(scan.next_op, scan.location), shape_of(next_states)
    first = build(ReshapeOp, initial, shape=[1, *shape[1:]])
    stacks = (next_states, first) if scan.is_reverse else (first, next_states)
    all_states = build(ConcatOp, *stacks, axis=0)
    start = int(scan.is_reverse)
    starts, limits = [start, *(0 for _ in shape[1:])], [scan.steps + start, *shape[1:]]
    previous_states = build(SliceOp, all_states, starts=starts, limits=limits, strides=[1] * len(shape))
    next_states.replace_uses_with_if(previous_states, lambda use: use.operation is not all_states.owner)
