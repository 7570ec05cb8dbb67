"""Inline the body of `dl.loops`, with its grids divided into tasks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any, cast

from dlc.dialects.dl.library_kernels.loops import POINTS_PER_TASK, TILE, UNROLL
from dlc.dialects.sizes import size_arguments, size_of, sizes_of, symbol
from dlc.ir import Block, DenseArrayBase, IntegerAttr, Operation, SSAValue, UnknownLoc, arith, func, memref, scf
from dlc.passes.kernel_builder import Buffer, KernelBuilder
from dlc.passes.kernel_values import KernelValue, shape_of_vector
from dlc.passes.structured import Index, OpBuilder
from dlc.shapes.dims import Size, product, substitute

# Minimum work of a task: results of scalar operations, and elements of results of vector operations.
_MIN_ELEMENTS_PER_TASK = 1 << 16
# The assumed number of iterations of a loop whose bounds are computed.
_ASSUMED_LOOP_ITERATIONS = 16


def inline_body(builder: KernelBuilder, function: func.FuncOp, size_values: Sequence[Size], buffers: Sequence[Buffer]) -> None:
    """Copy the ops of a body on buffers and sizes; each of its grids becomes a grid of tasks of one or several points.

    scf.parallel (%i, %j) = (0, 0) to (100, 8) { A }
    →
    scf.parallel (%task) = 0 to 100 step 25 { scf.for %i = %task to %task + 25 { scf.for %j = 0 to 8 { A } } }
    """
    body = function.body.block
    sizes = {symbol(k): size for k, size in enumerate(size_values)}
    values: dict[SSAValue, SSAValue] = {}
    for argument, buffer in zip(body.args, buffers, strict=False):
        shape = tuple(substitute(size, sizes) for size in sizes_of(argument))
        values[argument] = buffer.with_shape(shape).memref
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
    values.update(zip(op.results, copy.results, strict=True))
    location = builder.op_builder.location
    for inner in copy.walk():
        if isinstance(inner.location, UnknownLoc) and location is not None:
            inner.location = location
    builder.op_builder.with_location(copy.location).insert(copy)
    for loop in reversed([inner for inner in copy.walk() if isinstance(inner, scf.ForOp) and UNROLL in inner.attributes]):
        _unroll(builder.op_builder, loop)


def _unroll(builder: OpBuilder, loop: scf.ForOp) -> None:
    """Replace a loop by one whose iterations run several of its own, and one for the remaining iterations.

    scf.for %i = 0 to %n { A(%i) }    →    scf.for %i = 0 to %n / 4 * 4 step 4 { A(%i); A(%i + 1); … }; scf.for … { A }
    """
    count = cast("IntegerAttr", loop.attributes.pop(UNROLL)).value.data
    builder = builder.at_block_end(cast(Block, loop.parent))._replace(anchor=loop, location=loop.location)
    low, high, step = (_index(v) for v in (loop.lb, loop.ub, loop.step))
    block = builder.multiply(step, count)
    length = builder.op(arith.MaxSIOp(builder.value(builder.subtract(high, low)), builder.value(0)))
    whole = builder.add(low, builder.multiply(builder.floordiv(length, builder.value(block)), block))
    unrolled = builder.loop(low, whole, block)
    inner = builder.at_block_end(unrolled.body.block)
    for k in range(count):
        values: dict[SSAValue, SSAValue] = {
            loop.body.block.args[0]: inner.value(inner.add(unrolled.body.block.args[0], inner.multiply(step, k)))
        }
        for op in loop.body.block.ops:
            if not isinstance(op, scf.YieldOp):
                copy = op.clone(values)
                values.update(zip(op.results, copy.results, strict=True))
                inner.with_location(copy.location).insert(copy)
    inner.yield_()
    loop.operands[0] = builder.value(whole)


def _index(value: SSAValue) -> Index:
    """Return a constant index as an int."""
    return cast("IntegerAttr", value.owner.value).value.data if isinstance(value.owner, arith.ConstantOp) else value


def _inline_grid(
    builder: KernelBuilder, grid: scf.ParallelOp, extents: Sequence[Size], values: dict[SSAValue, SSAValue]
) -> None:
    indices = grid.body.block.args
    if TILE in grid.attributes:
        _inline_tiles(builder, grid, extents, values)
        return
    points_per_task = _points_per_task(grid)
    # Trailing axes of static extent become loops as long as all their points fit into one task.
    inner_points, split = 1, len(extents)
    while split > 1 and isinstance(extent := extents[split - 1], int) and inner_points * extent <= points_per_task:
        split -= 1
        inner_points *= extent
    with ExitStack() as stack:
        count, iterations_per_task = product(extents[:split]), max(1, points_per_task // max(1, inner_points))
        points = _split_index(
            builder, stack.enter_context(_grid_of_tasks(builder, count, iterations_per_task)), extents[:split]
        )
        for extent, index in zip(extents[split:], indices[split:], strict=True):
            points.append(stack.enter_context(builder.loop(0, builder.size(extent), name=index.name_hint or "i")))
        values.update(zip(indices, (point.ssa for point in points), strict=True))
        for op in grid.body.block.ops:
            if not isinstance(op, scf.ReduceOp):
                _copy(builder, op, values)


def _inline_tiles(
    builder: KernelBuilder, grid: scf.ParallelOp, extents: Sequence[Size], values: dict[SSAValue, SSAValue]
) -> None:
    """Copy a grid as a grid of tasks over tiles of points.

    scf.parallel (%i, %j) = (0, 0) to (100, 64) { A }
    →
    scf.parallel (%task) = 0 to 4 · 2 { scf.for %i = … to … { scf.for %j = … to … { A } } }
    """
    tile = [int(n) for n in cast("DenseArrayBase[Any]", grid.attributes[TILE]).get_values()]
    # Batch dimensions are leading dimensions, which the hint does not have.
    tile = [*(1 for _ in extents[len(tile) :]), *tile]
    counts = [(extent + n - 1) // n for extent, n in zip(extents, tile, strict=True)]
    with ExitStack() as stack:
        tiles = _split_index(builder, stack.enter_context(_grid_of_tasks(builder, product(counts), 1)), counts)
        for position, n, extent, index in zip(tiles, tile, extents, grid.body.block.args, strict=True):
            end = (position + 1) * n
            if not isinstance(extent, int) or extent % n:
                end = builder.minimum_index(end, builder.size(extent))
            loop = builder.loop(position * n, end, name=index.name_hint or "i")
            values[index] = stack.enter_context(loop).ssa
        for op in grid.body.block.ops:
            if not isinstance(op, scf.ReduceOp):
                _copy(builder, op, values)


@contextmanager
def _grid_of_tasks(builder: KernelBuilder, count: Size, iterations_per_task: int) -> Generator[KernelValue]:
    """Open a grid over `count` independent iterations, `iterations_per_task` each; yield the index of an iteration."""
    iterations_per_task = min(iterations_per_task, count) if isinstance(count, int) and count else iterations_per_task
    outer = builder.op_builder
    points = outer.parallel("grid", [(count, iterations_per_task)], ["task"])
    builder.op_builder = outer.at_block_end(points.body.block)
    first = KernelValue(builder, points.body.block.args[0])
    if iterations_per_task == 1:
        yield first
    else:
        end = first + iterations_per_task
        if not isinstance(count, int) or count % iterations_per_task:
            end = builder.minimum_index(end, builder.size(count))
        with builder.loop(first, end) as iteration:
            yield iteration
    builder.op_builder.insert(scf.ReduceOp())
    builder.op_builder = outer


def _split_index(builder: KernelBuilder, index: KernelValue, extents: Sequence[Size]) -> list[KernelValue]:
    """Return the coordinates of a row-major index."""
    points: list[KernelValue] = []
    for extent in reversed(extents[1:]):
        size = builder.size(extent)
        points.append(builder.index(0) if size == 1 else index % size)
        index = index if size == 1 else index // size
    return [index, *reversed(points)]


def _points_per_task(grid: scf.ParallelOp) -> int:
    """Return the number of points that a task should run: that of the hint, or enough to amortize the start of a task."""
    hint = grid.attributes.get(POINTS_PER_TASK)
    return (
        max(1, _MIN_ELEMENTS_PER_TASK // max(1, _work(grid.body.block)))
        if hint is None
        else cast("IntegerAttr", hint).value.data
    )


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
