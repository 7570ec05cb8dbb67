"""Adjoints of kernels: bodies that compute the cotangents of the operands from those of the results.

    for i in grid(n): y[i] = x[i - 1] * w        →        for i in grid(n): x̄[i - 1] += ȳ[i] * w

A point of the adjoint recomputes the values of the original point, then visits its ops in reverse order. A store
takes the cotangent of the element and resets it, so that a value that is overwritten has none; a load adds to the cotangent of
the operand. Loops run in reverse. A dimension of a grid stays parallel if its points access different elements, else it becomes
a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.sizes import size_arguments, size_of, sizes_of, symbol
from dlc.errors import UnsupportedError
from dlc.ir import (
    Block,
    BlockArgument,
    FunctionType,
    Operation,
    Region,
    SSAValue,
    arith,
    func,
    scf,
)
from dlc.kernel_functions.adjoint_points import AdjointPoint
from dlc.kernel_functions.adjoint_rules import cotangent_element
from dlc.kernel_functions.parallel_dims import Store, has_final_cotangents, parallel_dims, stored_buffer
from dlc.kernels.control import parallel_loop
from dlc.kernels.kernel_trace import KernelTrace, tracing_kernel
from dlc.passes.kernel_builder import Buffer, KernelBuilder
from dlc.passes.kernel_values import KernelValue
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.types import memref_of
from dlc.shapes.dims import Dim


def adjoint_body(function: func.FuncOp, num_operands: int) -> func.FuncOp:
    """Return the adjoint of a body.

    Its arguments are the operands, the cotangents of the float results, then as results the cotangents of the float operands,
    in the type of `cotangent_element`, and copies of those cotangents of results that change; last the sizes that the body
    takes. Raises UnsupportedError, with the reason, for a body that uses values which loops or branches modify, or elements of
    results, other than in sums.
    """
    primal = _forwarded(function)
    sizes = size_arguments(primal.body.block)
    arguments = primal.body.block.args[: len(primal.body.block.args) - len(sizes)]
    adjoint = func.FuncOp(f"{function.sym_name.data}_adjoint", FunctionType.from_lists([], []), Region(Block()))
    builder = KernelBuilder(OpBuilder(ConstantPool(adjoint), adjoint.body.block))
    trace = KernelTrace(adjoint, builder)
    for k, _ in enumerate(sizes):
        trace.local_size(Dim.symbol(symbol(k)))

    def add_argument(like: SSAValue, prefix: str, *, is_sum: bool = False) -> Buffer:
        element = memref_of(like).element_type
        return trace.add_buffer(
            f"{prefix}{like.name_hint}", cotangent_element(element) if is_sum else element, cast(Any, sizes_of(like))
        )

    floats = [a for a in arguments if is_float(memref_of(a).element_type)]
    buffers = {a: add_argument(a, "") for a in arguments[:num_operands]}
    result_cotangents = {a: add_argument(a, "given_d_") for a in floats if a.index >= num_operands}
    grids = [op for op in primal.body.block.ops if isinstance(op, scf.ParallelOp)]
    final_cotangents = {
        a: b
        for a, b in result_cotangents.items()
        if cotangent_element(memref_of(a).element_type) == memref_of(a).element_type and has_final_cotangents(a, grids)
    }
    cotangents = {a: add_argument(a, "d_", is_sum=True) for a in floats if a not in final_cotangents}
    with tracing_kernel(trace):
        for a, buffer in cotangents.items():
            _initialize(trace, buffer, result_cotangents.get(a))
        placeholders: list[SSAValue] = []
        for grid in reversed(grids):
            _run_grid(trace, grid, buffers, cotangents, final_cotangents, placeholders)
    trace.finish()
    _simplify(adjoint)
    if any(cast(Operation, value.owner).parent is not None for value in placeholders):
        problem = "an element of a result, or a variable or buffer that loops or branches modify, is used other than in a sum"
        raise UnsupportedError(problem)
    return adjoint


def _forwarded(function: func.FuncOp) -> func.FuncOp:
    """Return a copy of a body with its variables as values."""
    copy = function.clone()
    ForwardStoresPass().apply_kernel(cast(Any, None), copy)
    return copy


def _initialize(trace: KernelTrace, buffer: Buffer, source: Buffer | None) -> None:
    """Emit a grid that sets a buffer to zero, or copies `source`."""
    element, shape = memref_of(buffer.memref).element_type, trace.shape_of(buffer)
    if 0 in shape:
        return
    with parallel_loop(trace.builder, shape or (1,)) as point:
        index = tuple(point) if shape else ()
        buffer[index] = trace.builder.constant(0, element) if source is None else _widened(source[index], buffer)


def _widened(value: KernelValue, buffer: Buffer) -> KernelValue:
    """Return a cotangent in the element type of a buffer, which is at least as wide."""
    element = memref_of(buffer.memref).element_type
    return value if value.type == element else value.builder.op(arith.ExtFOp(value.ssa, cast(Any, element)))


def _run_grid(
    trace: KernelTrace,
    grid: scf.ParallelOp,
    buffers: Mapping[BlockArgument, Buffer],
    cotangents: Mapping[BlockArgument, Buffer],
    final_cotangents: Mapping[BlockArgument, Buffer],
    placeholders: list[SSAValue],
) -> None:
    """Emit the adjoint of a grid."""
    extents = list(map(size_of, grid.upperBound))
    stored = {stored_buffer(op) for op in grid.body.block.walk()}
    if 0 in extents or not stored & {*cotangents, *final_cotangents}:
        return
    builder, parallel = trace.builder, parallel_dims(grid, cotangents)
    with ExitStack() as stack:
        points = stack.enter_context(parallel_loop(builder, [extents[d] for d in parallel] or [1]))
        indices = dict(zip(parallel, points, strict=False))
        for d, extent in enumerate(extents):
            if d not in indices:
                steps = builder.loop(0, builder.size(extent))
                indices[d] = builder.index(builder.size(extent - 1)) - stack.enter_context(steps)
        point = AdjointPoint(trace, buffers, cotangents, final_cotangents, placeholders)
        for k, argument in enumerate(size_arguments(cast(Block, grid.parent))):
            point.copies[argument] = trace.size_value(Dim.symbol(symbol(k))).ssa
        for d, argument in enumerate(grid.body.block.args):
            point.copies[argument] = indices[d].ssa
        for op in cast(Block, grid.parent).ops:
            if isinstance(op, arith.ConstantOp):
                point.copies[op.result] = builder.op_builder.constants.get(op.value, op.result.type)
            elif isinstance(op, arith.AddiOp | arith.MuliOp):
                point.copies[op.result] = trace.size_value(size_of(op.result)).ssa
        point.run(grid.body.block)


def _simplify(function: func.FuncOp) -> None:
    """Erase values that are not used, and local buffers that are not read."""
    for _ in range(2):
        for loop in [op for op in function.walk() if isinstance(op, scf.ForOp)]:
            _forward_unchanged(loop)
        ForwardStoresPass().apply_kernel(cast(Any, None), function)
        _erase_unused(function.body.block)


def _forward_unchanged(loop: scf.ForOp) -> None:
    """Use the initial values of the variables that a loop does not change."""
    _, *carried = loop.body.block.args
    yielded = cast(Operation, loop.body.block.last_op).operands
    for argument, value, initial, result in zip(carried, yielded, loop.iter_args, loop.results, strict=True):
        if value is argument:
            argument.replace_all_uses_with(initial)
            result.replace_all_uses_with(initial)


def _erase_unused(block: Block) -> None:
    for op in reversed(list(block.ops)):
        for region in op.regions:
            for inner in region.blocks:
                _erase_unused(inner)
        is_read = any(r.first_use is not None for r in op.results)
        if is_read or op.next_op is None or isinstance(op, scf.ParallelOp) or any(isinstance(w, Store) for w in op.walk()):
            continue
        op.detach()
        op.erase()
