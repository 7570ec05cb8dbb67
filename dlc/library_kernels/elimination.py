"""Factorizations by elimination: LU with pivoting, Cholesky, and triangular systems.

All are vectorized along rows, which are contiguous in memory. Columns (or rows) are eliminated in blocks. The update of
the trailing matrix by a block is a matrix product with sums in registers, so the trailing matrix is read and written
once per block instead of once per column. Source: Golub and Van Loan, Matrix Computations, 3.2, 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.vectors import Index, columns, tiles

# Columns per block.
_BLOCK_COLUMNS = 16
# Rows per tile, with sums in registers.
_ROWS_PER_TILE = 4
# A function (x, i, p) that returns the factor by which row p is subtracted from row i.
Factor: TypeAlias = "Callable[[ArrayReference, Index, Value], Value]"


def copy(source: ArrayReference, destination: ArrayReference) -> None:
    """Copy a matrix."""
    rows, width = source.shape
    for i in k.range(rows):
        for j, w in columns(0, width, source.dtype):
            destination.store(i, j, value=source.load(i, j, width=w))


def exchange(x: ArrayReference, i: Index, p: Index) -> None:
    """Swap two rows."""
    for j, w in columns(0, x.shape[1], x.dtype):
        first, second = x.load(i, j, width=w), x.load(p, j, width=w)
        x.store(i, j, value=second)
        x.store(p, j, value=first)


def _element_at(x: ArrayReference, i: Index, p: Value) -> Value:
    return x[i, p]


def _transposed_element_at(x: ArrayReference, i: Index, p: Value) -> Value:
    return x[p, i]


def _subtract_product(
    factor: Factor, x: ArrayReference, rows: Sequence[Index], steps: tuple[Index, Index], first_column: Index
) -> None:
    """Compute x[i, j] -= Σ factor(x, i, p)·x[p, j] over the steps p, for these rows i and the columns j from the first one."""
    for start, width in columns(first_column, x.shape[1], x.dtype):
        sums = [k.variable(x.load(i, start, width=width)) for i in rows]
        for p in k.range(*steps):
            source_row = x.load(p, start, width=width)
            for i, total in zip(rows, sums, strict=True):
                total.value = k.fma(-factor(x, i, p), source_row, total.value)
        for i, total in zip(rows, sums, strict=True):
            x.store(i, start, value=total.value)


def lu(x: ArrayReference, factors: ArrayReference, order: ArrayReference, sign: ArrayReference, pivots: ArrayReference) -> None:
    """Factor a matrix as L·U with row pivoting: row `order[i]` of x is row i of L·U.

    `factors` holds U and the strict lower part of L, whose diagonal is 1.
    """
    size = int(x.shape[0])
    copy(x, factors)
    parity = k.variable(1, x.dtype)
    for i in k.range(size):
        order[i] = i.astype(np.int64)

    def step(p: Value, start: Index, width: int) -> None:
        """Eliminate column p in the block of columns that begins at `start`."""
        largest, position = k.variable(k.absolute(factors[p, p])), k.variable(p, size=size)
        for i in k.range(p + 1, size):
            magnitude = k.absolute(factors[i, p])
            is_larger = magnitude > largest.value
            largest.value = k.select(is_larger, magnitude, largest.value)
            position.value = k.select(is_larger, i, position.value)
        pivot_row = position.value
        pivots[p] = pivot_row.astype(np.int64)
        with k.when(pivot_row != p):
            exchange(factors, p, pivot_row)
            order[p], order[pivot_row] = order[pivot_row], order[p]
            parity.value = -parity.value
        pivot = factors[p, p]
        # A column of zeros needs no elimination; its factors are 0.
        divisor = k.select(pivot == 0, 1, pivot)
        indices = k.iota(width, np.int64) + k.index(start).astype(np.int64)
        is_pivot_column, row = indices == p.astype(np.int64), factors.load(p, start, width=width)
        pivot_tail = k.select(indices > p.astype(np.int64), row, 0)
        for i in k.range(p + 1, size):
            factor = factors[i, p] / divisor
            updated_row = k.fma(-factor, pivot_tail, factors.load(i, start, width=width))
            factors.store(i, start, value=k.select(is_pivot_column, factor, updated_row))

    for start, width in tiles(0, size, _BLOCK_COLUMNS):
        for p in k.range(start, start + width):
            step(p, start, width)
        if width < _BLOCK_COLUMNS:
            continue
        trailing = start + width
        # Update the block's rows of U; each row depends on those above it in the block.
        for i in k.range(start + 1, trailing):
            _subtract_product(_element_at, factors, [i], (start, i), trailing)
        # Update the trailing matrix.
        for first, count in tiles(trailing, size, _ROWS_PER_TILE):
            _subtract_product(_element_at, factors, [first + r for r in range(count)], (start, trailing), trailing)
    sign[0] = parity.value


def triangular_solve(
    a: ArrayReference, b: ArrayReference, x: ArrayReference, column: Index, width: int, *, lower: bool, unit: bool
) -> None:
    """Solve T·x = b for some columns, with a triangle T of `a`, in tiles of rows, starting at the row with one unknown."""
    size = int(a.shape[0])
    for first, count in tiles(0, size, _ROWS_PER_TILE) if lower else _reverse_tiles(size):
        rows = [first + r for r in range(count)]
        sums = [k.variable(b.load(i, column, width=width)) for i in rows]
        for p in k.range(0, first) if lower else k.range(first + count, size):
            solved_row = x.load(p, column, width=width)
            for i, total in zip(rows, sums, strict=True):
                total.value = k.fma(-a[i, p], solved_row, total.value)
        solved_rows: list[tuple[Index, Value]] = []
        for i, total in list(zip(rows, sums, strict=True))[:: 1 if lower else -1]:
            value = total.value
            for p, solved_value in solved_rows:
                value = k.fma(-a[i, p], solved_value, value)
            value = value if unit else value / a[i, i]
            x.store(i, column, value=value)
            solved_rows.append((i, value))


def _reverse_tiles(size: int) -> Iterator[tuple[Index, int]]:
    """Yield (start, count) for tiles of rows, from the last one to the first, which is the remainder."""
    num_tiles, remainder = divmod(size, _ROWS_PER_TILE)
    for t in k.range(num_tiles):
        yield size - _ROWS_PER_TILE - t * _ROWS_PER_TILE, _ROWS_PER_TILE
    if remainder:
        yield 0, remainder


def cholesky(x: ArrayReference, upper: ArrayReference) -> None:
    """Compute the upper triangular U with Uᵀ·U = x; the lower triangle of x is not read."""
    size = int(x.shape[0])
    copy(x, upper)
    for start, height in tiles(0, size, _BLOCK_COLUMNS):
        trailing = start + height
        for p in k.range(start, trailing):
            # Update row p, and divide it by the square root of its diagonal element.
            _subtract_product(_transposed_element_at, upper, [p], (start, p), p)
            root = k.sqrt(upper[p, p])
            for j, w in columns(p, size, x.dtype):
                upper.store(p, j, value=upper.load(p, j, width=w) / root)
        if height == _BLOCK_COLUMNS:
            for first, count in tiles(trailing, size, _ROWS_PER_TILE):
                rows = [first + r for r in range(count)]
                _subtract_product(_transposed_element_at, upper, rows, (start, trailing), first)
    for i in k.range(1, size):
        for j in k.range(i):
            upper[i, j] = 0
