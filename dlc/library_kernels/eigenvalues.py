"""Eigenvalues of symmetric or Hermitian matrices, and singular value decomposition.

Iterations until convergence are loops over the maximum number of steps; steps after convergence do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.elements import (
    ComplexValue,
    Element,
    Reference,
    conj,
    fma,
    larger_part,
    modulus,
    planes,
    real_part,
    select,
    variable,
)
from dlc.library_kernels.elimination import copy, exchange, fill
from dlc.library_kernels.reflections import column_indices, reflect, reflection
from dlc.library_kernels.vectors import (
    Dtype,
    Index,
    Order,
    best_index,
    columns,
    dots,
    groups,
    largest,
    load,
    row_vectors,
    store,
    update,
)
from dlc.shapes.traced_dims import TracedSize

# Rows that share each load of a vector.
_ROWS_PER_TILE = 4
# Maximum QL steps per eigenvalue (on average less than two are needed), and Jacobi sweeps over all pairs (6 to 10 are needed).
_MAX_QL_STEPS = 60
_MAX_JACOBI_SWEEPS = 40


def epsilon(dtype: Dtype) -> float:
    """Return the distance from 1 to the next larger number."""
    return float(np.finfo(dtype).eps)


def _smallest(dtype: Dtype) -> float:
    """Return the smallest normal number."""
    return float(np.finfo(dtype).tiny)


def rotate(x: Reference, i: Index, p: Index, cosine: Value, sine: Value, first: Index = 0) -> None:
    """Rotate rows i and p of x from column `first` on: c·x_i - s·x_p and s·x_i + c·x_p."""
    update(lambda v: (fma(cosine, v[0], -(v[1] * sine)), fma(cosine, v[1], v[0] * sine)), x[i], x[p], first=first)


def copy_scaled(source: Reference, x: Reference) -> tuple[Value, Value]:
    """Copy a matrix, scaled so that squares neither overflow nor underflow; return the factor and its reciprocal."""
    copy(source, x)
    (rows, size), greatest = x.shape, k.variable(0, x.dtype)
    for i in k.range(rows):
        row_maximum = largest(0, size, x.dtype, lambda j, w, i=i: larger_part(load(x, i, j, width=w)))
        greatest.value = k.select(row_maximum > greatest.value, row_maximum, greatest.value)
    maximum, smallest = greatest.value, _smallest(x.dtype)
    threshold = smallest**0.25
    needs_scaling = ((maximum < threshold) | (maximum > 1 / threshold)) & (maximum > 0)
    # The reciprocal of a subnormal number overflows, and that of a number above 1 / smallest is subnormal.
    scale = k.minimum(k.maximum(maximum, smallest), 1 / smallest)
    factor = k.select(needs_scaling, 1 / scale, 1)
    scale_matrix(x, factor)
    return factor, k.select(needs_scaling, scale, 1)


def scale_matrix(x: Reference, factor: Value) -> None:
    """Multiply a matrix by a factor."""
    for i, j, w in row_vectors(x):
        store(x, i, j, value=load(x, i, j, width=w) * factor)


def set_identity(x: Reference) -> None:
    """Set a square matrix to the identity."""
    fill(x, 0)
    for i in k.range(x.shape[0]):
        x[i, i] = 1


def sort_rows(keys: Sequence[ArrayReference], is_before: Order, matrices: Sequence[Reference]) -> None:
    """Sort arrays of keys together, and reorder the rows of matrices in the same way; NaN stays at its index."""
    count = keys[0].shape[0]
    for i in k.range(count):
        best, best_position = best_index(i, count, lambda p: [key[p] for key in keys], is_before)
        with k.when(best_position != i):
            for key, value in zip(keys, best, strict=True):
                key[i], key[best_position] = value, key[i]
            for x in matrices:
                exchange(x, i, best_position)


def _scale_row(x: Reference, factor: Element) -> None:
    update(lambda v: [v[0] * factor], x)


def _orient(x: Reference, other_matrices: Sequence[Reference]) -> None:
    """Multiply each row, and that of other matrices, by the number of modulus 1 that makes Σ x_j / (j + 1) positive."""
    count, size = x.shape
    for i in k.range(count):
        total, position = variable(x[i, 0]), k.variable(1, x.dtype)
        for j in k.range(1, size):
            position.value += 1
            total.value = total.value + x[i, j] / position.value
        length = modulus(total.value)
        phase = conj(total.value) / k.select(length == 0, 1, length)
        with k.when((real_part(total.value) != length) & (length != 0)):
            for matrix in (x, *other_matrices):
                _scale_row(matrix[i], phase)


def eigh(x: Reference, values: ArrayReference, vectors: Reference, work: Reference, *, with_vectors: bool) -> None:
    """Compute the eigenvalues of a Hermitian matrix, ascending, and its eigenvectors, conjugated, as rows.

    Householder reflections make the matrix tridiagonal, implicit QL steps (Francis) diagonal. Source: Wilkinson and
    Reinsch, Handbook for Automatic Computation II, contributions 2 and 4 (tred2, imtql2).
    """
    size = x.shape[0]
    _, inverse_scale = copy_scaled(x, vectors)
    scales, v, p = (work[i] for i in range(1, 4))
    off_diagonal = planes(work)[0][0]
    fill(work, 0)
    _tridiagonal(vectors, values, off_diagonal, scales, v, p)
    if with_vectors:
        _accumulate_reflections(vectors, scales, v)
    for first in k.range(size):
        is_active = k.variable(True, np.bool_)
        for _ in k.range(_MAX_QL_STEPS):
            with k.when(is_active.value):
                end = _block_end(values, off_diagonal, first)
                with k.when(end == first):
                    is_active.value = False
                with k.when(end > first):
                    _implicit_ql_step(values, off_diagonal, vectors if with_vectors else None, first, end)
    for i in k.range(size):
        values[i] = values[i] * inverse_scale
    sort_rows([values], lambda a, b: a[0] < b[0], [vectors] if with_vectors else [])
    if with_vectors:
        _orient(vectors, [])
    fill(work, 0)


def _tridiagonal(
    a: Reference, diagonal: ArrayReference, off_diagonal: ArrayReference, scales: Reference, v: Reference, p: Reference
) -> None:
    """Reduce a Hermitian matrix to real tridiagonal form; row i of a receives the reflection of the columns after i.

    The rows of a are the columns of its conjugate, which the reflections transform. `v` and `p` are rows of zeros.
    """
    size = a.shape[0]
    for row in k.range(size - 1):
        first = row + 1
        scale, left = reflection(a[row], first, v)
        off_diagonal[row], scales[row] = left, scale
        p[row] = 0
        for rows in groups(first, size, _ROWS_PER_TILE, size):
            for i, product in zip(rows, dots(v, [a[i] for i in rows], first), strict=True):
                p[i] = conj(product) * scale
        (product,) = dots(p, [v], first)
        factor = -(real_part(product * scale) * 0.5)
        update(lambda vectors, factor=factor: [fma(factor, vectors[1], vectors[0])], p, v, first=first)
        for rows in groups(first, size, _ROWS_PER_TILE, size):
            factors = [(-conj(v[i]), -conj(p[i])) for i in rows]

            def subtract(vectors: Sequence[Element], factors: Sequence[Any] = factors) -> list[Element]:
                *updated, row_v, row_p = vectors
                pairs = zip(updated, factors, strict=True)
                return [fma(p_factor, row_p, fma(v_factor, row_v, row)) for row, (p_factor, v_factor) in pairs]

            update(subtract, *(a[i] for i in rows), v, p, first=first)
        for j in k.range(first, size):
            a[row, j] = v[j]
    for i in k.range(size):
        diagonal[i] = real_part(a[i, i])


def _accumulate_reflections(a: Reference, scales: Reference, v: Reference) -> None:
    """Replace the reflections in the rows of a by the transpose of their product, starting with the last one.

    `v` is a work row.
    """
    size = a.shape[0]
    a[size - 1, size - 1] = 1
    for t in k.range(size - 1):
        row = size - 2 - t
        first = row + 1
        first_column = first.astype(np.int64)
        for j, w in columns(first, size, a.dtype):
            store(v, j, value=select(column_indices(j, w) >= first_column, load(a, row, j, width=w), 0))
        for rows in groups(first, size, _ROWS_PER_TILE, size):
            reflect(a, rows, v, scales[row], first)
        for i in k.range(first, size):
            a[i, row] = 0
            a[row, i] = 0
        a[row, row] = 1


def _block_end(diagonal: ArrayReference, off_diagonal: ArrayReference, first: Value) -> Value:
    """Return the first index, starting at `first`, whose off-diagonal element is negligible."""
    size, limit = diagonal.shape[0], epsilon(diagonal.dtype)
    end, is_found = k.variable(size - 1, size=size), k.variable(False, np.bool_)
    for i in k.range(first, size - 1):
        with k.when(~is_found.value):
            diagonal_magnitude = k.absolute(diagonal[i]) + k.absolute(diagonal[i + 1])
            with k.when(k.absolute(off_diagonal[i]) <= diagonal_magnitude * limit):
                end.value, is_found.value = i, True
    return end.value


def _implicit_ql_step(d: ArrayReference, e: ArrayReference, z: Reference | None, first: Value, end: Value) -> None:
    """Apply one implicit QL step to the block [first, end], which reduces its first off-diagonal element.

    `z` are the eigenvectors, if needed.
    """
    size, dtype = d.shape[0], d.dtype
    start = (d[k.assume_index(first + 1, size)] - d[first]) / (e[first] * 2)
    root = k.sqrt(k.fma(start, start, 1))
    shifted = d[end] - d[first] + e[first] / (start + k.copysign(root, start))
    g, s, c, p = k.variable(shifted), k.variable(1, dtype), k.variable(1, dtype), k.variable(0, dtype)
    is_active = k.variable(True, np.bool_)
    for t in k.range(end - first):
        with k.when(is_active.value):
            i = k.assume_index(end - t - 1, size - 1)
            f, b = s.value * e[i], c.value * e[i]
            larger = k.maximum(k.absolute(f), k.absolute(g.value))
            with k.when(larger == 0):
                # The tridiagonal matrix splits into two blocks at this row.
                e[i + 1] = 0
                d[i + 1] = d[i + 1] - p.value
                e[end] = 0
                is_active.value = False
            with k.when(larger != 0):
                # Scale by the larger element: squares of tiny ones would underflow, and the rotation would not be orthogonal.
                side, other = f / larger, g.value / larger
                length = k.sqrt(k.fma(side, side, other * other))
                sine, cosine = side / length, other / length
                e[i + 1] = larger * length
                shifted_diagonal = d[i + 1] - p.value
                change = k.fma(d[i] - shifted_diagonal, sine, cosine * b * 2)
                p.value = sine * change
                d[i + 1] = shifted_diagonal + p.value
                g.value = k.fma(cosine, change, -b)
                s.value, c.value = sine, cosine
                if z is not None:
                    rotate(z, i, i + 1, cosine, sine)
    with k.when(is_active.value):
        d[first] = d[first] - p.value
        e[first] = g.value
        e[end] = 0


def svd(x: Reference, values: ArrayReference, rows: Reference, rotations: Reference) -> None:
    """Compute the SVD of x [count, size] by one-sided Jacobi rotations of its rows.

    Returns the lengths of the orthogonalized rows (singular values, descending), the rotated rows, and the rotations.
    All pairs of rows are rotated repeatedly, until none changes. Source: Demmel and Veselić, Jacobi's method is more
    accurate than QR (1992), and Golub and Van Loan, Matrix Computations, 8.6.3.
    """
    count = x.shape[0]
    set_identity(rotations)
    _, inverse_scale = copy_scaled(x, rows)
    is_active = k.variable(True, np.bool_)
    for _ in k.range(_MAX_JACOBI_SWEEPS):
        with k.when(is_active.value):
            is_active.value = False
            _square_norms(rows, values)
            for p in k.range(count - 1):
                for q in k.range(p + 1, count, _ROWS_PER_TILE):
                    with k.when(_needs_rotation(rows, values, p, q)):
                        for i in k.range(q, k.minimum(q + _ROWS_PER_TILE, count)):
                            _orthogonalize_rows(rows, rotations, values, p, i, is_active)
    _square_norms(rows, values)
    for i in k.range(count):
        values[i] = k.sqrt(values[i]) * inverse_scale
    scale_matrix(rows, inverse_scale)
    sort_rows([values], lambda a, b: a[0] > b[0], [rows, rotations])
    _orient(rotations, [rows])


def _square_norms(x: Reference, squares: ArrayReference) -> None:
    for i in k.range(x.shape[0]):
        squares[i] = real_part(dots(x[i], [x[i]])[0])


def _is_above_rounding(product: Element, a: Value, b: Value, size: TracedSize) -> Value:
    """Return whether a product of two rows with squared norms a and b exceeds the rounding error."""
    root = size**0.5 if isinstance(size, int) else k.sqrt(k.index(size).astype(a.dtype))
    limit = k.sqrt(a) * k.sqrt(b) * (root * epsilon(a.dtype))
    return (modulus(product) > limit) & (modulus(product) > _smallest(a.dtype))


def _needs_rotation(x: Reference, squares: ArrayReference, p: Value, q: Value) -> Value:
    """Return whether row p is not orthogonal to one of the rows of a tile that starts at q, which is rare."""
    count, size = x.shape
    rows = [q, *(k.assume_index(k.minimum(q + r, count - 1), count) for r in range(1, _ROWS_PER_TILE))]
    products = dots(x[p], [x[i] for i in rows])
    is_needed, *conditions = (
        _is_above_rounding(product, squares[p], squares[i], size) for i, product in zip(rows, products, strict=True)
    )
    for condition in conditions:
        is_needed |= condition
    return is_needed


def _orthogonalize_rows(
    x: Reference, rotations: Reference, squares: ArrayReference, p: Value, q: Value, is_active: Variable
) -> None:
    """Rotate two rows to be orthogonal, unless they already are, up to rounding."""
    size = x.shape[1]
    (product,) = dots(x[p], [x[q]])
    a, b = squares[p], squares[q]
    with k.when(_is_above_rounding(product, a, b, size)):
        if isinstance(product, ComplexValue):
            # Make the product real.
            length = modulus(product)
            phase = conj(product) / length
            for matrix in (x, rotations):
                _scale_row(matrix[q], phase)
            product = length
        ratio = (b - a) / (product * 2)
        tangent = k.copysign(1 / (k.absolute(ratio) + k.sqrt(k.fma(ratio, ratio, 1))), ratio)
        cosine = 1 / k.sqrt(k.fma(tangent, tangent, 1))
        sine = cosine * tangent
        squares[p], squares[q] = a - tangent * product, b + tangent * product
        rotate(x, p, q, cosine, sine)
        rotate(rotations, p, q, cosine, sine)
        is_active.value = True
