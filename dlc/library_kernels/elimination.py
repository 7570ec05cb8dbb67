"""Factorizations by elimination: LU with pivoting, Cholesky, and triangular systems.

All are vectorized along rows, which are contiguous in memory. Columns (or rows) are eliminated in blocks. The update of
the trailing matrix by a block is a matrix product with sums in registers, so the trailing matrix is read and written
once per block instead of once per column. Source: Golub and Van Loan, Matrix Computations, 3.2, 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.elements import Element, Reference, conj, fma, is_zero, magnitude, planes, real_part, select, variable
from dlc.library_kernels.vectors import Index, best_index, columns, load, row_vectors, store, tiles, update
from dlc.shapes.traced_dims import TracedSize

# Columns per block.
_BLOCK_COLUMNS = 16
# Rows per tile, with sums in registers.
_ROWS_PER_TILE = 4
_StepRange: TypeAlias = "tuple[Index, Index | TracedSize]"
# Returns the factor by which row p is subtracted from row i.
_Factor: TypeAlias = Callable[[Index, Value], Element]


def copy(source: Reference, destination: Reference) -> None:
    """Copy a matrix."""
    for i, j, w in row_vectors(source):
        store(destination, i, j, value=load(source, i, j, width=w))


def fill(x: Reference, value: float) -> None:
    """Set all parts of the elements of a matrix."""
    for part in planes(x):
        for i, j, w in row_vectors(part):
            store(part, i, j, value=k.full(w, value, x.dtype))


def exchange(x: Reference, i: Index, p: Index) -> None:
    """Swap two rows."""
    update(lambda v: (v[1], v[0]), x[i], x[p])


def _row_tiles(low: Index, high: TracedSize) -> Iterator[list[Index]]:
    """Yield the indices of the rows of each tile, like `tiles`; single rows for a symbolic remainder."""
    for first, _, count in tiles(low, high, _ROWS_PER_TILE):
        if isinstance(count, int):
            yield [first + r for r in range(count)]
        else:
            for i in k.range(first, high):
                yield [i]


def _difference(
    b: Reference, x: Reference, rows: Sequence[Index], steps: _StepRange, factor: _Factor, column: Index, width: int
) -> list[Any]:
    """Return b[i] - Σ factor(i, p)·x[p] over the steps p, for these rows i and some columns."""
    totals = [variable(load(b, i, column, width=width)) for i in rows]
    for p in k.range(*steps):
        source_row = load(x, p, column, width=width)
        for i, total in zip(rows, totals, strict=True):
            total.value = fma(-factor(i, p), source_row, total.value)
    return [total.value for total in totals]


def _subtract_product(x: Reference, rows: Sequence[Index], steps: _StepRange, factor: _Factor, first_column: Index) -> None:
    """Compute x[i, j] -= Σ factor(i, p)·x[p, j] over the steps p, for these rows i and the columns j from the first one."""
    for start, width in columns(first_column, x.shape[1], x.dtype):
        for i, value in zip(rows, _difference(x, x, rows, steps, factor, start, width), strict=True):
            store(x, i, start, value=value)


def lu(x: Reference, factors: Reference, order: ArrayReference, sign: ArrayReference, pivots: ArrayReference) -> None:
    """Factor a matrix as L·U with row pivoting: row `order[i]` of x is row i of L·U.

    `factors` holds U and the strict lower part of L, whose diagonal is 1.
    """
    size = x.shape[0]
    copy(x, factors)
    parity = k.variable(1, x.dtype)
    for i in k.range(size):
        order[i] = i.astype(np.int64)

    def step(p: Value, start: Index, width: int) -> None:
        """Eliminate column p in the block of columns that begins at `start`."""
        _, pivot_row = best_index(p, size, lambda i: [magnitude(factors[i, p])], lambda a, b: a[0] > b[0])
        pivots[p] = pivot_row.astype(np.int64)
        with k.when(pivot_row != p):
            exchange(factors, p, pivot_row)
            order[p], order[pivot_row] = order[pivot_row], order[p]
            parity.value = -parity.value
        pivot = factors[p, p]
        # A column of zeros needs no elimination; its factors are 0.
        divisor = select(is_zero(pivot), 1, pivot)
        indices = k.iota(width, np.int64) + k.index(start).astype(np.int64)
        is_pivot_column, row = indices == p.astype(np.int64), load(factors, p, start, width=width)
        pivot_tail = select(indices > p.astype(np.int64), row, 0)
        for i in k.range(p + 1, size):
            factor = factors[i, p] / divisor
            updated_row = fma(-factor, pivot_tail, load(factors, i, start, width=width))
            store(factors, i, start, value=select(is_pivot_column, factor, updated_row))

    def multiplier(i: Index, p: Value) -> Element:
        return factors[i, p]

    for start, width, count in tiles(0, size, _BLOCK_COLUMNS):
        trailing = start + count
        for p in k.range(start, trailing):
            step(p, start, width)
        if not isinstance(count, int) or count < _BLOCK_COLUMNS:
            continue
        # Update the block's rows of U; each row depends on those above it in the block.
        for i in k.range(start + 1, trailing):
            _subtract_product(factors, [i], (start, i), multiplier, trailing)
        # Update the trailing matrix.
        for rows in _row_tiles(trailing, size):
            _subtract_product(factors, rows, (start, trailing), multiplier, trailing)
    sign[0] = parity.value


def triangular_solve(a: Reference, b: Reference, x: Reference, column: Index, width: int, *, lower: bool, unit: bool) -> None:
    """Solve T·x = b for some columns, with a triangle T of `a`, in tiles of rows, starting at the row with one unknown."""
    size = a.shape[0]
    for tile in _row_tiles(0, size):
        rows = tile if lower else [size - 1 - i for i in tile]
        steps = (0, rows[0]) if lower else (rows[0] + 1, size)
        values = _difference(b, x, rows, steps, lambda i, p: a[i, p], column, width)
        solved_rows: list[tuple[Index, Element]] = []
        for i, value in zip(rows, values, strict=True):
            for p, solved_value in solved_rows:
                value = fma(-a[i, p], solved_value, value)
            value = value if unit else value / a[i, i]
            store(x, i, column, value=value)
            solved_rows.append((i, value))


def cholesky(x: Reference, upper: Reference) -> None:
    """Compute the upper triangular U with Uᴴ·U = x; only the upper triangle of x and the real part of its diagonal are read."""
    size = x.shape[0]
    copy(x, upper)

    def multiplier(i: Index, p: Value) -> Element:
        return conj(upper[p, i])

    for start, _, height in tiles(0, size, _BLOCK_COLUMNS):
        trailing = start + height
        for p in k.range(start, trailing):
            # Update row p, and divide it by the square root of its diagonal element.
            _subtract_product(upper, [p], (start, p), multiplier, p)
            root = k.sqrt(real_part(upper[p, p]))
            update(lambda v, root=root: [v[0] / root], upper[p], first=p)
            upper[p, p] = real_part(upper[p, p])
        if isinstance(height, int) and height == _BLOCK_COLUMNS:
            for rows in _row_tiles(trailing, size):
                _subtract_product(upper, rows, (start, trailing), multiplier, rows[0])
    for i in k.range(1, size):
        for j in k.range(i):
            upper[i, j] = 0
