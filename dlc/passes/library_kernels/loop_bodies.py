"""Inline the body of `dl.loops`, with its grids divided into tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import prod

from dlc.dialects import dl
from dlc.dialects.sizes import size_arguments, size_of, symbol
from dlc.ir import Block, Operation, SSAValue, UnknownLoc, arith, func, memref, scf
from dlc.passes.library_kernels.builder import TASK_MULTIPLY_ADDS, Buffer, KernelBuilder
from dlc.passes.library_kernels.values import KernelValue, shape_of_vector
from dlc.shapes.dims import Size, product, substitute

# The assumed number of iterations of a loop whose bounds are computed.
_ASSUMED_LOOP_ITERATIONS = 16


def inline_body(builder: KernelBuilder, op: dl.LoopsOp, *buffers: Buffer) -> None:
    """Copy the ops of the body; each of its grids becomes a grid of tasks of one or several points.

    scf.parallel (%i, %j) = (0, 0) to (100, 8) { A }
    →
    scf.parallel (%task) = 0 to 100 step 25 { scf.for %i = %task to %task + 25 { scf.for %j = 0 to 8 { A } } }
    """
    body = op.body.function.body.block
    values: dict[SSAValue, SSAValue] = {a: b.memref for a, b in zip(body.args, buffers, strict=False)}
    sizes = {symbol(k): size for k, size in enumerate(op.size_arguments)}
    for argument, size in zip(size_arguments(body), sizes.values(), strict=True):
        values[argument] = builder.index(builder.size(size)).ssa
    for inner in body.ops:
        if isinstance(inner, scf.ParallelOp):
            extents = [substitute(size_of(upper), sizes) for upper in inner.upperBound]
            _inline_grid(builder, inner, extents, values)
        elif not isinstance(inner, func.ReturnOp):
            _copy(builder, inner, values)


def _copy(builder: KernelBuilder, op: Operation, values: dict[SSAValue, SSAValue]) -> None:
    if isinstance(op, arith.ConstantOp):
        values[op.result] = builder.op_builder.constants.get(op.value, op.result.type)
        return
    copy = op.clone(values)
    location = builder.op_builder.location
    for inner in copy.walk():
        if isinstance(inner.location, UnknownLoc) and location is not None:
            inner.location = location
    builder.op_builder.with_location(copy.location).insert(copy)
    values.update(zip(op.results, copy.results, strict=True))


def _inline_grid(
    builder: KernelBuilder, grid: scf.ParallelOp, extents: Sequence[Size], values: dict[SSAValue, SSAValue]
) -> None:
    indices = grid.body.block.args
    # Trailing axes of static extent become loops as long as all their points fit into one task.
    work, split = _work(grid.body.block), len(extents)
    while split > 1 and isinstance(extent := extents[split - 1], int) and work * extent <= TASK_MULTIPLY_ADDS:
        split -= 1
        work *= extent
    with ExitStack() as stack:
        points = _split_index(builder, stack.enter_context(builder.grid(product(extents[:split]), work)), extents[:split])
        for extent, index in zip(extents[split:], indices[split:], strict=True):
            points.append(stack.enter_context(builder.loop(0, builder.size(extent), name=index.name_hint or "i")))
        values.update(zip(indices, (point.ssa for point in points), strict=True))
        for op in grid.body.block.ops:
            if not isinstance(op, scf.ReduceOp):
                _copy(builder, op, values)


def _split_index(builder: KernelBuilder, index: KernelValue, extents: Sequence[Size]) -> list[KernelValue]:
    """Return the coordinates of a row-major index."""
    points: list[KernelValue] = []
    for extent in reversed(extents[1:]):
        index, coordinate = builder.split_index(index, extent)
        points.append(coordinate)
    return [index, *reversed(points)]


def _work(block: Block) -> int:
    """Return the approximate number of operations on elements in one execution of a block."""
    total = 0
    for op in block.ops:
        if isinstance(op, scf.ForOp):
            trips = _ASSUMED_LOOP_ITERATIONS
            if all(isinstance(v.owner, arith.ConstantOp) for v in (op.lb, op.ub, op.step)):
                low, high, step = (int(size_of(v)) for v in (op.lb, op.ub, op.step))
                trips = max(0, -(-(high - low) // step))
            total += trips * _work(op.body.block)
        elif op.regions:
            total += sum(_work(region.block) for region in op.regions if region.blocks)
        elif not isinstance(op, memref.AllocaOp):
            elements = 1
            for result in op.results:
                elements *= prod(shape_of_vector(result.type))
            total += elements
    return total
