"""Matrix decompositions, solvers and determinants with custom JVP rules: the implementation of `dlc.numpy.linalg`.

Operands are real or complex, of one precision, float32 or wider. The JVP rules are closed formulas in terms of the factors; the
algorithms that compute the factors are not differentiated. Source of the formulas: Giles, "Collected matrix derivative results
for forward and reverse mode" (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.frontend.complex_numbers import component_dtype, from_parts, is_complex
from dlc.frontend.trace import TracedProperty
from dlc.numpy.apply import Operand, apply, apply_all, convert, in_float32_or_wider
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions import comparison, elementwise, matrix_products, reductions
from dlc.numpy.functions.comparison import greater, greater_equal, less
from dlc.numpy.functions.complex_numbers import abs, conj, imag, log, real, with_complex_rule
from dlc.numpy.functions.creation import arange, eye, tril, triu, zeros_like
from dlc.numpy.functions.elementwise import negative, where
from dlc.numpy.functions.indexing import getitem, take_along_axis
from dlc.numpy.functions.joining import concat, stack
from dlc.numpy.functions.matrix_products import trace
from dlc.numpy.functions.padding import pad
from dlc.numpy.functions.reductions import argmax, max, sum
from dlc.numpy.functions.shape_manipulation import diagonal, expand_dims, matrix_transpose
from dlc.shapes.traced_dims import TracedSize

add, divide, multiply, sign, subtract = map(
    with_complex_rule, (elementwise.add, elementwise.divide, elementwise.multiply, elementwise.sign, elementwise.subtract)
)
equal, matmul, prod = map(with_complex_rule, (comparison.equal, matrix_products.matmul, reductions.prod))
Operands = Sequence[Operand]


def factorize(op: type[dl.MatrixFactorization], *operands: Any, **properties: TracedProperty | None) -> Sequence[Any]:
    """Apply a factorization to real or complex operands."""
    if not any(map(is_complex, operands)):
        return apply_all(op, *operands, **properties)
    axis = operands[0].ndim - 2
    results = apply_all(op, *(stack([real(x), imag(x)], axis) for x in operands), complex=True, **properties)
    batch = (slice(None),) * axis
    return [
        y if name in op.REAL_RESULTS else from_parts(*(getitem(y, (*batch, part)) for part in range(2)))
        for name, y in zip((name for name, _ in op.get_irdl_definition().results), results, strict=True)
    ]


def triangular_solve(a: Any, b: Any, *, lower: bool = False, unit: bool = False) -> Any:
    """Solve T·x = b, with the upper or lower triangle T of `a`, whose diagonal is 1 if `unit`."""

    def tangent(x: Any, operands: Operands, tangents: Operands) -> Any:
        """Return T⁻¹·(db - dT·x)."""
        triangle, k = (tril if lower else triu), (-1 if lower else 1) * unit
        return solved(operands[0], subtract(tangents[1], matmul(triangle(tangents[0], k=k), x)))

    @with_jvp_rule(tangent)
    def solved(a: Any, b: Any) -> Any:
        return factorize(dl.TriangularSolveOp, a, b, lower=lower, unit=unit)[0]

    return solved(a, b)


def adjoint(x: Any) -> Any:
    """Return the conjugate transpose."""
    return conj(matrix_transpose(x))


def real_dtype(x: Any) -> Any:
    """Return the dtype of a real array, or of the parts of a complex one."""
    return component_dtype(x.dtype) if is_complex(x) else x.dtype


# LU


def lu_factors(x: Any) -> tuple[Any, Any, Any]:
    """Return the LU factors, the row permutation and the pivots of matrices [.., m, n] of any shape, from `dl.lu`.

    The factors have the shape of `x`: L is [.., m, k], U is [.., k, n] and there are k pivots, where k = min(m, n). `dl.lu`
    takes square matrices, so `x` is padded with zeros: zero columns need no elimination, zero rows are never pivots.
    """
    (rows, columns), (num_pivots, size) = x.shape[-2:], sorted(x.shape[-2:])
    square = x if rows == columns else pad(x, [*[(0, 0)] * (x.ndim - 2), (0, size - rows), (0, size - columns)])
    factors, order, _, pivots = factorize(dl.LuOp, square)
    factors = getitem(factors, (..., slice(rows), slice(columns)))
    return factors, getitem(order, (..., slice(rows))), getitem(pivots, (..., slice(num_pivots)))


# Linear systems


def _solve_by_lu(a: Any, permuted: Callable[[Any], Any]) -> Any:
    """Solve a·x = b, where `permuted(order)` returns the rows of b in the row order of the LU factors of `a`."""
    factors, order, _, _ = factorize(dl.LuOp, a)
    return triangular_solve(factors, triangular_solve(factors, permuted(order), lower=True, unit=True))


def _solved_tangent(x: Operand, operands: Operands, tangents: Operands) -> Any:
    """Return a⁻¹·(db - da·x)."""
    return solve(operands[0], subtract(tangents[1], matmul(tangents[0], x)))


@in_float32_or_wider
@with_jvp_rule(_solved_tangent)
def solve(a: Any, columns: Any) -> Any:
    def take_rows(order: Any) -> Any:
        return take_along_axis(columns, expand_dims(order, -1), -2)

    return _solve_by_lu(a, take_rows)


@in_float32_or_wider
@with_jvp_rule(lambda y, _, tangents: negative(matmul(matmul(y, tangents[0]), y)))
def inverse(x: Operand) -> Any:
    def identity_rows(order: Any) -> Any:
        """Return the permuted rows of the identity matrix."""
        return convert(equal(expand_dims(order, -1), arange(x.shape[-1])), real_dtype(x))

    return _solve_by_lu(x, identity_rows)


# Determinants


def _pivots(x: Operand) -> tuple[Any, Any]:
    factors, _, flips, _ = factorize(dl.LuOp, x)
    return diagonal(factors, 0, -2, -1), flips


@in_float32_or_wider
@with_jvp_rule(lambda _, operands, tangents: sum(multiply(_cofactors(operands[0]), tangents[0]), (-2, -1)))
def determinant(x: Operand) -> Any:
    pivots, flips = _pivots(x)
    return multiply(prod(pivots, -1), flips)


def _cofactors_tangent(y: Operand, operands: Operands, tangents: Operands) -> Any:
    """Return the tangent of y = det(x)·x⁻ᵀ: y·tr(x⁻¹·dx) - y·(x⁻¹·dx)ᵀ."""
    relative_change = matmul(inverse(operands[0]), tangents[0])
    trace_term = expand_dims(trace(relative_change, 0, -2, -1), (-2, -1))
    return subtract(multiply(y, trace_term), matmul(y, matrix_transpose(relative_change)))


@with_jvp_rule(_cofactors_tangent)
def _cofactors(x: Operand) -> Any:
    """Return det(x)·x⁻ᵀ, also for singular matrices: each singular value is replaced by the product of the others."""
    left, values, right = reduced_svd(x)
    left_products, right_products = (
        apply(dl.CumprodOp, values, axis=values.ndim - 1, exclusive=True, reverse=r) for r in (False, True)
    )
    cofactor_values = multiply(
        multiply(left_products, right_products), expand_dims(multiply(determinant(left), determinant(right)), -1)
    )
    return matmul(multiply(conj(left), expand_dims(cofactor_values, -2)), conj(right))


def _relative_change(operands: Operands, tangents: Operands) -> Any:
    """Return tr(x⁻¹·dx), the derivative of ln det(x)."""
    return trace(solve(operands[0], tangents[0]), 0, -2, -1)


def _sign_tangent(y: Operand, operands: Operands, tangents: Operands) -> Any:
    """Return y·i·Im tr(x⁻¹·dx), which is zero for real matrices."""
    return multiply(y, multiply(imag(_relative_change(operands, tangents)), 1j)) if is_complex(y) else zeros_like(y)


@in_float32_or_wider
@with_jvp_rule(_sign_tangent)
def determinant_sign(x: Operand) -> Any:
    """Return the determinant divided by its absolute value, or 0."""
    pivots, flips = _pivots(x)
    return multiply(prod(sign(pivots), -1), flips)


@in_float32_or_wider
@with_jvp_rule(lambda _, operands, tangents: real(_relative_change(operands, tangents)))
def log_abs_determinant(x: Operand) -> Any:
    """Return ln |det(x)|."""
    return sum(log(abs(_pivots(x)[0])), -1)


# Cholesky


def _cholesky_tangent(y: Any, _: Operands, tangents: Operands) -> Any:
    """Return Φ(U⁻ᴴ·dx·U⁻¹)·U, where Φ is the upper triangle with half the diagonal; of dx the upper triangle is read.

    Source: Murray, "Differentiation of the Cholesky decomposition" (arXiv:1602.07527).
    """
    (dx,), lower = tangents, adjoint(y)
    strictly_upper = triu(dx, k=1)
    dx = add(add(strictly_upper, adjoint(strictly_upper)), multiply(real(dx), eye(dx.shape[-1], dtype=real_dtype(dx))))
    inner = triangular_solve(lower, adjoint(triangular_solve(lower, dx, lower=True)), lower=True)
    return matmul(multiply(add(triu(inner), triu(inner, k=1)), 0.5), y)


@in_float32_or_wider
@with_jvp_rule(_cholesky_tangent)
def upper_cholesky(x: Any) -> Any:
    """Return the upper triangular U with Uᴴ·U = x for positive definite matrices, of which the upper triangle is read."""
    return factorize(dl.CholeskyOp, x)[0]


# QR


def _reflections(x: Any) -> Sequence[Any]:
    """Return the columns of R, and the Householder vectors and scales that define Q."""
    return factorize(dl.HouseholderOp, matrix_transpose(x))


def orthogonal_columns(vectors: Any, scales: Any, count: TracedSize) -> Any:
    """Return the first columns of Q, as rows."""
    return factorize(dl.OrthogonalOp, vectors, scales, count=(count,))[0]


@in_float32_or_wider
def r_factor(x: Operand, rows: TracedSize) -> Any:
    """Return the first `rows` rows of R in x = Q·R."""
    return matrix_transpose(getitem(_reflections(x)[0], (..., slice(rows))))


@in_float32_or_wider
def complete_qr(x: Operand) -> Any:
    """Return (Q, R) with a square Q. Not differentiable: the columns of Q beyond the rank of R are arbitrary."""
    columns, vectors, scales = _reflections(x)
    return matrix_transpose(orthogonal_columns(vectors, scales, x.shape[-2])), matrix_transpose(columns)


@in_float32_or_wider
def packed_qr(x: Operand) -> Any:
    """Return R with the Householder vectors below its diagonal, and their scales, as LAPACK's geqrf does."""
    columns, vectors, scales = _reflections(x)
    rows, count = x.shape[-2:]
    strict_lower = tril(matrix_transpose(vectors), k=-1)
    if rows < count:
        strict_lower = pad(strict_lower, [*[(0, 0)] * (x.ndim - 1), (0, count - rows)])
    return add(matrix_transpose(columns), strict_lower), scales


