"""Linear systems solved by factorizations of a matrix, and operators with few diagonals."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from dlc import lax
from dlc.errors import ShapeError
from dlc.numpy import concat, diag, diagonal, linalg, zeros
from dlc.numpy.apply import ArrayLike, operand, refuse
from dlc.numpy.decompositions import triangular_solve

__all__ = ["LU", "QR", "Cholesky", "Diagonal", "DiagonalLinearOperator", "Tridiagonal", "TridiagonalLinearOperator"]


class DiagonalLinearOperator(NamedTuple):
    """The product with a diagonal matrix."""

    diagonal: ArrayLike

    def __call__(self, x: Any) -> Any:
        """Return the product with a vector."""
        return operand(self.diagonal) * x

    def as_matrix(self) -> Any:
        """Return the dense matrix."""
        return diag(operand(self.diagonal))


class TridiagonalLinearOperator(NamedTuple):
    """The product with a matrix of three diagonals, of n, n - 1 and n - 1 elements."""

    diagonal: ArrayLike
    lower_diagonal: ArrayLike
    upper_diagonal: ArrayLike

    def __call__(self, x: Any) -> Any:
        """Return the product with a vector."""
        below, middle, above = self.padded()
        zero = zeros(1, x.dtype)
        return middle * x + below * concat([zero, x[:-1]]) + above * concat([x[1:], zero])

    def as_matrix(self) -> Any:
        """Return the dense matrix."""
        parts = ((self.lower_diagonal, -1), (self.diagonal, 0), (self.upper_diagonal, 1))
        first, second, third = (diag(operand(part), k) for part, k in parts)
        return first + second + third

    def padded(self) -> tuple[Any, Any, Any]:
        """Return the elements of each row to the left of the diagonal, on it and to the right: (n,) each, with zeros."""
        below, middle, above = (operand(d) for d in (self.lower_diagonal, self.diagonal, self.upper_diagonal))
        size = middle.shape[0]
        if (below.shape, middle.shape, above.shape) != ((size - 1,), (size,), (size - 1,)):
            shapes = f"{middle.shape}, {below.shape} and {above.shape}"
            refuse(ShapeError(f"dlc.solve.TridiagonalLinearOperator: got {shapes}; expected (n,), (n - 1,) and (n - 1,)"))
        zero = zeros(1, middle.dtype)
        return concat([zero, below]), middle, concat([above, zero])


LinearOperator: TypeAlias = DiagonalLinearOperator | TridiagonalLinearOperator


class LU(NamedTuple):
    """The LU factorization with partial pivoting."""

    def solve(self, matrix: Any, b: Any) -> Any:
        """Return the solution for a vector."""
        return linalg.solve(matrix, b)


class QR(NamedTuple):
    """The QR factorization; for more rows than columns, the solution of least squares."""

    def solve(self, matrix: Any, b: Any) -> Any:
        """Return the solution for a vector."""
        q, r = linalg.qr(matrix)
        return triangular_solve(r, (q.T @ b)[:, None], lower=False)[:, 0]


class Cholesky(NamedTuple):
    """The Cholesky factorization, for symmetric positive definite matrices."""

    def solve(self, matrix: Any, b: Any) -> Any:
        """Return the solution for a vector."""
        factor = linalg.cholesky(matrix)
        return triangular_solve(factor.T, triangular_solve(factor, b[:, None], lower=True), lower=False)[:, 0]


class Diagonal(NamedTuple):
    """Division by the diagonal, for diagonal matrices: O(n)."""

    def solve(self, matrix: Any, b: Any) -> Any:
        """Return the solution for a vector."""
        return b / (operand(matrix.diagonal) if isinstance(matrix, DiagonalLinearOperator) else diagonal(matrix))


class Tridiagonal(NamedTuple):
    """Gaussian elimination without pivoting, for matrices of three diagonals (Thomas, 1949): O(n)."""

    def solve(self, matrix: Any, b: Any) -> Any:
        """Return the solution for a vector."""
        if not isinstance(matrix, TridiagonalLinearOperator):
            matrix = TridiagonalLinearOperator(diagonal(matrix), diagonal(matrix, -1), diagonal(matrix, 1))

        def eliminate(previous: Any, row: Any) -> Any:
            below, middle, above, b = row
            pivot = middle - below * previous[0]
            result = above / pivot, (b - below * previous[1]) / pivot
            return result, result

        def substitute(x: Any, row: Any) -> Any:
            x = row[1] - row[0] * x
            return x, x

        zero = b[0] * 0
        _, rows = lax.scan(eliminate, (zero, zero), (*matrix.padded(), b))
        return lax.scan(substitute, zero, rows, reverse=True)[1]


DirectSolver: TypeAlias = LU | QR | Cholesky | Diagonal | Tridiagonal
