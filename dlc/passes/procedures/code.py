"""A language for loops that are written by hand: Python operators and `with` blocks insert `scf`, `memref` and `vector` ops.

    with code.loop(0, n) as i:                         scf.for %i = 0 to n {
        total.value += x[i] * y[i]              →        … memref.load; arith.mulf; arith.addf; memref.store … }
    with code.when(total.value > 0.0): …               scf.if (arith.cmpf ogt, …) { … }

A value is a scalar or a vector; a number beside it is one of its type, a scalar beside a vector is in each of its lanes. A
`Cell` holds what changes from step to step: later passes keep it in a register.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dialects.sizes import sizes_of
from dlc.dims import Size
from dlc.ir import (
    AffineExpr,
    AffineMap,
    Attribute,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    Operation,
    SSAValue,
    VectorType,
    arith,
    i64,
    index,
    math,
    memref,
    scf,
    vector,
)
from dlc.passes.structured import Place, memref_of, vector_type

# The predicates of arith.cmpf and arith.cmpi; all but `ne` are false on NaN.
_PREDICATES = {
    "eq": ("oeq", "eq"), "ne": ("une", "ne"),
    "lt": ("olt", "slt"), "le": ("ole", "sle"),
    "gt": ("ogt", "sgt"), "ge": ("oge", "sge"),
}  # fmt: skip
_LINE_BYTES = 64
# What makes a task, in multiply-adds of these loops.
_TASK_WORK = 1 << 16


def element_of(t: Attribute) -> Attribute:
    """The type of the elements of a vector; of a scalar, its own."""
    return cast(Any, t).element_type if isinstance(t, VectorType) else t


def shape_of_vector(t: Attribute) -> tuple[int, ...]:
    """The shape of a vector type, () for a scalar's."""
    return t.get_shape() if isinstance(t, VectorType) else ()


