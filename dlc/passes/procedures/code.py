"""A language for loops that are written by hand: Python's `with` blocks and subscripts insert `scf`, `memref` and `vector` ops.

    with code.loop(0, n) as i:                         scf.for %i = 0 to n {
        total.value += x[i] * y[i]              →        … memref.load; arith.mulf; arith.addf; memref.store … }
    with code.when(total.value > 0.0): …               scf.if (arith.cmpf ogt, …) { … }

A `Cell` holds what changes from step to step: later passes keep it in a register. `values.py` has what is computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.sizes import sizes_of
from dlc.dims import Size
from dlc.ir import AffineExpr, AffineMap, Attribute, DenseIntOrFPElementsAttr, SSAValue, arith, i64, memref, scf
from dlc.passes.procedures.values import Index, Value, Writing, element_of, fma, maximum, shape_of_vector, ssa
from dlc.passes.structured import Place
from dlc.passes.types import memref_of, vector_type

_LINE_BYTES = 64
# What makes a task, in multiply-adds of these loops.
_TASK_WORK = 1 << 16


def parts(extent: Size, width: int) -> list[tuple[int, int, Size]]:
    """What cuts an extent: (where the first begins, how wide each is, how many), and what is left over as one more.

    An extent that the kernel is given goes one by one.
    """
    if not isinstance(extent, int):
        return [(0, 1, extent)]
    whole, rest = divmod(extent, width)
    return [part for part in ((0, width, whole), (extent - rest, rest, 1)) if part[1] and part[2]]


class Code(Writing):
    """Ops at the end of the innermost block that is open. `element` is the type that the procedure computes in."""

    def __init__(self, place: Place, element: Attribute) -> None:
        super().__init__(place)
        self.element = element

    @property
    def smallest(self) -> float:
        """The least normal number."""
        return float(np.finfo(numpy_dtype(self.element)).tiny)

    @property
    def epsilon(self) -> float:
        """The distance of 1 from the next number."""
        return float(np.finfo(numpy_dtype(self.element)).eps)

    @property
    def lanes(self) -> int:
        """How many elements of a row are computed at once: a line of the cache, one register or a few."""
        return _LINE_BYTES // (cast(Any, self.element).bitwidth // 8)

    # Control

    @contextmanager
    def loop(self, low: Index, high: Index, step: Index = 1, name: str = "i") -> Generator[Value]:
        """`for i in range(low, high, step)`."""
        outer = self.place
        made = outer.loop(ssa(low), ssa(high), ssa(step), name=name)
        self.place = outer.inside(made.body.block)
        yield Value(self, made.body.block.args[0])
        self.place.yield_()
        self.place = outer

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """`if condition`."""
        outer = self.place
        self.place = outer.branch(condition.ssa)
        yield
        self.place = outer

    @contextmanager
    def _tasks(self, count: Size, share: int) -> Generator[Value]:
        """The first of the things that a task has, of `count` in tasks of so many."""
        outer = self.place
        points = outer.parallel("grid", [(count, share)], ["task"])
        self.place = outer.inside(points.body.block)
        yield Value(self, points.body.block.args[0])
        self.place.insert(scf.ReduceOp())
        self.place = outer

    @contextmanager
    def shares(self, count: Size, share: int) -> Generator[tuple[Value, Value]]:
        """From which on and before which of `count` things, that have nothing to do with each other, are a task's."""
        with self._tasks(count, share) as first:
            end = first + share
            if not isinstance(count, int) or count % share:
                end = self.least(end, self.size(count))
            yield first, end

    @contextmanager
    def grid(self, count: Size, work: Size) -> Generator[Value]:
        """The number of one of `count` things that have nothing to do with each other, of so many multiply-adds each.

        Several of them are a task where one is known to be little.
        """
        share = max(1, _TASK_WORK // max(1, work)) if isinstance(work, int) else 1
        share = min(share, count) if isinstance(count, int) and count else share
        if share == 1:
            with self._tasks(count, 1) as number:
                yield number
        else:
            with self.shares(count, share) as (first, end), self.loop(first, end) as number:
                yield number

    def tiles(self, low: Index, high: int, size: int, body: Callable[[Index, int], None]) -> None:
        """`body(start, size)` for parts of [low, high) that start at multiples of `size`; the last one has what is left.

        The first begins at or before `low`.
        """
        whole = high - high % size
        start = low // size * size
        if whole and (not isinstance(start, int) or start < whole):
            with self.loop(start, whole, size, name="j") as at:
                body(at, size)
        if high > whole and (not isinstance(start, int) or start <= whole):
            body(whole, high - whole)

    def columns(self, low: Index, high: int, body: Callable[[Index, int], None]) -> None:
        """`tiles` of as many columns as are computed at once."""
        self.tiles(low, high, self.lanes, body)

    def groups(self, low: Index, high: Index, size: int, body: Callable[[list[Index]], None]) -> None:
        """`body([i, i + 1, …])` for all of [low, high) from `low` on, `size` at a time; what is left one by one."""
        first, last = self.index(low), self.index(high)
        end = first + (last - first) // size * size
        with self.loop(first, end, size) as i:
            body([i + k for k in range(size)])
        with self.loop(end, last) as i:
            body([i])

    def sums(self, low: Index, high: int, count: int, products: Products) -> list[Value]:
        """`count` sums of products over columns; `products(start, width)` gives the two factors of each, as vectors."""

        def add(at: Index, width: int, totals: Sequence[Value]) -> list[Value]:
            return [fma(x, y, total) for (x, y), total in zip(products(at, width), totals, strict=True)]

        return self._folded("add", low, high, count, add)

    def largest(self, low: Index, high: int, elements: Callable[[Index, int], Value]) -> Value:
        """The largest of elements that are not negative over columns, 0 of none; NaN if one is."""

        def take(at: Index, width: int, totals: Sequence[Value]) -> list[Value]:
            return [maximum(elements(at, width), totals[0])]

        return self._folded("maximumf", low, high, 1, take)[0]

    def _folded(self, kind: str, low: Index, high: int, count: int, step: Step) -> list[Value]:
        """What `step(start, width, so far)` makes of `count` values that begin as 0, over columns, each combined over lanes."""
        combine: Callable[[Value, Value], Value] = operator.add if kind == "add" else maximum

        def zeros(width: int) -> Value:
            return self.number(0.0, vector_type((width,), self.element))

        wide = [self.cell(zeros(self.lanes)) for _ in range(count if high >= self.lanes else 0)]
        narrow: list[Value] = []

        def body(at: Index, width: int) -> None:
            if width < self.lanes:
                narrow.extend(v.combined(kind) for v in step(at, width, [zeros(width)] * count))
            else:
                for cell, value in zip(wide, step(at, width, [cell.value for cell in wide]), strict=True):
                    cell.value = value

        self.columns(low, high, body)
        totals = [cell.value.combined(kind) for cell in wide] or narrow
        return [combine(a, b) for a, b in zip(totals, narrow, strict=True)] if wide and narrow else totals

    # Values

    def number(self, value: float, like: Attribute | None = None) -> Value:
        """A number in every element of a type, the procedure's if none is given."""
        return self.constant(value, self.element if like is None else like)

    def index(self, value: Index) -> Value:
        return value if isinstance(value, Value) else Value(self, self.place.value(value))

    def size(self, size: Size) -> Index:
        """A size, which the kernel may be given."""
        known = self.place.size(size)
        return known if isinstance(known, int) else Value(self, known)

    def apart(self, number: Value, count: Size) -> tuple[Value, Value]:
        """Which group of `count` a number is in, and which of the group it is."""
        size = self.size(count)
        return (number, self.index(0)) if size == 1 else (number // size, number % size)

    def least(self, a: Index, b: Index) -> Value:
        """The smaller of two indices."""
        return self.op(arith.MinUIOp(self.index(a).ssa, self.index(b).ssa))

    def numbered(self, start: Index, width: int, element: Attribute = i64) -> Value:
        """start, start + 1, … as a vector of integers."""
        t = vector_type((width,), element)
        counted = Value(self, self.place.constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), range(width)), t))
        return counted + self.index(start).as_integer(element)

    # Memory

    def cell(self, value: Value) -> Cell:
        shape = shape_of_vector(value.type) or (1,)
        cell = Cell(Buffer(self, self.place.alloca(element_of(value.type), shape), value.signed), value.type)
        cell.value = value
        return cell

    def scratch(self, *shape: int, element: Attribute | None = None) -> Buffer:
        """Room for so many elements, of the procedure's type if none is given; they are not set yet."""
        return Buffer(self, self.place.alloca(self.element if element is None else element, shape))


