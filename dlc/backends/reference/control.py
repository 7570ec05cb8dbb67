"""`scf` and `func`: loops, branches, grids, and the items of their points.

The points of the outermost `scf.parallel` run in lockstep. Where they disagree on a branch or a trip count, those that
agree go on by themselves. Items run in lockstep too, with those of all groups: then a barrier has nothing to do but to be
met by all items of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.backends.reference.machine import Frame, rule, varies
from dlc.backends.reference.values import Array, EvaluationError, Value, View, describe, dtype_of
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, Operation, StringAttr, arith, gpu, scf

# Points that run in lockstep at once: enough to hide the cost of a rule, few enough to bound memory.
CHUNK = 2048

Branch: TypeAlias = Callable[[Frame], Sequence[Value]]


@rule(scf.ParallelOp)
def parallel(op: scf.ParallelOp, frame: Frame) -> Sequence[Value]:
    if len(op.initVals):
        raise UnsupportedError(f"{describe(op)}: reductions of a grid; reduce in a loop inside")
    ranges = [
        np.arange(int(frame.array(low)), int(frame.array(high)), int(frame.array(step)))
        for low, high, step in zip(op.lowerBound, op.upperBound, op.step, strict=True)
    ]
    points: list[Array] = [axis.reshape(-1) for axis in np.meshgrid(*ranges, indexing="ij")]
    total = len(points[0])
    if _is_level(op, "item"):
        groups = frame.points or 1
        frame.items_of(groups, total).run(op.body.block, [np.tile(p, groups) for p in points])
        return ()
    if frame.points is not None:
        # Inside a grid: its points run one after the other, in lockstep with the outer grid.
        for k in range(total):
            frame.run(op.body.block, [p[k] for p in points])
        return ()
    together = max(1, CHUNK // frame.machine.fact(op, _items))
    for start in range(0, total, together):
        chunk = [p[start : start + together] for p in points]
        Frame(frame.machine, len(chunk[0]), frame).run(op.body.block, chunk)
    return ()


def _is_level(op: Operation, level: str) -> bool:
    return op.attributes.get("level") == StringAttr(level)


def _items(op: scf.ParallelOp) -> int:
    """The most items of one point of a grid; what a bound is that is no constant does not matter here."""
    loops = [o for o in op.walk() if isinstance(o, scf.ParallelOp) and _is_level(o, "item")]
    bounds = ([v.owner for v in loop.upperBound] for loop in loops)
    return max(
        (prod(cast(Any, b.value).value.data for b in owners if isinstance(b, arith.ConstantOp)) for owners in bounds), default=1
    )


@rule(gpu.BarrierOp)
def barrier(op: gpu.BarrierOp, frame: Frame) -> Sequence[Value]:
    if not frame.has_whole_groups:
        raise EvaluationError(f"{describe(op)}: a barrier that some items of a group reach and others do not")
    return ()


@rule(scf.ForOp)
def for_(op: scf.ForOp, frame: Frame) -> Sequence[Value]:
    bounds = [frame.array(v) for v in (op.lb, op.ub, op.step)]
    if not any(b.ndim for b in bounds):
        return _iterate(op, frame, *(int(b) for b in bounds))
    table = np.stack([np.broadcast_to(b, frame.points or 1) for b in bounds])
    groups, of_point = np.unique(table, axis=1, return_inverse=True)
    if groups.shape[1] == 1:
        return _iterate(op, frame, *(int(b) for b in groups[:, 0]))
    branches: list[tuple[Array, Branch]] = []
    for k, (low, high, step) in enumerate(groups.T.tolist()):
        points = np.flatnonzero(of_point.reshape(-1) == k)
        branches.append((points, lambda inner, low=low, high=high, step=step: _iterate(op, inner, low, high, step)))
    return _merge(op, frame, branches)


def _iterate(op: scf.ForOp, frame: Frame, low: int, high: int, step: int) -> Sequence[Value]:
    carried: Sequence[Value] = [frame[v] for v in op.iter_args]
    block = op.body.block
    for i in range(low, high, step):
        carried = frame.run(block, [np.int64(i), *carried])  # pyright: ignore[reportArgumentType]
    return carried


@rule(scf.IfOp)
def if_(op: scf.IfOp, frame: Frame) -> Sequence[Value]:
    condition = frame.array(op.cond)

    def branch(taken: bool) -> Branch:
        region = op.true_region if taken else op.false_region
        return lambda inner: inner.run(region.block) if region.blocks else ()

    if condition.ndim == 0:
        return branch(bool(condition))(frame)
    return _merge(op, frame, [(np.flatnonzero(condition == taken), branch(taken)) for taken in (True, False)])


def _merge(op: Operation, frame: Frame, branches: Sequence[tuple[Array, Branch]]) -> Sequence[Value]:
    """Runs each branch for its points, and puts the results together."""
    parts = [(points, branch(frame.subset(points))) for points, branch in branches if len(points)]
    return [_join(op, frame, r.type, [(points, values[k]) for points, values in parts]) for k, r in enumerate(op.results)]


def _join(op: Operation, frame: Frame, t: Attribute, parts: Sequence[tuple[Array, Value]]) -> Value:
    first: Any = parts[0][1]
    if isinstance(first, View):
        raise UnsupportedError(f"{describe(op)}: a branch that differs between points yields a buffer")
    shape = first.shape[1:] if varies(first, t) else first.shape
    result = np.empty((frame.points or 1, *shape), dtype_of(t))
    for points, value in parts:
        result[points] = value
    return result