def _reduced_qr_tangent(factors: tuple[Any, Any], _: Operands, tangents: Operands) -> Any:
    """Return (dQ, dR) = (dx·R⁻¹ + Q·(w - s), (s - w)·R), with s = Qᴴ·dx·R⁻¹ and w = l - lᴴ + i·Im diag(s), l = tril(s, -1)."""
    (q, r), (dx,) = factors, tangents
    quotient = matrix_transpose(triangular_solve(matrix_transpose(r), matrix_transpose(dx), lower=True))
    s = matmul(adjoint(q), quotient)
    strictly_lower = tril(s, k=-1)
    rotation = subtract(strictly_lower, adjoint(strictly_lower))
    if is_complex(s):
        rotation = add(rotation, multiply(multiply(imag(s), 1j), eye(s.shape[-1], dtype=real_dtype(s))))
    upper_term = subtract(rotation, s)
    return add(quotient, matmul(q, upper_term)), negative(matmul(upper_term, r))


@in_float32_or_wider
@with_jvp_rule(_reduced_qr_tangent)
def reduced_qr(x: Any) -> Any:
    """Return (Q, R) of matrices with at least as many rows as columns; Q has the shape of `x`."""
    reflected, vectors, scales = _reflections(x)
    count = x.shape[-1]
    q = orthogonal_columns(vectors, scales, count)
    return matrix_transpose(q), matrix_transpose(getitem(reflected, (..., slice(count))))


