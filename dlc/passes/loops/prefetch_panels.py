"""`prefetch-panels`: prefetch rows of packed panels a few iterations before their use, and tiles of the epilogue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

from dlc.cost_model import CostModel, PrefetchCosts
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.scalar import constant_integer
from dlc.dialects.prefetch import L1_READ_HINTS
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
    i32,
    memref,
    scf,
    vector,
)
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.loops.next_panel import NextPanel, find_next_panel
from dlc.passes.loops.static_loops import constant_range, num_accumulator_rows
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.types import memref_of, viewed_buffer

_WORD_BYTES, _PAGE_BYTES = 4, 4096


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
    Small local buffers are not prefetched: they stay in the nearest cache. Words of packed weights, and their scales, are
    prefetched for any number of rows, at a distance in bytes.

        scf.for %k …;  %t = memref.subview %out[%i, %j] …;  vector.transfer_write %sums, %t
      →
        %t = memref.subview %out[%i, %j] …
        scf.for %k … { %row = arith.floordivsi %k, 16;  memref.prefetch %t[%row, 0] … };  vector.transfer_write %sums, %t

    A store to a line outside the cache waits until the line is loaded, so result tiles are prefetched if the result buffer
    fills the second-level cache. Epilogue operands that are tiles of an argument are prefetched too.
    """

    name = "prefetch-panels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        settings, constants = self.target.costs.prefetch, ConstantPool(kernel)
        if settings is None:
            return
        for loop in list(kernel.walk()):
            if isinstance(loop, scf.ForOp) and (steps := constant_range(loop)) is not None:
                prefetcher = _LoopPrefetcher(loop, steps, self.target.costs, settings, constants)
                has_enough_rows = prefetcher.word_bytes or prefetcher.num_rows >= settings.min_rows
                if prefetcher.num_steps >= settings.min_steps and has_enough_rows:
                    prefetcher.run()


