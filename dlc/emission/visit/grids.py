"""A kernel at the end of the loops stage as grids: what every emitter makes one function each of."""

from __future__ import annotations

from typing import cast

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.sizes import sizes_of
from dlc.dims import Size, product
from dlc.errors import CompileError
from dlc.ir import Attribute, Block, MemRefType, Operation, SSAValue, StringAttr, func, scf


def is_grid(op: Operation) -> bool:
    """Whether a top-level op is a parallel loop over a grid's points."""
    return isinstance(op, scf.ParallelOp) and op.attributes.get("level") in (None, StringAttr("grid"))


def grids_of(kernel: func.FuncOp) -> list[list[Operation]]:
    """The top-level ops with effects: each parallel loop by itself, and what lies between them.

    Raises CompileError for a local buffer that carries values from one to another: it is private to a grid's points.
    """
    block, groups, serial = kernel.body.block, list[list[Operation]](), False
    for op in block.ops:
        if op is block.last_op or (op.results and not op.regions):
            continue
        if is_grid(op) or not serial:
            groups.append([])
        groups[-1].append(op)
        serial = not is_grid(op)
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


def buffer_bytes(kernel: func.FuncOp) -> tuple[Size, ...]:
    """What each of a kernel's buffers has, in its sizes."""
    arguments = kernel.body.block.args
    buffers = [cast("SSAValue[MemRefType[Attribute]]", a) for a in arguments if isinstance(a.type, MemRefType)]
    return tuple(product(sizes_of(a)) * numpy_dtype(a.type.element_type).itemsize for a in buffers)


def _top_level(op: Operation, block: Block) -> Operation:
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op