# Eigenvalues and singular values


def _reciprocal(x: Any) -> Any:
    """Return 1/x, and 0 where x is 0.

    There, vectors of equal values may rotate into each other, so their derivative is undefined.
    """
    is_zero = equal(x, 0)
    return where(is_zero, 0, divide(1, where(is_zero, 1, x)))


def _gaps(x: Any) -> Any:
    """Return x_j - x_i as a matrix."""
    return subtract(expand_dims(x, -2), expand_dims(x, -1))


def _project(left: Any, dx: Any, right: Any) -> Any:
    return matmul(matmul(adjoint(left), dx), right)


def _eigenvectors_tangent(results: tuple[Any, Any], _: Operands, tangents: Operands) -> Any:
    """Return (dw, dV) = (diag(s), V·(s_ij / (w_j - w_i))), with s = Vᴴ·dx·V."""
    w, v = results
    s = _project(v, tangents[0], v)
    return real(diagonal(s, 0, -2, -1)), matmul(v, multiply(s, _reciprocal(_gaps(w))))


@in_float32_or_wider
@with_jvp_rule(_eigenvectors_tangent)
def symmetric_eigen(x: Operand) -> Any:
    """Return the eigenvalues w and the eigenvectors V of symmetric or Hermitian matrices."""
    w, rows, _ = factorize(dl.EighOp, x, vectors=True)
    return w, adjoint(rows)


