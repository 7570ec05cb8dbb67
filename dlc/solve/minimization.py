"""Minima of functions, by quasi-Newton methods and without derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlc import lax
from dlc.calculus.gradients import grad, value_and_grad
from dlc.errors import ShapeError
from dlc.numpy import (
    abs,
    concat,
    eye,
    greater,
    less,
    less_equal,
    logical_and,
    logical_not,
    max,
    outer,
    where,
    zeros,
)
from dlc.numpy.apply import operand, refuse
from dlc.solve.krylov_methods import CG, iterate
from dlc.solve.nelder_mead import NelderMead, shrink_simplex
from dlc.solve.results import Solution, iteration_result, split_aux
from dlc.solve.vectors import ravel, require_kind

__all__ = ["BFGS", "LBFGS", "minimise", "stationary_point"]


class BFGS(NamedTuple):
    """The quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno, with the dense inverse Hessian (n² numbers)."""

    gtol: float = 1e-6


class LBFGS(NamedTuple):
    """BFGS with the last `history` updates in place of the inverse Hessian (Nocedal, 1980)."""

    gtol: float = 1e-6
    history: int = 10


Minimizer: TypeAlias = BFGS | LBFGS | NelderMead


def minimise(
    fn: Callable[[Any, Any], Any], solver: Minimizer, y0: Any, args: Any = None, *, has_aux: bool = False, max_steps: int = 256
) -> Solution:
    """Return a local minimum y of the scalar fn(y, args), starting from `y0`, an array or a pytree.

    Iterations end when no component of the gradient exceeds `gtol`, those of `NelderMead` at `rtol` and `atol`. With `has_aux`,
    `fn` returns a pair of its value and a pytree, the `aux` of the solution. Differentiable with respect to `args` and all
    values that `fn` closes over: the derivative solves a linear system with the Hessian, which must be positive definite at the
    minimum.

    Raises ShapeError for a value of `fn` with axes.
    """
    api_name = "dlc.solve.minimise"
    require_kind(api_name, "solver", solver, BFGS, LBFGS, NelderMead)
    guess, unravel = ravel(api_name, y0)
    value_of, aux_of = split_aux(api_name, fn, args, has_aux)

    def objective(x: Any) -> Any:
        value = operand(value_of(unravel(x)))
        if value.shape:
            refuse(ShapeError(f"{api_name}: fn returned an array of shape {value.shape}; expected a scalar"))
        return value

    def solve(_: Any, x: Any) -> Any:
        if isinstance(solver, NelderMead):
            return shrink_simplex(objective, x, solver, max_steps)
        direction = _dense_direction if isinstance(solver, BFGS) else _limited_direction
        return _descend(objective, x, *direction(solver, x), solver.gtol, max_steps)

    return stationary_point(grad(objective), guess, unravel, aux_of, solve)


def stationary_point(
    gradient: Callable[[Any], Any],
    guess: Any,
    unravel: Callable[[Any], Any],
    aux_of: Callable[[Any], Any],
    solve: Callable[[Any, Any], Any],
) -> Solution:
    """Solve for a zero of a gradient, whose derivative is symmetric."""

    def tangent_solve(hessian: Callable[[Any], Any], y: Any) -> Any:
        solver, limit = CG(rtol=_TANGENT_ERROR_RATIO), 10 * y.shape[0]
        return lax.custom_linear_solve(hessian, y, lambda matvec, b: iterate(matvec, b, solver, limit)[0], symmetric=True)

    vector, (converged, num_steps) = lax.custom_root(gradient, guess, solve, tangent_solve, has_aux=True)
    value = unravel(vector)
    return Solution(value, iteration_result(converged, vector), {"num_steps": num_steps}, aux_of(value))


_TANGENT_ERROR_RATIO = 1e-10
# Wolfe conditions: the minimum ratio of the decrease to the linear one, and the maximum ratio of the slopes.
_DECREASE_RATIO, _SLOPE_RATIO = 1e-4, 0.9
_MAX_SEARCH_STEPS = 50


def _descend(
    objective: Callable[[Any], Any], x: Any, memory: Any, direction_of: Any, update: Any, gtol: float, max_steps: int
) -> tuple[Any, tuple[Any, Any]]:
    """Take steps along descent directions, of lengths that meet Wolfe's conditions (by bisection: Lewis and Overton, 2013).

    `direction_of(memory, gradient)` is a direction, and `update(memory, step, change)` the next memory for a step and the
    change of the gradient along it.
    """
    evaluate = value_and_grad(objective)

    def is_running(state: Any) -> Any:
        _, _, gradient, _, k, is_stuck = state
        return logical_and(greater(max(abs(gradient)), gtol), logical_and(less(k, max_steps), logical_not(is_stuck)))

    def step(state: Any) -> Any:
        x, value, gradient, memory, k, _ = state
        direction = direction_of(memory, gradient)
        slope = direction @ gradient
        # Rounding can make this an ascent direction: then use steepest descent.
        direction, slope = where(slope < 0, direction, -gradient), where(slope < 0, slope, -(gradient @ gradient))

        def try_scale(search: Any) -> Any:
            """Bisect between a scale that is too short and one that is too long; double it while none is too long."""
            scale, lower, upper, _, _, _, tries = search
            next_value, next_gradient = evaluate(x + scale * direction)
            is_long = logical_not(less_equal(next_value, value + _DECREASE_RATIO * scale * slope))
            is_short = logical_and(logical_not(is_long), less(next_gradient @ direction, _SLOPE_RATIO * slope))
            lower, upper = where(is_short, scale, lower), where(is_long, scale, upper)
            is_found = logical_not(is_long | is_short)
            next_scale = where(upper < math.inf, (lower + upper) / 2, 2 * scale)
            return where(is_found, scale, next_scale), lower, upper, next_value, next_gradient, is_found, tries + 1

        one = slope * 0 + 1
        initial = (one, one * 0, one * math.inf, value, gradient, np.asarray(False), 0)
        scale, lower, _, next_value, next_gradient, is_found, _ = lax.while_loop(
            lambda search: logical_and(logical_not(search[5]), less(search[6], _MAX_SEARCH_STEPS)), try_scale, initial
        )
        # If no scale meets both conditions, use the longest one with sufficient decrease; 0 ends the iterations.
        scale = where(is_found, scale, lower)
        next_x = x + scale * direction
        next_value, next_gradient = lax.cond(is_found, lambda: (next_value, next_gradient), lambda: evaluate(next_x))
        memory = update(memory, next_x - x, next_gradient - gradient)
        return next_x, next_value, next_gradient, memory, k + 1, scale == 0

    value, gradient = evaluate(x)
    state = lax.while_loop(is_running, step, (x, value, gradient, memory, 0, np.asarray(False)))
    return state[0], (max(abs(state[2])) <= gtol, state[4])


def _dense_direction(solver: Any, x: Any) -> tuple[Any, Any, Any]:
    def update(inverse: Any, step: Any, change: Any) -> Any:
        curvature = step @ change
        is_convex = curvature > 0
        rho = 1 / where(is_convex, curvature, 1)
        left = eye(x.shape[0], dtype=x.dtype) - rho * outer(step, change)
        return where(is_convex, left @ inverse @ left.T + rho * outer(step, step), inverse)

    def direction(inverse: Any, gradient: Any) -> Any:
        return -(inverse @ gradient)

    return eye(x.shape[0], dtype=x.dtype), direction, update


def _limited_direction(solver: Any, x: Any) -> tuple[Any, Any, Any]:
    def direction(memory: Any, gradient: Any) -> Any:
        """Apply the updates of the history to the gradient, from the last to the first and back (two-loop recursion)."""
        steps, changes, weights = memory
        q, scales = gradient, list[Any]()
        for k in range(solver.history):
            scales.append(weights[k] * (steps[k] @ q))
            q = q - scales[k] * changes[k]
        square = changes[0] @ changes[0]
        q = q * where(weights[0] > 0, (steps[0] @ changes[0]) / where(square > 0, square, 1), 1)
        for k in reversed(range(solver.history)):
            q = q + (scales[k] - weights[k] * (changes[k] @ q)) * steps[k]
        return -q

    def update(memory: Any, step: Any, change: Any) -> Any:
        curvature = step @ change
        is_convex = curvature > 0
        weight = 1 / where(is_convex, curvature, 1)
        pushed = [concat([v[None], old[:-1]]) for v, old in zip((step, change, weight), memory, strict=True)]
        return tuple(where(is_convex, new, old) for new, old in zip(pushed, memory, strict=True))

    empty = zeros((solver.history, x.shape[0]), x.dtype)
    return (empty, empty, zeros(solver.history, x.dtype)), direction, update
