"""What makes values for a kernel, and may therefore be made in it."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from typing import TypeGuard

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Elementwise, Movement
from dlc.ir import Block, Operation, SSAValue, func
from dlc.passes.dl.rewriting import users
from dlc.passes.fusion.candidates import MAX_OPS, Candidates
from dlc.passes.fusion.spaces import Space, row_axes, space_of


def makers(
    candidates: Candidates, values: Iterable[SSAValue], user: DlOp, members: Container[Operation | Block], space: Space
) -> list[DlOp]:
    """The ops that make `values` for a group and `user` alone, in program order; others another kernel had better compute.

    They are the most that make what only they, the group and `user` read, and read nothing that others compute in a kernel
    of elementwise ops or a heavier one. What the program returns is stored by whichever kernel makes it.
    """
    made: dict[Operation | Block, None] = {}

    def read_elsewhere(op: DlOp) -> bool:
        for result in op.results:
            for use in result.uses:
                reader = use.operation
                if reader is user or reader in made or reader in members:
                    continue
                if space.max_results == 1 or not isinstance(reader, func.ReturnOp):
                    return True
        return False

    # The last first: who reads an op has been met before it.
    queue: list[tuple[int, int, Operation]] = []
    queued: set[Operation] = set()
    pending = [value.owner for value in values]
    while (queue or pending) and len(made) < MAX_OPS:
        for op in pending:
            if isinstance(op, Operation) and op not in queued:
                queued.add(op)
                heapq.heappush(queue, (-candidates.place(op), len(queued), op))
        pending = []
        if queue:
            op = heapq.heappop(queue)[-1]
            if op not in members and _fits(op, candidates, space) and not read_elsewhere(op):
                made[op] = None
                pending = [value.owner for value in op.operands]
    pending = list(made)
    while pending:
        op = pending.pop()
        if op not in made or not isinstance(op, DlOp):
            continue
        if read_elsewhere(op) or any(v.owner not in made and not _is_there(candidates, v, members) for v in op.operands):
            del made[op]
            pending += [*(r for result in op.results for r in users(result)), *(v.owner for v in op.operands)]
    return sorted((op for op in made if isinstance(op, DlOp)), key=candidates.place)


def _fits(op: Operation | Block, candidates: Candidates, space: Space) -> TypeGuard[DlOp]:
    """Whether what an op makes may be made in a kernel that goes over `space`, for what reads it there."""
    if isinstance(op, Elementwise):
        shape = shape_of(op.results[0])
        return bool(shape) and shape in space.shapes and op in candidates
    if not space.rows or not isinstance(op, DlOp) or row_axes(op, candidates.longest_row) != space.rows:
        return False
    return shape_of(op.operands[0]) == space.shape and op in candidates


def _is_there(candidates: Candidates, value: SSAValue, members: Container[Operation | Block]) -> bool:
    """Whether a kernel can read a value that it does not make without taking its maker from a kernel it belongs to."""
    op = value.owner
    if op in members or not isinstance(op, DlOp) or op not in candidates or not shape_of(value):
        return True
    return isinstance(op, Movement) or space_of(op, candidates.longest_row).closed