def _eigenvalues_tangent(_: Operand, operands: Operands, tangents: Operands) -> Any:
    v = symmetric_eigen(operands[0])[1]
    return real(sum(multiply(conj(v), matmul(tangents[0], v)), -2))


@in_float32_or_wider
@with_jvp_rule(_eigenvalues_tangent)
def symmetric_eigenvalues(x: Operand) -> Any:
    return factorize(dl.EighOp, x, vectors=False)[0]


def _general_tangent(results: tuple[Any, Any], _: Operands, tangents: Operands) -> Any:
    """Return (dw, dV), with s = V⁻¹·dx·V: dw = diag(s), and dV = V·(s_ij / (w_j - w_i)) + V·diag(c).

    c keeps the length of each vector constant, and its largest element real.
    """
    (w, v), (dx,) = results, tangents
    s = solve(v, matmul(dx, v))
    change = matmul(v, multiply(s, _reciprocal(_gaps(w))))
    length_change = real(sum(multiply(conj(v), change), -2, keepdims=True))
    squares = real(multiply(conj(v), v))
    largest = argmax(squares, -2, keepdims=True)
    phase_change = divide(take_along_axis(imag(change), largest, -2), take_along_axis(real(v), largest, -2))
    return diagonal(s, 0, -2, -1), subtract(change, multiply(v, from_parts(length_change, phase_change)))


@in_float32_or_wider
@with_jvp_rule(_general_tangent)
def general_eigen(x: Any) -> Any:
    """Return the complex eigenvalues and eigenvectors of square matrices."""
    w_real, w_imag, rows_real, rows_imag, *_ = factorize(dl.EigOp, x, vectors=True)
    return from_parts(w_real, w_imag), matrix_transpose(from_parts(rows_real, rows_imag))


def _general_values_tangent(_: Any, operands: Operands, tangents: Operands) -> Any:
    return _general_tangent(general_eigen(operands[0]), operands, tangents)[0]


@in_float32_or_wider
@with_jvp_rule(_general_values_tangent)
def general_eigenvalues(x: Any) -> Any:
    """Return the complex eigenvalues of square matrices."""
    w_real, w_imag, *_ = factorize(dl.EigOp, x, vectors=False)
    return from_parts(w_real, w_imag)


