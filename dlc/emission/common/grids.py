"""Split a kernel at the end of the loops stage into grids; each grid becomes one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.sizes import size_of, sizes_of
from dlc.errors import CompileError
from dlc.ir import Attribute, Block, MemRefType, Operation, SSAValue, StringAttr, func, scf
from dlc.shapes.dims import Size, product


class GridAxis(NamedTuple):
    """One induction variable of a parallel loop: `size` iterations that begin at `start` and advance by `step`."""

    induction: SSAValue
    start: int
    step: int
    size: Size


def grid_axes(op: scf.ParallelOp) -> list[GridAxis]:
    """Return the axes of a parallel loop over the points of a grid or over the work-items of a work-group."""
    axes: list[GridAxis] = []
    for induction, *bounds in zip(op.body.block.args, op.lowerBound, op.upperBound, op.step, strict=True):
        low, high, step = map(size_of, bounds)
        if not isinstance(low, int) or not isinstance(step, int):
            raise CompileError("a parallel loop needs a constant lower bound and step")
        size = -(-(high - low) // step)
        axes.append(GridAxis(induction, low, step, max(0, size) if isinstance(size, int) else size))
    return axes


def is_grid(op: Operation) -> bool:
    """Return whether a top-level op is a parallel loop over the points of a grid."""
    return isinstance(op, scf.ParallelOp) and op.attributes.get("level") in (None, StringAttr("grid"))


def split_grids(kernel: func.FuncOp) -> list[list[Operation]]:
    """Group the top-level ops with side effects: each parallel loop is a group, and so are all ops between two of them.

    Raises CompileError if two groups use the same local buffer, since a local buffer is private to one grid point.
    """
    block, groups, is_serial = kernel.body.block, list[list[Operation]](), False
    for op in block.ops:
        if op is block.last_op or (op.results and not op.regions):
            continue
        if is_grid(op) or not is_serial:
            groups.append([])
        groups[-1].append(op)
        is_serial = not is_grid(op)
    for op in block.ops:
        if op.name != "memref.alloca":
            continue
        users = {_top_level(use.operation, block) for use in op.results[0].uses}
        if len({u for u in users if u.regions}) > 1:
            raise CompileError(
                f"kernel @{kernel.sym_name.data}: a local buffer {op.results[0].type} is used by two grids; pass it as an "
                "argument"
            )
    return groups


def join_single_tasks(groups: Sequence[list[Operation]]) -> list[list[Operation]]:
    """Join adjacent groups of one task each: a launch costs as much as a small grid, and one task runs them in order."""
    joined = list[list[Operation]]()
    for ops in groups:
        if joined and _is_single_task(joined[-1]) and _is_single_task(ops):
            joined[-1] = [*joined[-1], *ops]
        else:
            joined.append(ops)
    return joined


def _is_single_task(ops: Sequence[Operation]) -> bool:
    return all(axis.size == 1 for op in ops if isinstance(op, scf.ParallelOp) and is_grid(op) for axis in grid_axes(op))


def buffer_bytes(kernel: func.FuncOp) -> tuple[Size, ...]:
    """Return the size in bytes of each buffer argument, in terms of the kernel's symbolic sizes."""
    arguments = kernel.body.block.args
    buffers = [cast("SSAValue[MemRefType[Attribute]]", a) for a in arguments if isinstance(a.type, MemRefType)]
    return tuple(product(sizes_of(a)) * numpy_dtype(a.type.element_type).itemsize for a in buffers)


def _top_level(op: Operation, block: Block) -> Operation:
    """Return the ancestor of `op` (or `op` itself) that is directly in `block`."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op
