"""Matrix factorizations: LU, Cholesky, QR, eigenvalues, SVD; matrices are the last two axes, leading axes are batch axes.

Each step depends on the steps before it, so that no formula gives a single element of a result: hand-written loops implement
these ops (`dlc/library_kernels`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from math import prod
from typing import ClassVar

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


class MatrixFactorization(LibraryKernel, ABC):
    """A factorization of real matrices, or of complex ones if `complex`.

    Complex operands and results have an axis of size 2 after the batch axes, for the real and the imaginary part: matrices
    [.., 2, n, m], vectors [.., 2, n]. Results that are real for complex matrices have the same shapes as those of real ones.
    """

    complex = opt_prop_def(BoolAttr)

    # The names of results that are real numbers or integers also for complex matrices.
    REAL_RESULTS: ClassVar[Collection[str]] = ()

    @property
    def num_batch_axes(self) -> int:
        return super().num_batch_axes - len(self.parts)

    @property
    def parts(self) -> tuple[int, ...]:
        """The axis for the real and imaginary parts of a complex value; () for real matrices."""
        return (2,) if flag(self.complex) else ()

    def has_parts(self, value: SSAValue) -> bool:
        """Return whether an operand or result is complex."""
        real_results = [getattr(self, name) for name in self.REAL_RESULTS]
        return flag(self.complex) and all(value is not result for result in real_results)

    def matrix_shape(self, value: SSAValue) -> tuple[tuple[Size, ...], Size, Size]:
        """Return the batch sizes, rows and columns of an operand of f32 or f64 matrices."""
        shape, element, parts = shape_of(value), element_type_of(value), self.parts
        if element not in (f32, f64):
            raise DTypeError(f"{self.name}: element type {element}; expected f32 or f64, cast the operand")
        if len(shape) < 2 + len(parts):
            raise ShapeError(f"{self.name}: shape {shape}; expected matrices along the last two axes")
        *leading, rows, columns = shape
        if parts and is_known_different(leading.pop(), 2):
            raise ShapeError(
                f"{self.name}: shape {shape}; expected an axis of 2 before the rows, for the parts of complex numbers"
            )
        return tuple(leading), rows, columns

    def square_matrix_shape(self, value: SSAValue) -> tuple[tuple[Size, ...], Size]:
        """Return the batch sizes and the number of rows of an operand of square matrices."""
        leading, rows, columns = self.matrix_shape(value)
        if is_known_different(rows, columns):
            raise ShapeError(f"{self.name}: matrices of {rows} × {columns}; expected square matrices")
        return leading, rows

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        axis = self.num_batch_axes
        joined = [x.take(0, axis) + 1j * x.take(1, axis) for x in operands] if self.parts else operands
        pairs = zip(self.results, self.factorize(*joined), strict=True)
        return tuple(np.stack([np.real(y), np.imag(y)], axis) if self.has_parts(result) else np.real(y) for result, y in pairs)

    @abstractmethod
    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        """Return the results by NumPy, for real or complex operands."""


@irdl_op_definition
class LuOp(MatrixFactorization):
    """LU factorization with partial pivoting: the rows `order` of `x` are L·U.

    L, with a unit diagonal, is stored below the diagonal of `factors` [.., n, n], U on and above it. `order` [.., n], i64,
    holds the row of `x` for each row. `sign` [..] is 1 for an even number of exchanges, -1 for an odd number. `pivots` [.., n],
    i64, holds the row, k or later, that step k exchanges with row k. Each pivot is the largest remaining element of its column,
    of complex elements a + b·i by |a| + |b|; a column of zeros leaves 0 on the diagonal, with factors of 0.
    (C1) `x` is f32 or f64, square in its last two axes. NaN propagates.
    """

    name = "dl.lu"
    x = operand_def(TensorType)
    factors = result_def(TensorType)
    order = result_def(TensorType)
    sign = result_def(TensorType)
    pivots = result_def(TensorType)
    REAL_RESULTS: ClassVar[Collection[str]] = ("order", "sign", "pivots")

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element = self.square_matrix_shape(self.x), element_type_of(self.x)
        rows = tensor_type((*leading, n), i64)
        return [tensor_type((*leading, *self.parts, n, n), element), rows, tensor_type(leading, element), rows]

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        n = x.shape[-1]
        factors: Array = x.reshape(prod(x.shape[:-2]), n, n).copy()
        batch = np.arange(len(factors))
        order = np.zeros((len(factors), 1), np.int64) + np.arange(int(n))
        sign, pivots = np.ones(len(factors), np.real(x).dtype), np.zeros((len(factors), n), np.int64)
        for k in range(n):
            column = factors[:, k:, k]
            magnitude = np.abs(np.real(column)) + np.abs(np.imag(column))
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
class TriangularSolveOp(MatrixFactorization):
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
        (leading, n), (b_leading, rows, columns) = self.square_matrix_shape(self.a), self.matrix_shape(self.b)
        if element_type_of(self.a) != element_type_of(self.b):
            types = f"a of {element_type_of(self.a)}, b of {element_type_of(self.b)}"
            raise DTypeError(f"{self.name}: {types}; expected one element type (C1)")
        axes = zip((*leading, n), (*b_leading, rows), strict=False)
        if len(leading) != len(b_leading) or any(is_known_different(p, q) for p, q in axes):
            raise ShapeError(f"{self.name}: shapes of a {shape_of(self.a)} and b {shape_of(self.b)} do not match (C2)")
        return [tensor_type((*leading, *self.parts, n, columns), element_type_of(self.b))]

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        a, b = operands
        x, n = b.copy(), a.shape[-1]
        rows = range(n) if flag(self.lower) else range(n - 1, -1, -1)
        for k in rows:
            solved_rows = slice(0, k) if flag(self.lower) else slice(k + 1, n)
            x[..., k, :] -= (a[..., k, solved_rows, None] * x[..., solved_rows, :]).sum(-2)
            if not flag(self.unit):
                x[..., k, :] /= a[..., k, k, None]
        return (x,)


@irdl_op_definition
class CholeskyOp(MatrixFactorization):
    """Cholesky factorization: the upper triangular U with Uᴴ·U = `x` of Hermitian positive definite matrices.

    Only the upper triangle of `x` and the real part of its diagonal are read; the lower triangle of U is 0. If a matrix is not
    positive definite, U is NaN from the first row on whose diagonal has no root.
    (C1) `x` is f32 or f64, square in its last two axes.
    """

    name = "dl.cholesky"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        leading, n = self.square_matrix_shape(self.x)
        return [tensor_type((*leading, *self.parts, n, n), element_type_of(self.x))]

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        x = np.triu(operands[0])
        for k in range(x.shape[-1]):
            above = x[..., :k, :]
            x[..., k, k:] -= (np.conj(above[..., k, None]) * above[..., k:]).sum(-2)
            x[..., k, k] = np.real(x[..., k, k])
            x[..., k, k:] /= np.sqrt(np.real(x[..., k, k, None]))
        return (x,)


@irdl_op_definition
class HouseholderOp(MatrixFactorization):
    """QR factorization by Householder reflections of transposed matrices: row j of `x` [.., n, m] is column j of A.

    Row j of `triangle` [.., n, m] is column j of R, 0 after the diagonal. Reflection k of min(n, m) is 1 - `scales`[k]·v·vᴴ,
    where v is row k of `vectors` [.., min(n, m), m]: 0 before index k and 1 at it. Q is the product of the reflections, the
    first one leftmost. The diagonal of R is real, with the signs of LAPACK.
    (C1) `x` is f32 or f64.
    """

    name = "dl.householder"
    x = operand_def(TensorType)
    triangle = result_def(TensorType)
    vectors = result_def(TensorType)
    scales = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        leading, n, m = self.matrix_shape(self.x)
        element, k = element_type_of(self.x), m if is_known_less(m, n) else n
        return [tensor_type((*leading, *self.parts, *axes), element) for axes in ((n, m), (k, m), (k,))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        (*_, n, m), (*_, k) = shape_of(self.x), shape_of(self.scales)
        return n - k, m - k

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        triangle = operands[0].copy()
        *leading, n, m = triangle.shape
        vectors, scales = np.zeros((*leading, min(n, m), m), triangle.dtype), np.zeros((*leading, min(n, m)), triangle.dtype)
        for k in range(min(n, m)):
            row = triangle[..., k, k:]
            largest = np.max(np.abs(row), -1, keepdims=True)
            row = row / np.where(largest > 0, largest, 1)
            alpha, squared_norm = row[..., 0], (np.abs(row[..., 1:]) ** 2).sum(-1) + np.imag(row[..., 0]) ** 2
            beta = -np.copysign(np.sqrt(np.real(alpha) ** 2 + squared_norm), np.real(alpha))
            vectors[..., k, k] = 1
            vectors[..., k, k + 1 :] = row[..., 1:] / np.where(squared_norm == 0, 1, alpha - beta)[..., None]
            scales[..., k] = np.where(squared_norm == 0, 0, (beta - alpha) / beta)
            diagonal = np.where(squared_norm == 0, triangle[..., k, k], beta * largest[..., 0])
            reflect(triangle[..., k:, :], vectors[..., k, :], np.conj(scales[..., k]))
            triangle[..., k, k:] = 0
            triangle[..., k, k] = diagonal
        return triangle, vectors, scales


@irdl_op_definition
class OrthogonalOp(MatrixFactorization):
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
        (leading, k, m), scales, (count,) = self.matrix_shape(self.vectors), shape_of(self.scales), sizes(self.count)
        if element_type_of(self.scales) != element_type_of(self.vectors):
            raise DTypeError(
                f"{self.name}: vectors of {element_type_of(self.vectors)}, scales of {element_type_of(self.scales)}; "
                "expected one element type (C1)"
            )
        expected = (*leading, *self.parts, k)
        if len(scales) != len(expected) or any(is_known_different(p, q) for p, q in zip(expected, scales, strict=True)):
            raise ShapeError(f"{self.name}: shapes of scales {scales} and vectors {shape_of(self.vectors)} do not match")
        if is_known_less(count, k) or is_known_less(m, count):
            raise ShapeError(f"{self.name}: count {count} for {k} reflections of size {m}; expected {k} to {m} (C2)")
        return [tensor_type((*leading, *self.parts, count, m), element_type_of(self.vectors))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        (*_, k, m), (*_, count, _) = shape_of(self.vectors), shape_of(self.result)
        return count - k, m - count

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        vectors, scales = operands
        *leading, k, m = vectors.shape
        (count,) = ints(self.count)
        result = np.broadcast_to(np.eye(count, m, dtype=vectors.dtype), (*leading, count, m)).copy()
        for i in range(k - 1, -1, -1):
            reflect(result, vectors[..., i, :], scales[..., i])
        return (result,)


def reflect(rows: Array, vector: Array, scale: Array) -> None:
    """Apply a Householder reflection to each row in place: subtract `scale`·v times its product with conjugated v."""
    rows -= (scale[..., None] * (rows * np.conj(vector)[..., None, :]).sum(-1))[..., None] * vector[..., None, :]


@irdl_op_definition
class EighOp(MatrixFactorization):
    """Eigenvalues of Hermitian matrices [.., n, n], ascending, and their eigenvectors of length 1, conjugated, as rows.

    Of the multiples v of a row, the one with Σ v_j / (j + 1) ≥ 0 is returned. Without `vectors` the second result is
    undefined. `work` [.., 4, n] is the kernel's work memory, 0 at the end.
    (C1) `x` is f32 or f64, square in its last two axes, and Hermitian. NaN propagates.
    """

    name = "dl.eigh"
    x = operand_def(TensorType)
    vectors = prop_def(BoolAttr)
    values = result_def(TensorType)
    rows = result_def(TensorType)
    work = result_def(TensorType)
    REAL_RESULTS: ClassVar[Collection[str]] = ("values",)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element, parts = self.square_matrix_shape(self.x), element_type_of(self.x), self.parts
        return [tensor_type((*leading, *axes), element) for axes in ((n,), (*parts, n, n), (*parts, 4, n))]

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        is_finite = np.asarray(np.isfinite(x).all((-2, -1)))
        values, vectors = np.linalg.eigh(np.where(is_finite[..., None, None], x, 0))
        rows = np.conj(vectors.mT)
        rows = rows * orientation(rows)
        work = np.zeros((*x.shape[:-2], 4, x.shape[-1]), x.dtype)
        return _or_nan(is_finite, values), _or_nan(is_finite, rows), work


@irdl_op_definition
class EigOp(MatrixFactorization):
    """Eigenvalues of general matrices [.., n, n], and their eigenvectors of length 1 as rows.

    Both are pairs of real and imaginary parts, also of real matrices. Eigenvalues ascend by their real, then by their imaginary
    parts. The element of an eigenvector with the largest magnitude is real and positive. Without `vectors` the rows are
    undefined. `work` [.., 2, n, n] and `work_rows` [.., 3, n] are the kernel's work memory, 0 at the end.
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
    REAL_RESULTS: ClassVar[Collection[str]] = ("real", "imag", "rows_real", "rows_imag")

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element, parts = self.square_matrix_shape(self.x), element_type_of(self.x), self.parts
        shapes = (n,), (n,), (n, n), (n, n), (*parts, 2, n, n), (*parts, 3, n)
        return [tensor_type((*leading, *axes), element) for axes in shapes]

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
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
        return (*(_or_nan(is_finite, part).astype(np.real(x).dtype) for part in parts), *work)


