"""Loops, branches and functions with rules of their own, for all lanes at once.

A loop whose condition is the same in all lanes stays what it is, so does a branch. Where lanes differ, a loop runs until the
last of them is done, and both bodies of a branch are computed. Some lanes take no part in what is computed then, and what
they would compute is not used; but a loop that would not end for their values, or a branch that fails, must not be taken
for their sake: see Note [Lanes that take no part].
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
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, CheckpointOp, CustomJvpOp, CustomVjpOp, with_lanes
from dlc.dialects.dl.reductions.extreme_places import ArgmaxOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp, ReduceSumOp
from dlc.ir import Block, Operation, SSAValue, i64
from dlc.passes.batching.differences import values_that_differ
from dlc.passes.batching.lanes import Lanes

# Batches the ops of a body.
Batch = Callable[[Lanes, Block], None]


def scan(lanes: Lanes, op: ScanOp, batch: Batch) -> None:
    """The same scan: a state has lanes if any step makes it differ; the lanes of sequences lie behind their steps."""
    count, differing = op.state_count, values_that_differ(op, lanes.differing)
    differs = [a in differing for a in op.block.args]
    arguments = [
        lanes.settled(v, d) if k < count or not d else lanes.moved(lanes.read(v), 0, 1)
        for k, (v, d) in enumerate(zip(op.arguments, differs, strict=True))
    ]
    body = lanes.copy_of(op.block, differs)
    with lanes.inside(body):
        batch(lanes, op.block)
        states, made = op.yielded[:count], op.yielded[count:]
        _close(lanes, [*map(lanes.settled, states, differs[:count]), *map(lanes.read, made)])
    results = lanes.build.insert(ScanOp.of(arguments, body, count, op.steps, op.goes_back)).results
    lanes.set_all(op.results[:count], results[:count], differs[:count])
    for old, new, element in zip(op.results[count:], results[count:], made, strict=True):
        d = lanes.differs(element)
        lanes.set(old, lanes.moved(new, 1, 0) if d else new, d)


def while_(lanes: Lanes, op: WhileOp, batch: Batch) -> None:
    differing = values_that_differ(op, lanes.differing)
    differs = [a in differing for a in op.block.args]
    if op.condition in differing or op.yielded[0] in differing:
        return _while_any(lanes, op, differs, batch)
    begin = lanes.read(op.condition)
    if lanes.some_may_not_take_part:
        begin = lanes.build(AndOp, begin, _any(lanes, lanes.and_takes_part()))
    arguments = list(map(lanes.settled, op.arguments, differs))
    body = lanes.copy_of(op.block, differs)
    with lanes.inside(body):
        batch(lanes, op.block)
        again, *states = op.yielded
        _close(lanes, [lanes.read(again), *map(lanes.settled, states, differs)])
    results = lanes.build.insert(WhileOp.of(begin, arguments, body)).results
    return lanes.set_all(op.results, results, differs)


def _while_any(lanes: Lanes, op: WhileOp, differs: Sequence[bool], batch: Batch) -> None:
    """Runs while any lane does; those that are done keep their states. Whether each goes on is one more state."""
    goes_on = lanes.and_takes_part(lanes.all(op.condition))
    begin, arguments = _any(lanes, goes_on), [goes_on, *map(lanes.settled, op.arguments, differs)]
    body = lanes.copy_of(op.block, differs)
    goes_on = body.insert_arg(goes_on.type, 0)
    with lanes.inside(body), lanes.where(goes_on, holds=True, within=False):
        batch(lanes, op.block)
        again, *states = op.yielded
        kept = [
            lanes.read(a) if v is a else lanes.build(SelectOp, _for_axes(lanes, goes_on, v), lanes.read(v), lanes.read(a))
            for v, a in zip(states, op.block.args, strict=True)
        ]
        still = lanes.and_takes_part(lanes.all(again))
        _close(lanes, [_any(lanes, still), still, *kept])
    _, *results = lanes.build.insert(WhileOp.of(begin, arguments, body)).results
    lanes.set_all(op.results, results, differs)


def if_(lanes: Lanes, op: IfOp, batch: Batch) -> None:
    fails = [isinstance(block.last_op, FailOp) for block in op.blocks]
    if not lanes.differs(op.condition):
        condition = lanes.read(op.condition)
        if any(fails) and lanes.some_may_not_take_part:
            taken = _any(lanes, lanes.and_takes_part())
            condition = _and_not_failing(lanes, condition, taken, fails)
        return _branch(lanes, op, condition, None, batch)
    condition = lanes.all(op.condition)
    if not any(fails):
        return _both(lanes, op, condition, batch)
    # If no lane takes the branch that fails, all that take part take the other one.
    with lanes.where(condition, holds=fails[0]):
        failing = _any(lanes, lanes.and_takes_part())
    return _branch(lanes, op, failing if fails[0] else lanes.build(NotOp, failing), condition, batch)


def _and_not_failing(lanes: Lanes, condition: SSAValue, taken: SSAValue, fails: Sequence[bool]) -> SSAValue:
    """A condition of a branch, which is `taken` at all, so that the body that fails is run only then."""
    if fails[0]:
        return lanes.build(AndOp, condition, taken)
    return lanes.build(OrOp, condition, lanes.build(NotOp, taken))


def _both(lanes: Lanes, op: IfOp, condition: SSAValue, batch: Batch) -> None:
    """Both bodies, and for each lane the results of its own."""
    for block, holds in zip(op.blocks, (True, False), strict=True):
        with lanes.where(condition, holds):
            batch(lanes, block)
    for result, x, y in zip(op.results, *map(_yielded, op.blocks), strict=True):
        chosen = lanes.build(SelectOp, _for_axes(lanes, condition, result), lanes.read(x), lanes.read(y))
        lanes.set(result, chosen, differs=True)


def _branch(lanes: Lanes, op: IfOp, condition: SSAValue, of_lanes: SSAValue | None, batch: Batch) -> None:
    """The same branch, on a condition that is one for all lanes; `of_lanes` says which of them take part in which body."""
    bodies = [Block() for _ in op.blocks]
    for block, body, holds in zip(op.blocks, bodies, (True, False), strict=True):
        with lanes.inside(body), nullcontext() if of_lanes is None else lanes.where(of_lanes, holds):
            batch(lanes, block)
            if isinstance(block.last_op, FailOp):
                lanes.build.insert(_failing(lanes, block.last_op))
    yields = [_yielded(block) for block in op.blocks if not isinstance(block.last_op, FailOp)]
    differs = [any(lanes.differs(values[k]) for values in yields) for k in range(len(op.results))]
    for block, body in zip(op.blocks, bodies, strict=True):
        if not isinstance(block.last_op, FailOp):
            with lanes.inside(body):
                _close(lanes, map(lanes.settled, _yielded(block), differs))
    types = [with_lanes(r, 0 if d else NOT_BATCHED, lanes.size) for r, d in zip(op.results, differs, strict=True)]
    results = lanes.build.insert(IfOp.of(condition, bodies[0], bodies[1], types)).results
    lanes.set_all(op.results, results, differs)


def _failing(lanes: Lanes, op: FailOp) -> FailOp:
    """The same message, with the numbers of the first lane that takes part."""
    b, numbers = lanes.build, [lanes.read(v) for v in op.numbers]
    if any(map(lanes.differs, op.numbers)):
        any_lane = b.scalar(0, like=tensor_type((), i64))
        first = b(ArgmaxOp, lanes.and_takes_part(), axis=0) if lanes.some_may_not_take_part else any_lane
        numbers = [b(GatherOp, n, first, axis=0) if lanes.differs(v) else n for n, v in zip(numbers, op.numbers, strict=True)]
    return FailOp(op.message.data, numbers)


def checkpoint(lanes: Lanes, op: CheckpointOp, batch: Batch) -> None:
    whole, differs = lanes.reads_lanes(op), [lanes.differs(v) for v in op.arguments]
    body = _function(lanes, op.block, differs, whole, batch)
    made = lanes.build.insert(CheckpointOp.of([*map(lanes.read, op.arguments)], body))
    lanes.set_all(op.results, made.results, [whole for _ in op.results])


def custom_jvp(lanes: Lanes, op: CustomJvpOp, batch: Batch) -> None:
    """The function and its rule, each for all lanes. The tangent of an argument that is the same in all of them is, too."""
    whole, differs = lanes.reads_lanes(op), [lanes.differs(v) for v in op.arguments]
    body = _function(lanes, op.blocks[0], differs, whole, batch)
    rule = _function(lanes, op.blocks[1], [*differs, *_of_floats(op.arguments, differs)], whole, batch)
    made = lanes.build.insert(CustomJvpOp.of([*map(lanes.read, op.arguments)], body, rule))
    lanes.set_all(op.results, made.results, [whole for _ in op.results])


def custom_vjp(lanes: Lanes, op: CustomVjpOp, batch: Batch) -> None:
    """The function and both halves of its rule, each for all lanes.

    The cotangent of an argument that is the same in all lanes is the sum of theirs.
    """
    whole, differs, count = lanes.reads_lanes(op), [lanes.differs(v) for v in op.arguments], len(op.results)
    function, forward, backward = op.blocks
    made = [_function(lanes, function, differs, whole, batch), _copy(lanes, forward, differs, batch)]
    results, kept = _yielded(forward)[:count], _yielded(forward)[count:]
    with lanes.inside(made[1]):
        _close(lanes, [*(lanes.settled(v, whole) for v in results), *map(lanes.read, kept)])
    cotangents = _of_floats(op.results, [whole for _ in op.results])
    made.append(_copy(lanes, backward, [*map(lanes.differs, kept), *cotangents], batch))
    with lanes.inside(made[2]):
        own = _of_floats(op.arguments, differs)
        _close(lanes, [_cotangent(lanes, v, d, whole) for v, d in zip(_yielded(backward), own, strict=True)])
    new = lanes.build.insert(CustomVjpOp.of([*map(lanes.read, op.arguments)], *made))
    lanes.set_all(op.results, new.results, [whole for _ in op.results])


def _cotangent(lanes: Lanes, value: SSAValue, differs: bool, whole: bool) -> SSAValue:
    """A cotangent of an argument that differs between lanes, or is the same in all while what is computed of it differs."""
    if whole and not differs:
        return lanes.build(ReduceSumOp, lanes.all(value), axes=(0,))
    return lanes.settled(value, differs)


def _function(lanes: Lanes, block: Block, differs: Sequence[bool], whole: bool, batch: Batch) -> Block:
    """A body for all lanes; which of its arguments differ, and whether all that it yields does."""
    body = _copy(lanes, block, differs, batch)
    with lanes.inside(body):
        _close(lanes, [lanes.settled(v, whole) for v in _yielded(block)])
    return body


def _copy(lanes: Lanes, block: Block, differs: Sequence[bool], batch: Batch) -> Block:
    """A body for all lanes, which yields nothing yet."""
    body = lanes.copy_of(block, differs)
    with lanes.inside(body):
        batch(lanes, block)
    return body


def _of_floats(values: Sequence[SSAValue], differs: Sequence[bool]) -> list[bool]:
    """What is said of those values that are of floats."""
    return [d for v, d in zip(values, differs, strict=True) if is_float(element_type_of(v))]


def _yielded(block: Block) -> Sequence[SSAValue]:
    assert isinstance(block.last_op, YieldOp)
    return block.last_op.values


def _close(lanes: Lanes, values: Iterable[SSAValue]) -> None:
    lanes.build.insert(YieldOp([*values]))


def _any(lanes: Lanes, condition: SSAValue) -> SSAValue:
    return lanes.build(ReduceAnyOp, condition, axes=(0,))


def _for_axes(lanes: Lanes, condition: SSAValue, of: SSAValue) -> SSAValue:
    """A condition of all lanes as one that broadcasts with what such a value becomes."""
    return lanes.reshaped(condition, lanes.size, *(1 for _ in shape_of(of)))


def printed(lanes: Lanes, op: PrintOp, batch: Batch) -> None:
    """Prints what differs with its lanes along axis 0, those among them that take no part."""
    lanes.build.insert(PrintOp(op.texts, [lanes.read(v) for v in op.arguments]))


CONTROL: dict[type[Operation], Callable[[Lanes, Any, Batch], None]] = {
    ScanOp: scan,
    WhileOp: while_,
    IfOp: if_,
    PrintOp: printed,
    CheckpointOp: checkpoint,
    CustomJvpOp: custom_jvp,
    CustomVjpOp: custom_vjp,
}

# Note [Lanes that take no part]
#
# In the body of a branch that a lane does not take, and in a loop once it is done, a lane computes with values that the
# function of one lane never has there. Elements that nobody uses do no harm, but
# - a loop must not go on for their sake: whether a lane goes on is conjoined with whether it takes part, and a loop whose
#   condition is the same in all lanes begins only if any lane takes part;
# - a branch that fails must be taken by a lane that takes part. If any does, the program ends with the branch's message;
# - an index that is checked is 0 for them.