def _singular_tangent(results: tuple[Any, Any, Any], _: Operands, tangents: Operands) -> Any:
    """Return (dU, ds, dVᴴ), with p = Uᴴ·dx·V and f_ij = 1/(s_j² - s_i²):

    ds = Re diag(p), dU = U·(f∘(p·s + s·pᴴ)) + (1 - U·Uᴴ)·dx·V/s, dV = V·(f∘(s·p + pᴴ·s)) + (1 - V·Vᴴ)·dxᴴ·U/s. Of complex
    matrices, U also rotates by i·Im diag(p)/s.
    """
    (u, s, vh), (dx,) = results, tangents
    v = adjoint(vh)
    p = _project(u, dx, v)
    ph, row, column = adjoint(p), expand_dims(s, -2), expand_dims(s, -1)
    f, inverse_s = _reciprocal(_gaps(multiply(s, s))), _reciprocal(row)

    def tangent(vectors: Any, rotation: Any, product: Any) -> Any:
        """Return the rotation of the vectors within their span, plus the change orthogonal to it."""
        in_span = matmul(vectors, multiply(f, rotation))
        if vectors.shape[-2] == vectors.shape[-1]:
            return in_span
        orthogonal = subtract(product, matmul(vectors, matmul(adjoint(vectors), product)))
        return add(in_span, multiply(orthogonal, inverse_s))

    du = tangent(u, add(multiply(p, row), multiply(column, ph)), matmul(dx, v))
    dv = tangent(v, add(multiply(column, p), multiply(ph, row)), matmul(adjoint(dx), u))
    ds = diagonal(p, 0, -2, -1)
    if is_complex(u):
        du = add(du, multiply(u, multiply(expand_dims(imag(ds), -2), multiply(inverse_s, 1j))))
    return du, real(ds), adjoint(dv)


@in_float32_or_wider
@with_jvp_rule(_singular_tangent)
def reduced_svd(x: Operand) -> Any:
    """Return (U, s, Vᴴ), where U and V have one column for each singular value."""
    return _svd_by_rotations(x, full_matrices=False)


@in_float32_or_wider
def full_svd(x: Operand) -> Any:
    """Return (U, s, Vᴴ) with square U and V. Not differentiable: the columns beyond the singular values are arbitrary."""
    return _svd_by_rotations(x, full_matrices=True)