@irdl_op_definition
class SvdOp(MatrixFactorization):
    """Singular value decomposition: `rotations` [.., n, n] @ `x` [.., n, m] is `rows` [.., n, m], which are orthogonal.

    `values` [.., n] are the lengths of the rows, descending: the singular values of `x`. `rotations` is unitary, with rows v
    of which Σ v_j / (j + 1) is real and not negative. The method, one-sided Jacobi rotations, computes small singular values to
    high relative accuracy.
    (C1) `x` is f32 or f64, with no more rows than columns. NaN propagates.
    """

    name = "dl.svd"
    x = operand_def(TensorType)
    values = result_def(TensorType)
    rows = result_def(TensorType)
    rotations = result_def(TensorType)
    REAL_RESULTS: ClassVar[Collection[str]] = ("values",)

    def infer(self) -> Sequence[Tensor]:
        (leading, n, m), element, parts = self.matrix_shape(self.x), element_type_of(self.x), self.parts
        if is_known_less(m, n):
            raise ShapeError(f"{self.name}: {n} rows and {m} columns; expected no more rows than columns, transpose x (C1)")
        return [tensor_type((*leading, *axes), element) for axes in ((n,), (*parts, n, m), (*parts, n, n))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        *_, n, m = shape_of(self.x)
        return (m - n,)

    def factorize(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        is_finite = np.asarray(np.isfinite(x).all((-2, -1)))
        u, s, v = np.linalg.svd(np.where(is_finite[..., None, None], x, 0), full_matrices=False)
        rotations = np.conj(u.mT)
        phase = orientation(rotations)
        return _or_nan(is_finite, s), _or_nan(is_finite, s[..., None] * v * phase), _or_nan(is_finite, rotations * phase)


def orientation(rows: Array) -> Array:
    """Return the number of modulus 1 for each row v that makes Σ v_j / (j + 1) real and not negative."""
    divisors = np.arange(1, int(rows.shape[-1]) + 1)
    total = (rows / divisors).sum(-1)[..., None]
    return np.where(total == 0, 1, np.conj(total) / np.where(total == 0, 1, np.abs(total))).astype(rows.dtype)


def _or_nan(is_finite: Array, x: Array) -> Array:
    """Return the results of matrices whose elements are finite, and NaN for the others."""
    return np.where(is_finite.reshape(is_finite.shape + (1,) * (x.ndim - is_finite.ndim)), x, np.nan).astype(x.dtype)
