"""Derivatives of while loops, whose number of iterations is data-dependent."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import Block, SSAValue, erase_op
from dlc.passes.autodiff.binomial_checkpoints import SnapshotStack, reverse_segments
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
from dlc.passes.autodiff.differentiated_step import DifferentiatedStep
from dlc.passes.autodiff.loop_building import (
    build_branch,
    build_scan,
    build_while,
    element_at,
    i64_constant,
    inline_copy,
    with_element,
)
from dlc.passes.autodiff.rules import active_states
from dlc.passes.autodiff.shapes import num_bytes, unspecified, zeros
from dlc.passes.autodiff.term import Term

# The maximum and minimum iterations of a segment. Its residuals are saved together, and should fit in the L2 cache.
# Saving takes time for all iterations of a segment, also those after the last iteration of the loop.
_MAX_STATES_PER_SEGMENT, _MIN_STATES_PER_SEGMENT = 64, 8
_MAX_SEGMENT_BYTES = 1 << 19
# The maximum and minimum number of saved states from which iterations are repeated. Memory for all of them is initialized.
_MAX_SNAPSHOT_STATES, _MIN_SNAPSHOT_STATES = 256, 8
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
# The forward loop processes its iterations in segments of 8 to 64. It saves the states before some segments on a stack of
# snapshots: at first before every segment. When the stack is full, every second snapshot is dropped, and from then on twice as
# many segments lie between snapshots. The reverse processes the last segment first. It restores the states before the segment
# (Note [Binomial checkpoints]), and repeats its iterations, which stacks their residuals (Note [Recomputation by a minimum
# cut]). Then it pulls the cotangents back through them. So memory is independent of the number of iterations. With segments of
# 64 and 192 snapshots, up to 12,000 iterations are repeated once, a million twice.


def while_reverse(op: dl.WhileOp, context: ReverseModeContext) -> None:
    """Build the loops that compute the cotangents of a while loop; see Note [Reverse of a while loop]."""
    build, initial_states, segment_length = context.build, list(op.arguments), _segment_length(op.arguments)
    step, (iteration, reverse_iteration) = _differentiated_iteration(op, segment_length, context)
    cotangents = [(context.take(op.results[i]) or zeros(build, op.results[i])).value for i in step.states]
    count, num_sums = len(initial_states), len(step.summand_lists)
    results, num_iterations, num_segments, stack = _run_forward(DlBuilder(op, op.location), op, segment_length)
    silent_step = clone_body_without_prints(op.block)

    def advance(build: DlBuilder, states: Sequence[SSAValue], first: SSAValue, end: SSAValue) -> Sequence[SSAValue]:
        length = i64_constant(build, segment_length)
        has_segments, start = build(dl.LessOp, first, end), build(dl.MulOp, first, length)
        return _run(build, silent_step, has_segments, states, start, build(dl.MulOp, end, length))[1 : 1 + count]

    def pull_back(
        build: DlBuilder, states: Sequence[SSAValue], segment: SSAValue, cotangents: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        # The states and residuals after the last iteration of the loop.
        unread = [unspecified(build, v) for v in yielded_values(iteration)]

        def save_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            *states, k = args
            is_in_loop = build(dl.LessOp, k, num_iterations)
            values = build_branch(build, is_in_loop, unread, lambda build: inline_copy(build, iteration, states))
            return [*values[:count], build(dl.AddOp, k, i64_constant(build, 1)), *values[count:], is_in_loop]

        def pull_back_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
            cotangents, (*saved, is_in_loop) = args[: num_states + num_sums], args[num_states + num_sums :]
            inputs = [*cotangents, *saved]
            return build_branch(build, is_in_loop, cotangents, lambda build: inline_copy(build, reverse_iteration, inputs))

        num_states = len(step.states)
        first = build(dl.MulOp, segment, i64_constant(build, segment_length))
        saved = build_scan(build, [*states, first], [], segment_length, save_step)[count + 1 :]
        return build_scan(build, cotangents, saved, segment_length, pull_back_step, reverse=True)

    previous = reverse_segments(build, num_segments, stack, [*cotangents, *step.initial_sums(build)], advance, pull_back)
    for block in (silent_step, iteration, reverse_iteration):
        block.erase(safe_erase=False)
    replace_and_erase(op, results)
    for i, cotangent in zip(step.states, previous, strict=False):
        context.add(initial_states[i], Term(build, cotangent))
    step.add_sums(context, previous[len(cotangents) :])


def _differentiated_iteration(
    op: dl.WhileOp, segment_length: int, context: ReverseModeContext
) -> tuple[DifferentiatedStep, tuple[Block, Block]]:
    """Derive the reverse of an iteration from a scan with the same step.

    Returns the step and its bodies: the first, without prints, yields the next states and the residuals; the second takes
    cotangents, sums and the residuals.
    """
    body = clone_body_without_prints(op.block)
    replace_yield(body, yielded_values(body)[1:])
    scan = dl.ScanOp.of([*op.arguments], body, len(op.arguments), segment_length, False)
    insert_before(op, scan)
    step = DifferentiatedStep.of(scan, context, splits_products=False)
    backward, residuals, _ = step.split()
    replace_yield(step.body, [*yielded_values(step.body), *residuals])
    erase_op(scan)
    return step, (step.body, backward)


def _run(
    build: DlBuilder, body: Block, condition: SSAValue, states: Sequence[SSAValue], start: SSAValue, end: SSAValue
) -> Sequence[SSAValue]:
    """Run iterations up to a number; return whether the loop continues, the states, and the number of iterations so far."""

    def repeat(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        _, *states, k = args
        continues, *next_states = inline_copy(build, body, states)
        next_k = build(dl.AddOp, k, i64_constant(build, 1))
        is_running = build(dl.AndOp, continues, build(dl.LessOp, next_k, end))
        return [is_running, continues, *next_states, next_k]

    return build_while(build, condition, [condition, *states, start], repeat)


def _run_forward(
    build: DlBuilder, op: dl.WhileOp, segment_length: int
) -> tuple[Sequence[SSAValue], SSAValue, SSAValue, SnapshotStack]:
    """Build the forward loop; return the last states, the numbers of iterations and of segments, and the snapshots."""
    stack, count = SnapshotStack.empty(build, op.arguments, _num_snapshots(op.arguments)), len(op.arguments)
    # The other slots are for snapshots that the reverse adds.
    capacity = stack.size * 3 // 4 // 2 * 2

    def repeat(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        states, (iterations, segment, next_saved, distance, slot), arrays = (
            args[:count],
            args[count : count + 5],
            args[count + 5 :],
        )
        one, half = i64_constant(build, 1), i64_constant(build, capacity // 2)
        is_full = build(dl.EqualOp, slot, i64_constant(build, capacity))
        arrays = _drop_every_second(build, is_full, arrays, capacity // 2)
        slot = build(dl.SelectOp, is_full, half, slot)
        distance = build(dl.SelectOp, is_full, build(dl.AddOp, distance, distance), distance)
        # An element of a segment without a snapshot is overwritten later.
        arrays = [with_element(build, a, slot, v) for a, v in zip(arrays, [segment, *states], strict=True)]
        is_saved = build(dl.EqualOp, segment, next_saved)
        slot = build(dl.SelectOp, is_saved, build(dl.AddOp, slot, one), slot)
        next_saved = build(dl.SelectOp, is_saved, build(dl.AddOp, next_saved, distance), next_saved)
        end = build(dl.AddOp, iterations, i64_constant(build, segment_length))
        starts = build(dl.LessOp, iterations, end)
        continues, *states_and_count = _run(build, op.block, starts, states, iterations, end)
        return [continues, *states_and_count, build(dl.AddOp, segment, one), next_saved, distance, slot, *arrays]

    zero, one = i64_constant(build, 0), i64_constant(build, 1)
    initial = [*op.arguments, zero, zero, zero, one, zero, stack.positions, *stack.states]
    results = build_while(build, op.condition, initial, repeat)
    iterations, segment, _, _, slot, positions, *arrays = results[count:]
    return results[:count], iterations, segment, SnapshotStack(positions, arrays, build(dl.SubOp, slot, one))


def _drop_every_second(build: DlBuilder, condition: SSAValue, arrays: Sequence[SSAValue], remaining: int) -> Sequence[SSAValue]:
    """Move the elements at even indices to the beginning of arrays, if a condition holds."""

    def repeat(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        *arrays, k = args
        next_k, even = build(dl.AddOp, k, i64_constant(build, 1)), build(dl.AddOp, k, k)
        moved = [with_element(build, array, k, element_at(build, array, even)) for array in arrays]
        return [build(dl.LessOp, next_k, i64_constant(build, remaining)), *moved, next_k]

    return build_while(build, condition, [*arrays, i64_constant(build, 0)], repeat)[:-1]


def _segment_length(states: Sequence[SSAValue]) -> int:
    """Return the number of iterations of a segment: a power of two."""
    num_states = max(1, _num_states(_MAX_SEGMENT_BYTES, states))
    return max(_MIN_STATES_PER_SEGMENT, min(_MAX_STATES_PER_SEGMENT, 1 << num_states.bit_length() - 1))


def _num_snapshots(states: Sequence[SSAValue]) -> int:
    return max(_MIN_SNAPSHOT_STATES, min(_MAX_SNAPSHOT_STATES, _num_states(_MAX_SNAPSHOT_BYTES, states)))


def _num_states(bytes: int, states: Sequence[SSAValue]) -> int:
    """Return the number of copies of all states that fit in `bytes` of memory."""
    return int(bytes // max(1, sum(map(num_bytes, states))))
