"""`scf` and `gpu.barrier`: loops, branches, grids and work-items.

The points of the outermost `scf.parallel` run in lockstep. If they diverge at a branch or a trip count, each set of points that
agree continues separately. Work-items run in lockstep too, together with those of all work-groups; a barrier then only checks
that all work-items of a group reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.backends.reference.evaluation_context import Frame, rule, varies
from dlc.backends.reference.values import Array, EvaluationError, MemrefView, Value, describe, dtype_of
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, Operation, StringAttr, arith, gpu, scf

# The number of grid points in lockstep: enough to amortize the cost of a rule, few enough to bound memory.
GRID_POINTS_PER_CHUNK = 2048

Branch: TypeAlias = Callable[[Frame], Sequence[Value]]


@rule(scf.ParallelOp)
def parallel(op: scf.ParallelOp, frame: Frame) -> Sequence[Value]:
    if len(op.initVals):
        raise UnsupportedError(f"{describe(op)}: scf.parallel with reductions; reduce in an scf.for inside it")
    ranges = [
        np.arange(int(frame.array(low)), int(frame.array(high)), int(frame.array(step)))
        for low, high, step in zip(op.lowerBound, op.upperBound, op.step, strict=True)
    ]
    points: list[Array] = [axis.reshape(-1) for axis in np.meshgrid(*ranges, indexing="ij")]
    total = len(points[0])
    if _is_level(op, "item"):
        groups = frame.points or 1
        frame.work_item_frame(groups, total).run(op.body.block, [np.tile(p, groups) for p in points])
        return ()
    if frame.points is not None:
        # A nested parallel loop: its points run sequentially, in lockstep with the outer grid.
        for k in range(total):
            frame.run(op.body.block, [p[k] for p in points])
        return ()
    points_per_chunk = max(1, GRID_POINTS_PER_CHUNK // frame.context.memoize(op, _items))
    for start in range(0, total, points_per_chunk):
        chunk = [p[start : start + points_per_chunk] for p in points]
        Frame(frame.context, len(chunk[0]), frame).run(op.body.block, chunk)
    return ()


def _is_level(op: Operation, level: str) -> bool:
    return op.attributes.get("level") == StringAttr(level)


def _items(op: scf.ParallelOp) -> int:
    """Return the maximum number of work-items per grid point; non-constant bounds are ignored."""
    loops = [o for o in op.walk() if isinstance(o, scf.ParallelOp) and _is_level(o, "item")]
    bounds = ([v.owner for v in loop.upperBound] for loop in loops)
    return max(
        (prod(cast(Any, b.value).value.data for b in owners if isinstance(b, arith.ConstantOp)) for owners in bounds), default=1
    )


@rule(gpu.BarrierOp)
def barrier(op: gpu.BarrierOp, frame: Frame) -> Sequence[Value]:
    if not frame.has_whole_groups:
        raise EvaluationError(f"{describe(op)}: only some work-items of a work-group reach this barrier")
    return ()


@rule(scf.ForOp)
def for_(op: scf.ForOp, frame: Frame) -> Sequence[Value]:
    bounds = [frame.array(v) for v in (op.lb, op.ub, op.step)]
    if not any(b.ndim for b in bounds):
        return _iterate(op, frame, *(int(b) for b in bounds))
    table = np.stack([np.broadcast_to(b, frame.points or 1) for b in bounds])
    groups, group_indices = np.unique(table, axis=1, return_inverse=True)
    if groups.shape[1] == 1:
        return _iterate(op, frame, *(int(b) for b in groups[:, 0]))
    branches: list[tuple[Array, Branch]] = []
    for k, (low, high, step) in enumerate(groups.T.tolist()):
        points = np.flatnonzero(group_indices.reshape(-1) == k)
        branches.append((points, lambda inner, low=low, high=high, step=step: _iterate(op, inner, low, high, step)))
    return _merge(op, frame, branches)


def _iterate(op: scf.ForOp, frame: Frame, low: int, high: int, step: int) -> Sequence[Value]:
    carried: Sequence[Value] = [frame[v] for v in op.iter_args]
    block = op.body.block
    for i in range(low, high, step):
        carried = frame.run(block, [np.int64(i), *carried])  # pyright: ignore[reportArgumentType]
    return carried


@rule(scf.WhileOp)
def while_(op: scf.WhileOp, frame: Frame) -> Sequence[Value]:
    before, after = op.before_region.block, op.after_region.block
    carried: Sequence[Value] = [frame[v] for v in op.arguments]
    while True:
        condition, *forwarded = frame.run(before, carried)
        if not isinstance(condition, MemrefView) and condition.ndim == 0:
            if not condition:
                return forwarded
            carried = frame.run(after, forwarded)
            continue
        return _diverging_while(op, frame, cast(Array, condition), forwarded)


def _diverging_while(op: scf.WhileOp, frame: Frame, condition: Array, forwarded: Sequence[Value]) -> Sequence[Value]:
    """Continue a loop whose condition differs between points: those that still run take the next step together."""
    points = frame.points or 1
    types = [r.type for r in op.results]
    results: list[Array] = []
    for value, t in zip(forwarded, types, strict=True):
        array = cast(Array, value)
        results.append(array.copy() if varies(value, t) else np.repeat(array[None], points, 0))
    running = np.flatnonzero(condition)
    while len(running):
        inner = frame.subset(running)
        carried = inner.run(op.after_region.block, [r[running] for r in results])
        next_condition, *values = inner.run(op.before_region.block, carried)
        for result, value in zip(results, values, strict=True):
            result[running] = value
        running = running[np.broadcast_to(cast(Array, next_condition), len(running))]
    return results


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
    """Run each branch for its points and merge the results."""
    branch_values = [(points, branch(frame.subset(points))) for points, branch in branches if len(points)]
    return [
        _join(op, frame, r.type, [(points, values[k]) for points, values in branch_values]) for k, r in enumerate(op.results)
    ]


def _join(op: Operation, frame: Frame, type: Attribute, branch_values: Sequence[tuple[Array, Value]]) -> Value:
    """Combine the values that branches yield into one array of all points."""
    first: Any = branch_values[0][1]
    if isinstance(first, MemrefView):
        raise UnsupportedError(f"{describe(op)}: a divergent branch yields a buffer; yield a scalar or vector")
    shape = first.shape[1:] if varies(first, type) else first.shape
    result = np.empty((frame.points or 1, *shape), dtype_of(type))
    for points, value in branch_values:
        result[points] = value
    return result
