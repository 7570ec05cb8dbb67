"""An embedded language for hand-written loops: Python's `with` and subscripts insert `scf`, `memref`, `vector` ops.

    with builder.loop(0, n) as i:                      scf.for %i = 0 to n {
        total.value += x[i] * y[i]              →        … memref.load; arith.mulf; arith.addf; memref.store … }
    with builder.when(total.value > 0.0): …            scf.if (arith.cmpf ogt, …) { … }

A `Cell` is a mutable variable, which later passes promote to a register. `values.py` has the arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.sizes import sizes_of
from dlc.ir import AffineExpr, AffineMap, Attribute, DenseIntOrFPElementsAttr, SSAValue, arith, i64, memref, scf
from dlc.passes.library_kernels.values import Index, KernelValue, ValueBuilder, element_of, fma, maximum, shape_of_vector, ssa
from dlc.passes.structured import OpBuilder
from dlc.passes.types import memref_of, vector_type
from dlc.shapes.dims import Size

_CACHE_LINE_BYTES = 64
# Minimum work of a task, in multiply-adds.
TASK_MULTIPLY_ADDS = 1 << 16


def split_extent(extent: Size, width: int) -> list[tuple[int, int, Size]]:
    """Split an extent into (start, width, count): `count` tiles of `width`, then one tile for the remainder.

    A symbolic extent is split into tiles of width 1.
    """
    if not isinstance(extent, int):
        return [(0, 1, extent)]
    num_tiles, remainder = divmod(extent, width)
    return [tiles for tiles in ((0, width, num_tiles), (extent - remainder, remainder, 1)) if tiles[1] and tiles[2]]


class KernelBuilder(ValueBuilder):
    """Insert ops at the end of the innermost open block. `element` is the element type of the kernel's computation."""

    def __init__(self, op_builder: OpBuilder, element: Attribute) -> None:
        super().__init__(op_builder)
        self.element = element

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return float(np.finfo(numpy_dtype(self.element)).tiny)

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger number."""
        return float(np.finfo(numpy_dtype(self.element)).eps)

    @property
    def lanes(self) -> int:
        """The lanes along a row: the elements of a cache line, in one or a few registers."""
        return _CACHE_LINE_BYTES // (cast(Any, self.element).bitwidth // 8)

    # Control flow

    @contextmanager
    def loop(self, low: Index, high: Index, step: Index = 1, name: str = "i") -> Generator[KernelValue]:
        """`for i in range(low, high, step)`."""
        outer = self.op_builder
        loop_op = outer.loop(ssa(low), ssa(high), ssa(step), name=name)
        self.op_builder = outer.at_block_end(loop_op.body.block)
        yield KernelValue(self, loop_op.body.block.args[0])
        self.op_builder.yield_()
        self.op_builder = outer

    @contextmanager
    def when(self, condition: KernelValue) -> Generator[None]:
        """`if condition`."""
        outer = self.op_builder
        self.op_builder = outer.branch(condition.ssa)
        yield
        self.op_builder = outer

    @contextmanager
    def _tasks(self, count: Size, share: int) -> Generator[KernelValue]:
        """Open a grid over `count` independent iterations, `share` per task; yield the first iteration of a task."""
        outer = self.op_builder
        points = outer.parallel("grid", [(count, share)], ["task"])
        self.op_builder = outer.at_block_end(points.body.block)
        yield KernelValue(self, points.body.block.args[0])
        self.op_builder.insert(scf.ReduceOp())
        self.op_builder = outer

    @contextmanager
    def parallel_ranges(self, count: Size, share: int) -> Generator[tuple[KernelValue, KernelValue]]:
        """Open a grid over `count` independent iterations, `share` per task; yield the range (first, end) of a task."""
        with self._tasks(count, share) as first:
            end = first + share
            if not isinstance(count, int) or count % share:
                end = self.minimum_index(end, self.size(count))
            yield first, end

    @contextmanager
    def grid(self, count: Size, work: Size) -> Generator[KernelValue]:
        """Open a parallel loop over `count` independent iterations of `work` multiply-adds each; yield the iteration index.

        Iterations with little static work are grouped into tasks.
        """
        share = max(1, TASK_MULTIPLY_ADDS // max(1, work)) if isinstance(work, int) else 1
        share = min(share, count) if isinstance(count, int) and count else share
        if share == 1:
            with self._tasks(count, 1) as iteration:
                yield iteration
        else:
            with self.parallel_ranges(count, share) as (first, end), self.loop(first, end) as iteration:
                yield iteration

    def tiles(self, low: Index, high: int, size: int, body: Callable[[Index, int], None]) -> None:
        """Call `body(start, size)` for tiles of [low, high) that start at multiples of `size`; the last one is the remainder.

        The first tile starts at or before `low`.
        """
        tiled_end = high - high % size
        start = low // size * size
        if tiled_end and (not isinstance(start, int) or start < tiled_end):
            with self.loop(start, tiled_end, size, name="j") as tile_start:
                body(tile_start, size)
        if high > tiled_end and (not isinstance(start, int) or start <= tiled_end):
            body(tiled_end, high - tiled_end)

    def columns(self, low: Index, high: int, body: Callable[[Index, int], None]) -> None:
        """Call `body(start, width)` for vectors of columns, like `tiles`."""
        self.tiles(low, high, self.lanes, body)

    def groups(self, low: Index, high: Index, size: int, body: Callable[[list[Index]], None]) -> None:
        """Call `body([i, i + 1, …])` for groups of `size` indices of [low, high), then for single indices of the remainder."""
        first, last = self.index(low), self.index(high)
        end = first + (last - first) // size * size
        with self.loop(first, end, size) as i:
            body([i + k for k in range(size)])
        with self.loop(end, last) as i:
            body([i])

    def sums(self, low: Index, high: int, count: int, products: Products) -> list[KernelValue]:
        """Return `count` dot products over columns; `products(start, width)` returns their pairs of factors, as vectors."""

        def add(start: Index, width: int, totals: Sequence[KernelValue]) -> list[KernelValue]:
            return [fma(x, y, total) for (x, y), total in zip(products(start, width), totals, strict=True)]

        return self._fold("add", low, high, count, add)

    def largest(self, low: Index, high: int, elements: Callable[[Index, int], KernelValue]) -> KernelValue:
        """Return the maximum of non-negative elements over columns: 0 without elements, NaN if one is NaN."""

        def update_maximum(start: Index, width: int, totals: Sequence[KernelValue]) -> list[KernelValue]:
            return [maximum(elements(start, width), totals[0])]

        return self._fold("maximumf", low, high, 1, update_maximum)[0]

    def _fold(self, kind: str, low: Index, high: int, count: int, step: Step) -> list[KernelValue]:
        """Reduce `count` values over columns by `step(start, width, totals)`, from 0; combine the lanes at the end."""
        combine: Callable[[KernelValue, KernelValue], KernelValue] = operator.add if kind == "add" else maximum

        def zeros(width: int) -> KernelValue:
            return self.number(0.0, vector_type((width,), self.element))

        lane_totals = [self.cell(zeros(self.lanes)) for _ in range(count if high >= self.lanes else 0)]
        remainder_totals: list[KernelValue] = []

        def body(start: Index, width: int) -> None:
            if width < self.lanes:
                remainder_totals.extend(v.reduce_lanes(kind) for v in step(start, width, [zeros(width)] * count))
            else:
                for cell, value in zip(lane_totals, step(start, width, [cell.value for cell in lane_totals]), strict=True):
                    cell.value = value

        self.columns(low, high, body)
        totals = [cell.value.reduce_lanes(kind) for cell in lane_totals] or remainder_totals
        return (
            [combine(a, b) for a, b in zip(totals, remainder_totals, strict=True)]
            if lane_totals and remainder_totals
            else totals
        )

    # Values

    def number(self, value: float, like: Attribute | None = None) -> KernelValue:
        """Return a constant of a scalar type, or splat to a vector type (default: the kernel's element type)."""
        return self.constant(value, self.element if like is None else like)

    def index(self, value: Index) -> KernelValue:
        return value if isinstance(value, KernelValue) else KernelValue(self, self.op_builder.value(value))

    def size(self, size: Size) -> Index:
        """Return a static or symbolic size as an index."""
        value = self.op_builder.size(size)
        return value if isinstance(value, int) else KernelValue(self, value)

    def split_index(self, index: KernelValue, count: Size) -> tuple[KernelValue, KernelValue]:
        """Return the quotient and the remainder of an index divided by `count`."""
        size = self.size(count)
        return (index, self.index(0)) if size == 1 else (index // size, index % size)

    def minimum_index(self, a: Index, b: Index) -> KernelValue:
        """Return the smaller of two indices."""
        return self.op(arith.MinUIOp(self.index(a).ssa, self.index(b).ssa))

    def iota(self, start: Index, width: int, element: Attribute = i64) -> KernelValue:
        """Return start, start + 1, … as a vector of integers."""
        t = vector_type((width,), element)
        offsets = KernelValue(
            self, self.op_builder.constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), range(width)), t)
        )
        return offsets + self.index(start).as_integer(element)

    # Memory

    def cell(self, value: KernelValue) -> Cell:
        """Return a new mutable variable with an initial value."""
        shape = shape_of_vector(value.type) or (1,)
        cell = Cell(Buffer(self, self.op_builder.alloca(element_of(value.type), shape), value.signed), value.type)
        cell.value = value
        return cell

    def scratch(self, *shape: int, element: Attribute | None = None) -> Buffer:
        """Allocate an uninitialized private buffer (default element type: the kernel's)."""
        return Buffer(self, self.op_builder.alloca(self.element if element is None else element, shape))


