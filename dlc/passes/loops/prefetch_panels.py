"""`prefetch-panels`: rows of packed weights are asked for a few steps before they are read, and what goes with sums before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

from dlc.costs import Prefetch
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.prefetch import READ, PrefetchOp
from dlc.dialects.sizes import strides_of
from dlc.ir import (
    DYNAMIC_INDEX,
    AffineDimExpr,
    BlockArgument,
    Context,
    IntegerAttr,
    Operation,
    SSAValue,
    VectorType,
    arith,
    func,
    memref,
    scf,
    vector,
)
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.structured import Constants, Index, Place
from dlc.passes.types import memref_of


@dataclass(frozen=True)
class PrefetchPanelsPass(TargetPass, KernelPass):
    """Prefetches what the innermost loops of contractions read row after row, what is read behind them, and where results go.

        scf.for %k = 0 to 768 iter_args(%acc) { %w = vector.transfer_read %panel[%k, 0] …
      →
        scf.for %k = 0 to 768 iter_args(%acc) {
          %ahead = arith.addi %k, 8
          memref.prefetch %panel[%ahead, 0];  memref.prefetch %panel[%ahead, 16]
          %w = vector.transfer_read %panel[%k, 0] …

    A panel of weights is read once per tile of rows, at the full rate of the cache that holds it; the processor's own
    prefetching starts anew at each page. How far ahead, and for how many rows, is the target's to say. A small buffer of the
    kernel's own stays where it was written.

        scf.for %k …;  %t = memref.subview %out[%i, %j] …;  vector.transfer_write %sums, %t
      →
        %t = memref.subview %out[%i, %j] …
        scf.for %k … { %row = arith.floordivsi %k, 16;  memref.prefetch %t[%row, 0] … };  vector.transfer_write %sums, %t

    A store into a line that is not near waits for the rest of it. That is for buffers that fill the second-level cache. What
    is read besides, with the sums, may be a part of such a buffer.
    """

    name = "prefetch-panels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants, how, machine = Constants(kernel), self.target.machine.prefetch, self.target.machine
        if how is None:
            return
        for op in list(kernel.walk()):
            if isinstance(op, scf.ForOp) and _trip_count(op) >= how.shortest and _row_count(op) >= how.fewest_rows:
                nearest = machine.cache_ways * machine.way_bytes // 2
                for read, axis in _rows(op):
                    if not _stays(read.source, nearest):
                        _prefetch(op, read, axis, how, constants)
                for read in _sums(op):
                    if not _stays(read.source, nearest):
                        _prefetch_sums(op, read, how, constants)
                for tile in list(_around(op, machine.block_elements)):
                    _prefetch_tile(op, tile, how, constants)


def _stays(buffer: SSAValue, most: int) -> bool:
    """Whether a kernel's own buffer is so small, in bytes, that the nearest cache holds it from when it was written."""
    root = _root(buffer)
    t = memref_of(root)
    return isinstance(root.owner, memref.AllocaOp) and prod(t.get_shape()) * numpy_dtype(t.element_type).itemsize <= most


def _row_count(loop: scf.ForOp) -> int:
    """How many vectors of results a loop accumulates, each of which takes what a step reads of the panel."""
    shapes = [t.get_shape() for v in loop.iter_args if isinstance(t := v.type, VectorType)]
    return sum(prod(shape[:-1]) for shape in shapes)


def _trip_count(loop: scf.ForOp) -> int:
    bounds = [_constant(v) for v in (loop.lb, loop.ub)]
    low, high = bounds
    return high - low if low is not None and high is not None else 0


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    return cast("IntegerAttr", owner.value).value.data if isinstance(owner, arith.ConstantOp) else None


def _rows(loop: scf.ForOp) -> Iterator[tuple[vector.TransferReadOp, int]]:
    """The reads of contiguous lanes that move on by a row of the same panel with each iteration, and the axis of rows."""
    induction = loop.body.block.args[0]
    for op in loop.body.block.ops:
        if not isinstance(op, vector.TransferReadOp) or not memref_of(op.source).get_shape():
            continue
        strides = strides_of(op.source)
        lanes = op.permutation_map.data.results[-1]
        last = len(strides) - 1
        axes = [d for d, i in enumerate(op.indices) if i is induction]
        if lanes != AffineDimExpr(last) or strides[last] != 1 or len(axes) != 1 or axes[0] == last:
            continue
        # Rows side by side: with a larger stride each would be a page of its own.
        row = strides[axes[0]]
        if isinstance(row, int) and row <= 2 * memref_of(op.source).get_shape()[last]:
            yield op, axes[0]


def _prefetch(loop: scf.ForOp, read: vector.TransferReadOp, axis: int, how: Prefetch, constants: Constants) -> None:
    block = loop.body.block
    first: Operation | None = block.first_op
    assert first is not None
    place = Place(constants, block, read.location, anchor=first)
    ahead = place.value(place.add(block.args[0], how.steps_ahead))
    row = read.result.type.get_shape()[-1]
    element = memref_of(read.source).element_type
    step = how.line_bytes // numpy_dtype(element).itemsize
    column: Index = read.indices[-1] if (known := _constant(read.indices[-1])) is None else known
    for start in range(0, row, step):
        indices = [ahead if d == axis else i for d, i in enumerate(read.indices)]
        indices[-1] = place.value(place.add(column, start))
        place.insert(PrefetchOp.create(operands=[read.source, *indices], properties=READ))


def _sums(loop: scf.ForOp) -> Iterator[vector.TransferReadOp]:
    """The reads of tiles of sums that a loop goes on with, of which the loop around it takes those below next."""
    around = loop.parent_op()
    for value in loop.iter_args:
        read = value.owner
        if not isinstance(read, vector.TransferReadOp) or not isinstance(around, scf.ForOp) or read.parent is not loop.parent:
            continue
        shape, strides = memref_of(read.source).get_shape(), strides_of(read.source)
        if len(shape) == 2 and strides[1] == 1 and _constant(around.step) == shape[0] == read.result.type.get_shape()[0]:
            yield read


def _prefetch_sums(loop: scf.ForOp, read: vector.TransferReadOp, how: Prefetch, constants: Constants) -> None:
    """Asks for the next tile of sums while this one is computed: each row begins in a line, and may end in another."""
    assert loop.parent is not None
    place = Place(constants, loop.parent, read.location, anchor=loop)
    rows, columns = memref_of(read.source).get_shape()
    step = how.line_bytes // numpy_dtype(memref_of(read.source).element_type).itemsize
    for row in range(rows, 2 * rows):
        for column in (*range(0, columns, step), columns - 1):
            indices = [place.value(row), place.value(column)]
            place.insert(PrefetchOp.create(operands=[read.source, *indices], properties=READ))


def _around(loop: scf.ForOp, near: int) -> Iterator[memref.SubviewOp]:
    """The tiles, once a loop has its sums, of arguments that are read, and of results that fill the second-level cache."""
    following = list(_after(loop))
    for op in following:
        tile = op.source.owner if isinstance(op, vector.TransferReadOp | vector.TransferWriteOp) else None
        if not isinstance(tile, memref.SubviewOp) or any(value.owner in following for value in tile.operands):
            continue
        root, shape = _root(tile.result), memref_of(tile.result).get_shape()
        whole = memref_of(root).get_shape()
        if DYNAMIC_INDEX in (*shape, *whole) or not shape or strides_of(tile.result)[-1] != 1:
            continue
        if isinstance(op, vector.TransferReadOp):
            # A row is the same for all tiles below one another.
            wanted = isinstance(root, BlockArgument) and len(shape) > 1
        else:
            # What sums began with is near already.
            begun = any(isinstance(use.operation, vector.TransferReadOp) for use in tile.result.uses)
            wanted = not begun and prod(whole) >= near
        if wanted:
            yield tile


def _after(op: Operation) -> Iterator[Operation]:
    while (following := op.next_op) is not None:
        yield following
        op = following


def _root(buffer: SSAValue) -> SSAValue:
    while isinstance(buffer.owner, memref.SubviewOp | memref.ReinterpretCastOp):
        buffer = buffer.owner.source
    return buffer


def _prefetch_tile(loop: scf.ForOp, tile: memref.SubviewOp, how: Prefetch, constants: Constants) -> None:
    """Asks for the lines of a tile while its sums are computed: in step i for line ⌊i / ⌊steps / lines⌋⌋.

    All of them before the first step would keep the rows of the panel, which come from a cache as well, waiting.
    """
    assert loop.parent is not None
    if tile in _after(loop):
        tile.detach()
        loop.parent.insert_op_before(tile, loop)
    *rows, columns = memref_of(tile.result).get_shape()
    step = how.line_bytes // numpy_dtype(memref_of(tile.result).element_type).itemsize
    beside = -(-columns // step)
    lines, low, stride = prod(rows) * beside, _constant(loop.lb), _constant(loop.step)
    share = 0 if low is None or stride is None else _trip_count(loop) // stride // lines
    if _row_count(loop) < how.spread_rows or low is None or stride is None or share == 0:
        place = Place(constants, loop.parent, tile.location, anchor=loop)
        for indices in product(*map(range, rows), range(0, columns, step)):
            place.insert(PrefetchOp.create(operands=[tile.result, *map(place.value, indices)], properties=READ))
        return
    first: Operation | None = loop.body.block.first_op
    assert first is not None
    place = Place(constants, loop.body.block, tile.location, anchor=first)
    line = place.floordiv(place.subtract(loop.body.block.args[0], low), stride * share)
    at: list[Index] = [place.multiply(place.remainder(line, beside), step)]
    line = place.floordiv(line, beside)
    for size in reversed(rows[1:]):
        at.insert(0, place.remainder(line, size))
        line = place.floordiv(line, size)
    at = [line, *at] if rows else at
    place.insert(PrefetchOp.create(operands=[tile.result, *map(place.value, at)], properties=READ))
