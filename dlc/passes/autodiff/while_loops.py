"""Derivatives of while loops, whose number of iterations is data-dependent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values
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
    yielded_values,
)
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term

# The number of saved states: a loop of up to this many iterations runs twice.
_STATES_PER_RUN = 64


def while_forward(op: dl.WhileOp, context: ForwardModeContext) -> None:
    """Build the forward-mode loop: its additional states are the tangents of the states."""
    build, states, count = DlBuilder(op), list(op.arguments), len(op.results)
    differentiated = [i for i in range(count) if is_differentiable(states[i])]
    initial_tangents = [context.tangent(states[i], build) for i in differentiated]
    condition = op.condition
    (body,) = detach_bodies(op)
    parameters = list(body.args)
    for i in differentiated:
        context.tangents[parameters[i]] = body.insert_arg(parameters[i].type, len(body.args))
    context.walk(body)
    results, build = yielded_values(body), builder_at_end(body)
    replace_yield(body, [*results, *(context.tangent(results[1 + i], build) for i in differentiated)])
    new_op = dl.WhileOp.of(condition, [*states, *initial_tangents], body)
    insert_before(op, new_op)
    replace_and_erase(op, new_op.results[:count])
    context.tangents |= {new_op.results[i]: tangent for i, tangent in zip(differentiated, new_op.results[count:], strict=True)}


# Note [Reverse of a while loop]
#
# The forward loop counts its iterations. The reverse processes them in runs of _STATES_PER_RUN, the last run first: it
# restarts the loop from its first states, replays it up to the run, saves the states of each iteration of the run in
# sequences, and pulls the cotangents back through them. So memory is independent of the number of iterations; each run
# replays half of the loop on average.


def while_reverse(op: dl.WhileOp, context: ReverseModeContext) -> None:
    """Build the loops that compute the cotangents of a while loop; see Note [Reverse of a while loop]."""
    build_op, step, initial_states = context.build, op.block, list(op.arguments)
    differentiated = [i for i, v in enumerate(initial_states) if is_differentiable(v)]
    captures = [v for v in captured_values(step) if v in context.active]
    cotangents = [(context.take(op.results[i]) or zeros(build_op, op.results[i])).value for i in differentiated]
    sums = [zeros(build_op, v).value for v in captures]

    loop_builder = DlBuilder(op, op.location)
    counting_loop = loop_builder.insert(
        _counting_loop(loop_builder, op.condition, initial_states, lambda build, states, k: _inline_copy(build, step, states))
    )
    zero, last = _i64_constant(build_op, 0), counting_loop.results[-1]
    replay_region = Region(clone_body_without_prints(step))
    silent_step = replay_region.block

    def pull_back_run(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """Pull the cotangents back through one run of iterations, which ends before iteration `run_end`."""
        run_end, *incoming_cotangents = args
        start = build(dl.MaximumOp, build(dl.SubOp, run_end, _i64_constant(build, _STATES_PER_RUN)), zero)

        def replay_step(build: DlBuilder, states: Sequence[SSAValue], k: SSAValue) -> Sequence[SSAValue]:
            next_k = build(dl.AddOp, k, _i64_constant(build, 1))
            return [build(dl.LessOp, next_k, start), *_inline_copy(build, silent_step, states)[1:]]

        has_more = build(dl.GreaterOp, start, zero)
        replay = build.insert(_counting_loop(build, has_more, initial_states, replay_step)).results

        def save_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            *states, k = args
            is_in_run = build(dl.LessOp, k, run_end)
            next_k = _branch(build, is_in_run, states, lambda build: _inline_copy(build, silent_step, states)[1:])
            return [*next_k, build(dl.AddOp, k, _i64_constant(build, 1)), *states]

        saved_states = _scan(build, replay, [], save_step)[len(replay) :]

        def pull_back_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            incoming_cotangents, k, states = (
                args[: len(differentiated) + len(captures)],
                args[len(differentiated) + len(captures)],
                args[-len(initial_states) :],
            )
            is_in_run = build(dl.LessOp, k, run_end)
            previous_cotangents = _branch(
                build,
                is_in_run,
                incoming_cotangents,
                lambda build: _pull_back_iteration(
                    build, silent_step, states, incoming_cotangents, differentiated, captures, context
                ),
            )
            return [*previous_cotangents, build(dl.SubOp, k, _i64_constant(build, 1))]

        last_iteration = build(dl.AddOp, start, _i64_constant(build, _STATES_PER_RUN - 1))
        return [
            has_more,
            start,
            *_scan(build, [*incoming_cotangents, last_iteration], saved_states, pull_back_step, reverse=True)[:-1],
        ]

    states = [last, *cotangents, *sums]
    loop = build_op.insert(
        dl.WhileOp.of(build_op(dl.GreaterOp, last, zero), states, _body([v.type for v in states], pull_back_run))
    )
    replay_region.detach_block(silent_step).erase(safe_erase=False)
    replace_and_erase(op, counting_loop.results[:-1])
    for value, cotangent in zip([*(initial_states[i] for i in differentiated), *captures], loop.results[1:], strict=True):
        context.add(value, Term(build_op, cotangent))


# (builder, arguments of a body) -> values to yield. Emits the ops of the body.
_BodyBuilder = Callable[[DlBuilder, Sequence[SSAValue]], Sequence[SSAValue]]


def _body(types: Sequence[Attribute], build_body: _BodyBuilder) -> Block:
    block = Block(arg_types=types)
    block.add_op(dl.YieldOp(build_body(DlBuilder(block), block.args)))
    return block


def _i64_constant(build: DlBuilder, value: int) -> SSAValue:
    return build.constant(np.asarray(value), i64)


def _inline_copy(build: DlBuilder, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Insert a copy of a body for these arguments; return the values that it yields."""
    mapper: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for inner in block.ops:
        if not isinstance(inner, dl.YieldOp):
            build.insert(inner.clone(mapper))
    return [mapper.get(v, v) for v in yielded_values(block)]