Products: TypeAlias = "Callable[[Index, int], Sequence[tuple[KernelValue, KernelValue]]]"
Step: TypeAlias = "Callable[[Index, int, Sequence[KernelValue]], Sequence[KernelValue]]"


@dataclass(frozen=True, eq=False)
class Buffer:
    """A memref: `x[i, j]` is an element; `row` and `block` load vectors; `signed` is the signedness of integers."""

    builder: KernelBuilder
    memref: SSAValue
    signed: bool = True

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> KernelValue:
        load_op = memref.LoadOp.create(
            operands=[self.memref, *self._indices(indices)], result_types=[memref_of(self.memref).element_type]
        )
        return self.builder.op(load_op, signed=self.signed)

    def __setitem__(self, indices: Index | tuple[Index, ...], value: KernelValue) -> None:
        self.builder.op_builder.insert(memref.StoreOp.create(operands=[value.ssa, self.memref, *self._indices(indices)]))

    def row(self, *indices: Index, width: int) -> KernelValue:
        """Load `width` consecutive elements, starting at these indices."""
        return self.block(indices, (width,), (len(indices) - 1,))

    def set_row(self, *indices: Index, row: KernelValue) -> None:
        """Store a vector to consecutive elements, starting at these indices."""
        self.set_block(indices, (len(indices) - 1,), row)

    def block(
        self,
        start: Sequence[Index],
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        padding: KernelValue | None = None,
        masked_dims: Sequence[int] = (),
    ) -> KernelValue:
        """Load an n-D vector along `axes`, starting at `start`; elements outside along `masked_dims` are `padding`."""
        read = self.builder.op_builder.transfer_read(
            self.memref,
            [ssa(i) for i in start],
            shape,
            _axes_map(len(start), axes),
            None if padding is None else padding.ssa,
            masked_dims,
        )
        return KernelValue(self.builder, read, self.signed)

    def set_block(
        self, start: Sequence[Index], axes: tuple[int, ...], block: KernelValue, masked_dims: Sequence[int] = ()
    ) -> None:
        """Store an n-D vector along `axes`, starting at `start`; elements outside along `masked_dims` are not stored."""
        indices, map_ = [ssa(i) for i in start], _axes_map(len(start), axes)
        self.builder.op_builder.transfer_write(block.ssa, self.memref, indices, map_, masked_dims)

    def reshaped(self, shape: tuple[int, ...]) -> Buffer:
        """Return the elements of a contiguous buffer in another shape."""
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return Buffer(self.builder, self.builder.op_builder.reinterpret(self.memref, 0, shape, strides), self.signed)

    def subview_at(self, index: Index) -> Buffer:
        """Return the subview at one index of the first axis."""
        sizes = sizes_of(self.memref)
        offsets = [ssa(index), *(0 for _ in sizes[1:])]
        subview = self.builder.op_builder.subview(self.memref, offsets, (1, *sizes[1:]), drop=(0,))
        return Buffer(self.builder, subview, self.signed)

    def _indices(self, indices: Index | tuple[Index, ...]) -> Sequence[SSAValue]:
        return [self.builder.index(i).ssa for i in (indices if isinstance(indices, tuple) else (indices,))]


@lru_cache(maxsize=64)
def _axes_map(rank: int, axes: tuple[int, ...]) -> AffineMap:
    return AffineMap(rank, 0, tuple(AffineExpr.dimension(axis) for axis in axes))


class Cell:
    """A mutable variable, which later passes promote to a register."""

    def __init__(self, buffer: Buffer, type: Attribute) -> None:
        self.buffer = buffer
        self.type = type

    @property
    def value(self) -> KernelValue:
        shape = shape_of_vector(self.type)
        return self.buffer.block((0,) * len(shape), shape, tuple(range(len(shape)))) if shape else self.buffer[0]

    @value.setter
    def value(self, value: KernelValue) -> None:
        rank = len(shape_of_vector(self.type))
        if rank:
            self.buffer.set_block((0,) * rank, tuple(range(rank)), value)
        else:
            self.buffer[0] = value
