"""`prefetch-panels`: prefetch rows of packed panels a few iterations before their use, and tiles of the epilogue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

from dlc.cost_model import PrefetchCosts
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.scalar import constant_integer
from dlc.dialects.prefetch import L1_READ_HINTS, PrefetchOp
from dlc.dialects.sizes import strides_of
from dlc.ir import (
    DYNAMIC_INDEX,
    AffineDimExpr,
    BlockArgument,
    Context,
    Operation,
    SSAValue,
    arith,
    func,
    memref,
    scf,
    vector,
)
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.loops.next_panel import NextPanel, find_next_panel
from dlc.passes.loops.static_loops import extent, num_accumulator_rows
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.types import memref_of, viewed_buffer


@dataclass(frozen=True)
class PrefetchPanelsPass(TargetPass, KernelPass):
    """Prefetch the panel rows that innermost contraction loops read, the operands of the epilogue, and the result tiles.

        scf.for %k = 0 to 768 iter_args(%acc) { %w = vector.transfer_read %panel[%k, 0] …
      →
        scf.for %k = 0 to 768 iter_args(%acc) {
          %next = arith.addi %k, 8
          memref.prefetch %panel[%next, 0];  memref.prefetch %panel[%next, 16]
          %w = vector.transfer_read %panel[%k, 0] …

    A packed panel of weights is read once per tile of rows, at the full bandwidth of the cache that holds it; the hardware
    prefetcher restarts at each page. The target's cost model has the prefetch distance and the minimum number of rows.
    Small local buffers are not prefetched: they stay in the nearest cache.

        scf.for %k …;  %t = memref.subview %out[%i, %j] …;  vector.transfer_write %sums, %t
      →
        %t = memref.subview %out[%i, %j] …
        scf.for %k … { %row = arith.floordivsi %k, 16;  memref.prefetch %t[%row, 0] … };  vector.transfer_write %sums, %t

    A store to a line outside the cache waits until the line is loaded, so result tiles are prefetched if the result buffer
    fills the second-level cache. Epilogue operands that are tiles of an argument are prefetched too.
    """

    name = "prefetch-panels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants, settings, costs = ConstantPool(kernel), self.target.costs.prefetch, self.target.costs
        if settings is None:
            return
        for op in list(kernel.walk()):
            if isinstance(op, scf.ForOp) and extent(op) >= settings.min_steps and num_accumulator_rows(op) >= settings.min_rows:
                cache_bytes = costs.cache_ways * costs.way_bytes // 2
                next_panels: dict[SSAValue, NextPanel | None] = {}
                for read, axis in list(_panel_reads(op)):
                    if _fits_nearest_cache(read.source, cache_bytes):
                        continue
                    if read.source not in next_panels:
                        next_panels[read.source] = find_next_panel(op, read, axis) if settings.next_panel else None
                    if next_panels[read.source] is None:
                        _prefetch(op, read, axis, settings, constants)
                for read in _accumulator_reads(op):
                    if not _fits_nearest_cache(read.source, cache_bytes):
                        _prefetch_accumulators(op, read, settings, constants)
                for tile in list(_epilogue_tiles(op, costs.block_elements)):
                    _prefetch_tile(op, tile, settings, constants)
                for next_panel in filter(None, next_panels.values()):
                    next_panel.prefetch_in(op, settings.line_bytes, constants)


def _fits_nearest_cache(buffer: SSAValue, max_bytes: int) -> bool:
    """Return whether a local buffer is small enough, in bytes, to stay in the nearest cache since it was written."""
    root = viewed_buffer(buffer)
    t = memref_of(root)
    return isinstance(root.owner, memref.AllocaOp) and prod(t.get_shape()) * numpy_dtype(t.element_type).itemsize <= max_bytes


def _panel_reads(loop: scf.ForOp) -> Iterator[tuple[vector.TransferReadOp, int]]:
    """Yield the contiguous vector reads that advance by one row of a panel per iteration, and the axis of the rows."""
    induction = loop.body.block.args[0]
    for op in loop.body.block.ops:
        if not isinstance(op, vector.TransferReadOp) or not memref_of(op.source).get_shape():
            continue
        strides = strides_of(op.source)
        lanes = op.permutation_map.data.results[-1]
        last = len(strides) - 1
        axes = [d for d, i in enumerate(op.indices) if _is_iteration_index(i, induction)]
        if lanes != AffineDimExpr(last) or strides[last] != 1 or len(axes) != 1 or axes[0] == last:
            continue
        # Only adjacent rows: with a larger stride each row would be on a separate page.
        row = strides[axes[0]]
        if isinstance(row, int) and row <= 2 * memref_of(op.source).get_shape()[last]:
            yield op, axes[0]


def _is_iteration_index(value: SSAValue, induction: SSAValue) -> bool:
    """Return whether an index is that of a k iteration: the induction variable, or in an unrolled loop plus a constant."""
    if isinstance(value.owner, arith.AddiOp):
        a, b = value.owner.operands
        return a is induction and constant_integer(b) is not None
    return value is induction


def _prefetch(
    loop: scf.ForOp, read: vector.TransferReadOp, axis: int, settings: PrefetchCosts, constants: ConstantPool
) -> None:
    block = loop.body.block
    position = read.indices[axis]
    other_indices = [i for d, i in enumerate(read.indices) if d != axis]
    # As early as possible: at the start of the iteration, or after the ops that compute the indices.
    is_computed_in_loop = any(isinstance(i.owner, Operation) and i.owner.parent is block for i in other_indices)
    anchor: Operation | None = read if is_computed_in_loop else block.first_op
    assert anchor is not None
    builder = OpBuilder(constants, block, read.location, anchor=anchor)
    unrolled = 0 if position is block.args[0] else constant_integer(cast("Operation", position.owner).operands[1])
    assert unrolled is not None
    prefetch_row = builder.value(builder.add(block.args[0], settings.prefetch_distance + unrolled))
    row = read.result.type.get_shape()[-1]
    element = memref_of(read.source).element_type
    step = settings.line_bytes // numpy_dtype(element).itemsize
    column: Index = read.indices[-1] if (constant_column := constant_integer(read.indices[-1])) is None else constant_column
    for start in range(0, row, step):
        indices = [prefetch_row if d == axis else i for d, i in enumerate(read.indices)]
        indices[-1] = builder.value(builder.add(column, start))
        builder.insert(PrefetchOp.create(operands=[read.source, *indices], properties=L1_READ_HINTS))


def _accumulator_reads(loop: scf.ForOp) -> Iterator[vector.TransferReadOp]:
    """Yield the reads of initial accumulator tiles, if the surrounding loop advances down the rows by one tile."""
    outer_loop = loop.parent_op()
    for value in loop.iter_args:
        read = value.owner
        if (
            not isinstance(read, vector.TransferReadOp)
            or not isinstance(outer_loop, scf.ForOp)
            or read.parent is not loop.parent
        ):
            continue
        shape, strides = memref_of(read.source).get_shape(), strides_of(read.source)
        if (
            len(shape) == 2
            and strides[1] == 1
            and constant_integer(outer_loop.step) == shape[0] == read.result.type.get_shape()[0]
        ):
            yield read


def _prefetch_accumulators(
    loop: scf.ForOp, read: vector.TransferReadOp, settings: PrefetchCosts, constants: ConstantPool
) -> None:
    """Prefetch the next accumulator tile while this one is computed; each row starts in a cache line and may end in another."""
    assert loop.parent is not None
    builder = OpBuilder(constants, loop.parent, read.location, anchor=loop)
    rows, columns = memref_of(read.source).get_shape()
    step = settings.line_bytes // numpy_dtype(memref_of(read.source).element_type).itemsize
    for row in range(rows, 2 * rows):
        for column in (*range(0, columns, step), columns - 1):
            indices = [builder.value(row), builder.value(column)]
            builder.insert(PrefetchOp.create(operands=[read.source, *indices], properties=L1_READ_HINTS))


def _epilogue_tiles(loop: scf.ForOp, min_result_elements: int) -> Iterator[memref.SubviewOp]:
    """Yield tiles accessed after the loop: of arguments that are read, and of results that fill the second-level cache."""
    later_ops = list(_following_ops(loop))
    for op in later_ops:
        tile = op.source.owner if isinstance(op, vector.TransferReadOp | vector.TransferWriteOp) else None
        if not isinstance(tile, memref.SubviewOp) or any(value.owner in later_ops for value in tile.operands):
            continue
        root, shape = viewed_buffer(tile.result), memref_of(tile.result).get_shape()
        buffer_shape = memref_of(root).get_shape()
        if DYNAMIC_INDEX in (*shape, *buffer_shape) or not shape or strides_of(tile.result)[-1] != 1:
            continue
        if isinstance(op, vector.TransferReadOp):
            # Tiles in the same columns share a single row, so it is cached already.
            should_prefetch = isinstance(root, BlockArgument) and len(shape) > 1
        else:
            # A tile that was read as the initial accumulator is cached already.
            is_initial_accumulator = any(isinstance(use.operation, vector.TransferReadOp) for use in tile.result.uses)
            should_prefetch = not is_initial_accumulator and prod(buffer_shape) >= min_result_elements
        if should_prefetch:
            yield tile


def _following_ops(op: Operation) -> Iterator[Operation]:
    while (next_op := op.next_op) is not None:
        yield next_op
        op = next_op


def _prefetch_tile(loop: scf.ForOp, tile: memref.SubviewOp, settings: PrefetchCosts, constants: ConstantPool) -> None:
    """Prefetch the cache lines of a tile while its sums are computed: line ⌊i / ⌊iterations / lines⌋⌋ in iteration i.

    Prefetching all of them before the first iteration would delay the panel rows, which come from a cache as well.
    """
    assert loop.parent is not None
    if tile in _following_ops(loop):
        tile.detach()
        loop.parent.insert_op_before(tile, loop)
    *rows, columns = memref_of(tile.result).get_shape()
    step = settings.line_bytes // numpy_dtype(memref_of(tile.result).element_type).itemsize
    lines_per_row = -(-columns // step)
    lines, low, stride = prod(rows) * lines_per_row, constant_integer(loop.lb), constant_integer(loop.step)
    steps_per_line = 0 if low is None or stride is None else extent(loop) // stride // lines
    if num_accumulator_rows(loop) < settings.interleaved_rows or low is None or stride is None or steps_per_line == 0:
        builder = OpBuilder(constants, loop.parent, tile.location, anchor=loop)
        for indices in product(*map(range, rows), range(0, columns, step)):
            builder.insert(PrefetchOp.create(operands=[tile.result, *map(builder.value, indices)], properties=L1_READ_HINTS))
        return
    first: Operation | None = loop.body.block.first_op
    assert first is not None
    builder = OpBuilder(constants, loop.body.block, tile.location, anchor=first)
    line = builder.floordiv(builder.subtract(loop.body.block.args[0], low), stride * steps_per_line)
    line_indices: list[Index] = [builder.multiply(builder.remainder(line, lines_per_row), step)]
    line = builder.floordiv(line, lines_per_row)
    for size in reversed(rows[1:]):
        line_indices.insert(0, builder.remainder(line, size))
        line = builder.floordiv(line, size)
    line_indices = [line, *line_indices] if rows else line_indices
    builder.insert(PrefetchOp.create(operands=[tile.result, *map(builder.value, line_indices)], properties=L1_READ_HINTS))
