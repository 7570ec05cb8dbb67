"""Writes recurrences out, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.control import ScanOp
from dlc.dialects.dl.movement import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.dims import Size
from dlc.errors import UnsupportedError
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue
from dlc.passes.dl.rewriting import function_blocks


@dataclass(frozen=True)
class UnrollScansPass(ModulePass):
    """`unroll-scans`: each scan becomes its body, once for each step.

        %last = dl.scan %first, %xs { ^bb0(%state, %x): %next = dl.add %state, %x; dl.yield %next }
    →   %s0 = dl.add %first, %x0;  %s1 = dl.add %s0, %x1;  …

    where `%x0` is a slice of `%xs`. Equal steps are equal kernels later, compiled once. Lengths have to be known.
    """

    name = "unroll-scans"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in function_blocks(op):
            inner = block.first_op
            while inner is not None:
                # Steps may hold scans, which are unrolled in their turn.
                before, following = inner.prev_op, inner.next_op
                if isinstance(inner, ScanOp):
                    _unroll(inner)
                    following = before.next_op if before is not None else block.first_op
                inner = following


def _unroll(scan: ScanOp) -> None:
    length = scan.steps
    if not isinstance(length, int):
        raise UnsupportedError(f"unroll-scans: the scan at {scan.location} has the open length {length}; bind its sizes first")
    first, last = scan.state_count, scan.state_count + scan.sequence_count
    states, constants = list(scan.arguments[:first]), scan.arguments[last:]
    made = [list[SSAValue]() for _ in scan.outputs[first:]]
    for step in range(length):
        elements = [_element(sequence, step, scan) for sequence in scan.arguments[first:last]]
        yielded = scan.step([*states, *elements, *constants], scan)
        states = yielded[:first]
        for sequence, value in zip(made, yielded[first:], strict=True):
            sequence.append(value)
    stacked = [_stacked(sequence, old, scan) for sequence, old in zip(made, scan.outputs[first:], strict=True)]
    for old, new in zip(scan.outputs, (*states, *stacked), strict=True):
        old.replace_all_uses_with(new)
    scan.detach()
    scan.erase()


def _element(sequence: SSAValue, step: int, place: Operation) -> SSAValue:
    build, shape = Build(place), shape_of(sequence)
    starts: list[Size] = [step, *(0 for _ in shape[1:])]
    part = build(SliceOp, sequence, starts=starts, limits=[step + 1, *shape[1:]], strides=[1] * len(shape))
    return build(ReshapeOp, part, shape=shape[1:])


def _stacked(values: list[SSAValue], like: SSAValue, place: Operation) -> SSAValue:
    build, shape = Build(place), shape_of(like)
    if not values:
        return build(BroadcastToOp, build.scalar(0, like), shape=shape)
    parts = [build(ReshapeOp, value, shape=(1, *shape[1:])) for value in values]
    return build(ConcatOp, *parts, axis=0) if len(parts) > 1 else parts[0]
