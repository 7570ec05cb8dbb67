"""QR by Householder reflections H = 1 - t·v·vᵀ.

The columns of matrices are rows of buffers, so that v·x and x - s·v access contiguous memory. A few rows are processed
together, to share each load of a reflection. Source: Golub and Van Loan, Matrix Computations,
5.1 and 5.2.
"""

from __future__ import annotations

from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.elimination import copy
from dlc.passes.library_kernels.values import Index, KernelValue, absolute, copysign, fma, select, sqrt

# Rows that share each load of a reflection.
REFLECTED_ROWS = 4


def reflect(
    builder: KernelBuilder, x: Buffer, rows: list[Index], v: Buffer, scale: KernelValue, first: Index, size: int
) -> None:
    """Apply a reflection to some rows: x_i -= t·(v·x_i)·v; `scale` is t, and v is 0 before column `first`."""
    products = builder.sums(first, size, len(rows), lambda j, w: [(v.row(j, width=w), x.row(i, j, width=w)) for i in rows])
    factors = [-(scale * product) for product in products]

    def subtract(j: Index, w: int) -> None:
        vector = v.row(j, width=w)
        for i, factor in zip(rows, factors, strict=True):
            x.set_row(i, j, row=fma(factor, vector, x.row(i, j, width=w)))

    builder.columns(first, size, subtract)


def reflection(builder: KernelBuilder, x: Buffer, first: Index, size: int, v: Buffer) -> tuple[KernelValue, KernelValue]:
    """Compute the reflection that maps the elements of a row from `first` to a multiple of a unit vector.

    Stores v, with v[first] = 1, and returns t and the one nonzero element of the result. Elements before `first` are
    ignored; v is 0 there.
    """
    first_column = builder.index(first).as_integer()

    def after_first(j: Index, w: int) -> KernelValue:
        return select(builder.iota(j, w) > first_column, x.row(j, width=w), 0.0)

    largest = builder.largest(
        first, size, lambda j, w: absolute(select(builder.iota(j, w) >= first_column, x.row(j, width=w), 0.0))
    )
    # Scale elements to at most 1, so that their squares do not overflow.
    unit = select(largest > builder.smallest, 1.0 / largest, builder.number(1.0))
    alpha = x[first] * unit

    def squares(j: Index, w: int) -> list[tuple[KernelValue, KernelValue]]:
        scaled = after_first(j, w) * unit
        return [(scaled, scaled)]

    (square_sum,) = builder.sums(first, size, 1, squares)
    beta = -copysign(sqrt(fma(alpha, alpha, square_sum)), alpha)
    # No reflection is needed if all other elements are 0.
    is_needed = square_sum.differs(0.0)
    divisor = select(is_needed, alpha - beta, builder.number(1.0))
    builder.columns(first, size, lambda j, w: v.set_row(j, row=after_first(j, w) * unit / divisor))
    v[first] = builder.number(1.0)
    scale = select(is_needed, (beta - alpha) / beta, builder.number(0.0))
    return scale, select(is_needed, beta / unit, x[first])


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

        def reflect_by_earlier(row_indices: list[Index]) -> None:
            with builder.loop(0, earlier, name="k") as k:
                reflect(builder, triangle, row_indices, vectors.subview_at(k), scales[k], k, size)

        builder.groups(first, end, REFLECTED_ROWS, reflect_by_earlier)
        with builder.loop(earlier, num_pivots, name="k") as k:
            scale, diagonal = reflection(builder, triangle.subview_at(k), k, size, vectors.subview_at(k))
            scales[k] = scale
            with builder.loop(k + 1, end) as i:
                reflect(builder, triangle, [i], vectors.subview_at(k), scale, k, size)
            with builder.loop(k + 1, size, name="j") as j:
                triangle[k, j] = zero
            triangle[k, k] = diagonal


def orthogonal(
    builder: KernelBuilder, vectors: Buffer, scales: Buffer, result: Buffer, count: int, size: int, first: Index, height: int
) -> None:
    """Compute some columns of Q from `count` reflections, as rows of the result."""
    row_indices: list[Index] = [first + r for r in range(height)]
    zero = builder.number(0.0)
    for i in row_indices:
        with builder.loop(0, size, name="j") as j:
            result[i, j] = zero
        result[i, i] = builder.number(1.0)
    # Reflections with a higher index than a column do not change it.
    last = builder.minimum_index(builder.index(first) + height, count)
    with builder.loop(0, last, name="t") as t:
        k = last - t - 1
        reflect(builder, result, row_indices, vectors.subview_at(k), scales[k], k, size)