Products: TypeAlias = "Callable[[Index, int], Sequence[tuple[Value, Value]]]"
Step: TypeAlias = "Callable[[Index, int, Sequence[Value]], Sequence[Value]]"


@dataclass(frozen=True, eq=False)
class Buffer:
    """Elements in memory: `x[i, j]` is one of them, a row so many in a line; `signed` says of integers what they are."""

    code: Code
    memref: SSAValue
    signed: bool = True

    def __getitem__(self, at: Index | tuple[Index, ...]) -> Value:
        made = memref.LoadOp.create(
            operands=[self.memref, *self._indices(at)], result_types=[memref_of(self.memref).element_type]
        )
        return self.code.op(made, signed=self.signed)

    def __setitem__(self, at: Index | tuple[Index, ...], value: Value) -> None:
        self.code.place.insert(memref.StoreOp.create(operands=[value.ssa, self.memref, *self._indices(at)]))

    def row(self, *at: Index, width: int) -> Value:
        """The vector of `width` elements from a place on."""
        return self.block(at, (width,), (len(at) - 1,))

    def set_row(self, *at: Index, row: Value) -> None:
        """Writes a vector from a place on."""
        self.set_block(at, (len(at) - 1,), row)

    def block(self, at: Sequence[Index], shape: tuple[int, ...], axes: tuple[int, ...]) -> Value:
        """A vector from a place on, whose dimensions run along these axes."""
        read = self.code.place.transfer_read(self.memref, [ssa(i) for i in at], shape, _along(len(at), axes))
        return Value(self.code, read, self.signed)

    def set_block(self, at: Sequence[Index], axes: tuple[int, ...], block: Value) -> None:
        """Writes a vector where `block` would read it."""
        self.code.place.transfer_write(block.ssa, self.memref, [ssa(i) for i in at], _along(len(at), axes))

    def part(self, at: Index) -> Buffer:
        """The elements at one place of the first axis."""
        sizes = sizes_of(self.memref)
        offsets = [ssa(at), *(0 for _ in sizes[1:])]
        part = self.code.place.subview(self.memref, offsets, (1, *sizes[1:]), drop=(0,))
        return Buffer(self.code, part, self.signed)

    def _indices(self, at: Index | tuple[Index, ...]) -> Sequence[SSAValue]:
        return [self.code.index(i).ssa for i in (at if isinstance(at, tuple) else (at,))]


@lru_cache(maxsize=64)
def _along(rank: int, axes: tuple[int, ...]) -> AffineMap:
    return AffineMap(rank, 0, tuple(AffineExpr.dimension(axis) for axis in axes))


class Cell:
    """A value that changes; later passes keep it in a register."""

    def __init__(self, buffer: Buffer, type: Attribute) -> None:
        self.buffer = buffer
        self.type = type

    @property
    def value(self) -> Value:
        return self.buffer.row(0, width=shape_of_vector(self.type)[0]) if shape_of_vector(self.type) else self.buffer[0]

    @value.setter
    def value(self, value: Value) -> None:
        if shape_of_vector(self.type):
            self.buffer.set_row(0, row=value)
        else:
            self.buffer[0] = value
