"""Producers: ops that compute operands of a kernel and may be fused into it."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from typing import TypeGuard

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import DataMovement, Elementwise
from dlc.ir import Block, Operation, SSAValue, func
from dlc.passes.dl.rewriting import users
from dlc.passes.fusion.candidates import MAX_KERNEL_OPS, Candidates
from dlc.passes.fusion.iteration_spaces import IterationSpace, choose_iteration_space, row_axes


def find_producers(
    candidates: Candidates, values: Iterable[SSAValue], user: DlOp, members: Container[Operation | Block], space: IterationSpace
) -> list[DlOp]:
    """Return the ops that compute `values` only for `user` and the group `members`, in program order.

    This is the largest set whose results have no other users and whose operands are fused or in memory. The
    return of the program does not count as a user if the kernel may have several results.
    """
    fused: dict[Operation | Block, None] = {}

    def has_other_users(op: DlOp) -> bool:
        for result in op.results:
            for use in result.uses:
                other_user = use.operation
                if other_user is user or other_user in fused or other_user in members:
                    continue
                if space.max_results == 1 or not isinstance(other_user, func.ReturnOp):
                    return True
        return False

    # Visit ops in reverse program order, so that all users of an op are visited before it.
    queue: list[tuple[int, int, Operation]] = []
    queued: set[Operation] = set()
    pending = [value.owner for value in values]
    while (queue or pending) and len(fused) < MAX_KERNEL_OPS:
        for op in pending:
            if isinstance(op, Operation) and op not in queued:
                queued.add(op)
                heapq.heappush(queue, (-candidates.position_of(op), len(queued), op))
        pending = []
        if queue:
            op = heapq.heappop(queue)[-1]
            if op not in members and _is_fusible(op, candidates, space) and not has_other_users(op):
                fused[op] = None
                pending = [value.owner for value in op.operands]
    pending = list(fused)
    while pending:
        op = pending.pop()
        if op not in fused or not isinstance(op, DlOp):
            continue
        if has_other_users(op) or any(v.owner not in fused and not _is_available(candidates, v, members) for v in op.operands):
            del fused[op]
            pending += [*(r for result in op.results for r in users(result)), *(v.owner for v in op.operands)]
    return sorted((op for op in fused if isinstance(op, DlOp)), key=candidates.position_of)


def _is_fusible(op: Operation | Block, candidates: Candidates, space: IterationSpace) -> TypeGuard[DlOp]:
    """Return whether an op's result may be computed in a kernel that iterates over `space`."""
    if isinstance(op, Elementwise):
        shape = shape_of(op.results[0])
        return bool(shape) and shape in space.shapes and op in candidates
    if not space.row_axes or not isinstance(op, DlOp) or row_axes(op, candidates.max_row_elements) != space.row_axes:
        return False
    return shape_of(op.operands[0]) == space.shape and op in candidates


def _is_available(candidates: Candidates, value: SSAValue, members: Container[Operation | Block]) -> bool:
    """Return whether a value is in memory for the kernel: it is computed by a member, or by an op that cannot be fused."""
    op = value.owner
    if op in members or not isinstance(op, DlOp) or op not in candidates or not shape_of(value):
        return True
    return isinstance(op, DataMovement) or choose_iteration_space(op, candidates.max_row_elements).is_closed
