"""Loops over vectors of columns, and reductions of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

import dlc.kernels as k
from dlc.kernels.values import Value
from dlc.library_kernels.elements import ComplexValue, Element, Reference, dot_terms, planes
from dlc.shapes.traced_dims import TracedSize

# Multiply-adds of a task.
_TASK_MULTIPLY_ADDS = 1 << 16
_CACHE_LINE_BYTES = 64
Index: TypeAlias = "Value | int"
Dtype: TypeAlias = "np.dtype[Any]"
Factors: TypeAlias = "tuple[Value, Value]"
# A function of two lists of values that returns whether the first one comes first.
Order: TypeAlias = "Callable[[Sequence[Value], Sequence[Value]], Value]"


def points_per_task(work: Any) -> int:
    """Return the number of points of a grid per task, for points of `work` multiply-adds; 1 for a symbolic number."""
    return max(1, _TASK_MULTIPLY_ADDS // max(1, work)) if isinstance(work, int) else 1


def position_dtype(size: TracedSize) -> Dtype:
    """Return the dtype of positions in rows of `size` elements: int32, of which a vector has more, if it is sufficient."""
    return np.dtype(np.int32 if isinstance(size, int) and size < 1 << 31 else np.int64)


def is_one(size: TracedSize) -> bool:
    """Return whether a size is 1 for all values of its symbols."""
    return isinstance(size, int) and size == 1


def split_extent(extent: Any, width: int, *, is_masked: bool = False) -> list[tuple[Any, int, Any]]:
    """Split an extent into (start, width, count): `count` tiles of `width`, then the remainder.

    The remainder is one tile. If it is symbolic, it consists of tiles of width 1, or if `is_masked` of a tile of `width` that
    reaches beyond the extent.
    """
    remainder = extent % width
    start = extent - remainder
    if isinstance(remainder, int):
        last = (start, remainder, 1)
    else:
        last = (start, width, -(-remainder // width)) if is_masked else (start, 1, remainder)
    tiles = [(0, width, extent // width), last]
    return [(first, size, count) for first, size, count in tiles if size and not (isinstance(count, int) and count == 0)]


def column_grid(*sizes: Any, columns: Any, width: int, work: Any, is_masked: bool = False) -> Iterator[Any]:
    """Yield (*point, column, width) for grids over `sizes` and tiles of columns (see `split_extent`).

    A column takes `work` multiply-adds.
    """
    for first, tile_width, count in split_extent(columns, width, is_masked=is_masked):
        for *point, tile in k.grid(*sizes, count, parallel=points_per_task(work * tile_width)):
            yield (*point, tile * tile_width + first, tile_width)


def lanes_of(dtype: Dtype) -> int:
    """Return the lanes along a row: the elements of a cache line, in one or a few registers."""
    return _CACHE_LINE_BYTES // dtype.itemsize


def tiles(low: Index, high: TracedSize, size: int) -> Iterator[tuple[Index, int, TracedSize]]:
    """Yield (start, size, count) for tiles of [low, high) that start at multiples of `size`; the last one is the remainder.

    The first tile starts at or before `low`. Each has `size` indices, of which `count` are below `high`: a tile of a static
    remainder is smaller, a tile of a symbolic remainder reaches beyond `high`.
    """
    remainder = high % size
    end, start = high - remainder, low // size * size
    if not isinstance(end, int) or (end and (not isinstance(start, int) or start < end)):
        for tile_start in k.range(start, end, size):
            yield tile_start, size, size
    if not isinstance(remainder, int):
        with k.when(k.index(remainder) > 0):
            yield k.index(end), size, remainder
    elif remainder and not (isinstance(start, int) and isinstance(end, int) and start > end):
        yield end, remainder, remainder


def overlapping_strips(n: Any, width: int) -> Iterator[tuple[Value, int]]:
    """Yield (start, width) for vectors of n elements; the last one overlaps the previous one."""
    width = min(n, width) if isinstance(n, int) else width
    for i in k.range(0, n, width):
        yield k.minimum(i, n - width) if width > 1 and n % width else i, width


def columns(low: Index, high: TracedSize, dtype: Dtype) -> Iterator[tuple[Index, int]]:
    """Yield (start, width) for vectors of columns, like `tiles`; the last one may reach beyond a symbolic `high`."""
    for start, width, _ in tiles(low, high, lanes_of(dtype)):
        yield start, width


def load(x: Reference, *indices: Index, width: int) -> Any:
    """Return a vector of columns; those beyond the row are 0."""
    return x.load(*indices, width=width, fill=0)


def store(x: Reference, *indices: Index, value: Any) -> None:
    """Store a vector of columns, without those beyond the row."""
    x.store(*indices, value=value, masked=True)


def if_size(size: TracedSize, minimum: int) -> Iterator[None]:
    """Run the body of a `for` statement once if a size is at least `minimum`."""
    if minimum and not isinstance(size, int):
        with k.when(k.index(size) >= minimum):
            yield
    elif size >= minimum:
        yield


def row_vectors(x: Reference) -> Iterator[tuple[Index, Index, int]]:
    """Yield (row, start, width) for vectors of columns of all rows of a matrix."""
    for i in k.range(x.shape[0]):
        for j, w in columns(0, x.shape[1], x.dtype):
            yield i, j, w


def update(function: Callable[[Sequence[Any]], Sequence[Element]], *rows: Reference, first: Index = 0) -> None:
    """Update rows from column `first` on: `function` maps vectors of all rows to new vectors of the first ones."""
    for j, w in columns(first, rows[0].shape[0], rows[0].dtype):
        for row, value in zip(rows, function([load(row, j, width=w) for row in rows]), strict=False):
            store(row, j, value=value)


def best_index(
    start: Index, size: TracedSize, elements: Callable[[Index], Sequence[Value]], is_better: Order
) -> tuple[Sequence[Value], Value]:
    """Return the best elements from `start` on, and their index, the first one of equal ones."""
    best, position = [k.variable(x) for x in elements(start)], k.variable(start, size=size)
    for i in k.range(start + 1, size):
        values = elements(i)
        replaces = is_better(values, [variable.value for variable in best])
        for variable, value in zip(best, values, strict=True):
            variable.value = k.select(replaces, value, variable.value)
        position.value = k.select(replaces, i, position.value)
    return [variable.value for variable in best], position.value


def groups(low: Index, high: Index | TracedSize, size: int, end: TracedSize) -> Iterator[list[Index]]:
    """Yield [i, i + 1, …] for groups of `size` indices of [low, high), then single indices; high is at most `end`."""
    first, last = k.index(low), k.index(high)
    whole = first + (last - first) // size * size
    for i in k.range(first, whole, size):
        yield [k.assume_index(i + r, end) for r in range(size)]
    for i in k.range(whole, last):
        yield [k.assume_index(i, end)]


def sums(
    low: Index, high: TracedSize, count: int, dtype: Dtype, products: Callable[[Index, int], Sequence[Sequence[Factors]]]
) -> list[Value]:
    """Return `count` sums of products over columns; `products(start, width)` returns the products of each, as vectors."""

    def add(start: Index, width: int, totals: Sequence[Value]) -> list[Value]:
        results = list(totals)
        for n, terms in enumerate(products(start, width)):
            for x, y in terms:
                results[n] = k.fma(x, y, results[n])
        return results

    return _fold(low, high, count, dtype, add, lambda v: v.sum(), operator.add)


def dots(x: Reference, rows: Sequence[Reference], first: Index = 0) -> list[Any]:
    """Return the dot products of a row, conjugated, with others, over the columns from the first one."""
    parts = len(planes(x))

    def products(j: Index, w: int) -> list[list[Factors]]:
        vector = load(x, j, width=w)
        return [terms for row in rows for terms in dot_terms(vector, load(row, j, width=w))]

    totals = sums(first, x.shape[0], parts * len(rows), x.dtype, products)
    return totals if parts == 1 else [ComplexValue(*pair) for pair in zip(totals[::2], totals[1::2], strict=True)]


def largest(low: Index, high: TracedSize, dtype: Dtype, elements: Callable[[Index, int], Value]) -> Value:
    """Return the maximum of non-negative elements over columns: 0 without elements, NaN if one is NaN."""

    def update(start: Index, width: int, totals: Sequence[Value]) -> list[Value]:
        return [k.maximum(elements(start, width), totals[0])]

    return _fold(low, high, 1, dtype, update, lambda v: v.max(), k.maximum)[0]


def _fold(
    low: Index,
    high: TracedSize,
    count: int,
    dtype: Dtype,
    step: Callable[[Index, int, Sequence[Value]], Sequence[Value]],
    reduce: Callable[[Value], Value],
    combine: Callable[[Value, Value], Value],
) -> list[Value]:
    """Reduce `count` values over columns by `step(start, width, totals)`, from 0; combine the lanes at the end."""
    lanes = lanes_of(dtype)
    is_narrow = isinstance(high, int) and high < lanes
    totals = [k.variable(k.full(lanes, 0, dtype)) for _ in range(0 if is_narrow else count)]
    remainder: list[Value] = []
    for start, width in columns(low, high, dtype):
        if width < lanes:
            remainder = [reduce(v) for v in step(start, width, [k.full(width, 0, dtype)] * count)]
        else:
            for total, value in zip(totals, step(start, width, [total.value for total in totals]), strict=True):
                total.value = value
    results = [reduce(total.value) for total in totals]
    return [combine(a, b) for a, b in zip(results, remainder, strict=True)] if results and remainder else results or remainder
