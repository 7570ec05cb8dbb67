"""Structured control flow: a carried value is a variable per register, assigned at the end of the region.

A loop whose carried value enters nothing but another loop shares its variables with it: nested loops over a tile's
reduction accumulate into one set of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import gcd, prod
from typing import NamedTuple

from dlc.emission.c.core import Emitter, Handlers, Scope
from dlc.emission.c.text import Nest
from dlc.emission.c.vocabulary import Register
from dlc.emission.visit.linear import Linear
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import Block, IndexType, Operation, SSAValue, StringAttr, scf

_Values = Sequence[SSAValue]


class Variables(NamedTuple):
    """The variables of values that a region carries, and their types."""

    names: list[str]
    types: list[Register]


def _types(e: Emitter, values: _Values) -> list[Register]:
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


def _region(e: Emitter, visit: Callable[[], None]) -> Scope:
    """What `visit` writes, as a scope of its own."""
    scope = Scope()
    e.scopes.append(scope)
    visit()
    e.scopes.pop()
    return scope


def _body(e: Emitter, block: Block) -> _Values:
    """Visits a block; the operands of its terminator."""
    last = e.visit_block(block)
    return last.operands if last is not None else ()


# Variables


def _declare(e: Emitter, values: _Values, initial: _Values | None, hints: _Values) -> Variables:
    """New variables for values, with first values if there are any."""
    names: list[str] = []
    for k, value in enumerate(values):
        hint = hints[k].name_hint or "carried"
        registers = e.regs(initial[k]) if initial is not None else None
        if initial is not None and registers is not None and _is_free(e, initial[k], values[k]):
            names += registers
            continue
        for i, (t, suffix) in enumerate(zip(e.layout(value.type), e.suffixes(value.type), strict=True)):
            name = e.name(hint + suffix)
            if registers is not None:
                e.assign(name, registers[i], e.type(t))
            else:
                e.declare(e.type(t), name)
            names.append(name)
    return Variables(names, _types(e, values))


def _is_free(e: Emitter, initial: SSAValue, inside: SSAValue) -> bool:
    """Whether a loop may go on with the variables of its initial value, because nobody else reads them."""
    if isinstance(initial.type, IndexType) or initial not in e.variables or len(list(initial.uses)) != 1:
        return False
    user = next(iter(initial.uses)).operation
    owner = initial.owner
    home = owner if isinstance(owner, Block) else owner.parent
    return user.parent is home and inside.type == initial.type


def _carry(e: Emitter, values: _Values, names: Sequence[str]) -> None:
    """Binds values to variables, and remembers that they are."""
    _bind(e, values, names)
    e.variables.update(values)


def _assign(e: Emitter, variables: Variables, results: Sequence[str]) -> None:
    """All variables get their next values at once."""
    changed = [(n, r, t) for n, r, t in zip(variables.names, results, variables.types, strict=True) if n != r]
    targets = {name for name, _, _ in changed}
    sources: list[str] = []
    for _, result, t in changed:
        # A variable that is assigned to as well is read first.
        sources.append(e.define(e.type(t), result, f"{result}_before") if result in targets else result)
    for (name, _, _), source in zip(changed, sources, strict=True):
        e.assign(name, source)


# Loops


def _loop(
    e: Emitter,
    bounds: tuple[Linear, Linear, Linear],
    induction: SSAValue,
    carried: tuple[_Values, _Values, _Values],
    visit: Callable[[], _Values],
) -> None:
    """`for induction in range(*bounds)`; `visit` writes the body and returns what it carries on.

    `carried` are the values as they enter the loop, as arguments of its body, and as its results.
    """
    low, high, step = bounds
    before, inside, after = carried
    known = not (low.terms or high.terms)
    if known and low.constant >= high.constant:
        return _alias(e, after, before)
    if known and not step.terms and low.constant + step.constant >= high.constant:
        e.linears[induction] = low
        _alias(e, inside, before)
        return _alias(e, after, visit())
    variables = _declare(e, inside, before, inside)
    first, last, stride = e.range(low), e.range(high), e.range(step)
    extent = (first[0], last[1] - 1) if first is not None and last is not None else None
    fits = extent is not None and stride is not None and extent[0] >= -(1 << 31) and extent[1] + stride[1] < 1 << 31
    counter = e.name(induction.name_hint or "i")

    def body() -> None:
        e.linears[induction] = e.term(counter)
        if extent is not None:
            e.ranges[counter] = extent
        if not low.terms and not step.terms:
            e.multiples[counter] = gcd(low.constant, step.constant)
        _carry(e, inside, variables.names)
        _assign(e, variables, _registers(e, visit()))

    scope = _region(e, body)
    type = e.syntax.types["i32" if fits else "i64"]
    by = f"++{counter}" if step == Linear(1) else f"{counter} += {e.index(step)}"
    head = f"for ({type} {counter} = {e.index(low)}; {counter} < {e.index(high)}; {by}) {{"
    e.scopes[-1].lines.append(Nest([(head, scope.lines)]))
    return _carry(e, after, variables.names)


def for_loop(e: Emitter, op: Operation) -> None:
    assert isinstance(op, scf.ForOp)
    block = op.body.block
    induction, *inside = block.args
    if not isinstance(induction.type, IndexType):
        raise UnsupportedError(f"kernel @{e.kernel}: scf.for over {induction.type} cannot be emitted; use index")
    bounds = (e.linear(op.lb), e.linear(op.ub), e.linear(op.step))
    _loop(e, bounds, induction, (op.iter_args, inside, op.res), lambda: _body(e, block))


def parallel(e: Emitter, op: Operation) -> None:
    """scf.parallel inside a grid point: a loop nest, or the items of a group."""
    assert isinstance(op, scf.ParallelOp)
    if op.attributes.get("level") == StringAttr("item"):
        e.items = positions(e, op, number(e, "item"))
        _body(e, op.body.block)
        return
    block, ranges = op.body.block, [[e.linear(v) for v in vs] for vs in (op.lowerBound, op.upperBound, op.step)]
    if op.initVals:
        raise UnsupportedError(f"kernel @{e.kernel}: scf.parallel with reductions cannot be emitted; use scf.for")

    def nest(depth: int) -> _Values:
        if depth == len(block.args):
            _body(e, block)
        else:
            low, high, step = (r[depth] for r in ranges)
            _loop(e, (low, high, step), block.args[depth], ((), (), ()), lambda: nest(depth + 1))
        return ()

    nest(0)


def number(e: Emitter, which: str) -> str:
    """The number of the group, or of the item in it."""
    text = {"group": e.syntax.group, "item": e.syntax.item}[which]
    return e.define(e.syntax.types["i32"], text, which) if text else which


def positions(e: Emitter, op: Operation, number: str) -> int:
    """Binds the induction variables of a parallel loop to point `number` of it, row-major; returns the number of points."""
    assert isinstance(op, scf.ParallelOp)
    forms = zip(*([e.linear(v) for v in vs] for vs in (op.lowerBound, op.upperBound, op.step)), strict=True)
    sizes: list[int] = []
    places: list[tuple[int, int]] = []
    for low, high, step in forms:
        if low.terms or high.terms or step.terms:
            raise CompileError(f"kernel @{e.kernel}: a parallel loop needs constant bounds and steps")
        sizes.append(max(0, -(-(high.constant - low.constant) // step.constant)))
        places.append((low.constant, step.constant))
    inner = prod(sizes)
    for (start, step), size, induction in zip(places, sizes, op.body.block.args, strict=True):
        if size <= 1:
            e.linears[induction] = Linear(start)
            continue
        outermost = inner == prod(sizes)
        inner //= size
        if outermost and inner == 1:
            e.ranges[number] = (0, size - 1)
            e.linears[induction] = Linear(start).plus(e.term(number), step)
            continue
        text = number if inner == 1 else f"{number} / {inner}"
        hint = induction.name_hint or "i"
        position = e.define_index(
            text if outermost else f"{text} % {size}", hint if step == 1 else f"{hint}_tile", (0, size - 1)
        )
        e.linears[induction] = Linear(start).plus(position, step)
    return prod(sizes)


def if_else(e: Emitter, op: Operation) -> None:
    assert isinstance(op, scf.IfOp)
    condition = e.scalar(op.cond)
    regions = [op.true_region, op.false_region]
    if condition in ("0", "1"):
        taken = regions[condition == "0"]
        return _alias(e, op.output, _body(e, taken.block) if taken.blocks else ())
    results = _declare(e, op.output, None, op.output)
    branches = [
        _region(e, lambda r=region: _assign(e, results, _registers(e, _body(e, r.block))))
        for region in regions
        if region.blocks
    ]
    heads = [f"if ({condition}) {{", "} else {"]
    e.scopes[-1].lines.append(Nest([(h, b.lines) for h, b in zip(heads, branches, strict=False) if b.lines or h == heads[0]]))
    return _carry(e, op.output, results.names)


HANDLERS: Handlers = {
    "scf.for": for_loop,
    "scf.parallel": parallel,
    "scf.if": if_else,
}
