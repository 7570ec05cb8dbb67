"""Factors by elimination: LU with pivots, Cholesky, and systems with triangular matrices.

All of them go along rows, which lie side by side in memory. Blocks of columns (or rows) are eliminated one step after the
other; what they do to the rest is a product with few terms, whose sums stay in registers: the rest is read and written once
per block, not once per step. Source: Golub and Van Loan, Matrix Computations, 3.2, 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dlc.passes.procedures.code import Buffer, Code
from dlc.passes.procedures.values import Index, Value, absolute, fma, select, sqrt

# Steps of a block.
_BLOCK = 16
# Rows whose sums are in registers at once.
_ROWS = 4
# What row i is to lose of row p.
Factor: TypeAlias = "Callable[[Buffer, Index, Value], Value]"


def copy(code: Code, source: Buffer, target: Buffer, rows: int, width: int) -> None:
    """The rows of one matrix in another."""
    with code.loop(0, rows) as i:
        code.columns(0, width, lambda j, w: target.set_row(i, j, row=source.row(i, j, width=w)))


def exchange(code: Code, x: Buffer, i: Index, k: Index, width: int) -> None:
    """Two rows change places."""

    def both(j: Index, w: int) -> None:
        first, second = x.row(i, j, width=w), x.row(k, j, width=w)
        x.set_row(i, j, row=second)
        x.set_row(k, j, row=first)

    code.columns(0, width, both)


def _element(x: Buffer, i: Index, p: Value) -> Value:
    return x[i, p]


def _mirrored(x: Buffer, i: Index, p: Value) -> Value:
    return x[p, i]


def _subtract_product(
    code: Code, factor: Factor, x: Buffer, rows: list[Index], steps: tuple[Index, Index], at: Index, w: int
) -> None:
    """x[i, at:] -= Σ factor(x, i, p)·x[p, at:] over the steps p, for these rows i."""
    sums = [code.cell(x.row(i, at, width=w)) for i in rows]
    with code.loop(*steps, name="p") as p:
        line = x.row(p, at, width=w)
        for i, total in zip(rows, sums, strict=True):
            total.value = fma(-factor(x, i, p), line, total.value)
    for i, total in zip(rows, sums, strict=True):
        x.set_row(i, at, row=total.value)


def lu(code: Code, x: Buffer, factors: Buffer, order: Buffer, sign: Buffer, pivots: Buffer, size: int) -> None:
    """Row `order[i]` of x is row i of L·U; L, whose diagonal is 1, lies below the diagonal of `factors`, U from it on."""
    copy(code, x, factors, size, size)
    parity = code.cell(code.number(1.0))
    with code.loop(0, size) as i:
        order[i] = i.as_integer()

    def step(k: Value, start: Index, width: int) -> None:
        """Eliminates column k of the block of columns from `start` on."""
        largest, place = code.cell(absolute(factors[k, k])), code.cell(k)
        with code.loop(k + 1, size) as i:
            found = absolute(factors[i, k])
            larger = found > largest.value
            largest.value = select(larger, found, largest.value)
            place.value = select(larger, i, place.value)
        pivot_row = place.value
        pivots[k] = pivot_row.as_integer()
        with code.when(pivot_row.differs(k)):
            exchange(code, factors, k, pivot_row, size)
            order[k], order[pivot_row] = order[pivot_row], order[k]
            parity.value = -parity.value
        pivot = factors[k, k]
        # A column of zeros needs no elimination: its factors are 0.
        divisor = select(pivot.equals(0.0), code.number(1.0), pivot)
        columns = code.numbered(start, width)
        here, row = columns.equals(k.as_integer()), factors.row(k, start, width=width)
        line = select(columns > k.as_integer(), row, 0.0)
        with code.loop(k + 1, size) as i:
            factor = factors[i, k] / divisor
            rest = fma(-factor, line, factors.row(i, start, width=width))
            factors.set_row(i, start, row=select(here, factor, rest))

    def block(start: Index, width: int) -> None:
        with code.loop(start, start + width, name="k") as k:
            step(k, start, width)
        if width < _BLOCK:
            return
        behind = start + width
        # Its rows of U, which the rows above in the block change one after the other.
        with code.loop(start + 1, behind) as i:
            code.columns(behind, size, lambda j, w: _subtract_product(code, _element, factors, [i], (start, i), j, w))
        _update(code, factors, behind, start, size)

    code.tiles(0, size, _BLOCK, block)
    sign[0] = parity.value


def _update(code: Code, factors: Buffer, behind: Index, start: Index, size: int) -> None:
    """What a block of columns does to the rows and columns behind it."""

    def rows(first: Index, count: int) -> None:
        lines: list[Index] = [first + r for r in range(count)]
        code.columns(behind, size, lambda j, w: _subtract_product(code, _element, factors, lines, (start, behind), j, w))

    code.tiles(behind, size, _ROWS, rows)


def triangular_solve(
    code: Code, a: Buffer, b: Buffer, x: Buffer, size: int, column: Index, width: int, *, lower: bool, unit: bool
) -> None:
    """Some columns of the x for which T·x = b, T a triangle of `a`: rows from that of one unknown on, a few at a time."""

    def rows(first: Index, count: int) -> None:
        lines: list[Index] = [first + r for r in range(count)]
        sums = [code.cell(b.row(i, column, width=width)) for i in lines]
        known = (0, first) if lower else (first + count, size)
        with code.loop(*known, name="p") as p:
            line = x.row(p, column, width=width)
            for i, total in zip(lines, sums, strict=True):
                total.value = fma(-a[i, p], line, total.value)
        solved: list[tuple[Index, Value]] = []
        for i, total in list(zip(lines, sums, strict=True))[:: 1 if lower else -1]:
            value = total.value
            for p, other in solved:
                value = fma(-a[i, p], other, value)
            value = value if unit else value / a[i, i]
            x.set_row(i, column, row=value)
            solved.append((i, value))

    if lower:
        code.tiles(0, size, _ROWS, rows)
    else:
        _tiles_from_the_end(code, size, rows)


def _tiles_from_the_end(code: Code, size: int, rows: Callable[[Index, int], None]) -> None:
    """`tiles` of rows from the last one up; the first rows are what is left."""
    whole, left = divmod(size, _ROWS)
    with code.loop(0, whole, name="t") as t:
        rows(code.index(size - _ROWS) - t * _ROWS, _ROWS)
    if left:
        rows(0, left)


def cholesky(code: Code, x: Buffer, upper: Buffer, size: int) -> None:
    """The upper triangular U for which Uᵀ·U = x, of whose lower triangle nothing is read."""
    copy(code, x, upper, size, size)

    def block(start: Index, height: int) -> None:
        behind = start + height
        with code.loop(start, behind, name="k") as k:
            # What is left of row k, divided by the root of its first element.
            code.columns(k, size, lambda j, w: _subtract_product(code, _mirrored, upper, [k], (start, k), j, w))
            root = sqrt(upper[k, k])
            code.columns(k, size, lambda j, w: upper.set_row(k, j, row=upper.row(k, j, width=w) / root))

        def rows(first: Index, count: int) -> None:
            lines: list[Index] = [first + r for r in range(count)]
            code.columns(first, size, lambda j, w: _subtract_product(code, _mirrored, upper, lines, (start, behind), j, w))

        if height == _BLOCK:
            code.tiles(behind, size, _ROWS, rows)

    code.tiles(0, size, _BLOCK, block)
    zero = code.number(0.0)
    with code.loop(1, size) as i, code.loop(0, i, name="j") as j:
        upper[i, j] = zero
