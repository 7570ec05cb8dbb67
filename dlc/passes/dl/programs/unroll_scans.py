"""Writes short recurrences out, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dims import Size
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, ops_of
from dlc.passes.dl.rewriting import program_blocks


@dataclass(frozen=True)
class UnrollScansPass(ModulePass):
    """`unroll-scans{most=8}`: each scan of a few steps becomes its body, once for each step.

        %last = dl.scan %first, %xs { ^bb0(%state, %x): %next = dl.add %state, %x; dl.yield %next }
    →   %s0 = dl.add %first, %x0;  %s1 = dl.add %s0, %x1;  …

    where `%x0` is a slice of `%xs`. Equal steps are equal kernels later, compiled once; what fusion gains across steps is
    worth more than a loop in the host program only where there are `most` or fewer of them. Scans inside go first.
    """

    name = "unroll-scans"
    most: int = 8

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in reversed(list(program_blocks(op))):
            for scan in ops_of(block, ScanOp):
                if isinstance(scan.steps, int) and scan.steps <= self.most:
                    _unroll(scan, scan.steps)


def _unroll(scan: ScanOp, length: int) -> None:
    first = scan.state_count
    states = list(scan.arguments[:first])
    made = [list[SSAValue]() for _ in scan.outputs[first:]]
    for step in range(length)[:: -1 if scan.goes_back else 1]:
        elements = [_element(sequence, step, scan) for sequence in scan.arguments[first:]]
        yielded = _step(scan, [*states, *elements])
        states = yielded[:first]
        for sequence, value in zip(made, yielded[first:], strict=True):
            sequence.insert(0, value) if scan.goes_back else sequence.append(value)
    stacked = [_stacked(sequence, old, scan) for sequence, old in zip(made, scan.outputs[first:], strict=True)]
    for old, new in zip(scan.outputs, (*states, *stacked), strict=True):
        old.replace_all_uses_with(new)
    scan.detach()
    scan.erase()


def _step(scan: ScanOp, values: Sequence[SSAValue]) -> list[SSAValue]:
    """Puts a copy of the body, for these arguments, before the scan; what it yields."""
    mapper: dict[SSAValue, SSAValue] = dict(zip(scan.block.args, values, strict=True))
    block = scan.parent
    assert block is not None
    for op in scan.block.ops:
        if not isinstance(op, YieldOp):
            block.insert_op_before(op.clone(mapper), scan)
    return [mapper.get(v, v) for v in scan.yielded]


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
