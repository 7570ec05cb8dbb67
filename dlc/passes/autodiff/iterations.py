"""Loops that data ends: the derivative runs as often."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.programs.control import captured
from dlc.ir import Attribute, Block, Region, SSAValue, i64
from dlc.passes.autodiff.bodies import (
    ForwardWalk,
    ReverseWalk,
    at_end,
    bodies_of,
    copy_of,
    end,
    put_before,
    silent_copy_of,
    substitute,
    yielded,
)
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term

# How many states are kept at a time: a loop of fewer iterations runs twice.
_KEPT = 64


def while_forward(op: dl.WhileOp, walk: ForwardWalk) -> None:
    """The tangents of states are states."""
    b, states, count = Build(op), list(op.arguments), len(op.results)
    moving = [i for i in range(count) if is_differentiable(states[i])]
    first = [walk.tangent(states[i], b) for i in moving]
    condition = op.condition
    (body,) = bodies_of(op)
    parameters = list(body.args)
    for i in moving:
        walk.tangents[parameters[i]] = body.insert_arg(parameters[i].type, len(body.args))
    walk.walk(body)
    last, b = yielded(body), at_end(body)
    end(body, [*last, *(walk.tangent(last[1 + i], b) for i in moving)])
    new = dl.WhileOp.of(condition, [*states, *first], body)
    put_before(op, new)
    substitute(op, new.results[:count])
    walk.tangents |= {new.results[i]: tangent for i, tangent in zip(moving, new.results[count:], strict=True)}


# Note [Reverse of a loop that data ends]
#
# The loop counts its iterations. The reverse takes them in runs of _KEPT, the last run first: it begins the loop anew, goes
# as far as the run, keeps the states of each iteration of it in sequences, and pulls the cotangents back through them. So
# memory does not depend on the number of iterations, and what is computed again is half of it, per run.


def while_reverse(op: dl.WhileOp, walk: ReverseWalk) -> None:
    """See Note [Reverse of a loop that data ends]."""
    b, step, first = walk.b, op.block, list(op.arguments)
    moving = [i for i, v in enumerate(first) if is_differentiable(v)]
    read = [v for v in captured(step) if v in walk.active]
    cotangents = [(walk.take(op.results[i]) or zeros(b, op.results[i])).value for i in moving]
    sums = [zeros(b, v).value for v in read]

    before = Build(op, op.location)
    counted = before.insert(_counted(before, op.condition, first, lambda b, states, k: _copied(b, step, states)))
    zero, last = _number(b, 0), counted.results[-1]
    replays = Region(silent_copy_of(step))
    silent = replays.block

    def run(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The cotangents after a run, from those before it and from where it ends."""
        end_, *given = args
        start = b(dl.MaximumOp, b(dl.SubOp, end_, _number(b, _KEPT)), zero)

        def again(b: Build, states: Sequence[SSAValue], k: SSAValue) -> Sequence[SSAValue]:
            following = b(dl.AddOp, k, _number(b, 1))
            return [b(dl.LessOp, following, start), *_copied(b, silent, states)[1:]]

        more = b(dl.GreaterOp, start, zero)
        replayed = b.insert(_counted(b, more, first, again)).results

        def kept(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            *states, k = args
            inside = b(dl.LessOp, k, end_)
            following = _chosen(b, inside, states, lambda b: _copied(b, silent, states)[1:])
            return [*following, b(dl.AddOp, k, _number(b, 1)), *states]

        recorded = _scan(b, replayed, [], kept)[len(replayed) :]

        def pulled(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            given, k, states = args[: len(moving) + len(read)], args[len(moving) + len(read)], args[-len(first) :]
            inside = b(dl.LessOp, k, end_)
            before = _chosen(b, inside, given, lambda b: _pulled(b, silent, states, given, moving, read, walk))
            return [*before, b(dl.SubOp, k, _number(b, 1))]

        newest = b(dl.AddOp, start, _number(b, _KEPT - 1))
        return [more, start, *_scan(b, [*given, newest], recorded, pulled, reverse=True)[:-1]]

    states = [last, *cotangents, *sums]
    loop = b.insert(dl.WhileOp.of(b(dl.GreaterOp, last, zero), states, _body([v.type for v in states], run)))
    replays.detach_block(silent).erase(safe_erase=False)
    substitute(op, counted.results[:-1])
    for value, ct in zip([*(first[i] for i in moving), *read], loop.results[1:], strict=True):
        walk.add(value, Term(b, ct))


# What a body yields for its arguments, whose ops go where the builder inserts.
_Make = Callable[[Build, Sequence[SSAValue]], Sequence[SSAValue]]


def _body(types: Sequence[Attribute], make: _Make) -> Block:
    block = Block(arg_types=types)
    block.add_op(dl.YieldOp(make(Build(block), block.args)))
    return block


def _number(b: Build, number: int) -> SSAValue:
    return b.constant(np.asarray(number), i64)


def _copied(b: Build, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Inserts a copy of a body for these arguments: what it yields."""
    mapper: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for inner in block.ops:
        if not isinstance(inner, dl.YieldOp):
            b.insert(inner.clone(mapper))
    return [mapper.get(v, v) for v in yielded(block)]


def _counted(
    b: Build,
    condition: SSAValue,
    first: Sequence[SSAValue],
    step: Callable[[Build, Sequence[SSAValue], SSAValue], Sequence[SSAValue]],
) -> dl.WhileOp:
    """A loop whose last state is the number of its iterations; a step gives whether it goes on, and the next states."""

    def run(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        *states, k = args
        return [*step(b, states, k), b(dl.AddOp, k, _number(b, 1))]

    states = [*first, _number(b, 0)]
    return dl.WhileOp.of(condition, states, _body([v.type for v in states], run))


def _scan(
    b: Build, first: Sequence[SSAValue], sequences: Sequence[SSAValue], step: _Make, reverse: bool = False
) -> Sequence[SSAValue]:
    """A recurrence of as many steps as states are kept: its last states, and what it makes."""
    elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in sequences]
    body = _body([*(v.type for v in first), *elements], step)
    return b.insert(dl.ScanOp.of([*first, *sequences], body, len(first), _KEPT, reverse)).results


def _chosen(
    b: Build, condition: SSAValue, otherwise: Sequence[SSAValue], then: Callable[[Build], Sequence[SSAValue]]
) -> Sequence[SSAValue]:
    bodies = _body([], lambda b, _: then(b)), _body([], lambda b, _: otherwise)
    return b.insert(dl.IfOp.of(condition, *bodies, [v.type for v in otherwise])).results


def _pulled(
    b: Build,
    step: Block,
    states: Sequence[SSAValue],
    given: Sequence[SSAValue],
    moving: Sequence[int],
    read: Sequence[SSAValue],
    walk: ReverseWalk,
) -> Sequence[SSAValue]:
    """The cotangents of the states before an iteration, and the sums of those of what it reads from above with it."""
    body = copy_of(step)
    seeds: dict[int, SSAValue] = {1 + i: body.insert_arg(states[i].type, len(body.args)) for i in moving}
    wrt = [*(body.args[i] for i in moving), *read]
    cotangents, inner = walk.inside(body, wrt, seeds), at_end(body)
    end(body, [zeros(inner, v).value if ct is None else ct for v, ct in zip(wrt, cotangents, strict=True)])
    made = _copied(b, body, [*states, *given[: len(moving)]])
    body.erase(safe_erase=False)
    return [*made[: len(moving)], *(b(dl.AddOp, x, y) for x, y in zip(given[len(moving) :], made[len(moving) :], strict=True))]
