"""Nonlinear least squares: Gauss-Newton steps, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from dlc import lax
from dlc.calculus.jacobians import jacfwd
from dlc.calculus.linear_maps import vjp
from dlc.numpy import abs, all, diag, isfinite, isnan, less, linalg, logical_and, logical_not, max, maximum, sqrt, where
from dlc.numpy.apply import convert
from dlc.solve.minimization import stationary_point
from dlc.solve.results import Solution, split_aux
from dlc.solve.vectors import ravel, require_kind

__all__ = ["Dogleg", "GaussNewton", "LevenbergMarquardt", "least_squares"]


class Steps(NamedTuple):
    """The steps of a method, limited by a number that it adapts.

    Attributes:
        limit: The first value of the limit.
        propose: The step for a Jacobian, residuals and a limit.
        adapt: Whether a step is accepted, and the next limit, for a limit, a step and the ratio of the actual to the predicted
            reduction of the sum of squares.
        is_exhausted: Whether steps with a limit are below the spacing of floats.
    """

    limit: float
    propose: Callable[[Any, Any, Any], Any]
    adapt: Callable[[Any, Any, Any], tuple[Any, Any]]
    is_exhausted: Callable[[Any], Any]


class GaussNewton(NamedTuple):
    """Full steps to the minimum of the linearized residuals."""

    gtol: float = 1e-8

    def steps(self) -> Steps:
        """Return the rule of the steps."""

        def propose(jacobian: Any, value: Any, limit: Any) -> Any:
            return _newton_step(jacobian, value)

        def adapt(limit: Any, step: Any, ratio: Any) -> tuple[Any, Any]:
            return isfinite(ratio), limit

        return Steps(0.0, propose, adapt, isnan)


class LevenbergMarquardt(NamedTuple):
    """Gauss-Newton steps, damped by the diagonal of JᵀJ where a step does not reduce the sum of squares."""

    gtol: float = 1e-8

    def steps(self) -> Steps:
        """Return the rule of the steps."""

        def propose(jacobian: Any, value: Any, damping: Any) -> Any:
            normal = jacobian.T @ jacobian
            diagonal = diag(normal)
            damped = normal + diag(damping * where(diagonal > 0, diagonal, 1))
            return -linalg.solve(damped, jacobian.T @ value)

        def adapt(damping: Any, step: Any, ratio: Any) -> tuple[Any, Any]:
            return ratio > 0, where(ratio > 0, damping / 10, damping * 10)

        def is_exhausted(damping: Any) -> Any:
            return damping >= _MAX_DAMPING_FACTOR

        return Steps(1e-3, propose, adapt, is_exhausted)


class Dogleg(NamedTuple):
    """Steps within a trust region: along the gradient, then towards the Gauss-Newton step (Powell, 1970)."""

    gtol: float = 1e-8

    def steps(self) -> Steps:
        """Return the rule of the steps."""

        def propose(jacobian: Any, value: Any, radius: Any) -> Any:
            newton, gradient = _newton_step(jacobian, value), jacobian.T @ value
            square, slope = gradient @ gradient, jacobian @ gradient
            curvature = slope @ slope
            cauchy = -gradient * square / where(curvature > 0, curvature, 1)
            bend = newton - cauchy
            # The positive root s of |cauchy + s · bend| = radius.
            a, b, c = bend @ bend, cauchy @ bend, cauchy @ cauchy - radius * radius
            root = (sqrt(maximum(b * b - a * c, 0)) - b) / where(a > 0, a, 1)
            steepest = -gradient * radius / where(square > 0, sqrt(square), 1)
            return where(newton @ newton <= radius * radius, newton, where(c >= 0, steepest, cauchy + root * bend))

        def adapt(radius: Any, step: Any, ratio: Any) -> tuple[Any, Any]:
            length = sqrt(step @ step)
            return ratio > 0, where(ratio > 0.75, maximum(radius, 3 * length), where(ratio >= 0.25, radius, length / 4))

        def is_exhausted(radius: Any) -> Any:
            return logical_not(radius > _MIN_RADIUS)

        return Steps(1.0, propose, adapt, is_exhausted)


LeastSquaresSolver: TypeAlias = GaussNewton | LevenbergMarquardt | Dogleg

# Steps with larger damping, or in a smaller region, are below the spacing of floats.
_MAX_DAMPING_FACTOR, _MIN_RADIUS = 1e16, 1e-30


def least_squares(
    fn: Callable[[Any, Any], Any],
    solver: LeastSquaresSolver,
    y0: Any,
    args: Any = None,
    *,
    has_aux: bool = False,
    max_steps: int = 256,
) -> Solution:
    """Return the y that minimises the sum of squares of fn(y, args), an array or a pytree of residuals, starting from `y0`.

    Iterations end when no component of half the gradient exceeds `gtol`; derivatives and `has_aux` are those of `minimise`.
    """
    api_name = "dlc.solve.least_squares"
    require_kind(api_name, "solver", solver, GaussNewton, LevenbergMarquardt, Dogleg)
    guess, unravel = ravel(api_name, y0)
    value_of, aux_of = split_aux(api_name, fn, args, has_aux)

    def residuals(x: Any) -> Any:
        return convert(ravel(api_name, value_of(unravel(x)))[0], guess.dtype)

    def gradient(x: Any) -> Any:
        value, pull = vjp(residuals, x)
        return pull(value)[0]

    return stationary_point(gradient, guess, unravel, aux_of, lambda _, x: _descend(residuals, x, solver, max_steps))


def _newton_step(jacobian: Any, value: Any) -> Any:
    """Return the step to the minimum of the linearized residuals, the shortest one if there are several."""
    return -linalg.lstsq(jacobian, value)[0]


def _descend(
    residuals: Callable[[Any], Any], x: Any, solver: LeastSquaresSolver, max_steps: int
) -> tuple[Any, tuple[Any, Any]]:
    jacobian_of, steps = jacfwd(residuals), solver.steps()

    def advance(state: Any) -> Any:
        x, value, jacobian, limit, k = state
        step = steps.propose(jacobian, value, limit)
        candidate = x + step
        next_value = residuals(candidate)
        square, linear = value @ value, value + jacobian @ step
        predicted = square - linear @ linear
        # A reduction below rounding errors may be predicted as negative.
        ratio = (square - next_value @ next_value) / where(predicted > 0, predicted, 1)
        is_accepted, limit = steps.adapt(limit, step, ratio)
        next_x = where(is_accepted, candidate, x)
        next_jacobian = lax.cond(is_accepted, lambda: jacobian_of(next_x), lambda: jacobian)
        return next_x, where(is_accepted, next_value, value), next_jacobian, limit, k + 1

    def is_stationary(value: Any, jacobian: Any) -> Any:
        return max(abs(jacobian.T @ value)) <= solver.gtol

    def is_running(state: Any) -> Any:
        _, value, jacobian, limit, k = state
        is_stopped = is_stationary(value, jacobian) | steps.is_exhausted(limit) | logical_not(all(isfinite(value)))
        return logical_and(logical_not(is_stopped), less(k, max_steps))

    initial = (x, residuals(x), jacobian_of(x), x[0] * 0 + steps.limit, 0)
    x, value, jacobian, _, k = lax.while_loop(is_running, advance, initial)
    return x, (is_stationary(value, jacobian), k)
