"""Minima of functions without derivatives: the downhill simplex method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dlc import lax
from dlc.calculus.batching import vmap
from dlc.numpy import abs, all, argsort, at, concat, eye, less, logical_and, logical_not, mean, minimum, take, where

__all__ = ["NelderMead", "shrink_simplex"]


class NelderMead(NamedTuple):
    """The simplex method of Nelder and Mead (1965), which evaluates the function only.

    It ends where all corners and their values are within atol + rtol · |best| of the best ones.
    """

    rtol: float = 1e-6
    atol: float = 1e-6


# The first simplex: each unknown is changed by a part of its value and a small constant, as in SciPy.
_RELATIVE_CHANGE, _CHANGE = 0.05, 0.00025


def shrink_simplex(objective: Callable[[Any], Any], x: Any, solver: NelderMead, max_steps: int) -> tuple[Any, tuple[Any, Any]]:
    """Replace the worst corner of a simplex until it is small; return the best one, whether it converged, and the steps."""

    def step(state: Any) -> Any:
        corners, values, k = state
        center = mean(corners[:-1], axis=0)
        away = center - corners[-1]
        reflected = center + away
        reflected_value = objective(reflected)
        is_best, is_good = reflected_value < values[0], reflected_value < values[-2]
        # Expand past a best reflection; contract between the center and the better one of the reflection and the worst corner.
        scale = where(is_best, 2.0, where(reflected_value < values[-1], 0.5, -0.5)).astype(x.dtype)
        other = center + scale * away
        is_reflected = logical_and(is_good, logical_not(is_best))
        other_value = lax.cond(is_reflected, lambda: reflected_value, lambda: objective(other))
        is_other_better = logical_and(logical_not(is_reflected), other_value < minimum(reflected_value, values[-1]))
        corner = where(is_other_better, other, reflected)
        value = where(is_other_better, other_value, reflected_value)

        def shrink() -> Any:
            shrunk = corners[0] + (corners - corners[0]) / 2
            return shrunk, vmap(objective)(shrunk)

        def replace() -> Any:
            return at(corners)[-1].set(corner), at(values)[-1].set(value)

        return *_sorted(*lax.cond(logical_and(logical_not(is_good), logical_not(is_other_better)), shrink, replace)), k + 1

    def is_small(corners: Any, values: Any) -> Any:
        is_near = abs(corners - corners[0]) <= solver.atol + solver.rtol * abs(corners[0])
        return logical_and(all(is_near), all(abs(values - values[0]) <= solver.atol + solver.rtol * abs(values[0])))

    def is_running(state: Any) -> Any:
        return logical_and(logical_not(is_small(state[0], state[1])), less(state[2], max_steps))

    corners = concat([x[None], x + eye(x.shape[0], dtype=x.dtype) * (_RELATIVE_CHANGE * x + _CHANGE)])
    corners, values, k = lax.while_loop(is_running, step, (*_sorted(corners, vmap(objective)(corners)), 0))
    return corners[0], (is_small(corners, values), k)


def _sorted(corners: Any, values: Any) -> tuple[Any, Any]:
    order = argsort(values)
    return take(corners, order, axis=0), take(values, order)
