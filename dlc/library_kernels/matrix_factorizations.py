"""Batched matrix factorizations: a task computes some matrices of the batch, or some columns of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import flag
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.kernels.references import ArrayReference
from dlc.library_kernels.eigenvalues import eigh, svd
from dlc.library_kernels.elements import ComplexReference
from dlc.library_kernels.elimination import cholesky, lu, triangular_solve
from dlc.library_kernels.general_eigenvalues import eig
from dlc.library_kernels.reflections import REFLECTED_ROWS, householder, orthogonal
from dlc.library_kernels.vectors import Index, column_grid, if_size, lanes_of, points_per_task


def _elements(op: dl.MatrixFactorization, problem: Index, arrays: Sequence[ArrayReference]) -> list[Any]:
    """Return references to the operands and results of one problem, with complex elements where they have parts."""
    values = zip((*op.operands, *op.results), (x[problem] for x in arrays), strict=True)
    return [ComplexReference(x[0], x[1]) if op.has_parts(value) else x for value, x in values]


def _per_matrix(
    factorize: Callable[..., None], multiply_adds: Callable[[Any, Any], Any], *, min_rows: int = 0
) -> Callable[..., None]:
    """Return the loops of an op that factors one matrix of at least `min_rows` per point, in `multiply_adds(rows, columns)`."""

    def factorize_batch(op: Any, *arrays: ArrayReference) -> None:
        n, m = arrays[0].shape[-2:]
        settings = {"with_vectors": flag(op.vectors)} if isinstance(op, dl.EighOp | dl.EigOp) else {}
        for problem in k.grid(arrays[0].shape[0], parallel=points_per_task(multiply_adds(n, m))):
            for _ in if_size(n, min_rows):
                factorize(*_elements(op, problem, arrays), **settings)

    return factorize_batch


def _triangular_solve(op: dl.TriangularSolveOp, a: ArrayReference, b: ArrayReference, x: ArrayReference) -> None:
    """Solve for some columns per task, since columns are independent."""
    n, columns = b.shape[-2:]
    for problem, column, width in column_grid(
        x.shape[0], columns=columns, width=lanes_of(x.dtype), work=n * n // 2, is_masked=True
    ):
        elements = _elements(op, problem, (a, b, x))
        triangular_solve(*elements, column=column, width=width, lower=flag(op.lower), unit=flag(op.unit))


def _orthogonal(op: dl.OrthogonalOp, vectors: ArrayReference, scales: ArrayReference, result: ArrayReference) -> None:
    """Compute some columns of Q per task, since columns are independent."""
    n, m = vectors.shape[-2:]
    for problem, first, height in column_grid(vectors.shape[0], columns=result.shape[-2], width=REFLECTED_ROWS, work=2 * n * m):
        orthogonal(*_elements(op, problem, (vectors, scales, result)), first=first, height=height)


RULES: dict[type[LibraryKernel], Callable[..., None]] = {
    dl.LuOp: _per_matrix(lu, lambda n, m: n**3 // 3),
    dl.TriangularSolveOp: _triangular_solve,
    dl.CholeskyOp: _per_matrix(cholesky, lambda n, m: n**3 // 6),
    dl.HouseholderOp: _per_matrix(householder, lambda n, m: 2 * n * m * m),
    dl.OrthogonalOp: _orthogonal,
    dl.EighOp: _per_matrix(eigh, lambda n, m: 4 * n**3, min_rows=1),
    dl.EigOp: _per_matrix(eig, lambda n, m: 20 * n**3, min_rows=1),
    dl.SvdOp: _per_matrix(svd, lambda n, m: 20 * n * n * m),
}
