"""Unroll short scans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from dlc.dialects.dl.base import ints, shape_of, sizes
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, erase_op, ops_of
from dlc.passes.dl.rewriting import program_blocks
from dlc.shapes.dims import Size, is_static


@dataclass(frozen=True)
class UnrollScansPass(ModulePass):
    """`unroll-scans{max_steps=8}`: replaces each scan of few steps by one copy of its body per step.

        %last = dl.scan %first, %xs { ^bb0(%state, %x): %next = dl.add %state, %x; dl.yield %next }
    →   %s0 = dl.add %first, %x0;  %s1 = dl.add %s0, %x1;  …

    where `%x0` is a slice of `%xs`. Equal steps become equal kernels, compiled once. Fusion across steps gains more than a
    loop in the host program costs only up to about `max_steps` steps. Nested scans are unrolled first.

    A scan whose step is a stencil is not unrolled: a step reads neighbors that the previous one computes, so that kernels of
    several steps cannot be fused. The passes that merge stencils (`merge-pads`, `merge-kernels`, `peel-borders`) find the terms
    of one step in a loop body, but not those of several steps: the gradient of two steps of a reaction-diffusion equation on a
    grid of 512² took 4.8 ms unrolled, and 1 ms in a loop.
    """

    name = "unroll-scans"
    max_steps: int = 8

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in reversed(list(program_blocks(op))):
            for scan in ops_of(block, ScanOp):
                if isinstance(scan.steps, int) and scan.steps <= self.max_steps and not _is_stencil(scan):
                    _unroll(scan, scan.steps)


def _is_stencil(scan: ScanOp) -> bool:
    """Return whether a step slices a value at overlapping positions, or pads it on different sides, as the derivative does."""
    slices, paddings = defaultdict[SSAValue, list[SliceOp]](list), defaultdict[SSAValue, set[object]](set)
    for op in scan.block.ops:
        if isinstance(op, SliceOp):
            slices[op.x].append(op)
        elif isinstance(op, PadOp):
            paddings[op.x].add(tuple(op.padding))
    return any(len(sides) > 1 for sides in paddings.values()) or any(
        _overlap(a, b) for group in slices.values() for a, b in combinations(group, 2)
    )


def _overlap(a: SliceOp, b: SliceOp) -> bool:
    """Return whether two slices with static bounds are different windows with common elements."""
    first, second = ([*zip(sizes(x.starts), sizes(x.limits), strict=True)] for x in (a, b))
    bounds = [*zip(first, second, strict=True)]
    if first == second or {*ints(a.strides), *ints(b.strides)} != {1} or not is_static([n for w in first + second for n in w]):
        return False
    return all(p[0] < q[1] and q[0] < p[1] for p, q in bounds)


def _unroll(scan: ScanOp, length: int) -> None:
    state_count = scan.state_count
    states = list(scan.arguments[:state_count])
    stacked_outputs = [list[SSAValue]() for _ in scan.outputs[state_count:]]
    for step in range(length)[:: -1 if scan.is_reverse else 1]:
        elements = [_element(sequence, step, scan) for sequence in scan.arguments[state_count:]]
        yielded = _clone_step(scan, [*states, *elements])
        states = yielded[:state_count]
        for sequence, value in zip(stacked_outputs, yielded[state_count:], strict=True):
            sequence.insert(0, value) if scan.is_reverse else sequence.append(value)
    stacked = [_stack(sequence, old, scan) for sequence, old in zip(stacked_outputs, scan.outputs[state_count:], strict=True)]
    for old, new in zip(scan.outputs, (*states, *stacked), strict=True):
        old.replace_all_uses_with(new)
    erase_op(scan)


def _clone_step(scan: ScanOp, values: Sequence[SSAValue]) -> list[SSAValue]:
    """Clone the body before the scan, for these arguments; return the values that it yields."""
    mapper: dict[SSAValue, SSAValue] = dict(zip(scan.block.args, values, strict=True))
    block = scan.parent
    assert block is not None
    for op in scan.block.ops:
        if not isinstance(op, YieldOp):
            block.insert_op_before(op.clone(mapper), scan)
    return [mapper.get(v, v) for v in scan.yielded]


def _element(sequence: SSAValue, step: int, anchor: Operation) -> SSAValue:
    build, shape = DlBuilder(anchor), shape_of(sequence)
    starts: list[Size] = [step, *(0 for _ in shape[1:])]
    row = build(SliceOp, sequence, starts=starts, limits=[step + 1, *shape[1:]], strides=[1] * len(shape))
    return build(ReshapeOp, row, shape=shape[1:])


def _stack(values: list[SSAValue], like: SSAValue, anchor: Operation) -> SSAValue:
    build, shape = DlBuilder(anchor), shape_of(like)
    if not values:
        return build(BroadcastToOp, build.scalar(0, like), shape=shape)
    rows = [build(ReshapeOp, value, shape=(1, *shape[1:])) for value in values]
    return build(ConcatOp, *rows, axis=0) if len(rows) > 1 else rows[0]
