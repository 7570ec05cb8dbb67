"""Structured control flow: what is straight is written straight, all else as the language writes loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from dlc.dialects.sizes import size_of
from dlc.dialects.unrolled import ROLLED, UNROLLED
from dlc.dims import Size
from dlc.emission.visit.records import Loop, Values
from dlc.emission.visit.registers import Register
from dlc.emission.visit.visit import Handlers, Scope, Visit
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import IndexType, Operation, SSAValue, scf


class Axis(NamedTuple):
    """One induction variable of a parallel loop: `size` places from `start` on, `step` apart."""

    induction: SSAValue
    start: int
    step: int
    size: Size


def axes_of(e: Visit, op: Operation) -> list[Axis]:
    """The axes of a parallel loop over a grid's points, or over the items of a group."""
    assert isinstance(op, scf.ParallelOp)
    axes: list[Axis] = []
    for induction, *bounds in zip(op.body.block.args, op.lowerBound, op.upperBound, op.step, strict=True):
        low, high, step = map(size_of, bounds)
        if not isinstance(low, int) or not isinstance(step, int):
            raise CompileError(f"kernel @{e.kernel}: a grid needs a constant lower bound and step")
        size = -(-(high - low) // step)
        axes.append(Axis(induction, low, step, max(0, size) if isinstance(size, int) else size))
    return axes


def types_of(e: Visit, values: Values) -> list[Register]:
    return list(chain.from_iterable(e.layout(v.type) for v in values))


def registers_of(e: Visit, values: Values) -> list[str]:
    return list(chain.from_iterable(map(e.regs, values)))


def bind_all(e: Visit, values: Values, names: Sequence[str]) -> None:
    start = 0
    for value in values:
        size = len(e.layout(value.type))
        e.bind(value, names[start : start + size])
        start += size


def _alias(e: Visit, values: Values, sources: Values) -> None:
    """Says that each value is its source: control flow that turned out to be straight."""
    for value, source in zip(values, sources, strict=True):
        if isinstance(value.type, IndexType):
            e.linears[value] = e.linear(source)
        else:
            e.registers[value] = e.regs(source)


def region(e: Visit, visit: Callable[[], list[str]], label: str = "") -> tuple[Scope, list[str]]:
    """What `visit` writes and returns, the text as a scope of its own that starts with the block `label`.

    It joins the region around it when it is complete; so addresses can still be written before a loop while its body is being
    visited.
    """
    scope = Scope(label)
    e.scopes.append(scope)
    results = visit()
    e.scopes.pop()
    return scope, results


def _write(e: Visit, loop: Loop) -> None:
    """A loop, unless it is known to run never or once."""
    if loop.is_known and loop.low.constant >= loop.high.constant:
        _alias(e, loop.after, loop.before)
    elif loop.is_known and not loop.step.terms and loop.low.constant + loop.step.constant >= loop.high.constant:
        e.linears[loop.induction] = loop.low
        _alias(e, loop.inside, loop.before)
        _alias(e, loop.after, loop.visit())
    else:
        e.write_loop(loop)


def for_loop(e: Visit, op: Operation) -> None:
    assert isinstance(op, scf.ForOp)
    block = op.body.block
    induction, *inside = block.args
    if not isinstance(induction.type, IndexType):
        raise UnsupportedError(f"kernel @{e.kernel}: scf.for over {induction.type} cannot be emitted; use index")
    low, high, step = map(e.linear, (op.lb, op.ub, op.step))
    hints = UNROLLED in op.attributes, ROLLED in op.attributes
    _write(e, Loop(low, high, step, induction, lambda: e.visit_block(block), op.iter_args, inside, op.res, *hints))


def sequential(e: Visit, op: Operation) -> None:
    """scf.parallel inside a grid point: a loop nest."""
    assert isinstance(op, scf.ParallelOp)
    block, ranges = op.body.block, [[e.linear(v) for v in vs] for vs in (op.lowerBound, op.upperBound, op.step)]
    if op.initVals:
        raise UnsupportedError(f"kernel @{e.kernel}: scf.parallel with reductions cannot be emitted; use scf.for")

    def nest(depth: int) -> Values:
        if depth == len(block.args):
            e.visit_block(block)
        else:
            low, high, step = (r[depth] for r in ranges)
            _write(e, Loop(low, high, step, block.args[depth], lambda: nest(depth + 1)))
        return ()

    nest(0)


def branch(e: Visit, op: Operation) -> None:
    assert isinstance(op, scf.IfOp)
    condition = e.scalar(op.cond)
    if condition in ("0", "1"):
        taken = op.true_region if condition == "1" else op.false_region
        _alias(e, op.output, e.visit_block(taken.block) if taken.blocks else ())
    else:
        e.write_if(op, condition)


HANDLERS: Handlers = {"scf.for": for_loop, "scf.parallel": sequential, "scf.if": branch}
