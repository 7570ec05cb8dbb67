"""Structured control flow.

Loops that run at most once and branches on a constant become straight-line code. Every other loop or branch is emitted
by the language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from dlc.dialects.loop_attributes import ROLLED, UNROLLED
from dlc.emission.common.emitter import EmissionScope, Handlers, KernelEmitter
from dlc.emission.common.records import LoopRecord, Values
from dlc.emission.common.registers import Register
from dlc.errors import UnsupportedError
from dlc.ir import IndexType, Operation, SSAValue, scf


def register_types(emitter: KernelEmitter, values: Values) -> list[Register]:
    """Return the types of all registers of `values`, in order."""
    return list(chain.from_iterable(emitter.layout(v.type) for v in values))


def value_registers(emitter: KernelEmitter, values: Values) -> list[str]:
    """Return the names of all registers of `values`, in order."""
    return list(chain.from_iterable(map(emitter.regs, values)))


def bind_values(emitter: KernelEmitter, values: Values, names: Sequence[str]) -> None:
    """Bind `values` to register names, which are consumed in order."""
    start = 0
    for value in values:
        size = len(emitter.layout(value.type))
        emitter.bind(value, names[start : start + size])
        start += size


def _alias(emitter: KernelEmitter, values: Values, sources: Values) -> None:
    """Bind each value to the registers or linear expression of its source, because the control flow is straight-line."""
    for value, source in zip(values, sources, strict=True):
        if isinstance(value.type, IndexType):
            emitter.linear_expressions[value] = emitter.linear(source)
        else:
            emitter.registers[value] = emitter.regs(source)


def emit_region(emitter: KernelEmitter, visit: Callable[[], list[str]], label: str = "") -> tuple[EmissionScope, list[str]]:
    """Run `visit` and collect its text in a new scope; return the scope and the results of `visit`.

    The scope begins with the basic block `label`. The caller inserts it into the surrounding scope when it is complete, so that
    addresses can still be hoisted above a loop while its body is being emitted.
    """
    scope = EmissionScope(label)
    emitter.scopes.append(scope)
    results = visit()
    emitter.scopes.pop()
    return scope, results


def _write(emitter: KernelEmitter, loop: LoopRecord) -> None:
    """Emit a loop, or only its body if the bounds imply at most one iteration."""
    if loop.has_static_bounds and loop.low.constant >= loop.high.constant:
        _alias(emitter, loop.results, loop.initial_values)
    elif loop.has_static_bounds and not loop.step.terms and loop.low.constant + loop.step.constant >= loop.high.constant:
        emitter.linear_expressions[loop.induction] = loop.low
        _alias(emitter, loop.body_arguments, loop.initial_values)
        _alias(emitter, loop.results, loop.visit())
    else:
        emitter.write_loop(loop)


def emit_for(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `scf.for`."""
    assert isinstance(op, scf.ForOp)
    block = op.body.block
    induction, *iter_args = block.args
    if not isinstance(induction.type, IndexType):
        raise UnsupportedError(f"kernel @{emitter.kernel}: scf.for over {induction.type} cannot be emitted; use index")
    low, high, step = map(emitter.linear, (op.lb, op.ub, op.step))
    hints = UNROLLED in op.attributes, ROLLED in op.attributes
    _write(
        emitter,
        LoopRecord(low, high, step, induction, lambda: emitter.visit_block(block), op.iter_args, iter_args, op.res, *hints),
    )


def emit_sequential_parallel(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `scf.parallel` inside a grid point as a nest of sequential loops."""
    assert isinstance(op, scf.ParallelOp)
    block, ranges = op.body.block, [[emitter.linear(v) for v in vs] for vs in (op.lowerBound, op.upperBound, op.step)]
    if op.initVals:
        raise UnsupportedError(f"kernel @{emitter.kernel}: scf.parallel with reductions cannot be emitted; use scf.for")

    def emit_loops(depth: int) -> Values:
        if depth == len(block.args):
            emitter.visit_block(block)
        else:
            low, high, step = (r[depth] for r in ranges)
            _write(emitter, LoopRecord(low, high, step, block.args[depth], lambda: emit_loops(depth + 1)))
        return ()

    emit_loops(0)


def emit_if(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `scf.if`; a constant condition selects one branch at compile time."""
    assert isinstance(op, scf.IfOp)
    condition = emitter.scalar(op.cond)
    if condition in ("0", "1"):
        taken_region = op.true_region if condition == "1" else op.false_region
        _alias(emitter, op.output, emitter.visit_block(taken_region.block) if taken_region.blocks else ())
    else:
        emitter.write_if(op, condition)


def emit_while(emitter: KernelEmitter, op: Operation) -> None:
    """Emit `scf.while` whose condition is a carried value: its first region only forwards its arguments."""
    assert isinstance(op, scf.WhileOp)
    before = op.before_region.block
    end = before.last_op
    if not isinstance(end, scf.ConditionOp) or before.first_op is not end or end.condition not in before.args:
        raise UnsupportedError(f"kernel @{emitter.kernel}: scf.while computes its condition; carry it as a value")
    positions: dict[SSAValue, int] = {argument: k for k, argument in enumerate(before.args)}
    emitter.write_while(op, positions[end.condition], [positions[v] for v in end.args])


HANDLERS: Handlers = {
    "scf.for": emit_for,
    "scf.parallel": emit_sequential_parallel,
    "scf.if": emit_if,
    "scf.while": emit_while,
}
