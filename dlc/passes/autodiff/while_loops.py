"""Derivatives of while loops, whose number of iterations is data-dependent."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values
from dlc.ir import Region, SSAValue
from dlc.passes.autodiff.binomial_checkpoints import reverse_segments
from dlc.passes.autodiff.bodies import (
    ForwardModeContext,
    ReverseModeContext,
    builder_at_end,
    clone_body_without_prints,
    detach_bodies,
    insert_before,
    replace_and_erase,
    replace_yield,
    yielded_values,
)
from dlc.passes.autodiff.loop_building import (
    build_branch,
    build_counting_loop,
    build_scan,
    i64_constant,
    inline_copy,
    pull_back_body,
)
from dlc.passes.autodiff.rules import active_states
from dlc.passes.autodiff.shapes import num_bytes, zeros
from dlc.passes.autodiff.term import Term

# The maximum and minimum number of iterations of a run, whose states are saved together and should fit in the L2 cache.
# Saving takes time for all iterations of a run, also those after the last iteration of the loop.
_MAX_STATES_PER_RUN, _MIN_STATES_PER_RUN = 64, 8
_MAX_RUN_BYTES = 1 << 19
# The maximum and minimum number of saved states from which iterations are repeated. Memory for all of them is initialized.
_MAX_SNAPSHOT_STATES, _MIN_SNAPSHOT_STATES = 32, 8
_MAX_SNAPSHOT_BYTES = 1 << 19


def while_forward(op: dl.WhileOp, context: ForwardModeContext) -> None:
    """Build the forward-mode loop: its additional states are the tangents of the states."""
    build, states, count = DlBuilder(op), list(op.arguments), len(op.results)
    differentiated = _active_states(op, context.tangents)
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


def _active_states(op: dl.WhileOp, active: Collection[SSAValue]) -> list[int]:
    """Return the indices of the states that depend on active values."""
    active_parameters = [p for p, v in zip(op.block.args, op.arguments, strict=True) if v in active]
    return active_states(op.block, op.block.args, [*active, *active_parameters], first_state=1)


# Note [Reverse of a while loop]
#
# The forward loop counts its iterations. The reverse processes them in runs of 8 to 64 iterations, the last run first: it
# restores the states before the run (Note [Binomial checkpoints]), saves the states of each iteration of the run in sequences,
# and pulls the cotangents back through them. So memory is independent of the number of iterations; in runs of 64, with 32
# snapshots, 36,000 iterations are repeated up to twice, 400,000 up to three times.


def while_reverse(op: dl.WhileOp, context: ReverseModeContext) -> None:
    """Build the loops that compute the cotangents of a while loop; see Note [Reverse of a while loop]."""
    build_op, step, initial_states = context.build, op.block, list(op.arguments)
    run_length = _run_length(initial_states)
    differentiated = _active_states(op, context.active)
    captures = [v for v in captured_values(step) if v in context.active]
    cotangents = [(context.take(op.results[i]) or zeros(build_op, op.results[i])).value for i in differentiated]
    sums = [zeros(build_op, v).value for v in captures]

    forward = DlBuilder(op, op.location)
    *results, count = build_counting_loop(
        forward,
        op.condition,
        initial_states,
        i64_constant(forward, 0),
        lambda build, states, _: inline_copy(build, step, states),
    )
    silent_region = Region(clone_body_without_prints(step))
    silent_step = silent_region.block

    def first_iteration(build: DlBuilder, run: SSAValue) -> SSAValue:
        return build(dl.MulOp, run, i64_constant(build, run_length))

    def advance(build: DlBuilder, states: Sequence[SSAValue], first: SSAValue, end: SSAValue) -> Sequence[SSAValue]:
        limit = first_iteration(build, end)

        def repeat(build: DlBuilder, states: Sequence[SSAValue], next_k: SSAValue) -> Sequence[SSAValue]:
            return [build(dl.LessOp, next_k, limit), *inline_copy(build, silent_step, states)[1:]]

        has_runs = build(dl.LessOp, first, end)
        return build_counting_loop(build, has_runs, states, first_iteration(build, first), repeat)[:-1]

    def pull_back_run(
        build: DlBuilder, states: Sequence[SSAValue], run: SSAValue, cotangents: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        def save_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            *states, k = args
            is_in_run = build(dl.LessOp, k, count)
            next_states = build_branch(build, is_in_run, states, lambda build: inline_copy(build, silent_step, states)[1:])
            return [*next_states, build(dl.AddOp, k, i64_constant(build, 1)), *states, k]

        saved = build_scan(build, [*states, first_iteration(build, run)], [], run_length, save_step)[len(states) + 1 :]

        def pull_back_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            incoming, states, k = args[: len(cotangents)], args[len(cotangents) : -1], args[-1]
            is_in_run = build(dl.LessOp, k, count)
            return build_branch(
                build,
                is_in_run,
                incoming,
                lambda build: pull_back_iteration(build, states, incoming),
            )

        return build_scan(build, cotangents, saved, run_length, pull_back_step, reverse=True)

    def pull_back_iteration(build: DlBuilder, states: Sequence[SSAValue], incoming: Sequence[SSAValue]) -> Sequence[SSAValue]:
        seeds = {1 + i: cotangent for i, cotangent in zip(differentiated, incoming, strict=False)}
        pulled = pull_back_body(build, silent_step, states, differentiated, captures, seeds, context)
        kept = len(differentiated)
        sums = zip(incoming[kept:], pulled[kept:], strict=True)
        return [*pulled[:kept], *(build(dl.AddOp, x, y) for x, y in sums)]

    rounded = build_op(dl.AddOp, count, i64_constant(build_op, run_length - 1))
    num_runs = build_op(dl.FloordivOp, rounded, i64_constant(build_op, run_length))
    previous = reverse_segments(
        build_op, num_runs, _num_snapshots(initial_states), initial_states, [*cotangents, *sums], advance, pull_back_run
    )
    silent_region.detach_block(silent_step).erase(safe_erase=False)
    replace_and_erase(op, results)
    for value, cotangent in zip([*(initial_states[i] for i in differentiated), *captures], previous, strict=True):
        context.add(value, Term(build_op, cotangent))


def _run_length(states: Sequence[SSAValue]) -> int:
    """Return the number of iterations of a run: a power of two."""
    num_states = max(1, _num_states(_MAX_RUN_BYTES, states))
    return max(_MIN_STATES_PER_RUN, min(_MAX_STATES_PER_RUN, 1 << num_states.bit_length() - 1))


def _num_snapshots(states: Sequence[SSAValue]) -> int:
    return max(_MIN_SNAPSHOT_STATES, min(_MAX_SNAPSHOT_STATES, _num_states(_MAX_SNAPSHOT_BYTES, states)))


def _num_states(bytes: int, states: Sequence[SSAValue]) -> int:
    """Return the number of copies of all states that fit in `bytes` of memory."""
    return int(bytes // max(1, sum(map(num_bytes, states))))