def _svd_by_rotations(x: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Compute the SVD by QR and one-sided Jacobi: x = Q·R and rotations·R = diag(s)·Vᴴ, so that U = Q·rotationsᴴ.

    Rows of length 0 have no direction, so V is the orthogonal factor of the rotated rows, up to signs.
    """
    rows, count = x.shape[-2:]
    if rows < count:
        v, s, ut = _svd_by_rotations(matrix_transpose(x), full_matrices=full_matrices)
        return matrix_transpose(ut), s, matrix_transpose(v)
    reflected, vectors, scales = _reflections(x)
    q = orthogonal_columns(vectors, scales, rows if full_matrices else count)
    r = matrix_transpose(getitem(reflected, (..., slice(count))))
    s, rotated, rotations = _jacobi_svd(r)
    lengths, vectors, scales = factorize(dl.HouseholderOp, rotated)
    directions = orthogonal_columns(vectors, scales, count)
    signs = where(greater_equal(real(diagonal(lengths, 0, -2, -1)), 0), np.ones((), real_dtype(x)), -1)
    vh = multiply(directions, expand_dims(signs, -1))
    u = matmul(conj(rotations), getitem(q, (..., slice(count), slice(None))) if full_matrices else q)
    if full_matrices:
        u = concat([u, getitem(q, (..., slice(count, None), slice(None)))], axis=-2)
    return matrix_transpose(u), s, vh


# Minimum number of rows for which rotating by the eigenvectors of x·xᵀ first is faster.
_MIN_PRECONDITIONED_ROWS = 32


def _jacobi_svd(x: Operand) -> tuple[Any, Any, Any]:
    """Return (s, rows, rotations): rotations·x = rows, which are orthogonal, with lengths s in descending order.

    The eigenvectors of x·xᴴ are nearly such rotations, except for those of small values, so the Jacobi iteration that follows
    needs few sweeps. `x` is scaled to a largest element of 1, so that the squares do not overflow.
    """
    if x.shape[-2] < _MIN_PRECONDITIONED_ROWS:
        svd_results = factorize(dl.SvdOp, x)
        return svd_results[0], svd_results[1], svd_results[2]
    largest = max(abs(x), (-2, -1), keepdims=True)
    scaled = divide(x, where(equal(largest, 0), 1, largest))
    eigenvectors = factorize(dl.EighOp, matmul(scaled, adjoint(scaled)), vectors=True)[1]
    s, rows, rotations = factorize(dl.SvdOp, matmul(eigenvectors, x))
    return s, rows, matmul(rotations, eigenvectors)


def _singular_values_tangent(_: Operand, operands: Operands, tangents: Operands) -> Any:
    u, _, vh = reduced_svd(operands[0])
    return real(sum(multiply(conj(u), matmul(tangents[0], adjoint(vh))), -2))


@in_float32_or_wider
@with_jvp_rule(_singular_values_tangent)
def singular_values(x: Operand) -> Any:
    rows, count = x.shape[-2:]
    if rows < count:
        return singular_values(matrix_transpose(x))
    return _jacobi_svd(matrix_transpose(getitem(_reflections(x)[0], (..., slice(count)))))[0]


def _truncated_reciprocal(s: Any, threshold: Any) -> Any:
    """Return 1/s for the values above `threshold` times the largest one, and 0 for the others."""
    is_significant = greater(s, multiply(expand_dims(threshold, -1), getitem(s, (..., slice(1)))))
    return where(is_significant, divide(1, where(is_significant, s, 1)), 0)


def _pseudo_inverse_tangent(y: Operand, operands: Operands, tangents: Operands) -> Any:
    """Return -y·dx·y + y·yᴴ·dxᴴ·(1 - x·y) + (1 - y·x)·dxᴴ·yᴴ·y.

    Source: Golub and Pereyra, "The differentiation of pseudo-inverses" (1973).
    """
    (x, _), (dx, _) = operands, tangents
    yh, dxh = adjoint(y), adjoint(dx)
    column_space_term, row_space_term = matmul(matmul(y, yh), dxh), matmul(dxh, matmul(yh, y))
    change = add(
        subtract(column_space_term, matmul(column_space_term, matmul(x, y))),
        subtract(row_space_term, matmul(y, matmul(x, row_space_term))),
    )
    return subtract(change, matmul(matmul(y, dx), y))


@in_float32_or_wider
@with_jvp_rule(_pseudo_inverse_tangent)
def pseudo_inverse(x: Operand, threshold: Operand) -> Any:
    """Return V·s⁻¹·Uᴴ without the singular values of at most `threshold` times the largest one."""
    scale = _scale_to_normal_numbers(x)
    u, s, vh = reduced_svd(multiply(x, scale))
    scaled_uh = multiply(adjoint(u), expand_dims(_truncated_reciprocal(s, threshold), -1))
    return multiply(matmul(adjoint(vh), scaled_uh), scale)


def _scale_to_normal_numbers(x: Operand) -> Any:
    """Return for each matrix a power of two by which its elements become normal numbers, 1 if the largest is not tiny."""
    dtype = real_dtype(x)
    info = np.finfo(dtype)
    largest = max(abs(x), axis=(-2, -1), keepdims=True, initial=0)
    return convert(where(less(largest, float(info.tiny / info.eps)), float(1 / info.tiny), 1), dtype)


def _least_squares_tangent(x: Operand, operands: Operands, tangents: Operands) -> Any:
    """Return y·(db - da·x) + y·yᴴ·daᴴ·(b - a·x) + (1 - y·a)·daᴴ·yᴴ·x, where y is the pseudo-inverse of `a`."""
    (a, b, threshold), (da, db, _) = operands, tangents
    y = pseudo_inverse(a, threshold)
    yh, dah = adjoint(y), adjoint(da)
    residual_term = matmul(dah, subtract(b, matmul(a, x)))
    null_space_term = matmul(dah, matmul(yh, x))
    change = matmul(y, add(subtract(db, matmul(da, x)), matmul(yh, residual_term)))
    return add(change, subtract(null_space_term, matmul(y, matmul(a, null_space_term))))


@in_float32_or_wider
@with_jvp_rule(_least_squares_tangent)
def least_squares(a: Operand, b: Operand, threshold: Operand) -> Any:
    """Return the minimum-norm least-squares solution of a·x = b.

    Singular values of at most `threshold` times the largest are ignored.
    """
    scale, scale_of_b = _scale_to_normal_numbers(a), _scale_to_normal_numbers(b)
    u, s, vh = reduced_svd(multiply(a, scale))
    projected = matmul(adjoint(u), multiply(b, scale_of_b))
    coefficients = multiply(projected, expand_dims(_truncated_reciprocal(s, threshold), -1))
    return multiply(matmul(adjoint(vh), coefficients), divide(scale, scale_of_b))
