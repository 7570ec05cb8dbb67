"""QR by Householder reflections H = 1 - t·v·vᴴ, which of complex vectors are not Hermitian, as in LAPACK.

The columns of matrices are rows of buffers, so that v·x and x - s·v access contiguous memory. A few rows are processed
together, to share each load of a reflection. Source: Golub and Van Loan, Matrix Computations, 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.kernels as k
from dlc.kernels.values import Value
from dlc.library_kernels.elements import (
    Element,
    Reference,
    conj,
    dot_terms,
    fma,
    imaginary_part,
    larger_part,
    real_part,
    select,
)
from dlc.library_kernels.elimination import copy, fill
from dlc.library_kernels.vectors import Factors, Index, columns, dots, groups, largest, load, store, sums, update

# Rows that share each load of a reflection.
REFLECTED_ROWS = 4


def column_indices(start: Index, width: int) -> Value:
    """Return the indices of a vector of columns, as i64."""
    return k.iota(width, np.int64) + k.index(start).astype(np.int64)


def reflect(x: Reference, rows: Sequence[Index], v: Reference, scale: Any, first: Index) -> None:
    """Apply a reflection to some rows: x_i -= t·(vᴴ·x_i)·v; `scale` is t, and v is 0 before column `first`."""
    reflected = [x[i] for i in rows]
    factors = [-(scale * product) for product in dots(v, reflected, first)]

    def subtract(vectors: Sequence[Element]) -> list[Element]:
        return [fma(factor, vectors[-1], row) for factor, row in zip(factors, vectors, strict=False)]

    update(subtract, *reflected, v, first=first)


def reflection(x: Reference, first: Index, v: Reference) -> tuple[Any, Value]:
    """Compute the reflection H for which Hᴴ maps the elements of a row from `first` to a real multiple of a unit vector.

    Stores v, with v[first] = 1, and returns t and the one nonzero element of the result. Elements before `first` are
    ignored; v is 0 there.
    """
    size, first_column = x.shape[0], k.index(first).astype(np.int64)

    def after_first(j: Index, w: int) -> Any:
        return select(column_indices(j, w) > first_column, load(x, j, width=w), 0)

    greatest = largest(
        first, size, x.dtype, lambda j, w: larger_part(select(column_indices(j, w) >= first_column, load(x, j, width=w), 0))
    )
    # Scale elements to at most 1, so that their squares do not overflow. The reciprocal of a subnormal number may be infinite.
    unit = 1 / k.maximum(greatest, float(np.finfo(x.dtype).tiny))
    alpha = x[first] * unit

    def squares(j: Index, w: int) -> list[list[Factors]]:
        scaled = after_first(j, w) * unit
        return dot_terms(scaled, scaled)[:1]

    (square_sum,) = sums(first, size, 1, x.dtype, squares)
    # No reflection is needed if all other elements and the imaginary part of the first one are 0.
    real, imag = real_part(alpha), imaginary_part(alpha)
    square_sum = square_sum if imag is None else k.fma(imag, imag, square_sum)
    beta = -k.copysign(k.sqrt(k.fma(real, real, square_sum)), real)
    is_needed = square_sum != 0
    divisor = select(is_needed, alpha - beta, 1)
    for j, w in columns(first, size, x.dtype):
        store(v, j, value=after_first(j, w) * unit / divisor)
    v[first] = 1
    return select(is_needed, -(alpha - beta) / beta, 0), k.select(is_needed, beta / unit, real_part(x[first]))


def householder(x: Reference, triangle: Reference, vectors: Reference, scales: Reference) -> None:
    """Factor a matrix, given by its columns in x [rows, size], as Q·R.

    `triangle` receives the columns of R; `vectors` and `scales` receive the reflections of Q.
    """
    rows, size = x.shape
    copy(x, triangle)
    count = vectors.shape[0]
    fill(vectors, 0)
    for first in k.range(0, rows, REFLECTED_ROWS):
        end = k.minimum(first + REFLECTED_ROWS, rows)
        for row_indices in groups(first, end, REFLECTED_ROWS, rows):
            for p in k.range(k.minimum(first, count)):
                reflect(triangle, row_indices, vectors[p], conj(scales[p]), p)
        for p in k.range(k.minimum(first, count), k.minimum(end, count)):
            scale, diagonal = reflection(triangle[p], p, vectors[p])
            scales[p] = scale
            for i in k.range(p + 1, end):
                reflect(triangle, [i], vectors[p], conj(scale), p)
            for j, w in columns(p, size, triangle.dtype):
                is_after_diagonal = column_indices(j, w) > p.astype(np.int64)
                store(triangle, p, j, value=select(is_after_diagonal, 0, load(triangle, p, j, width=w)))
            triangle[p, p] = diagonal


def orthogonal(vectors: Reference, scales: Reference, result: Reference, first: Index, height: int) -> None:
    """Compute some columns of Q from the reflections, as rows of the result."""
    count, size = vectors.shape
    rows = [first + r for r in range(height)]
    for i in rows:
        for j in k.range(size):
            result[i, j] = 0
        result[i, i] = 1
    # Reflections with a higher index than a column do not change it.
    last = k.minimum(k.index(first) + height, count)
    for t in k.range(last):
        p = k.assume_index(last - t - 1, count)
        reflect(result, rows, vectors[p], scales[p], p)
