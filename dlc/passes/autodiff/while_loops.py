"""Derivatives of while loops, whose number of iterations is data-dependent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.programs.control import captured
from dlc.ir import Attribute, Block, Region, SSAValue, i64
from dlc.passes.autodiff.bodies import (
    ForwardModeContext,
    ReverseModeContext,
    builder_at_end,
    clone_body,
    clone_body_without_prints,
    detach_bodies,
    insert_before,
    replace_and_erase,
    replace_yield,
    yielded,
)
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term

# The number of saved states: a loop of up to this many iterations runs twice.
_STATES_PER_RUN = 64


def while_forward(op: dl.WhileOp, context: ForwardModeContext) -> None:
    """Add the tangents of the states to the states."""
    b, states, count = Build(op), list(op.arguments), len(op.results)
    differentiated = [i for i in range(count) if is_differentiable(states[i])]
    first = [context.tangent(states[i], b) for i in differentiated]
    condition = op.condition
    (body,) = detach_bodies(op)
    parameters = list(body.args)
    for i in differentiated:
        context.tangents[parameters[i]] = body.insert_arg(parameters[i].type, len(body.args))
    context.walk(body)
    last, b = yielded(body), builder_at_end(body)
    replace_yield(body, [*last, *(context.tangent(last[1 + i], b) for i in differentiated)])
    new = dl.WhileOp.of(condition, [*states, *first], body)
    insert_before(op, new)
    replace_and_erase(op, new.results[:count])
    context.tangents |= {new.results[i]: tangent for i, tangent in zip(differentiated, new.results[count:], strict=True)}


# Note [Reverse of a while loop]
#
# The forward loop counts its iterations. The reverse processes them in runs of _STATES_PER_RUN, the last run first: it
# restarts the loop from its first states, replays it up to the run, saves the states of each iteration of the run in
# sequences, and pulls the cotangents back through them. So memory is independent of the number of iterations; each run
# replays half of the loop on average.


def while_reverse(op: dl.WhileOp, context: ReverseModeContext) -> None:
    """See Note [Reverse of a while loop]."""
    b, step, first = context.b, op.block, list(op.arguments)
    differentiated = [i for i, v in enumerate(first) if is_differentiable(v)]
    read = [v for v in captured(step) if v in context.active]
    cotangents = [(context.take(op.results[i]) or zeros(b, op.results[i])).value for i in differentiated]
    sums = [zeros(b, v).value for v in read]

    at_loop = Build(op, op.location)
    counted = at_loop.insert(_counting_loop(at_loop, op.condition, first, lambda b, states, k: _inline_copy(b, step, states)))
    zero, last = _i64_constant(b, 0), counted.results[-1]
    replays = Region(clone_body_without_prints(step))
    silent = replays.block

    def run(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """Pull the cotangents back through one run of iterations, which ends before iteration `end_`."""
        end_, *incoming = args
        start = b(dl.MaximumOp, b(dl.SubOp, end_, _i64_constant(b, _STATES_PER_RUN)), zero)

        def again(b: Build, states: Sequence[SSAValue], k: SSAValue) -> Sequence[SSAValue]:
            following = b(dl.AddOp, k, _i64_constant(b, 1))
            return [b(dl.LessOp, following, start), *_inline_copy(b, silent, states)[1:]]

        more = b(dl.GreaterOp, start, zero)
        replay = b.insert(_counting_loop(b, more, first, again)).results

        def save_step(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            *states, k = args
            is_in_run = b(dl.LessOp, k, end_)
            following = _branch(b, is_in_run, states, lambda b: _inline_copy(b, silent, states)[1:])
            return [*following, b(dl.AddOp, k, _i64_constant(b, 1)), *states]

        saved_states = _scan(b, replay, [], save_step)[len(replay) :]

        def pull_back_step(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            incoming, k, states = (
                args[: len(differentiated) + len(read)],
                args[len(differentiated) + len(read)],
                args[-len(first) :],
            )
            is_in_run = b(dl.LessOp, k, end_)
            at_loop = _branch(
                b,
                is_in_run,
                incoming,
                lambda b: _pull_back_iteration(b, silent, states, incoming, differentiated, read, context),
            )
            return [*at_loop, b(dl.SubOp, k, _i64_constant(b, 1))]

        newest = b(dl.AddOp, start, _i64_constant(b, _STATES_PER_RUN - 1))
        return [more, start, *_scan(b, [*incoming, newest], saved_states, pull_back_step, reverse=True)[:-1]]

    states = [last, *cotangents, *sums]
    loop = b.insert(dl.WhileOp.of(b(dl.GreaterOp, last, zero), states, _body([v.type for v in states], run)))
    replays.detach_block(silent).erase(safe_erase=False)
    replace_and_erase(op, counted.results[:-1])
    for value, ct in zip([*(first[i] for i in differentiated), *read], loop.results[1:], strict=True):
        context.add(value, Term(b, ct))


# Emits the ops of a body with a builder, for its arguments, and returns the values to yield.
_BodyBuilder = Callable[[Build, Sequence[SSAValue]], Sequence[SSAValue]]


def _body(types: Sequence[Attribute], make: _BodyBuilder) -> Block:
    block = Block(arg_types=types)
    block.add_op(dl.YieldOp(make(Build(block), block.args)))
    return block


def _i64_constant(b: Build, value: int) -> SSAValue:
    return b.constant(np.asarray(value), i64)


def _inline_copy(b: Build, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Insert a copy of a body for these arguments; return the values that it yields."""
    mapper: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for inner in block.ops:
        if not isinstance(inner, dl.YieldOp):
            b.insert(inner.clone(mapper))
    return [mapper.get(v, v) for v in yielded(block)]


