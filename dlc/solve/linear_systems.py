"""Linear systems: matrices and linear functions, direct and iterative solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dlc import lax
from dlc.calculus.batching import vmap
from dlc.calculus.linear_maps import vjp
from dlc.errors import DlcError, ShapeError
from dlc.numpy import all, eye, isfinite
from dlc.numpy.apply import ArrayLike, convert, operand, refuse
from dlc.solve.direct_linear_solvers import (
    LU,
    QR,
    Cholesky,
    Diagonal,
    DiagonalLinearOperator,
    DirectSolver,
    LinearOperator,
    Tridiagonal,
    TridiagonalLinearOperator,
)
from dlc.solve.krylov_methods import CG, GMRES, BiCGStab, IterativeSolver, iterate
from dlc.solve.results import RESULTS, Solution, failure_unless
from dlc.solve.vectors import flat, ravel, ravel_like, require_kind

__all__ = ["linear_solve"]

Matvec: TypeAlias = Callable[[Any], Any]

_GMRES = GMRES()


def linear_solve(
    operator: ArrayLike | Matvec | LinearOperator,
    vector: Any,
    solver: IterativeSolver | DirectSolver = _GMRES,
    *,
    y0: Any = None,
    preconditioner: ArrayLike | Matvec | None = None,
    max_steps: int | None = None,
) -> Solution:
    """Return the solution x of operator(x) = vector.

    `operator` is a matrix, an operator with few diagonals, or a linear function of pytrees like `vector`. Differentiable with
    respect to `vector` and all values that the operator uses.

    `CG`, `BiCGStab` and `GMRES` start from `y0`, by default 0. They end when the residual norm is at most
    max(rtol · |vector|, atol), or after `max_steps` products with the operator, by default ten for each unknown; GMRES
    completes the products between two restarts. `preconditioner`, an operator, approximates the inverse of `operator`; for `CG`
    it is symmetric and positive definite. The other solvers factor the matrix of the operator; `QR` solves least squares for a
    matrix of more rows than columns.

    Raises ShapeError for a matrix that does not fit the vector, and DlcError for options of iterations with a direct solver.
    """
    api_name = "dlc.solve.linear_solve"
    require_kind(api_name, "solver", solver, CG, BiCGStab, GMRES, LU, QR, Cholesky, Diagonal, Tridiagonal)
    right_side, unravel = ravel(api_name, vector)
    size = right_side.shape[0]
    if not isinstance(solver, CG | BiCGStab | GMRES):
        if y0 is not None or preconditioner is not None or max_steps is not None:
            options = "y0, preconditioner and max_steps"
            refuse(
                DlcError(
                    f"{api_name}: {type(solver).__name__} is a direct solver; {options} are options of CG, BiCGStab, GMRES"
                )
            )
        matrix = _matrix_of(api_name, operator, solver, unravel, right_side)
        value = solver.solve(matrix, right_side)
        result = failure_unless(all(isfinite(value)), RESULTS.singular)
        return Solution(unravel(value) if value.shape == right_side.shape else value, result, {"num_steps": 0})
    matvec = _product(api_name, "operator", operator, unravel, right_side)
    limit = 10 * size if max_steps is None else max_steps
    start = None if y0 is None else ravel_like(api_name, y0, unravel(right_side), right_side.dtype)
    precondition = None
    if preconditioner is not None:
        precondition = _product(api_name, "preconditioner", preconditioner, unravel, right_side)

    def solve(matvec: Matvec, b: Any) -> Any:
        return iterate(matvec, b, solver, limit, start, precondition)

    def transposed_precondition(x: Any) -> Any:
        assert precondition is not None
        return vjp(precondition, x)[1](x)[0]

    def transpose_solve(matvec: Matvec, b: Any) -> Any:
        is_symmetric = precondition is None or isinstance(solver, CG)
        return iterate(matvec, b, solver, limit, None, precondition if is_symmetric else transposed_precondition)

    value, (converged, num_steps) = lax.custom_linear_solve(
        matvec, right_side, solve, transpose_solve=transpose_solve, symmetric=isinstance(solver, CG), has_aux=True
    )
    return Solution(unravel(value), failure_unless(converged, RESULTS.max_steps_reached), {"num_steps": num_steps})


def _product(api_name: str, name: str, operator: Any, unravel: Callable[[Any], Any], like: Any) -> Matvec:
    """Return the product with an operator as a function of vectors like `like`."""
    if callable(operator):
        return flat(api_name, operator, unravel, like)
    matrix, size = operand(operator), like.shape[0]
    if matrix.shape != (size, size):
        refuse(ShapeError(f"{api_name}: {name} has shape {matrix.shape}; expected {(size, size)} for {size} unknowns"))
    return lambda x: matrix @ x


def _matrix_of(api_name: str, operator: Any, solver: DirectSolver, unravel: Callable[[Any], Any], like: Any) -> Any:
    """Return the matrix that a direct solver factors; `Diagonal` and `Tridiagonal` use operators with their structure."""
    size = like.shape[0]
    match solver, operator:
        case (Diagonal(), DiagonalLinearOperator()) | (Tridiagonal(), TridiagonalLinearOperator()):
            return operator
        case _:
            pass
    if isinstance(operator, DiagonalLinearOperator | TridiagonalLinearOperator):
        matrix = operator.as_matrix()
    elif callable(operator):
        return vmap(flat(api_name, operator, unravel, like))(eye(size, dtype=like.dtype)).T
    else:
        matrix = operand(operator)
    is_tall = isinstance(solver, QR) and len(matrix.shape) == 2 and matrix.shape[0] == size and matrix.shape[1] <= size
    if matrix.shape != (size, size) and not is_tall:
        refuse(ShapeError(f"{api_name}: operator has shape {matrix.shape}; expected {(size, size)} for {size} unknowns"))
    return convert(matrix, like.dtype)