class Code:
    """Where ops go: at the end of the innermost block that is open. `element` is the type that the procedure computes in."""

    def __init__(self, place: Place, element: Attribute) -> None:
        self.place = place
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
    def loop(self, low: Index, high: Index, step: int = 1, name: str = "i") -> Generator[Value]:
        """`for i in range(low, high, step)`."""
        outer = self.place
        made = outer.loop(_ssa(low), _ssa(high), step, name=name)
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
    def grid(self, count: Size, work: int) -> Generator[Value]:
        """The number of one of `count` things that have nothing to do with each other, of so many multiply-adds each.

        Several of them are a task where one is little.
        """
        outer, share = self.place, max(1, _TASK_WORK // max(1, work))
        share = min(share, count) if isinstance(count, int) and count else share
        points = outer.parallel("grid", [(count, share)], ["task"])
        self.place, first = outer.inside(points.body.block), Value(self, points.body.block.args[0])
        if share == 1:
            yield first
        else:
            last = first + share
            if not isinstance(count, int) or count % share:
                last = self.minimum(last, Value(self, self.place.value(self.place.size(count))))
            with self.loop(first, last) as number:
                yield number
        self.place.insert(scf.ReduceOp())
        self.place = outer

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
        t = self.element if like is None else like
        e = element_of(t)
        attribute: Any = FloatAttr(value, cast(Any, e)) if is_float(e) else IntegerAttr(int(value), cast(Any, e))
        if shape_of_vector(t):
            attribute = DenseIntOrFPElementsAttr.from_list(cast(Any, t), [attribute.value.data])
        return Value(self, self.place.constants.get(attribute, t))

    def index(self, value: Index) -> Value:
        return value if isinstance(value, Value) else Value(self, self.place.value(value))

    def minimum(self, a: Index, b: Index) -> Value:
        return self.op(arith.MinUIOp(self.index(a).ssa, self.index(b).ssa))

    def numbered(self, start: Index, width: int) -> Value:
        """start, start + 1, … as a vector of integers."""
        t = vector_type((width,), i64)
        counted = Value(self, self.place.constants.get(DenseIntOrFPElementsAttr.from_list(cast(Any, t), range(width)), t))
        return counted + self.index(start).as_integer()

    def cell(self, value: Value) -> Cell:
        shape = shape_of_vector(value.type) or (1,)
        cell = Cell(Buffer(self, self.place.alloca(element_of(value.type), shape)), value.type)
        cell.value = value
        return cell

    def scratch(self, size: int) -> Buffer:
        """Room for so many elements, which are not set yet."""
        return Buffer(self, self.place.alloca(self.element, (size,)))

    def op(self, made: Operation) -> Value:
        return Value(self, self.place.op(made))


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar or a vector of floats, integers or truth values."""

    code: Code
    ssa: SSAValue

    @property
    def type(self) -> Attribute:
        return self.ssa.type

    @property
    def is_float(self) -> bool:
        return is_float(element_of(self.type))

    def like(self, other: Operand) -> Value:
        """A number, or a scalar, as a value of this one's type."""
        if not isinstance(other, Value):
            return self.code.number(other, self.type)
        if shape_of_vector(self.type) and not shape_of_vector(other.type):
            return Value(self.code, self.code.place.splat(other.ssa, shape_of_vector(self.type)))
        return other

    def _binary(self, other: Operand, floats: Any, integers: Any) -> Value:
        a, b = self._matched(other)
        made = (floats if self.is_float else integers)(a.ssa, b.ssa)
        return self.code.op(made)

    def _matched(self, other: Operand) -> tuple[Value, Value]:
        if isinstance(other, Value) and shape_of_vector(other.type) and not shape_of_vector(self.type):
            return other.like(self), other
        return self, self.like(other)

    def __add__(self, other: Operand) -> Value:
        return self._binary(other, arith.AddfOp, arith.AddiOp)

    def __sub__(self, other: Operand) -> Value:
        return self._binary(other, arith.SubfOp, arith.SubiOp)

    def __mul__(self, other: Operand) -> Value:
        return self._binary(other, arith.MulfOp, arith.MuliOp)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary(other, arith.DivfOp, None)

    def __floordiv__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.DivUIOp)

    def __mod__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.RemUIOp)

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    def __rtruediv__(self, other: float) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        return self.code.op(arith.NegfOp(self.ssa))

    def __and__(self, other: Value) -> Value:
        return self.code.op(arith.AndIOp(self.ssa, other.ssa))

    def __or__(self, other: Value) -> Value:
        return self.code.op(arith.OrIOp(self.ssa, other.ssa))

    def _compare(self, name: str, other: Operand) -> Value:
        a, b = self._matched(other)
        floats, integers = _PREDICATES[name]
        return self.code.op(arith.CmpfOp(a.ssa, b.ssa, floats) if self.is_float else arith.CmpiOp(a.ssa, b.ssa, integers))

    def __lt__(self, other: Operand) -> Value:
        return self._compare("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare("ge", other)

    def equals(self, other: Operand) -> Value:
        return self._compare("eq", other)

    def differs(self, other: Operand) -> Value:
        return self._compare("ne", other)

    def as_integer(self) -> Value:
        """An index as a 64-bit integer."""
        return self.code.op(arith.IndexCastOp(self.ssa, i64))

    def as_index(self) -> Value:
        """A 64-bit integer as an index."""
        return self.code.op(arith.IndexCastOp(self.ssa, index))

    def combined(self, kind: str) -> Value:
        """All elements of a vector, combined: `add` or `maximumf`."""
        properties = {
            "kind": vector.CombiningKindAttr(vector.CombiningKindFlag(kind)),
            "fastmath": arith.FastMathFlagsAttr("none"),
        }
        t = element_of(self.type)
        return self.code.op(vector.ReductionOp.create(operands=[self.ssa], result_types=[t], properties=properties))


Operand: TypeAlias = "Value | float"
Index: TypeAlias = "Value | int"
Products: TypeAlias = "Callable[[Index, int], Sequence[tuple[Value, Value]]]"
Step: TypeAlias = "Callable[[Index, int, Sequence[Value]], Sequence[Value]]"


def _ssa(i: Index) -> Any:
    return i.ssa if isinstance(i, Value) else i


def fma(a: Value, b: Value, c: Value) -> Value:
    """a·b + c, rounded once where the target has such an instruction; c has the type of the result."""
    kind = vector.FMAOp if shape_of_vector(c.type) else math.FmaOp
    return c.code.op(kind.create(operands=[c.like(a).ssa, c.like(b).ssa, c.ssa], result_types=[c.type]))


def select(condition: Value, x: Operand, y: Operand) -> Value:
    """`x` where the condition holds, else `y`; one of them has the type of the result."""
    like = x if isinstance(x, Value) and (not isinstance(y, Value) or shape_of_vector(x.type)) else y
    assert isinstance(like, Value)
    return like.code.op(arith.SelectOp(condition.ssa, like.like(x).ssa, like.like(y).ssa))


def maximum(x: Value, y: Value) -> Value:
    """The larger; NaN if one is."""
    return x.code.op(arith.MaximumfOp(x.ssa, y.ssa))


def sqrt(x: Value) -> Value:
    return x.code.op(math.SqrtOp(x.ssa))


def absolute(x: Value) -> Value:
    return x.code.op(math.AbsFOp(x.ssa))


def with_sign_of(x: Value, sign: Value) -> Value:
    """The size of x with the sign of another number."""
    return x.code.op(math.CopySignOp(x.ssa, sign.ssa))


@dataclass(frozen=True, eq=False)
class Buffer:
    """Elements in memory: `x[i, j]` is one of them, a row so many in a line."""

    code: Code
    memref: SSAValue

    def __getitem__(self, at: Index | tuple[Index, ...]) -> Value:
        made = memref.LoadOp.create(
            operands=[self.memref, *self._indices(at)], result_types=[memref_of(self.memref).element_type]
        )
        return self.code.op(made)

    def __setitem__(self, at: Index | tuple[Index, ...], value: Value) -> None:
        self.code.place.insert(memref.StoreOp.create(operands=[value.ssa, self.memref, *self._indices(at)]))

    def row(self, *at: Index, width: int) -> Value:
        """The vector of `width` elements from a place on."""
        read = self.code.place.transfer_read(self.memref, [_ssa(i) for i in at], (width,), _along_last(len(at)))
        return Value(self.code, read)

    def set_row(self, *at: Index, row: Value) -> None:
        """Writes a vector from a place on."""
        self.code.place.transfer_write(row.ssa, self.memref, [_ssa(i) for i in at], _along_last(len(at)))

    def part(self, at: Index) -> Buffer:
        """The elements at one place of the first axis."""
        sizes = sizes_of(self.memref)
        offsets = [_ssa(at), *(0 for _ in sizes[1:])]
        return Buffer(self.code, self.code.place.subview(self.memref, offsets, (1, *sizes[1:]), drop=(0,)))

    def _indices(self, at: Index | tuple[Index, ...]) -> Sequence[SSAValue]:
        return [self.code.index(i).ssa for i in (at if isinstance(at, tuple) else (at,))]


def _along_last(rank: int) -> AffineMap:
    return AffineMap(rank, 0, (AffineExpr.dimension(rank - 1),))


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