def _counting_loop(
    build: DlBuilder,
    condition: SSAValue,
    initial_states: Sequence[SSAValue],
    step: Callable[[DlBuilder, Sequence[SSAValue], SSAValue], Sequence[SSAValue]],
) -> dl.WhileOp:
    """Build a while loop whose last state counts its iterations; `step` returns whether to continue, and the next states."""

    def counting_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        *states, k = args
        return [*step(build, states, k), build(dl.AddOp, k, _i64_constant(build, 1))]

    states = [*initial_states, _i64_constant(build, 0)]
    return dl.WhileOp.of(condition, states, _body([v.type for v in states], counting_step))


def _scan(
    build: DlBuilder,
    initial_states: Sequence[SSAValue],
    sequences: Sequence[SSAValue],
    step: _BodyBuilder,
    reverse: bool = False,
) -> Sequence[SSAValue]:
    """Build a scan of `_STATES_PER_RUN` steps; return its last states and its stacked outputs."""
    elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in sequences]
    body = _body([*(v.type for v in initial_states), *elements], step)
    return build.insert(
        dl.ScanOp.of([*initial_states, *sequences], body, len(initial_states), _STATES_PER_RUN, reverse)
    ).results


def _branch(
    build: DlBuilder, condition: SSAValue, otherwise: Sequence[SSAValue], then: Callable[[DlBuilder], Sequence[SSAValue]]
) -> Sequence[SSAValue]:
    bodies = _body([], lambda build, _: then(build)), _body([], lambda build, _: otherwise)
    return build.insert(dl.IfOp.of(condition, *bodies, [v.type for v in otherwise])).results


def _pull_back_iteration(
    build: DlBuilder,
    step: Block,
    states: Sequence[SSAValue],
    incoming_cotangents: Sequence[SSAValue],
    differentiated: Sequence[int],
    captures: Sequence[SSAValue],
    context: ReverseModeContext,
) -> Sequence[SSAValue]:
    """Return the cotangents of the states before an iteration, and the accumulated cotangents of captured values."""
    body = clone_body(step)
    seeds: dict[int, SSAValue] = {1 + i: body.insert_arg(states[i].type, len(body.args)) for i in differentiated}
    wrt = [*(body.args[i] for i in differentiated), *captures]
    cotangents, inner = context.pull_back_block(body, wrt, seeds), builder_at_end(body)
    replace_yield(
        body, [zeros(inner, v).value if cotangent is None else cotangent for v, cotangent in zip(wrt, cotangents, strict=True)]
    )
    results = _inline_copy(build, body, [*states, *incoming_cotangents[: len(differentiated)]])
    body.erase(safe_erase=False)
    return [
        *results[: len(differentiated)],
        *(
            build(dl.AddOp, x, y)
            for x, y in zip(incoming_cotangents[len(differentiated) :], results[len(differentiated) :], strict=True)
        ),
    ]
