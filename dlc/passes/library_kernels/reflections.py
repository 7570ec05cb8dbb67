"""QR by Householder reflections H = 1 - t·v·vᵀ.

Matrices are stored by columns, as rows of buffers, so that v·x and x - s·v run along memory. A few rows are
processed at a time: each reflection is read once for all of them. Source: Golub and Van Loan, Matrix Computations,
5.1 and 5.2.
"""

from __future__ import annotations

from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.elimination import copy
from dlc.passes.library_kernels.values import Index, KernelValue, absolute, fma, select, sqrt, with_sign_of

# Rows that are reflected at a time.
REFLECTED_ROWS = 4


def reflect(
    builder: KernelBuilder, x: Buffer, rows: list[Index], v: Buffer, scale: KernelValue, first: Index, size: int
) -> None:
    """Apply a reflection to some rows: x_i -= t·(v·x_i)·v; `scale` is t, and v is 0 before column `first`."""
    products = builder.sums(first, size, len(rows), lambda j, w: [(v.row(j, width=w), x.row(i, j, width=w)) for i in rows])
    factors = [-(scale * product) for product in products]

    def subtract(j: Index, w: int) -> None:
        line = v.row(j, width=w)
        for i, factor in zip(rows, factors, strict=True):
            x.set_row(i, j, row=fma(factor, line, x.row(i, j, width=w)))

    builder.columns(first, size, subtract)


def reflection(builder: KernelBuilder, x: Buffer, first: Index, size: int, v: Buffer) -> tuple[KernelValue, KernelValue]:
    """Compute the reflection that maps a row, from `first` on, to a multiple of a unit vector.

    Writes v (1 at `first`) and returns t and the remaining element. Elements before `first` are ignored; v is 0 there,
    from the start of their vector of columns.
    """
    first_column = builder.index(first).as_integer()

    def after_first(j: Index, w: int) -> KernelValue:
        return select(builder.iota(j, w) > first_column, x.row(j, width=w), 0.0)

    largest = builder.largest(
        first, size, lambda j, w: absolute(select(builder.iota(j, w) >= first_column, x.row(j, width=w), 0.0))
    )
    # Squares of elements scaled to at most 1 neither overflow nor underflow.
    unit = select(largest > builder.smallest, 1.0 / largest, builder.number(1.0))
    alpha = x[first] * unit

    def squares(j: Index, w: int) -> list[tuple[KernelValue, KernelValue]]:
        scaled = after_first(j, w) * unit
        return [(scaled, scaled)]

    (square_sum,) = builder.sums(first, size, 1, squares)
    beta = -with_sign_of(sqrt(fma(alpha, alpha, square_sum)), alpha)
    # No reflection is needed if the rest is 0 already.
    needed = square_sum.differs(0.0)
    divisor = select(needed, alpha - beta, builder.number(1.0))
    builder.columns(first, size, lambda j, w: v.set_row(j, row=after_first(j, w) * unit / divisor))
    v[first] = builder.number(1.0)
    scale = select(needed, (beta - alpha) / beta, builder.number(0.0))
    return scale, select(needed, beta / unit, x[first])


def householder(
    builder: KernelBuilder, x: Buffer, triangle: Buffer, vectors: Buffer, scales: Buffer, rows: int, size: int
) -> None:
    """Factor a matrix, given by its columns in x [rows, size], as Q·R.

    `triangle` receives the columns of R; `vectors` and `scales` receive the reflections of Q.
    """
    copy(builder, x, triangle, rows, size)
    zero, count = builder.number(0.0), min(rows, size)
    with builder.loop(0, count) as i, builder.loop(0, size, name="j") as j:
        vectors[i, j] = zero

    with builder.loop(0, rows, REFLECTED_ROWS) as first:
        end = builder.minimum_index(first + REFLECTED_ROWS, rows)
        earlier, num_pivots = builder.minimum_index(first, count), builder.minimum_index(end, count)

        def reflect_by_earlier(lines: list[Index]) -> None:
            with builder.loop(0, earlier, name="k") as k:
                reflect(builder, triangle, lines, vectors.part(k), scales[k], k, size)

        builder.groups(first, end, REFLECTED_ROWS, reflect_by_earlier)
        with builder.loop(earlier, num_pivots, name="k") as k:
            scale, left = reflection(builder, triangle.part(k), k, size, vectors.part(k))
            scales[k] = scale
            with builder.loop(k + 1, end) as i:
                reflect(builder, triangle, [i], vectors.part(k), scale, k, size)
            with builder.loop(k + 1, size, name="j") as j:
                triangle[k, j] = zero
            triangle[k, k] = left


def orthogonal(
    builder: KernelBuilder, vectors: Buffer, scales: Buffer, result: Buffer, count: int, size: int, first: Index, height: int
) -> None:
    """Compute some columns of Q from `count` reflections, as rows of the result."""
    lines: list[Index] = [first + r for r in range(height)]
    zero = builder.number(0.0)
    for i in lines:
        with builder.loop(0, size, name="j") as j:
            result[i, j] = zero
        result[i, i] = builder.number(1.0)
    # A reflection with an index above i does not change column i.
    last = builder.minimum_index(builder.index(first) + height, count)
    with builder.loop(0, last, name="t") as t:
        k = last - t - 1
        reflect(builder, result, lines, vectors.part(k), scales[k], k, size)