def _counting_loop(
    b: Build,
    condition: SSAValue,
    first: Sequence[SSAValue],
    step: Callable[[Build, Sequence[SSAValue], SSAValue], Sequence[SSAValue]],
) -> dl.WhileOp:
    """Build a while loop whose last state counts its iterations; `step` returns whether to continue, and the next states."""

    def run(b: Build, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        *states, k = args
        return [*step(b, states, k), b(dl.AddOp, k, _i64_constant(b, 1))]

    states = [*first, _i64_constant(b, 0)]
    return dl.WhileOp.of(condition, states, _body([v.type for v in states], run))


def _scan(
    b: Build, first: Sequence[SSAValue], sequences: Sequence[SSAValue], step: _BodyBuilder, reverse: bool = False
) -> Sequence[SSAValue]:
    """Build a scan of _KEPT steps; return its last states and its stacked outputs."""
    elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in sequences]
    body = _body([*(v.type for v in first), *elements], step)
    return b.insert(dl.ScanOp.of([*first, *sequences], body, len(first), _STATES_PER_RUN, reverse)).results


def _branch(
    b: Build, condition: SSAValue, otherwise: Sequence[SSAValue], then: Callable[[Build], Sequence[SSAValue]]
) -> Sequence[SSAValue]:
    bodies = _body([], lambda b, _: then(b)), _body([], lambda b, _: otherwise)
    return b.insert(dl.IfOp.of(condition, *bodies, [v.type for v in otherwise])).results


def _pull_back_iteration(
    b: Build,
    step: Block,
    states: Sequence[SSAValue],
    incoming: Sequence[SSAValue],
    differentiated: Sequence[int],
    read: Sequence[SSAValue],
    context: ReverseModeContext,
) -> Sequence[SSAValue]:
    """Return the cotangents of the states before an iteration, and the accumulated cotangents of captured values."""
    body = clone_body(step)
    seeds: dict[int, SSAValue] = {1 + i: body.insert_arg(states[i].type, len(body.args)) for i in differentiated}
    wrt = [*(body.args[i] for i in differentiated), *read]
    cotangents, inner = context.pull_back_block(body, wrt, seeds), builder_at_end(body)
    replace_yield(body, [zeros(inner, v).value if ct is None else ct for v, ct in zip(wrt, cotangents, strict=True)])
    results = _inline_copy(b, body, [*states, *incoming[: len(differentiated)]])
    body.erase(safe_erase=False)
    return [
        *results[: len(differentiated)],
        *(b(dl.AddOp, x, y) for x, y in zip(incoming[len(differentiated) :], results[len(differentiated) :], strict=True)),
    ]