class _LoopPrefetcher:
    """Insert the prefetches of an innermost contraction loop, whose induction variable takes the values `steps`."""

    def __init__(
        self, loop: scf.ForOp, steps: range, costs: CostModel, settings: PrefetchCosts, constants: ConstantPool
    ) -> None:
        self.loop = loop
        self.steps = steps
        self.costs = costs
        self.settings = settings
        self.constants = constants
        self.num_rows = num_accumulator_rows(loop)
        unpacks_words = any(isinstance(op, arith.SIToFPOp) for op in loop.body.block.ops)
        self.panel_reads = list(_panel_reads(loop, unpacks_words))
        self.word_bytes = max((_word_bytes(*read) for read in self.panel_reads), default=0) if unpacks_words else 0
        self.distance = -(-settings.word_bytes // self.word_bytes) if self.word_bytes else settings.prefetch_distance
        self.iteration_start = loop.body.block.first_op
        assert loop.parent is not None
        self.before_loop = OpBuilder(constants, loop.parent, loop.location, anchor=loop)

    @property
    def num_steps(self) -> int:
        """The steps of the loop; if it unpacks words, times those of the enclosing loop over the same panel."""
        steps, outer = self.steps.stop - self.steps.start, self.loop.parent_op()
        is_nested = self.word_bytes and isinstance(outer, scf.ForOp) and outer.iter_args
        outer_steps = constant_range(outer) if is_nested and isinstance(outer, scf.ForOp) else None
        return steps if outer_steps is None else steps * len(outer_steps)

    def run(self) -> None:
        if self.word_bytes:
            _hoist_invariant_reads(self.loop)
        # Prefetches are in the order of the reads, since the hardware prefetcher detects ascending addresses.
        self.iteration_start = self.loop.body.block.first_op
        next_panels: dict[SSAValue, NextPanel | None] = {}
        for read, axis in self.panel_reads:
            if self.fits_nearest_cache(read.source):
                continue
            if read.source not in next_panels:
                next_panels[read.source] = find_next_panel(self.loop, read, axis, self.settings.next_panel_rows)
            if next_panels[read.source] is None:
                self.prefetch_row(read, axis)
        for read in _accumulator_reads(self.loop):
            if not self.fits_nearest_cache(read.source):
                self.prefetch_accumulators(read)
        for tile in list(_epilogue_tiles(self.loop, self.costs.block_elements)):
            self.prefetch_tile(tile)
        for next_panel in filter(None, next_panels.values()):
            next_panel.prefetch_in(self.loop, self.steps, self.settings.line_bytes, self.constants)

    def fits_nearest_cache(self, buffer: SSAValue) -> bool:
        """Return whether a local buffer is small enough to stay in the nearest cache since it was written."""
        root = viewed_buffer(buffer)
        t, max_bytes = memref_of(root), self.costs.cache_ways * self.costs.way_bytes // 2
        is_local = isinstance(root.owner, memref.AllocaOp)
        return is_local and prod(t.get_shape()) * numpy_dtype(t.element_type).itemsize <= max_bytes

    def at_iteration_start(self) -> OpBuilder:
        block = self.loop.body.block
        return OpBuilder(self.constants, block, self.loop.location, anchor=self.iteration_start)

    def line_starts(self, buffer: SSAValue, columns: int) -> range:
        """Return the first element of each cache line of a row of `columns` elements."""
        return range(0, columns, self.settings.line_bytes // numpy_dtype(memref_of(buffer).element_type).itemsize)

    def prefetch_row(self, read: vector.TransferReadOp, axis: int) -> None:
        """Prefetch the panel row that an iteration a few steps later reads."""
        builder, indices = self.at_iteration_start(), list[Index](read.indices)
        other_indices = [i for d, i in enumerate(read.indices) if d != axis]
        # As early as possible: at the start of the iteration, or after the ops that compute the indices.
        if any(isinstance(i.owner, Operation) and i.owner.parent is builder.block for i in other_indices):
            builder = builder._replace(anchor=read)
        induction, position = self.loop.body.block.args[0], read.indices[axis]
        unrolled = 0 if position is induction else constant_integer(cast("Operation", position.owner).operands[1])
        assert unrolled is not None
        indices[axis] = builder.add(induction, self.distance + unrolled)
        column = constant_integer(read.indices[-1])
        for start in self.line_starts(read.source, read.result.type.get_shape()[-1]):
            indices[-1] = builder.add(read.indices[-1] if column is None else column, start)
            builder.prefetch(read.source, indices, L1_READ_HINTS)

    def prefetch_accumulators(self, read: vector.TransferReadOp) -> None:
        """Prefetch the next accumulator tile before the loop; each row starts in a cache line and may end in another."""
        rows, columns = memref_of(read.source).get_shape()
        for row in range(rows, 2 * rows):
            for column in (*self.line_starts(read.source, columns), columns - 1):
                self.before_loop.prefetch(read.source, [row, column], L1_READ_HINTS)

    def prefetch_tile(self, tile: memref.SubviewOp) -> None:
        """Prefetch the cache lines of a tile while its sums are computed: line ⌊i / ⌊iterations / lines⌋⌋ in iteration i.

        Prefetching all of them before the first iteration would delay the panel rows, which come from a cache as well.
        """
        if tile in _following_ops(self.loop):
            tile.detach()
            self.before_loop.block.insert_op_before(tile, self.loop)
        *rows, columns = memref_of(tile.result).get_shape()
        line_starts = self.line_starts(tile.result, columns)
        steps_per_line = (self.steps.stop - self.steps.start) // self.steps.step // (prod(rows) * len(line_starts))
        if self.num_rows < self.settings.interleaved_rows or steps_per_line == 0:
            for indices in product(*map(range, rows), line_starts):
                self.before_loop.prefetch(tile.result, indices, L1_READ_HINTS)
            return
        builder, induction = self.at_iteration_start(), self.loop.body.block.args[0]
        line = builder.floordiv(builder.subtract(induction, self.steps.start), self.steps.step * steps_per_line)
        line_indices: list[Index] = []
        for count in (len(line_starts), *reversed(rows[1:])):
            line_indices.insert(0, builder.remainder(line, count))
            line = builder.floordiv(line, count)
        line_indices[-1] = builder.multiply(line_indices[-1], line_starts.step)
        builder.prefetch(tile.result, [line, *line_indices] if rows else line_indices, L1_READ_HINTS)


def _hoist_invariant_reads(loop: scf.ForOp) -> None:
    """Move reads of vectors that are the same in all iterations before the loop; LLVM does not move loads over prefetches."""
    body, block = loop.body.block, loop.parent
    assert block is not None
    if any(isinstance(op, vector.TransferWriteOp | memref.StoreOp) for op in body.ops):
        return
    for op in list(body.ops):
        is_movable = isinstance(op, vector.TransferReadOp | arith.ExtFOp)
        if is_movable and all(_block_of(value) is not body for value in op.operands):
            op.detach()
            block.insert_op_before(op, loop)


def _block_of(value: SSAValue) -> object:
    return value.owner.parent if isinstance(value.owner, Operation) else value.owner


def _panel_reads(loop: scf.ForOp, unpacks_words: bool) -> Iterator[tuple[vector.TransferReadOp, int]]:
    """Yield the contiguous vector reads that advance by one row of a panel per iteration, and the axis of the rows.

    If the loop unpacks words, the words of an iteration are a row, which several reads share.
    """
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
        # Only nearby rows: with a larger stride each row would be on a separate page.
        row = strides[axes[0]]
        is_shared = unpacks_words and _has_words(op)
        max_row = _PAGE_BYTES // _WORD_BYTES if is_shared else 2 * memref_of(op.source).get_shape()[last]
        if isinstance(row, int) and row <= max_row:
            yield op, axes[0]


def _has_words(read: vector.TransferReadOp) -> bool:
    """Return whether a read is of packed words."""
    return memref_of(read.source).element_type == i32


def _word_bytes(read: vector.TransferReadOp, axis: int) -> int:
    """Return the bytes of packed words of a row of the panel that a read is part of; 0 for other elements."""
    row = strides_of(read.source)[axis]
    return row * _WORD_BYTES if _has_words(read) and isinstance(row, int) else 0


def _is_iteration_index(value: SSAValue, induction: SSAValue) -> bool:
    """Return whether an index is that of a k iteration: the induction variable, or in an unrolled loop plus a constant."""
    if isinstance(value.owner, arith.AddiOp):
        a, b = value.owner.operands
        return a is induction and constant_integer(b) is not None
    return value is induction


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
