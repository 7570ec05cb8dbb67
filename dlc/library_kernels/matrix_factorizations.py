"""Batched matrix factorizations: a task computes some matrices of the batch, or some columns of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, flag, number
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.kernels.references import ArrayReference
from dlc.library_kernels.eigenvalues import eigh, svd
from dlc.library_kernels.elimination import cholesky, lu, triangular_solve
from dlc.library_kernels.reflections import REFLECTED_ROWS, householder, orthogonal
from dlc.library_kernels.vectors import lanes_of, points_per_task, split_extent
from dlc.shapes.dims import UndecidableError


def _static_sizes(op: DlOp, sizes: Sequence[Any]) -> list[int]:
    """Return matrix sizes as ints; raise UndecidableError for symbolic ones."""
    if not all(isinstance(s, int) for s in sizes):
        raise UndecidableError(f"{op.name}: matrix sizes must be static, got {' × '.join(map(str, sizes))}")
    return list(sizes)


def _lu(op: dl.LuOp, *arrays: ArrayReference) -> None:
    n, _ = _static_sizes(op, arrays[0].shape[1:])
    for problem in k.grid(arrays[0].shape[0], parallel=points_per_task(n**3 // 3)):
        lu(*(x[problem] for x in arrays))


def _triangular_solve(op: dl.TriangularSolveOp, a: ArrayReference, b: ArrayReference, x: ArrayReference) -> None:
    """Solve for some columns per task, since columns are independent."""
    n, columns = _static_sizes(op, b.shape[1:])
    for first, width, count in split_extent(columns, lanes_of(x.dtype)):
        for problem, tile in k.grid(x.shape[0], count, parallel=points_per_task(n * n // 2 * width)):
            column = tile * width + first
            triangular_solve(a[problem], b[problem], x[problem], column, width, lower=flag(op.lower), unit=flag(op.unit))


def _cholesky(op: dl.CholeskyOp, x: ArrayReference, upper: ArrayReference) -> None:
    n, _ = _static_sizes(op, x.shape[1:])
    for problem in k.grid(x.shape[0], parallel=points_per_task(n**3 // 6)):
        cholesky(x[problem], upper[problem])


def _householder(op: dl.HouseholderOp, *arrays: ArrayReference) -> None:
    n, m = _static_sizes(op, arrays[0].shape[1:])
    for problem in k.grid(arrays[0].shape[0], parallel=points_per_task(2 * n * m * min(n, m))):
        householder(*(x[problem] for x in arrays))


def _orthogonal(op: dl.OrthogonalOp, vectors: ArrayReference, scales: ArrayReference, result: ArrayReference) -> None:
    """Compute some columns of Q per task, since columns are independent."""
    n, m = _static_sizes(op, vectors.shape[1:])
    for first, height, count in split_extent(int(number(op.count)), REFLECTED_ROWS):
        for problem, tile in k.grid(vectors.shape[0], count, parallel=points_per_task(2 * n * m * height)):
            orthogonal(vectors[problem], scales[problem], result[problem], tile * height + first, height)


def _eigh(op: dl.EighOp, x: ArrayReference, values: ArrayReference, vectors: ArrayReference) -> None:
    n, _ = _static_sizes(op, x.shape[1:])
    for problem in k.grid(x.shape[0], parallel=points_per_task(4 * n**3)):
        eigh(x[problem], values[problem], vectors[problem], with_vectors=flag(op.vectors))


def _svd(op: dl.SvdOp, *arrays: ArrayReference) -> None:
    n, m = _static_sizes(op, arrays[0].shape[1:])
    for problem in k.grid(arrays[0].shape[0], parallel=points_per_task(20 * n * n * m)):
        svd(*(x[problem] for x in arrays))


RULES: dict[type[LibraryKernel], Callable[..., None]] = {
    dl.LuOp: _lu,
    dl.TriangularSolveOp: _triangular_solve,
    dl.CholeskyOp: _cholesky,
    dl.HouseholderOp: _householder,
    dl.OrthogonalOp: _orthogonal,
    dl.EighOp: _eigh,
    dl.SvdOp: _svd,
}
