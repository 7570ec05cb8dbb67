"""Factorizations by elimination: LU with pivoting, Cholesky, and triangular systems.

All are vectorized along rows, which are contiguous in memory. Columns (or rows) are eliminated in blocks. The update of
the trailing matrix by a block is a matrix product with sums in registers, so the trailing matrix is read and written
once per block instead of once per column. Source: Golub and Van Loan, Matrix
Computations, 3.2, 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.values import Index, KernelValue, absolute, fma, select, sqrt

# Columns per block.
_BLOCK_COLUMNS = 16
# Rows per tile, with sums in registers.
_ROWS_PER_TILE = 4
# A function (x, i, p) that returns the factor by which row p is subtracted from row i.
Factor: TypeAlias = "Callable[[Buffer, Index, KernelValue], KernelValue]"


def copy(builder: KernelBuilder, source: Buffer, destination: Buffer, rows: int, width: int) -> None:
    """Copy the rows of a matrix."""
    with builder.loop(0, rows) as i:
        builder.columns(0, width, lambda j, w: destination.set_row(i, j, row=source.row(i, j, width=w)))


def exchange(builder: KernelBuilder, x: Buffer, i: Index, k: Index, width: int) -> None:
    """Swap two rows."""

    def swap_vectors(j: Index, w: int) -> None:
        first, second = x.row(i, j, width=w), x.row(k, j, width=w)
        x.set_row(i, j, row=second)
        x.set_row(k, j, row=first)

    builder.columns(0, width, swap_vectors)


def _element_at(x: Buffer, i: Index, p: KernelValue) -> KernelValue:
    return x[i, p]


def _transposed_element_at(x: Buffer, i: Index, p: KernelValue) -> KernelValue:
    return x[p, i]


def _subtract_product(
    builder: KernelBuilder, factor: Factor, x: Buffer, rows: list[Index], steps: tuple[Index, Index], start: Index, width: int
) -> None:
    """Compute x[i, j] -= Σ factor(x, i, p)·x[p, j] over the steps p, for these rows i and `width` columns j from `start`."""
    sums = [builder.cell(x.row(i, start, width=width)) for i in rows]
    with builder.loop(*steps, name="p") as p:
        source_row = x.row(p, start, width=width)
        for i, total in zip(rows, sums, strict=True):
            total.value = fma(-factor(x, i, p), source_row, total.value)
    for i, total in zip(rows, sums, strict=True):
        x.set_row(i, start, row=total.value)


def lu(builder: KernelBuilder, x: Buffer, factors: Buffer, order: Buffer, sign: Buffer, pivots: Buffer, size: int) -> None:
    """Factor a matrix as L·U with row pivoting: row `order[i]` of x is row i of L·U.

    `factors` holds U and the strict lower part of L, whose diagonal is 1.
    """
    copy(builder, x, factors, size, size)
    parity = builder.cell(builder.number(1.0))
    with builder.loop(0, size) as i:
        order[i] = i.as_integer()

    def step(k: KernelValue, start: Index, width: int) -> None:
        """Eliminate column k in the block of columns that begins at `start`."""
        largest, position = builder.cell(absolute(factors[k, k])), builder.cell(k)
        with builder.loop(k + 1, size) as i:
            magnitude = absolute(factors[i, k])
            is_larger = magnitude > largest.value
            largest.value = select(is_larger, magnitude, largest.value)
            position.value = select(is_larger, i, position.value)
        pivot_row = position.value
        pivots[k] = pivot_row.as_integer()
        with builder.when(pivot_row.differs(k)):
            exchange(builder, factors, k, pivot_row, size)
            order[k], order[pivot_row] = order[pivot_row], order[k]
            parity.value = -parity.value
        pivot = factors[k, k]
        # A column of zeros needs no elimination; its factors are 0.
        divisor = select(pivot.equals(0.0), builder.number(1.0), pivot)
        columns = builder.iota(start, width)
        is_pivot_column, row = columns.equals(k.as_integer()), factors.row(k, start, width=width)
        pivot_tail = select(columns > k.as_integer(), row, 0.0)
        with builder.loop(k + 1, size) as i:
            factor = factors[i, k] / divisor
            updated_row = fma(-factor, pivot_tail, factors.row(i, start, width=width))
            factors.set_row(i, start, row=select(is_pivot_column, factor, updated_row))

    def block(start: Index, width: int) -> None:
        with builder.loop(start, start + width, name="k") as k:
            step(k, start, width)
        if width < _BLOCK_COLUMNS:
            return
        trailing = start + width
        # Update the block's rows of U; each row depends on those above it in the block.
        with builder.loop(start + 1, trailing) as i:
            builder.columns(
                trailing, size, lambda j, w: _subtract_product(builder, _element_at, factors, [i], (start, i), j, w)
            )
        _update_trailing(builder, factors, trailing, start, size)

    builder.tiles(0, size, _BLOCK_COLUMNS, block)
    sign[0] = parity.value


def _update_trailing(builder: KernelBuilder, factors: Buffer, trailing: Index, start: Index, size: int) -> None:
    """Update the trailing matrix after a block of columns."""

    def update_rows(first: Index, count: int) -> None:
        row_indices: list[Index] = [first + r for r in range(count)]
        builder.columns(
            trailing, size, lambda j, w: _subtract_product(builder, _element_at, factors, row_indices, (start, trailing), j, w)
        )

    builder.tiles(trailing, size, _ROWS_PER_TILE, update_rows)


def triangular_solve(
    builder: KernelBuilder, a: Buffer, b: Buffer, x: Buffer, size: int, column: Index, width: int, *, lower: bool, unit: bool
) -> None:
    """Solve T·x = b for some columns, with a triangle T of `a`, in tiles of rows, starting at the row with one unknown."""

    def solve_rows(first: Index, count: int) -> None:
        row_indices: list[Index] = [first + r for r in range(count)]
        sums = [builder.cell(b.row(i, column, width=width)) for i in row_indices]
        solved_range = (0, first) if lower else (first + count, size)
        with builder.loop(*solved_range, name="p") as p:
            solved_row = x.row(p, column, width=width)
            for i, total in zip(row_indices, sums, strict=True):
                total.value = fma(-a[i, p], solved_row, total.value)
        solved_rows: list[tuple[Index, KernelValue]] = []
        for i, total in list(zip(row_indices, sums, strict=True))[:: 1 if lower else -1]:
            value = total.value
            for p, solved_value in solved_rows:
                value = fma(-a[i, p], solved_value, value)
            value = value if unit else value / a[i, i]
            x.set_row(i, column, row=value)
            solved_rows.append((i, value))

    if lower:
        builder.tiles(0, size, _ROWS_PER_TILE, solve_rows)
    else:
        _reverse_tiles(builder, size, solve_rows)


def _reverse_tiles(builder: KernelBuilder, size: int, rows: Callable[[Index, int], None]) -> None:
    """Call `rows(start, count)` for tiles of rows, from the last one to the first, which is the remainder."""
    num_tiles, remainder = divmod(size, _ROWS_PER_TILE)
    with builder.loop(0, num_tiles, name="t") as t:
        rows(builder.index(size - _ROWS_PER_TILE) - t * _ROWS_PER_TILE, _ROWS_PER_TILE)
    if remainder:
        rows(0, remainder)


def cholesky(builder: KernelBuilder, x: Buffer, upper: Buffer, size: int) -> None:
    """Compute the upper triangular U with Uᵀ·U = x; the lower triangle of x is not read."""
    copy(builder, x, upper, size, size)

    def block(start: Index, height: int) -> None:
        trailing = start + height
        with builder.loop(start, trailing, name="k") as k:
            # Update row k, and divide it by the square root of its diagonal element.
            builder.columns(
                k, size, lambda j, w: _subtract_product(builder, _transposed_element_at, upper, [k], (start, k), j, w)
            )
            root = sqrt(upper[k, k])
            builder.columns(k, size, lambda j, w: upper.set_row(k, j, row=upper.row(k, j, width=w) / root))

        def update_rows(first: Index, count: int) -> None:
            row_indices: list[Index] = [first + r for r in range(count)]
            builder.columns(
                first,
                size,
                lambda j, w: _subtract_product(builder, _transposed_element_at, upper, row_indices, (start, trailing), j, w),
            )

        if height == _BLOCK_COLUMNS:
            builder.tiles(trailing, size, _ROWS_PER_TILE, update_rows)

    builder.tiles(0, size, _BLOCK_COLUMNS, block)
    zero = builder.number(0.0)
    with builder.loop(1, size) as i, builder.loop(0, i, name="j") as j:
        upper[i, j] = zero
