"""Puts plain ops in the place of a function that is computed for many lanes."""

from __future__ import annotations

from dlc.dialects.dl.base import DlOp, ints
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.interfaces import Composite, DataDependent
from dlc.dialects.dl.movement.indexed import Indexed
from dlc.dialects.dl.programs.transformations import NOT_BATCHED, VmapOp, with_lanes
from dlc.dialects.places import place
from dlc.errors import ShapeError, UnsupportedError
from dlc.ir import Block, IsTerminator, Operation, SSAValue
from dlc.passes.batching import contractions, places, rules
from dlc.passes.batching.control_flow import CONTROL
from dlc.passes.batching.lanes import Lanes
from dlc.passes.dl.rewriting import decompose_in_place

# How each op is batched, by its class or one that it derives from: the nearest.
RULES: dict[type, rules.Rule] = {**rules.RULES, **contractions.RULES, **places.RULES}


def expand_vmap(op: VmapOp) -> None:
    """Replaces one `dl.vmap`, in whose body there is no other transformation than functions with rules of their own.

        %y = dl.vmap %x, %w {in_axes = [0, -1], …} { ^bb0(%row, %w): %p = dl.matmul %row, %w; dl.yield %p }
    →   %y = dl.matmul %x, %w

    Each op becomes one that computes all lanes; what is the same in all of them is computed once. Raises ShapeError for a
    result that differs between lanes and has no axis for them, UnsupportedError for an op whose results have other sizes in
    each lane.
    """
    lanes = Lanes(op.lanes, Build(op))
    for value, argument, axis in zip(op.arguments, op.block.args, ints(op.in_axes), strict=True):
        differs = axis != NOT_BATCHED
        lanes.set(argument, lanes.moved(value, axis, 0) if differs else value, differs)
    _batch(lanes, op.block)
    for k, (value, result, axis) in enumerate(zip(op.yielded, op.results, ints(op.out_axes), strict=True)):
        if axis == NOT_BATCHED and lanes.differs(value):
            problem = f"result {k} of {op.lanes} lanes differs between them, and is said to be the same in all"
            raise ShapeError(f"{place(op.location)}dlc.vmap: {problem}; give it an axis in out_axes")
        result.replace_all_uses_with(lanes.read(value) if axis == NOT_BATCHED else lanes.moved(lanes.all(value), 0, axis))
    op.detach()
    op.erase()


def _batch(lanes: Lanes, block: Block) -> None:
    """Computes the ops of a body for all lanes."""
    op = block.first_op
    while op is not None and not op.has_trait(IsTerminator):
        with lanes.build.at(op.location):
            done = _batch_op(lanes, op)
        if done:
            op = op.next_op
            continue
        assert isinstance(op, Composite)
        op = decompose_in_place(op)


def _batch_op(lanes: Lanes, op: Operation) -> bool:
    """Computes an op for all lanes; False where its decomposition has to be batched instead."""
    if isinstance(op, Indexed) and op.is_checked and lanes.some_may_not_take_part:
        indices, differs = op.operands[1], lanes.reads_lanes(op)
        with lanes.reading(indices, places.of_those_that_take_part(lanes, indices, differs), differs):
            return _batch_plain(lanes, op)
    return _batch_plain(lanes, op)


def _batch_plain(lanes: Lanes, op: Operation) -> bool:
    control = CONTROL.get(type(op))
    differs = lanes.reads_lanes(op)
    if control is not None and (differs or lanes.some_may_not_take_part):
        control(lanes, op, _batch)
        return True
    if not differs:
        again = op.clone(lanes.mapped())
        lanes.build.insert(again)
        lanes.set_all(op.results, again.results, [False for _ in op.results])
        return True
    assert isinstance(op, DlOp)
    results = _results(lanes, op)
    if results is None:
        return False
    for old, new in zip(op.results, results, strict=True):
        assert new.type == with_lanes(old, 0, lanes.size), f"{op.name}: {old.type} in {lanes.size} lanes became {new.type}"
        lanes.set(old, new, differs=True)
    return True


def _results(lanes: Lanes, op: DlOp) -> list[SSAValue] | None:
    """An op's results, with lanes along axis 0; None where its decomposition has to be batched instead."""
    if isinstance(op, DataDependent):
        problem = f"{op.name} has results whose sizes are data, and lanes of an array have one size"
        raise UnsupportedError(f"{place(op.location)}dlc.vmap: {problem}; use a mask and sizes that are known")
    if lanes.size == 0:
        return [lanes.empty(r) for r in op.results]
    rule = next((RULES[c] for c in type(op).__mro__ if c in RULES), None)
    results = None if rule is None else rule(lanes, op)
    if results is None and not isinstance(op, Composite):
        raise UnsupportedError(f"{place(op.location)}dlc.vmap: no rule for {op.name}; add one in dlc/passes/batching/")
    return None if results is None else list(results)
