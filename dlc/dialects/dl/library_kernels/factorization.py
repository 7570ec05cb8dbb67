"""Matrix factorizations: LU, Cholesky, QR, eigenvalues, SVD; matrices are the last two axes, leading axes are batch axes.

Each step depends on the steps before it, so that no formula gives a single element of a result: hand-written loops implement
these ops (`dlc/library_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, ints, shape_of, sizes, tensor_type
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    BoolAttr,
    SSAValue,
    TensorType,
    f32,
    f64,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_different, is_known_less


def matrix_shape(op: LibraryKernel, value: SSAValue) -> tuple[tuple[Size, ...], Size, Size]:
    """Return the batch sizes, rows and columns of an operand of f32 or f64 matrices."""
    shape, element = shape_of(value), element_type_of(value)
    if element not in (f32, f64):
        raise DTypeError(f"{op.name}: element type {element}; expected f32 or f64, cast the operand")
    if len(shape) < 2:
        raise ShapeError(f"{op.name}: shape {shape}; expected matrices along the last two axes")
    return shape[:-2], shape[-2], shape[-1]


def square_matrix_shape(op: LibraryKernel, value: SSAValue) -> tuple[tuple[Size, ...], Size]:
    """Return the batch sizes and the number of rows of an operand of square matrices."""
    leading, rows, columns = matrix_shape(op, value)
    if is_known_different(rows, columns):
        raise ShapeError(f"{op.name}: matrices of {rows} × {columns}; expected square matrices")
    return leading, rows


@irdl_op_definition
class LuOp(LibraryKernel):
    """LU factorization with partial pivoting: the rows `order` of `x` are L·U.

    L, with a unit diagonal, is stored below the diagonal of `factors` [.., n, n], U on and above it. `order` [.., n], i64,
    holds the row of `x` for each row. `sign` [..] is 1 for an even number of exchanges, -1 for an odd number. `pivots` [.., n],
    i64, holds the row, k or later, that step k exchanges with row k. Each pivot is the largest remaining element of its column;
    a column of zeros leaves 0 on the diagonal, with factors of 0.
    (C1) `x` is f32 or f64, square in its last two axes. NaN propagates.
    """

    name = "dl.lu"
    x = operand_def(TensorType)
    factors = result_def(TensorType)
    order = result_def(TensorType)
    sign = result_def(TensorType)
    pivots = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element = square_matrix_shape(self, self.x), element_type_of(self.x)
        rows = tensor_type((*leading, n), i64)
        return [tensor_type((*leading, n, n), element), rows, tensor_type(leading, element), rows]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        n = x.shape[-1]
        factors: Array = x.reshape(prod(x.shape[:-2]), n, n).copy()
        batch = np.arange(len(factors))
        order = np.zeros((len(factors), 1), np.int64) + np.arange(int(n))
        sign, pivots = np.ones(len(factors), x.dtype), np.zeros((len(factors), n), np.int64)
        for k in range(n):
            magnitude = np.abs(factors[:, k:, k])
            pivot = k + np.argmax(np.where(np.isnan(magnitude), -1, magnitude), -1) * ~np.isnan(magnitude[:, 0])
            for y in (factors, order):
                y[batch, k], y[batch, pivot] = y[batch, pivot], y[batch, k].copy()
            sign[pivot != k] *= -1
            pivots[:, k] = pivot
            pivot_value = factors[:, k, k]
            factors[:, k + 1 :, k] /= np.where(pivot_value == 0, 1, pivot_value)[:, None]
            factors[:, k + 1 :, k + 1 :] -= factors[:, k + 1 :, k, None] * factors[:, None, k, k + 1 :]
        rows = x.shape[:-1]
        return factors.reshape(x.shape), order.reshape(rows), sign.reshape(x.shape[:-2]), pivots.reshape(rows)


@irdl_op_definition
class TriangularSolveOp(LibraryKernel):
    """Solves T·x = `b` [.., n, m] for x, where T is the upper triangle of `a` [.., n, n], or the lower one if `lower`.

    With `unit` the diagonal of T is 1 regardless of `a`; the other triangle of `a` is not read. A 0 on the diagonal gives
    infinities and NaN. (C1) `a` and `b` have the same type, f32 or f64; (C2) they have equal axes except the last, and `a` is
    square.
    """

    name = "dl.triangular_solve"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    lower = opt_prop_def(BoolAttr)
    unit = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), (b_leading, rows, columns) = square_matrix_shape(self, self.a), matrix_shape(self, self.b)
        if element_type_of(self.a) != element_type_of(self.b):
            types = f"a of {element_type_of(self.a)}, b of {element_type_of(self.b)}"
            raise DTypeError(f"{self.name}: {types}; expected one element type (C1)")
        axes = zip((*leading, n), (*b_leading, rows), strict=False)
        if len(leading) != len(b_leading) or any(is_known_different(p, q) for p, q in axes):
            raise ShapeError(f"{self.name}: shapes of a {shape_of(self.a)} and b {shape_of(self.b)} do not match (C2)")
        return [tensor_type((*leading, n, columns), element_type_of(self.b))]

    def reference(self, *operands: Array) -> Array:
        a, b = operands
        x, n = b.copy(), a.shape[-1]
        rows = range(n) if flag(self.lower) else range(n - 1, -1, -1)
        for k in rows:
            solved_rows = slice(0, k) if flag(self.lower) else slice(k + 1, n)
            x[..., k, :] -= (a[..., k, solved_rows, None] * x[..., solved_rows, :]).sum(-2)
            if not flag(self.unit):
                x[..., k, :] /= a[..., k, k, None]
        return x


@irdl_op_definition
class CholeskyOp(LibraryKernel):
    """Cholesky factorization: the upper triangular U with Uᵀ·U = `x` of symmetric positive definite matrices.

    Only the upper triangle of `x` is read; the lower triangle of U is 0. If a matrix is not positive definite, U is NaN from
    the first row on whose diagonal has no root. (C1) `x` is f32 or f64, square in its last two axes.
    """

    name = "dl.cholesky"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        leading, n = square_matrix_shape(self, self.x)
        return [tensor_type((*leading, n, n), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        x = np.triu(operands[0])
        for k in range(x.shape[-1]):
            above = x[..., :k, :]
            x[..., k, k:] -= (above[..., k, None] * above[..., k:]).sum(-2)
            x[..., k, k:] /= np.sqrt(x[..., k, k, None])
        return x


@irdl_op_definition
class HouseholderOp(LibraryKernel):
    """QR factorization by Householder reflections of transposed matrices: row j of `x` [.., n, m] is column j of A.

    Row j of `triangle` [.., n, m] is column j of R, 0 after the diagonal. Reflection k of min(n, m) is 1 - `scales`[k]·v·vᵀ,
    where v is row k of `vectors` [.., min(n, m), m]: 0 before index k and 1 at it. Q is the product of the reflections, the
    first one leftmost. The diagonal of R has the signs of LAPACK.
    (C1) `x` is f32 or f64.
    """

    name = "dl.householder"
    x = operand_def(TensorType)
    triangle = result_def(TensorType)
    vectors = result_def(TensorType)
    scales = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        leading, n, m = matrix_shape(self, self.x)
        element, k = element_type_of(self.x), m if is_known_less(m, n) else n
        return [tensor_type((*leading, *axes), element) for axes in ((n, m), (k, m), (k,))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        (*_, n, m), (*_, k) = shape_of(self.x), shape_of(self.scales)
        return n - k, m - k

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        triangle = operands[0].copy()
        *leading, n, m = triangle.shape
        vectors, scales = np.zeros((*leading, min(n, m), m), triangle.dtype), np.zeros((*leading, min(n, m)), triangle.dtype)
        for k in range(min(n, m)):
            row = triangle[..., k, k:]
            largest = np.max(np.abs(row), -1, keepdims=True)
            row = row / np.where(largest > 0, largest, 1)
            alpha, squared_norm = row[..., 0], (row[..., 1:] ** 2).sum(-1)
            beta = -np.copysign(np.sqrt(alpha**2 + squared_norm), alpha)
            vectors[..., k, k] = 1
            vectors[..., k, k + 1 :] = row[..., 1:] / np.where(squared_norm == 0, 1, alpha - beta)[..., None]
            scales[..., k] = np.where(squared_norm == 0, 0, (beta - alpha) / beta)
            diagonal = np.where(squared_norm == 0, triangle[..., k, k], beta * largest[..., 0])
            reflect(triangle[..., k:, :], vectors[..., k, :], scales[..., k])
            triangle[..., k, k:] = 0
            triangle[..., k, k] = diagonal
        return triangle, vectors, scales


@irdl_op_definition
class OrthogonalOp(LibraryKernel):
    """The first `count` columns of the Q of `dl.householder`, as rows of the result [.., count, m].

    `vectors` [.., k, m] and `scales` [.., k] are results of `dl.householder`.
    (C1) they have the same type, f32 or f64; (C2) `count` is at least k and at most m.
    """

    name = "dl.orthogonal"
    vectors = operand_def(TensorType)
    scales = operand_def(TensorType)
    count = prop_def()
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, k, m), scales, (count,) = matrix_shape(self, self.vectors), shape_of(self.scales), sizes(self.count)
        if element_type_of(self.scales) != element_type_of(self.vectors):
            raise DTypeError(
                f"{self.name}: vectors of {element_type_of(self.vectors)}, scales of {element_type_of(self.scales)}; "
                "expected one element type (C1)"
            )
        if len(scales) != len(leading) + 1 or any(is_known_different(p, q) for p, q in zip((*leading, k), scales, strict=True)):
            raise ShapeError(f"{self.name}: shapes of scales {scales} and vectors {shape_of(self.vectors)} do not match")
        if is_known_less(count, k) or is_known_less(m, count):
            raise ShapeError(f"{self.name}: count {count} for {k} reflections of size {m}; expected {k} to {m} (C2)")
        return [tensor_type((*leading, count, m), element_type_of(self.vectors))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        (*_, k, m), (*_, count, _) = shape_of(self.vectors), shape_of(self.result)
        return count - k, m - count

    def reference(self, *operands: Array) -> Array:
        vectors, scales = operands
        *leading, k, m = vectors.shape
        (count,) = ints(self.count)
        result = np.broadcast_to(np.eye(count, m, dtype=vectors.dtype), (*leading, count, m)).copy()
        for i in range(k - 1, -1, -1):
            reflect(result, vectors[..., i, :], scales[..., i])
        return result


def reflect(rows: Array, vector: Array, scale: Array) -> None:
    """Apply a Householder reflection to each row in place: subtract `scale`·v times its product with v."""
    rows -= (scale[..., None] * (rows * vector[..., None, :]).sum(-1))[..., None] * vector[..., None, :]


@irdl_op_definition
class EighOp(LibraryKernel):
    """Eigenvalues of symmetric matrices [.., n, n], ascending, and their eigenvectors of length 1 as rows.

    Of the two opposite eigenvectors v, the one with Σ v_j / (j + 1) ≥ 0 is returned. Without `vectors` the second result is
    undefined. `work` [.., 4, n] is the kernel's work memory, 0 at the end.
    (C1) `x` is f32 or f64, square in its last two axes, and symmetric. NaN propagates.
    """

    name = "dl.eigh"
    x = operand_def(TensorType)
    vectors = prop_def(BoolAttr)
    values = result_def(TensorType)
    rows = result_def(TensorType)
    work = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element = square_matrix_shape(self, self.x), element_type_of(self.x)
        return [tensor_type((*leading, *axes), element) for axes in ((n,), (n, n), (4, n))]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        is_finite = np.asarray(np.isfinite(x).all((-2, -1)))
        values, vectors = np.linalg.eigh(np.where(is_finite[..., None, None], x, 0))
        rows = vectors.mT * orientation(vectors.mT)
        work = np.zeros((*x.shape[:-2], 4, x.shape[-1]), x.dtype)
        return _or_nan(is_finite, values), _or_nan(is_finite, rows), work


@irdl_op_definition
class EigOp(LibraryKernel):
    """Eigenvalues of general matrices [.., n, n], and their eigenvectors of length 1 as rows.

    Both are pairs of real and imaginary parts. Eigenvalues ascend by their real, then by their imaginary parts. The element of
    an eigenvector with the largest magnitude is real and positive. Without `vectors` the rows are undefined. `work`
    [.., 2, n, n] and `work_rows` [.., 3, n] are the kernel's work memory, 0 at the end.
    (C1) `x` is f32 or f64, square in its last two axes. NaN and infinities give NaN.
    """

    name = "dl.eig"
    x = operand_def(TensorType)
    vectors = prop_def(BoolAttr)
    real = result_def(TensorType)
    imag = result_def(TensorType)
    rows_real = result_def(TensorType)
    rows_imag = result_def(TensorType)
    work = result_def(TensorType)
    work_rows = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element = square_matrix_shape(self, self.x), element_type_of(self.x)
        return [tensor_type((*leading, *axes), element) for axes in ((n,), (n,), (n, n), (n, n), (2, n, n), (3, n))]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        is_finite = np.asarray(np.isfinite(x).all((-2, -1)))
        eigen = np.linalg.eig(np.where(is_finite[..., None, None], x, 0))
        values: Array = eigen.eigenvalues
        vectors: Array = eigen.eigenvectors
        order = np.lexsort((np.imag(values), np.real(values)))
        values, rows = np.take_along_axis(values, order, -1), np.take_along_axis(vectors.mT, order[..., None], -2)
        if rows.size:
            largest = np.take_along_axis(rows, np.argmax(np.abs(rows), -1, keepdims=True), -1)
            rows = rows * (np.conj(largest) / np.abs(largest))
        parts: list[Array] = [np.real(values), np.imag(values), np.real(rows), np.imag(rows)]
        work = [np.zeros((*x.shape[:-2], *axes, x.shape[-1]), x.dtype) for axes in ((2, x.shape[-1]), (3,))]
        return (*(_or_nan(is_finite, part).astype(x.dtype) for part in parts), *work)


@irdl_op_definition
class SvdOp(LibraryKernel):
    """Singular value decomposition: `rotations` [.., n, n] @ `x` [.., n, m] is `rows` [.., n, m], which are orthogonal.

    `values` [.., n] are the lengths of the rows, descending: the singular values of `x`. `rotations` is orthogonal, with rows v
    of which Σ v_j / (j + 1) is not negative. The method, one-sided Jacobi rotations, computes small singular values to high
    relative accuracy.
    (C1) `x` is f32 or f64, with no more rows than columns. NaN propagates.
    """

    name = "dl.svd"
    x = operand_def(TensorType)
    values = result_def(TensorType)
    rows = result_def(TensorType)
    rotations = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n, m), element = matrix_shape(self, self.x), element_type_of(self.x)
        if is_known_less(m, n):
            raise ShapeError(f"{self.name}: {n} rows and {m} columns; expected no more rows than columns, transpose x (C1)")
        return [tensor_type((*leading, *axes), element) for axes in ((n,), (n, m), (n, n))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        *_, n, m = shape_of(self.x)
        return (m - n,)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        is_finite = np.asarray(np.isfinite(x).all((-2, -1)))
        u, s, v = np.linalg.svd(np.where(is_finite[..., None, None], x, 0), full_matrices=False)
        sign = orientation(u.mT)
        return _or_nan(is_finite, s), _or_nan(is_finite, s[..., None] * v * sign), _or_nan(is_finite, u.mT * sign)


def orientation(rows: Array) -> Array:
    """Return the sign for each row v that makes Σ v_j / (j + 1) nonnegative: 1 or -1."""
    divisors = np.arange(1, int(rows.shape[-1]) + 1)
    total = np.vecdot(rows, 1 / divisors)
    return np.where(total[..., None] < 0, -1, 1).astype(rows.dtype)


def _or_nan(is_finite: Array, x: Array) -> Array:
    """Return the results of matrices whose elements are finite, and NaN for the others."""
    return np.where(is_finite.reshape(is_finite.shape + (1,) * (x.ndim - is_finite.ndim)), x, np.nan).astype(x.dtype)
