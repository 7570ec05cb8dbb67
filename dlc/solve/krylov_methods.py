"""Iterations for linear systems that only multiply by the operator: Krylov subspace methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import ml_dtypes

from dlc import lax
from dlc.numpy import abs, at, concat, greater, less, linalg, logical_and, max, maximum, sqrt, where, zeros

__all__ = ["CG", "GMRES", "BiCGStab", "IterativeSolver", "iterate"]

Matvec: TypeAlias = Callable[[Any], Any]


class CG(NamedTuple):
    """Conjugate gradients, for symmetric positive definite operators (Hestenes and Stiefel, 1952)."""

    rtol: float = 1e-6
    atol: float = 0.0


class BiCGStab(NamedTuple):
    """Stabilized biconjugate gradients (van der Vorst, 1992): two products per step, and memory for a few vectors."""

    rtol: float = 1e-6
    atol: float = 0.0


class GMRES(NamedTuple):
    """Generalized minimal residuals (Saad and Schultz, 1986), restarted after `restart` products."""

    rtol: float = 1e-6
    atol: float = 0.0
    restart: int = 20


IterativeSolver: TypeAlias = CG | BiCGStab | GMRES


def iterate(
    matvec: Matvec, b: Any, solver: IterativeSolver, max_steps: int, y0: Any = None, preconditioner: Matvec | None = None
) -> tuple[Any, tuple[Any, Any]]:
    """Return the solution for a vector, starting from `y0`, whether it converged, and the number of products."""
    # Solve for b / max|b|, since squares of the elements of b may underflow or overflow.
    largest = max(abs(b))
    scale = where(largest == 0, 1, largest)
    b = b / scale
    limit = maximum(solver.rtol * sqrt(b @ b), solver.atol / scale)
    start = None if y0 is None else y0 / scale
    residual = b if start is None else b - matvec(start)

    def precondition(x: Any) -> Any:
        return x if preconditioner is None else preconditioner(x)

    def preconditioned(x: Any) -> Any:
        return matvec(precondition(x))

    match solver:
        case CG():
            x, residual, steps = _conjugate_gradients(matvec, precondition, residual, limit, max_steps)
        case BiCGStab():
            x, residual, steps = _stabilized_biconjugate_gradients(preconditioned, residual, limit, max_steps)
            x = precondition(x)
        case GMRES(restart=restart):
            x, residual, steps = _minimal_residuals(preconditioned, residual, limit, max_steps, min(restart, b.shape[0]))
            x = precondition(x)
    x = x if start is None else start + x
    return x * scale, (sqrt(residual @ residual) <= limit, steps)


def _divide(x: Any, y: Any) -> Any:
    """Return x / y, and 0 where y is 0: residuals of a solved system are 0."""
    is_zero = y == 0
    return where(is_zero, 0, x / where(is_zero, 1, y))


def _conjugate_gradients(matvec: Matvec, precondition: Matvec, b: Any, limit: Any, max_steps: int) -> tuple[Any, Any, Any]:
    def step(state: Any) -> Any:
        x, direction, residual, square, k = state
        product = matvec(direction)
        scale = _divide(square, direction @ product)
        residual = residual - scale * product
        preconditioned = precondition(residual)
        next_square = residual @ preconditioned
        return x + scale * direction, preconditioned + _divide(next_square, square) * direction, residual, next_square, k + 1

    first = precondition(b)
    x, _, residual, _, k = lax.while_loop(
        lambda s: logical_and(greater(sqrt(s[2] @ s[2]), limit), less(s[4], max_steps)), step, (b * 0, first, b, b @ first, 0)
    )
    return x, residual, k


def _stabilized_biconjugate_gradients(matvec: Matvec, b: Any, limit: Any, max_steps: int) -> tuple[Any, Any, Any]:
    def step(state: Any) -> Any:
        x, direction, residual, rho, k = state
        product = matvec(direction)
        alpha = _divide(rho, b @ product)
        half = residual - alpha * product
        half_product = matvec(half)
        omega = _divide(half_product @ half, half_product @ half_product)
        residual = half - omega * half_product
        next_rho = b @ residual
        beta = _divide(next_rho, rho) * _divide(alpha, omega)
        direction = residual + beta * (direction - omega * product)
        return x + alpha * state[1] + omega * half, direction, residual, next_rho, k + 2

    state = (b * 0, b, b, b @ b, 0)
    x, _, residual, _, k = lax.while_loop(
        lambda s: logical_and(greater(sqrt(s[2] @ s[2]), limit), less(s[4], max_steps)), step, state
    )
    return x, residual, k


def _minimal_residuals(matvec: Matvec, b: Any, limit: Any, max_steps: int, restart: int) -> tuple[Any, Any, Any]:
    rounding = 4 * float(cast(Any, ml_dtypes.finfo)(b.dtype).eps)

    def cycle(state: Any) -> Any:
        x, residual, k = state
        norm = sqrt(residual @ residual)
        basis = concat([_divide(residual, norm)[None], zeros((restart, b.shape[0]), b.dtype)])

        def extend(j: Any, state: Any) -> Any:
            """Orthogonalize the next vector against the basis, twice, and append it (Arnoldi)."""
            basis, hessenberg = state
            product = matvec(basis[j])
            first = basis @ product
            orthogonal = product - first @ basis
            second = basis @ orthogonal
            orthogonal = orthogonal - second @ basis
            length = sqrt(orthogonal @ orthogonal)
            # If only rounding errors remain, the Krylov space is complete and contains the solution.
            length = where(length <= rounding * sqrt(product @ product), 0, length)
            column = at(first + second)[j + 1].set(length)
            return at(basis)[j + 1].set(_divide(orthogonal, length)), at(hessenberg)[:, j].set(column)

        initial = (basis, zeros((restart + 1, restart), b.dtype))
        basis, hessenberg = lax.fori_loop(0, restart, extend, initial)
        first = at(zeros(restart + 1, b.dtype))[0].set(norm)
        x = x + linalg.lstsq(hessenberg, first)[0] @ basis[:restart]
        return x, b - matvec(x), k + restart + 1

    return lax.while_loop(lambda s: logical_and(greater(sqrt(s[1] @ s[1]), limit), less(s[2], max_steps)), cycle, (b * 0, b, 0))
