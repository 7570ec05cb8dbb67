"""Integrals of functions of one variable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard, cast

import numpy as np

from dlc import lax
from dlc.errors import DlcError, ShapeError
from dlc.numpy import (
    abs,
    arange,
    argmax,
    at,
    less,
    less_equal,
    logical_and,
    logical_not,
    max,
    maximum,
    reshape,
    sum,
    where,
    zeros,
)
from dlc.numpy.apply import ArrayLike, convert, operand, promote_to_float, refuse
from dlc.solve.results import RESULTS, Solution, failure_unless
from dlc.solve.vectors import require_tolerances
from dlc.traced_functions.derivatives import constant

__all__ = ["quad"]

# Nodes of the 15-point Kronrod rule from 1 to 0, its weights, and the weights of the 7-point Gauss rule at every second node
# (Piessens et al., QUADPACK, 1983).
_NODES = (
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
    0.741531185599394439863864773280788, 0.586087235467691130294144691693013, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
)  # fmt: skip
_KRONROD_WEIGHTS = (
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
    0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
)  # fmt: skip
_GAUSS_WEIGHTS = (
    0.129484966168869693270611432679082, 0.279705391489276667901467771423780, 0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
)  # fmt: skip
NODES = np.array([*_NODES, *(-x for x in _NODES[-2::-1])])
KRONROD_WEIGHTS = np.array([*_KRONROD_WEIGHTS, *_KRONROD_WEIGHTS[-2::-1]])
GAUSS_WEIGHTS = np.zeros(15)
GAUSS_WEIGHTS[1::2] = [*_GAUSS_WEIGHTS, *_GAUSS_WEIGHTS[-2::-1]]


def quad(
    fn: Callable[[Any, Any], Any],
    lower: ArrayLike,
    upper: ArrayLike,
    args: Any = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    max_intervals: int = 64,
) -> Solution:
    """Return the integral of fn(x, args) over x from `lower` to `upper`.

    Limits may be the numbers ±inf: x is then a rational function of a variable on a finite interval. Traced limits are finite.
    `fn` is called with a vector of points and returns values along axis 0, one for each point. The interval with the largest
    estimated error is halved until the sum of the errors is at most max(atol, rtol · |integral|), or there are `max_intervals`.
    Differentiable with respect to the limits, `args` and all values that `fn` closes over, for constant relative intervals.

    Raises ShapeError for limits with axes and for a wrong number of values, and ArgumentError for a negative tolerance.
    """
    require_tolerances("dlc.solve.quad", rtol=rtol, atol=atol)
    if _is_infinite(lower) or _is_infinite(upper):
        substituted, sign, first, last = _finite_interval(fn, lower, upper)
        solution = quad(substituted, first, last, args, rtol=rtol, atol=atol, max_intervals=max_intervals)
        return solution._replace(value=sign * solution.value)
    limits: list[Any] = promote_to_float(lower, upper, min_dtype=np.float32)
    low, high = limits
    for name, limit in (("lower", low), ("upper", high)):
        if limit.shape:
            refuse(ShapeError(f"dlc.solve.quad: {name} has shape {limit.shape}; expected a scalar"))

    def values_at(points: Any) -> Any:
        values = operand(fn(points, args))
        if values.shape[:1] != points.shape:
            expected = f"({points.shape[0]}, …), a value for each point"
            refuse(ShapeError(f"dlc.solve.quad: fn returned an array of shape {values.shape}; expected {expected}"))
        return convert(values, low.dtype)

    def integrals(lower: Any, upper: Any) -> tuple[Any, Any]:
        """Return the integrals over intervals and their estimated errors."""
        center, half = (lower + upper) / 2, (upper - lower) / 2
        points = center[:, None] + half[:, None] * np.asarray(NODES, low.dtype)
        values = reshape(values_at(points.reshape(-1)), (*points.shape, -1))
        weights = [np.asarray(w[:, None], low.dtype) for w in (KRONROD_WEIGHTS, GAUSS_WEIGHTS)]
        kronrod, gauss = (sum(values * w, axis=1) * half[:, None] for w in weights)
        return kronrod, max(abs(kronrod - gauss), axis=1)

    def halve(state: Any) -> Any:
        """Halve the interval with the largest error."""
        starts, widths, totals, errors, count = state
        worst = argmax(errors)
        half = widths[worst] / 2
        starts = at(starts)[count].set(starts[worst] + half)
        widths = at(at(widths)[worst].set(half))[count].set(half)
        pair = at(starts[worst] + zeros(2, low.dtype))[1].set(starts[count])
        new_totals, new_errors = integrals(low + pair * span, low + (pair + half) * span)
        totals = at(at(totals)[worst].set(new_totals[0]))[count].set(new_totals[1])
        errors = at(at(errors)[worst].set(new_errors[0]))[count].set(new_errors[1])
        return starts, widths, totals, errors, count + 1

    def is_accurate(totals: Any, errors: Any) -> Any:
        return less_equal(sum(errors), maximum(atol, rtol * max(abs(sum(totals, axis=0)))))

    def partition() -> Any:
        """Return the starts and widths of the intervals relative to the whole, whether they are accurate, and their number."""
        first_total, first_error = integrals(low[None], high[None])
        starts, widths = zeros(max_intervals, low.dtype), at(zeros(max_intervals, low.dtype))[0].set(1)
        totals = at(zeros((max_intervals, first_total.shape[1]), low.dtype))[0].set(first_total[0])
        errors = at(zeros(max_intervals, low.dtype))[0].set(first_error[0])
        state = lax.while_loop(
            lambda s: logical_and(logical_not(is_accurate(s[2], s[3])), less(s[4], max_intervals)),
            halve,
            (starts, widths, totals, errors, 1),
        )
        return state[0], state[1], is_accurate(state[2], state[3]), state[4]

    span = high - low
    starts, widths, converged, count = constant("dlc.solve.quad", partition)
    is_used = arange(max_intervals) < count
    # Unused entries repeat the first interval with weight 0, so that `fn` is not evaluated outside of the limits.
    starts, widths = where(is_used, starts, starts[0]), where(is_used, widths, widths[0])
    totals, _ = integrals(low + starts * span, low + (starts + widths) * span)
    total = sum(where(is_used[:, None], totals, 0), axis=0)
    shape = values_at((low + span / 2)[None]).shape[1:]
    return Solution(total.reshape(shape), failure_unless(converged, RESULTS.max_steps_reached), {"num_steps": count})


def _is_infinite(limit: ArrayLike) -> TypeGuard[float]:
    return isinstance(limit, float | np.floating) and math.isinf(cast(float, limit))


def _finite_interval(
    fn: Callable[[Any, Any], Any], lower: ArrayLike, upper: ArrayLike
) -> tuple[Callable[[Any, Any], Any], int, Any, Any]:
    """Substitute x by a function of t on a finite interval; return the new integrand, its sign and its limits.

    x = t / (1 - t²) for t from -1 to 1, or x = end ± t / (1 - t) for t from 0 to 1.
    """
    if _is_infinite(lower) and _is_infinite(upper):
        if lower == upper:
            refuse(DlcError(f"dlc.solve.quad: both limits are {lower}; expected different ones if both are infinite"))

        def over_all_numbers(t: Any, args: Any) -> Any:
            rest = 1 - t * t
            return _weighted(fn(t / rest, args), (1 + t * t) / (rest * rest))

        return over_all_numbers, 1 if lower < upper else -1, -1.0, 1.0
    is_lower_finite = not _is_infinite(lower)
    ends: list[Any] = promote_to_float(lower if is_lower_finite else upper, min_dtype=np.float32)
    (end,) = ends
    direction = 1 if cast(float, upper if is_lower_finite else lower) > 0 else -1

    def from_end(t: Any, args: Any) -> Any:
        return _weighted(fn(end + direction * t / (1 - t), args), 1 / ((1 - t) * (1 - t)))

    # dx is direction · dt / (1 - t)², and the limits are exchanged if the upper one is finite.
    return from_end, direction if is_lower_finite else -direction, 0 * end, 0 * end + 1


def _weighted(values: Any, weights: Any) -> Any:
    """Multiply values along axis 0 by weights."""
    values = operand(values)
    return values * weights.reshape((-1, *(1 for _ in values.shape[1:]))) if values.shape else values
