"""Structured control flow as blocks and phis: one phi per register of a carried value.

The text of a region is collected apart, and joins the region around it when it is complete; so addresses can still be
written before a loop while its body is being visited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from dlc.emission.llvm.core import Emitter, RegisterType, Scope
from dlc.emission.visit.linear import Linear
from dlc.errors import UnsupportedError
from dlc.ir import Block, IndexType, Operation, SSAValue, scf

_Values = Sequence[SSAValue]
Visit = Callable[[], _Values]


def _types(e: Emitter, values: _Values) -> list[RegisterType]:
    return list(chain.from_iterable(e.layout(v.type) for v in values))


def _registers(e: Emitter, values: _Values) -> list[str]:
    return list(chain.from_iterable(map(e.regs, values)))


def _bind(e: Emitter, values: _Values, names: Sequence[str]) -> None:
    start = 0
    for value in values:
        size = len(e.layout(value.type))
        e.bind(value, names[start : start + size])
        start += size


def _alias(e: Emitter, values: _Values, sources: _Values) -> None:
    """Says that each value is its source: control flow that turned out to be straight."""
    for value, source in zip(values, sources, strict=True):
        if isinstance(value.type, IndexType):
            e.linears[value] = e.linear(source)
        else:
            e.registers[value] = e.regs(source)


def _names(e: Emitter, types: Sequence[RegisterType]) -> list[str]:
    return [f"%{e.fresh()}" for _ in types]


def _phis(names: Sequence[str], types: Sequence[RegisterType], *edges: tuple[Sequence[str], str]) -> list[str]:
    """One phi per register; an edge is the registers and the block that they come from."""
    return [
        f"  {name} = phi {type.text} " + ", ".join(f"[ {values[i]}, %{label} ]" for values, label in edges)
        for i, (name, type) in enumerate(zip(names, types, strict=True))
    ]


def _region(e: Emitter, label: str, visit: Callable[[], list[str]]) -> tuple[Scope, list[str]]:
    """What `visit` writes and returns, the text as a scope of its own that starts with the block `label`."""
    scope = Scope(label)
    e.scopes.append(scope)
    results = visit()
    e.scopes.pop()
    return scope, results


def _body(e: Emitter, block: Block) -> _Values:
    """Visits a block; the operands of its terminator."""
    last = e.visit_block(block)
    return last.operands if last is not None else ()


# Loops


class _Carried(NamedTuple):
    """The values that a loop carries: as they enter it, as arguments of its body, and as its results."""

    before: _Values = ()
    inside: _Values = ()
    after: _Values = ()


def _loop(e: Emitter, low: Linear, high: Linear, step: Linear, induction: SSAValue, carried: _Carried, visit: Visit) -> None:
    """`for induction in range(low, high, step)`; `visit` writes the body and returns what it carries on."""
    known = not (low.terms or high.terms)
    if known and low.constant >= high.constant:
        return _alias(e, carried.after, carried.before)
    if known and not step.terms and low.constant + step.constant >= high.constant:
        e.linears[induction] = low
        _alias(e, carried.inside, carried.before)
        return _alias(e, carried.after, visit())
    types, initial = _types(e, carried.before), _registers(e, carried.before)
    start, end, by = map(e.materialize, (low, high, step))
    head, exit = e.fresh("loop"), e.fresh("done")
    counter, following = f"%{e.fresh('i')}", f"%{e.fresh('i')}"
    arguments = _names(e, types)

    def body() -> list[str]:
        e.bind(induction, [counter])
        _bind(e, carried.inside, arguments)
        return _registers(e, visit())

    scope, results = _region(e, head, body)
    outer = e.scopes[-1]
    before_guard = outer.label
    if not known:  # The loop tests at its end, so an empty range must go round it.
        enter = e.fresh("enter")
        e.emit(f"  br i1 {e.define(f'icmp slt i64 {start}, {end}')}, label %{enter}, label %{exit}")
        e.start_block(enter)
    origin = outer.label
    e.emit(f"  br label %{head}")
    e.emit(f"{head}:")
    e.emit(f"  {counter} = phi i64 [ {start}, %{origin} ], [ {following}, %{scope.label} ]")
    outer.lines += _phis(arguments, types, (initial, origin), (results, scope.label))
    outer.lines += scope.lines
    e.emit(f"  {following} = add nsw i64 {counter}, {by}")
    e.emit(f"  br i1 {e.define(f'icmp slt i64 {following}, {end}')}, label %{head}, label %{exit}")
    e.start_block(exit)
    if not known and types:
        merged = _names(e, types)
        outer.lines += _phis(merged, types, (initial, before_guard), (results, scope.label))
        results = merged
    return _bind(e, carried.after, results)


def for_loop(e: Emitter, op: Operation) -> None:
    assert isinstance(op, scf.ForOp)
    block = op.body.block
    induction, *inside = block.args
    if not isinstance(induction.type, IndexType):
        raise UnsupportedError(f"kernel @{e.kernel}: scf.for over {induction.type} cannot be emitted; use index")
    carried = _Carried(op.iter_args, inside, op.res)
    low, high, step = map(e.linear, (op.lb, op.ub, op.step))
    _loop(e, low, high, step, induction, carried, lambda: _body(e, block))


def sequential(e: Emitter, op: Operation) -> None:
    """scf.parallel inside a grid point: a loop nest, since a CPU has no items."""
    assert isinstance(op, scf.ParallelOp)
    block, ranges = op.body.block, [[e.linear(v) for v in vs] for vs in (op.lowerBound, op.upperBound, op.step)]
    if op.initVals:
        raise UnsupportedError(f"kernel @{e.kernel}: scf.parallel with reductions cannot be emitted; use scf.for")

    def nest(depth: int) -> _Values:
        if depth == len(block.args):
            _body(e, block)
        else:
            low, high, step = (r[depth] for r in ranges)
            _loop(e, low, high, step, block.args[depth], _Carried(), lambda: nest(depth + 1))
        return ()

    nest(0)


def if_else(e: Emitter, op: Operation) -> None:
    assert isinstance(op, scf.IfOp)
    condition = e.scalar(op.cond)
    regions = [op.true_region, op.false_region]
    if condition in ("0", "1", "true", "false"):
        taken = regions[condition in ("0", "false")]
        return _alias(e, op.output, _body(e, taken.block) if taken.blocks else ())
    types, join = _types(e, op.output), e.fresh("join")
    labels = [e.fresh("then"), e.fresh("else")]
    branches: list[tuple[Scope, list[str]]] = []
    for region, label in zip(regions, labels, strict=True):
        branches.append(_region(e, label, lambda r=region: _registers(e, _body(e, r.block) if r.blocks else ())))
    e.emit(f"  br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
    for (scope, _), label in zip(branches, labels, strict=True):
        e.scopes[-1].lines += [f"{label}:", *scope.lines, f"  br label %{join}"]
    e.start_block(join)
    merged = _names(e, types)
    e.scopes[-1].lines += _phis(merged, types, *((values, scope.label) for scope, values in branches))
    return _bind(e, op.output, merged)


HANDLERS: dict[str, Callable[[Emitter, Operation], None]] = {
    "scf.for": for_loop,
    "scf.parallel": sequential,
    "scf.if": if_else,
}
