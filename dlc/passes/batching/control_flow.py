"""Batching rules of loops, branches and functions with custom derivative rules.

A loop or branch whose condition is not batched is kept. With a batched condition, a loop runs until the last batch element is
done, and both bodies of a branch are computed. Batch elements that are done, or take the other branch, are inactive: their
results are computed and discarded. But an inactive element must not keep a loop running, nor make the program take a
failing branch: see Note [Inactive batch elements].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.logic import AndOp, NotOp, OrOp
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.movement.indexing import GatherOp
from dlc.dialects.dl.programs.control import FailOp, IfOp, PrintOp, ScanOp, WhileOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.programs.transformations import (
    NOT_BATCHED,
    CheckpointOp,
    CustomJvpOp,
    CustomVjpOp,
    LinearCallOp,
    add_batch_axis,
)
from dlc.dialects.dl.reductions.arg_extrema import ArgmaxOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp, ReduceSumOp
from dlc.ir import Block, Operation, SSAValue, i64
from dlc.passes.batching.batched_values import find_batched_values
from dlc.passes.batching.batching_context import BatchingContext
from dlc.passes.batching.masked_updates import mask_row_updates

# Batches the ops of a body.
Batch = Callable[[BatchingContext, Block], None]


def scan(context: BatchingContext, op: ScanOp, batch: Batch) -> None:
    """Batch a scan: a state is batched if any step makes it so; in sequences the batch axis follows the step axis."""
    count, batched_values = op.state_count, find_batched_values(op, context.batched)
    is_batched = [a in batched_values for a in op.block.args]
    arguments = [
        context.as_batched(v, batched) if k < count or not batched else context.move_axis(context.lookup(v), 0, 1)
        for k, (v, batched) in enumerate(zip(op.arguments, is_batched, strict=True))
    ]
    body = context.batched_body(op.block, is_batched)
    with context.inserting_into(body):
        batch(context, op.block)
        states, outputs = op.yielded[:count], op.yielded[count:]
        _yield(context, [*map(context.as_batched, states, is_batched[:count]), *map(context.lookup, outputs)])
    results = context.build.insert(ScanOp.of(arguments, body, count, op.steps, op.is_reverse)).results
    context.map_values(op.results[:count], results[:count], is_batched[:count])
    for old, new, element in zip(op.results[count:], results[count:], outputs, strict=True):
        batched = context.is_batched(element)
        context.map_value(old, context.move_axis(new, 1, 0) if batched else new, batched)


def while_(context: BatchingContext, op: WhileOp, batch: Batch) -> None:
    """Batch a while loop. With an unbatched condition it is kept; with a batched one it runs until all elements are done."""
    batched_values = find_batched_values(op, context.batched)
    is_batched = [a in batched_values for a in op.block.args]
    if op.condition in batched_values or op.yielded[0] in batched_values:
        return _while_any(context, op, is_batched, batch)
    initial_condition = context.lookup(op.condition)
    if context.may_have_inactive:
        initial_condition = context.build(AndOp, initial_condition, _any_along_batch(context, context.active_mask()))
    arguments = list(map(context.as_batched, op.arguments, is_batched))
    body = context.batched_body(op.block, is_batched)
    with context.inserting_into(body):
        batch(context, op.block)
        continues, *states = op.yielded
        _yield(context, [context.lookup(continues), *map(context.as_batched, states, is_batched)])
    results = context.build.insert(WhileOp.of(initial_condition, arguments, body)).results
    return context.map_values(op.results, results, is_batched)


def _while_any(context: BatchingContext, op: WhileOp, is_batched: Sequence[bool], batch: Batch) -> None:
    """Build a loop that runs while any batch element runs; finished elements keep their states.

    A mask of the elements that still run is an additional state.
    """
    running = context.active_mask(context.with_batch_axis(op.condition))
    initial_condition, arguments = (
        _any_along_batch(context, running),
        [running, *map(context.as_batched, op.arguments, is_batched)],
    )
    mask, masked = mask_row_updates(op.block.args, op.yielded[1:])
    body = context.batched_body(op.block, is_batched)
    running = body.insert_arg(running.type, 0)
    with context.inserting_into(body), context.restrict_active(running, expected=True, combine=False):
        context.map_value(mask, running, is_batched=True)
        batch(context, op.block)
        continues, *states = op.yielded
        next_states = [
            context.lookup(v)
            if v is a or k in masked
            else context.build(SelectOp, _align_condition(context, running, v), context.lookup(v), context.lookup(a))
            for k, (v, a) in enumerate(zip(states, op.block.args, strict=True))
        ]
        still_running = context.active_mask(context.with_batch_axis(continues))
        _yield(context, [_any_along_batch(context, still_running), still_running, *next_states])
    _, *results = context.build.insert(WhileOp.of(initial_condition, arguments, body)).results
    context.map_values(op.results, results, is_batched)


def if_(context: BatchingContext, op: IfOp, batch: Batch) -> None:
    """Batch a branch: it is kept if its condition is not batched or a body fails, else both bodies are computed."""
    fails = [isinstance(block.last_op, FailOp) for block in op.blocks]
    if not context.is_batched(op.condition):
        condition = context.lookup(op.condition)
        if any(fails) and context.may_have_inactive:
            is_reached = _any_along_batch(context, context.active_mask())
            condition = _guard_failing_body(context, condition, is_reached, fails)
        return _branch(context, op, condition, None, batch)
    condition = context.with_batch_axis(op.condition)
    if not any(fails):
        return _select_between_bodies(context, op, condition, batch)
    # Unless an active element takes the failing branch, all active ones take the other branch.
    with context.restrict_active(condition, expected=fails[0]):
        failing = _any_along_batch(context, context.active_mask())
    return _branch(context, op, failing if fails[0] else context.build(NotOp, failing), condition, batch)


def _guard_failing_body(context: BatchingContext, condition: SSAValue, is_reached: SSAValue, fails: Sequence[bool]) -> SSAValue:
    """Guard a condition so that the failing body runs only if an active element reaches the branch."""
    if fails[0]:
        return context.build(AndOp, condition, is_reached)
    return context.build(OrOp, condition, context.build(NotOp, is_reached))


def _select_between_bodies(context: BatchingContext, op: IfOp, condition: SSAValue, batch: Batch) -> None:
    """Compute both bodies, and select the results per batch element."""
    for block, branch_value in zip(op.blocks, (True, False), strict=True):
        with context.restrict_active(condition, branch_value):
            batch(context, block)
    for result, x, y in zip(op.results, *map(_yielded, op.blocks), strict=True):
        selected = context.build(SelectOp, _align_condition(context, condition, result), context.lookup(x), context.lookup(y))
        context.map_value(result, selected, is_batched=True)


def _branch(context: BatchingContext, op: IfOp, condition: SSAValue, element_condition: SSAValue | None, batch: Batch) -> None:
    """Keep the branch, with an unbatched condition; `element_condition` masks which elements are active in which body."""
    bodies = [Block() for _ in op.blocks]
    for block, body, branch_value in zip(op.blocks, bodies, (True, False), strict=True):
        with (
            context.inserting_into(body),
            nullcontext() if element_condition is None else context.restrict_active(element_condition, branch_value),
        ):
            batch(context, block)
            if isinstance(block.last_op, FailOp):
                context.build.insert(_batched_fail(context, block.last_op))
    yields = [_yielded(block) for block in op.blocks if not isinstance(block.last_op, FailOp)]
    is_batched = [any(context.is_batched(values[k]) for values in yields) for k in range(len(op.results))]
    for block, body in zip(op.blocks, bodies, strict=True):
        if not isinstance(block.last_op, FailOp):
            with context.inserting_into(body):
                _yield(context, map(context.as_batched, _yielded(block), is_batched))
    types = [
        add_batch_axis(r, 0 if batched else NOT_BATCHED, context.size)
        for r, batched in zip(op.results, is_batched, strict=True)
    ]
    results = context.build.insert(IfOp.of(condition, bodies[0], bodies[1], types)).results
    context.map_values(op.results, results, is_batched)


def _batched_fail(context: BatchingContext, op: FailOp) -> FailOp:
    """Build the same failure, with the values of the first active element."""
    build, values = context.build, [context.lookup(v) for v in op.message_values]
    if any(map(context.is_batched, op.message_values)):
        any_element = build.scalar(0, like=tensor_type((), i64))
        first = build(ArgmaxOp, context.active_mask(), axis=0) if context.may_have_inactive else any_element
        values = [
            build(GatherOp, n, first, axis=0) if context.is_batched(v) else n
            for n, v in zip(values, op.message_values, strict=True)
        ]
    return FailOp(op.message.data, values)


def checkpoint(context: BatchingContext, op: CheckpointOp, batch: Batch) -> None:
    """Batch the body; all results are batched if any value that it reads is."""
    results_batched, is_batched = context.reads_batched(op), [context.is_batched(v) for v in op.arguments]
    body = _batched_function(context, op.block, is_batched, results_batched, batch)
    new_op = context.build.insert(CheckpointOp.of([*map(context.lookup, op.arguments)], body, op.memory_bytes))
    context.map_values(op.results, new_op.results, [results_batched for _ in op.results])


def custom_jvp(context: BatchingContext, op: CustomJvpOp, batch: Batch) -> None:
    """Batch the function and its jvp rule. The tangent of an unbatched argument is unbatched."""
    results_batched, is_batched = context.reads_batched(op), [context.is_batched(v) for v in op.arguments]
    body = _batched_function(context, op.blocks[0], is_batched, results_batched, batch)
    rule = _batched_function(
        context, op.blocks[1], [*is_batched, *_float_flags(op.arguments, is_batched)], results_batched, batch
    )
    new_op = context.build.insert(CustomJvpOp.of([*map(context.lookup, op.arguments)], body, rule))
    context.map_values(op.results, new_op.results, [results_batched for _ in op.results])


def custom_vjp(context: BatchingContext, op: CustomVjpOp, batch: Batch) -> None:
    """Batch the function and both functions of its vjp rule.

    The cotangent of an unbatched argument is the sum over the batch.
    """
    results_batched, is_batched, count = (
        context.reads_batched(op),
        [context.is_batched(v) for v in op.arguments],
        len(op.results),
    )
    function, forward, backward = op.blocks
    bodies = [
        _batched_function(context, function, is_batched, results_batched, batch),
        _batched_block(context, forward, is_batched, batch),
    ]
    results, residuals = _yielded(forward)[:count], _yielded(forward)[count:]
    with context.inserting_into(bodies[1]):
        _yield(context, [*(context.as_batched(v, results_batched) for v in results), *map(context.lookup, residuals)])
    cotangents = _float_flags(op.results, [results_batched for _ in op.results])
    bodies.append(_batched_block(context, backward, [*map(context.is_batched, residuals), *cotangents], batch))
    with context.inserting_into(bodies[2]):
        is_argument_batched = _float_flags(op.arguments, is_batched)
        _yield(
            context,
            [
                _cotangent(context, v, batched, results_batched)
                for v, batched in zip(_yielded(backward), is_argument_batched, strict=True)
            ],
        )
    new = context.build.insert(CustomVjpOp.of([*map(context.lookup, op.arguments)], *bodies))
    context.map_values(op.results, new.results, [results_batched for _ in op.results])


def linear_call(context: BatchingContext, op: LinearCallOp, batch: Batch) -> None:
    """Batch the function and its transpose. If any value that they read is batched, all arguments and results are."""
    is_batched = context.reads_batched(op)
    bodies = [_batched_function(context, block, [is_batched for _ in block.args], is_batched, batch) for block in op.blocks]
    arguments = [context.as_batched(v, is_batched) for v in op.arguments]
    new_op = context.build.insert(LinearCallOp.of(arguments, *bodies))
    context.map_values(op.results, new_op.results, [is_batched for _ in op.results])


def _cotangent(context: BatchingContext, value: SSAValue, is_batched: bool, results_batched: bool) -> SSAValue:
    """Return the cotangent of an argument, summed over the batch if only the results are batched."""
    if results_batched and not is_batched:
        return context.build(ReduceSumOp, context.with_batch_axis(value), axes=(0,))
    return context.as_batched(value, is_batched)


def _batched_function(
    context: BatchingContext, block: Block, is_batched: Sequence[bool], results_batched: bool, batch: Batch
) -> Block:
    """Batch a body, given which arguments are batched and whether all results must be batched."""
    body = _batched_block(context, block, is_batched, batch)
    with context.inserting_into(body):
        _yield(context, [context.as_batched(v, results_batched) for v in _yielded(block)])
    return body


def _batched_block(context: BatchingContext, block: Block, is_batched: Sequence[bool], batch: Batch) -> Block:
    """Batch a body without its terminator."""
    body = context.batched_body(block, is_batched)
    with context.inserting_into(body):
        batch(context, block)
    return body


def _float_flags(values: Sequence[SSAValue], is_batched: Sequence[bool]) -> list[bool]:
    """Return the flags of the values that are floats."""
    return [batched for v, batched in zip(values, is_batched, strict=True) if is_float(element_type_of(v))]


def _yielded(block: Block) -> Sequence[SSAValue]:
    assert isinstance(block.last_op, YieldOp)
    return block.last_op.values


def _yield(context: BatchingContext, values: Iterable[SSAValue]) -> None:
    context.build.insert(YieldOp([*values]))


def _any_along_batch(context: BatchingContext, condition: SSAValue) -> SSAValue:
    """Return whether a condition holds for any batch element."""
    return context.build(ReduceAnyOp, condition, axes=(0,))


def _align_condition(context: BatchingContext, condition: SSAValue, value: SSAValue) -> SSAValue:
    """Reshape a condition per batch element to broadcast with a batched value."""
    return context.reshape(condition, context.size, *(1 for _ in shape_of(value)))


def print_(context: BatchingContext, op: PrintOp, batch: Batch) -> None:
    """Print batched values with the batch along axis 0, including inactive elements."""
    context.build.insert(PrintOp(op.texts, [context.lookup(v) for v in op.arguments]))


CONTROL: dict[type[Operation], Callable[[BatchingContext, Any, Batch], None]] = {
    ScanOp: scan,
    WhileOp: while_,
    IfOp: if_,
    PrintOp: print_,
    CheckpointOp: checkpoint,
    CustomJvpOp: custom_jvp,
    CustomVjpOp: custom_vjp,
    LinearCallOp: linear_call,
}

# Note [Inactive batch elements]
#
# In the body of a branch that a batch element does not take, and in a loop after it is done, the element computes with values
# that cannot occur there in the unbatched function. Its results are unused, but
# - a loop must not continue for an inactive element: its condition is masked with activity, and a loop with an unbatched
#   condition starts only if any element is active;
# - a failing branch must be taken only for an active element. If any takes it, the program fails with the branch's message;
# - a checked index of an inactive element is set to 0.
