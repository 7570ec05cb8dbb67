"""Factors of matrices, which are the last two axes; leading axes are many of them.

What a step does hangs on the steps before it, so that an element of a result is no formula of its own: the loops of these ops
are written by hand (`dlc/passes/procedures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, shape_of, tensor_type
from dlc.dialects.dl.contractions.contraction import differ
from dlc.dialects.dl.interfaces import Procedure
from dlc.dialects.dl.movement.shaping import known_less
from dlc.dims import Size, UndecidableError
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    BoolAttr,
    IntegerAttr,
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


def matrices(op: Procedure, value: SSAValue) -> tuple[tuple[Size, ...], Size, Size]:
    """The leading sizes, rows and columns of an operand of f32 or f64 matrices."""
    shape, element = shape_of(value), element_type_of(value)
    if element not in (f32, f64):
        raise DTypeError(f"{op.name}: matrices of {element}; cast them to f32 or f64")
    if len(shape) < 2:
        raise ShapeError(f"{op.name}: a tensor of shape {shape}; expected matrices along the last two axes")
    return shape[:-2], shape[-2], shape[-1]


def squares(op: Procedure, value: SSAValue) -> tuple[tuple[Size, ...], Size]:
    """The leading sizes and the rows of an operand of square matrices."""
    leading, rows, columns = matrices(op, value)
    if differ(rows, columns):
        raise ShapeError(f"{op.name}: matrices of {rows} × {columns}; expected square ones")
    return leading, rows


def smaller(op: Procedure, n: Size, m: Size) -> Size:
    """The smaller of two sizes.

    Raises UndecidableError if that hangs on what is open.
    """
    if n == m or known_less(n, m):
        return n
    if known_less(m, n):
        return m
    raise UndecidableError(f"{op.name}: is {n} < {m}?")


@irdl_op_definition
class LuOp(Procedure):
    """Square matrices as products of triangles: rows `order` of `x` are L·U.

    L, whose diagonal is 1, lies below the diagonal of `factors` [.., n, n], U from it on; `order` [.., n], i64, names a row of
    `x` for each row; `sign` [..] is 1 for an even number of exchanges, -1 for an odd one; `pivots` [.., n], i64, says
    with which row, from k on, step k exchanges row k. Each pivot is the largest element that is left of its column; a column
    that has none but zeros leaves 0 on the diagonal, with factors of 0.
    (C1) `x` is of f32 or f64, square in its last two axes. NaN spreads.
    """

    name = "dl.lu"
    x = operand_def(TensorType)
    factors = result_def(TensorType)
    order = result_def(TensorType)
    sign = result_def(TensorType)
    pivots = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element = squares(self, self.x), element_type_of(self.x)
        rows = tensor_type((*leading, n), i64)
        return [tensor_type((*leading, n, n), element), rows, tensor_type(leading, element), rows]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        n = x.shape[-1]
        factors: Array = x.reshape(prod(x.shape[:-2]), n, n).copy()
        each = np.arange(len(factors))
        order = np.zeros((len(factors), 1), np.int64) + np.arange(int(n))
        sign, pivots = np.ones(len(factors), x.dtype), np.zeros((len(factors), n), np.int64)
        for k in range(n):
            size = np.abs(factors[:, k:, k])
            pivot = k + np.argmax(np.where(np.isnan(size), -1, size), -1) * ~np.isnan(size[:, 0])
            for y in (factors, order):
                y[each, k], y[each, pivot] = y[each, pivot], y[each, k].copy()
            sign[pivot != k] *= -1
            pivots[:, k] = pivot
            head = factors[:, k, k]
            factors[:, k + 1 :, k] /= np.where(head == 0, 1, head)[:, None]
            factors[:, k + 1 :, k + 1 :] -= factors[:, k + 1 :, k, None] * factors[:, None, k, k + 1 :]
        rows = x.shape[:-1]
        return factors.reshape(x.shape), order.reshape(rows), sign.reshape(x.shape[:-2]), pivots.reshape(rows)


@irdl_op_definition
class TriangularSolveOp(Procedure):
    """The `x` for which T·x = `b` [.., n, m], T the upper triangle of `a` [.., n, n], or the `lower` one.

    With `unit` the diagonal of T is 1, whatever `a` holds; the other triangle of `a` is not read. A 0 on the diagonal gives
    infinities and NaN. (C1) `a` and `b` are of one type, f32 or f64; (C2) they have equal axes but the last, and `a` is
    square.
    """

    name = "dl.triangular_solve"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    lower = opt_prop_def(BoolAttr)
    unit = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), (others, rows, columns) = squares(self, self.a), matrices(self, self.b)
        if element_type_of(self.a) != element_type_of(self.b):
            raise DTypeError(f"{self.name}: a of {element_type_of(self.a)}, b of {element_type_of(self.b)} (C1)")
        sizes = zip((*leading, n), (*others, rows), strict=False)
        if len(leading) != len(others) or any(differ(p, q) for p, q in sizes):
            raise ShapeError(f"{self.name}: a {shape_of(self.a)} for b {shape_of(self.b)} (C2)")
        return [tensor_type((*leading, n, columns), element_type_of(self.b))]

    def reference(self, *operands: Array) -> Array:
        a, b = operands
        x, n = b.copy(), a.shape[-1]
        rows = range(n) if flag(self.lower) else range(n - 1, -1, -1)
        for k in rows:
            known = slice(0, k) if flag(self.lower) else slice(k + 1, n)
            x[..., k, :] -= (a[..., k, known, None] * x[..., known, :]).sum(-2)
            if not flag(self.unit):
                x[..., k, :] /= a[..., k, k, None]
        return x


@irdl_op_definition
class CholeskyOp(Procedure):
    """The upper triangular U for which Uᵀ·U = `x`, for symmetric, positive matrices, of which the upper triangle is read.

    The lower triangle of U is 0. Of a matrix that is not positive, U is NaN from the first row on that has no root.
    (C1) `x` is of f32 or f64, square in its last two axes.
    """

    name = "dl.cholesky"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        leading, n = squares(self, self.x)
        return [tensor_type((*leading, n, n), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        x = np.triu(operands[0])
        for k in range(x.shape[-1]):
            above = x[..., :k, :]
            x[..., k, k:] -= (above[..., k, None] * above[..., k:]).sum(-2)
            x[..., k, k:] /= np.sqrt(x[..., k, k, None])
        return x


@irdl_op_definition
class HouseholderOp(Procedure):
    """Matrices as Q·R by reflections, each held by its columns: row j of `x` [.., n, m] is column j of a matrix of m × n.

    Row j of `triangle` [.., n, m] is column j of R, 0 behind the diagonal. Reflection k of min(n, m) is
    1 - `scales`[k]·v·vᵀ with row k of `vectors` [.., min(n, m), m] as v, 0 before place k and 1 there; Q is their product, the
    first one leftmost. The diagonal of R has the signs that LAPACK gives it.
    (C1) `x` is of f32 or f64.
    """

    name = "dl.householder"
    x = operand_def(TensorType)
    triangle = result_def(TensorType)
    vectors = result_def(TensorType)
    scales = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        leading, n, m = matrices(self, self.x)
        element, k = element_type_of(self.x), smaller(self, n, m)
        return [tensor_type((*leading, *sizes), element) for sizes in ((n, m), (k, m), (k,))]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        triangle = operands[0].copy()
        *leading, n, m = triangle.shape
        vectors, scales = np.zeros((*leading, min(n, m), m), triangle.dtype), np.zeros((*leading, min(n, m)), triangle.dtype)
        for k in range(min(n, m)):
            row = triangle[..., k, k:]
            largest = np.max(np.abs(row), -1, keepdims=True)
            row = row / np.where(largest > 0, largest, 1)
            alpha, rest = row[..., 0], (row[..., 1:] ** 2).sum(-1)
            beta = -np.copysign(np.sqrt(alpha**2 + rest), alpha)
            vectors[..., k, k] = 1
            vectors[..., k, k + 1 :] = row[..., 1:] / np.where(rest == 0, 1, alpha - beta)[..., None]
            scales[..., k] = np.where(rest == 0, 0, (beta - alpha) / beta)
            left = np.where(rest == 0, triangle[..., k, k], beta * largest[..., 0])
            reflect(triangle[..., k:, :], vectors[..., k, :], scales[..., k])
            triangle[..., k, k:] = 0
            triangle[..., k, k] = left
        return triangle, vectors, scales


@irdl_op_definition
class OrthogonalOp(Procedure):
    """The first `count` columns of the Q whose reflections these are, as rows of the result [.., count, m].

    `vectors` [.., k, m] and `scales` [.., k] are as `dl.householder` gives them.
    (C1) they are of one type, f32 or f64; (C2) `count` is at least k and at most m.
    """

    name = "dl.orthogonal"
    vectors = operand_def(TensorType)
    scales = operand_def(TensorType)
    count = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, k, m), scales, count = matrices(self, self.vectors), shape_of(self.scales), int(number(self.count))
        if element_type_of(self.scales) != element_type_of(self.vectors):
            raise DTypeError(
                f"{self.name}: vectors of {element_type_of(self.vectors)}, scales of {element_type_of(self.scales)}"
            )
        if len(scales) != len(leading) + 1 or any(differ(p, q) for p, q in zip((*leading, k), scales, strict=True)):
            raise ShapeError(f"{self.name}: scales {scales} for vectors {shape_of(self.vectors)}")
        if known_less(count, k) or known_less(m, count):
            raise ShapeError(f"{self.name}: {count} columns of {k} reflections of {m} (C2)")
        return [tensor_type((*leading, count, m), element_type_of(self.vectors))]

    def reference(self, *operands: Array) -> Array:
        vectors, scales = operands
        *leading, k, m = vectors.shape
        result = np.broadcast_to(
            np.eye(int(number(self.count)), m, dtype=vectors.dtype), (*leading, int(number(self.count)), m)
        ).copy()
        for i in range(k - 1, -1, -1):
            reflect(result, vectors[..., i, :], scales[..., i])
        return result


def reflect(rows: Array, vector: Array, scale: Array) -> None:
    """Each row less `scale`·v times its product with v."""
    rows -= (scale[..., None] * (rows * vector[..., None, :]).sum(-1))[..., None] * vector[..., None, :]


@irdl_op_definition
class EighOp(Procedure):
    """Eigenvalues of symmetric matrices [.., n, n], ascending, and their eigenvectors as rows, of length 1.

    Of two opposite vectors v it is that of which Σ v_j / (j + 1) is not negative. Without `vectors` what the second result
    holds is not said.
    (C1) `x` is of f32 or f64, square in its last two axes, and symmetric. NaN spreads.
    """

    name = "dl.eigh"
    x = operand_def(TensorType)
    vectors = prop_def(BoolAttr)
    values = result_def(TensorType)
    rows = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n), element = squares(self, self.x), element_type_of(self.x)
        return [tensor_type((*leading, n), element), tensor_type((*leading, n, n), element)]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        finite = np.asarray(np.isfinite(x).all((-2, -1)))
        values, vectors = np.linalg.eigh(np.where(finite[..., None, None], x, 0))
        rows = vectors.mT * orientation(vectors.mT)
        return _or_nan(finite, values), _or_nan(finite, rows)


@irdl_op_definition
class SvdOp(Procedure):
    """Rows x [.., n, m] turned so that they are orthogonal: `turns` [.., n, n] @ `x` is `rows` [.., n, m].

    `values` [.., n] are their lengths, descending, the singular values of `x`; `turns` is orthogonal, with rows v of which
    Σ v_j / (j + 1) is not negative. Source: Jacobi's method from one side, which finds small values to their own precision.
    (C1) `x` is of f32 or f64, with no more rows than columns. NaN spreads.
    """

    name = "dl.svd"
    x = operand_def(TensorType)
    values = result_def(TensorType)
    rows = result_def(TensorType)
    turns = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (leading, n, m), element = matrices(self, self.x), element_type_of(self.x)
        if known_less(m, n):
            raise ShapeError(f"{self.name}: {n} rows of {m}; transpose it (C1)")
        return [tensor_type((*leading, *sizes), element) for sizes in ((n,), (n, m), (n, n))]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        finite = np.asarray(np.isfinite(x).all((-2, -1)))
        u, s, v = np.linalg.svd(np.where(finite[..., None, None], x, 0), full_matrices=False)
        sign = orientation(u.mT)
        return _or_nan(finite, s), _or_nan(finite, s[..., None] * v * sign), _or_nan(finite, u.mT * sign)


def orientation(rows: Array) -> Array:
    """1 or -1 for each row, with which Σ v_j / (j + 1) is not negative."""
    places = np.arange(1, int(rows.shape[-1]) + 1)
    total = np.vecdot(rows, 1 / places)
    return np.where(total[..., None] < 0, -1, 1).astype(rows.dtype)


def _or_nan(finite: Array, x: Array) -> Array:
    """The results of the problems whose operands are finite; NaN for the others."""
    return np.where(finite.reshape(finite.shape + (1,) * (x.ndim - finite.ndim)), x, np.nan).astype(x.dtype)
