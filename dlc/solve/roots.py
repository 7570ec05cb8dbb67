"""Roots and fixed points of functions, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlc import lax
from dlc.calculus.batching import vmap
from dlc.calculus.jacobians import jacfwd
from dlc.errors import ShapeError
from dlc.numpy import (
    abs,
    all,
    eye,
    greater,
    isfinite,
    less,
    linalg,
    logical_and,
    logical_not,
    max,
    maximum,
    reshape,
    sign,
    sum,
    where,
)
from dlc.numpy.apply import ArrayLike, convert, refuse
from dlc.solve.results import Solution, iteration_result, split_aux
from dlc.solve.vectors import flat, ravel, require_kind

__all__ = ["Bisection", "FixedPointIteration", "Newton", "dense_solve", "fixed_point", "root_find"]


class Newton(NamedTuple):
    """Newton's method with the dense Jacobian."""

    rtol: float = 1e-8
    atol: float = 1e-8


class Bisection(NamedTuple):
    """Bisection of an interval [lower, upper] in which a scalar function changes its sign."""

    lower: ArrayLike
    upper: ArrayLike
    rtol: float = 1e-8
    atol: float = 1e-8


class FixedPointIteration(NamedTuple):
    """The iteration y ← fn(y)."""

    rtol: float = 1e-8
    atol: float = 1e-8


RootFinder: TypeAlias = Newton | Bisection


def root_find(
    fn: Callable[[Any, Any], Any], solver: RootFinder, y0: Any, args: Any = None, *, has_aux: bool = False, max_steps: int = 256
) -> Solution:
    """Return the root y of fn(y, args), starting from `y0`, an array or a pytree; fn(y, args) has as many elements.

    Iterations end when the step is at most atol + rtol · |y| in the root-mean-square norm. Differentiable with respect to
    `args` and all values that `fn` closes over, not with respect to `y0`. With `has_aux`, `fn` returns a pair of its value and
    a pytree, the `aux` of the solution.

    Raises ShapeError for another number of values than unknowns, and for Bisection of more than one unknown.
    """
    require_kind("dlc.solve.root_find", "solver", solver, Newton, Bisection)
    guess, unravel = ravel("dlc.solve.root_find", y0)
    value_of, aux_of = split_aux("dlc.solve.root_find", fn, args, has_aux)

    def function(x: Any) -> Any:
        value = convert(ravel("dlc.solve.root_find", value_of(unravel(x)))[0], guess.dtype)
        if value.shape != guess.shape:
            count = f"{value.shape[0]} values for {guess.shape[0]} unknowns"
            refuse(ShapeError(f"dlc.solve.root_find: fn returned {count}; expected as many; least_squares solves such systems"))
        return value

    if isinstance(solver, Bisection) and guess.shape != (1,):
        refuse(ShapeError(f"dlc.solve.root_find: Bisection of {guess.shape[0]} unknowns; expected one; use Newton for several"))
    return _implicit(function, guess, unravel, aux_of, lambda f, x: _find(f, x, solver, max_steps))


def fixed_point(
    fn: Callable[[Any, Any], Any],
    solver: FixedPointIteration | Newton,
    y0: Any,
    args: Any = None,
    *,
    has_aux: bool = False,
    max_steps: int = 256,
) -> Solution:
    """Return y with fn(y, args) = y, starting from `y0`; as `root_find` for fn(y, args) - y.

    Raises ShapeError for a function whose result is no pytree like `y0`.
    """
    require_kind("dlc.solve.fixed_point", "solver", solver, FixedPointIteration, Newton)
    guess, unravel = ravel("dlc.solve.fixed_point", y0)
    value_of, aux_of = split_aux("dlc.solve.fixed_point", fn, args, has_aux)
    function = flat("dlc.solve.fixed_point", value_of, unravel, guess)
    return _implicit(lambda y: function(y) - y, guess, unravel, aux_of, lambda f, x: _find(f, x, solver, max_steps))


def _implicit(
    function: Callable[[Any], Any],
    guess: Any,
    unravel: Callable[[Any], Any],
    aux_of: Callable[[Any], Any],
    solve: Callable[[Any, Any], Any],
) -> Solution:
    vector, (converged, num_steps) = lax.custom_root(function, guess, solve, dense_solve, has_aux=True)
    value = unravel(vector)
    return Solution(value, iteration_result(converged, vector), {"num_steps": num_steps}, aux_of(value))


def dense_solve(g: Callable[[Any], Any], y: Any) -> Any:
    """Return the solution x of g(x) = y for a linear function of vectors, by its matrix."""
    return linalg.solve(vmap(g)(eye(y.shape[0], dtype=y.dtype)).T, y)


def _find(
    f: Callable[[Any], Any], x: Any, solver: Newton | Bisection | FixedPointIteration, max_steps: int
) -> tuple[Any, tuple[Any, Any]]:
    if isinstance(solver, Bisection):
        return _bisect(f, x, solver, max_steps)

    def step(state: Any) -> Any:
        x, _, k = state
        value = f(x)
        change = value if isinstance(solver, FixedPointIteration) else -linalg.solve(jacfwd(f)(x), value)
        return x + change, is_small(change, x, solver.rtol, solver.atol), k + 1

    def is_running(state: Any) -> Any:
        x, converged, k = state
        return logical_and(logical_and(logical_not(converged), all(isfinite(x))), less(k, max_steps))

    x, converged, k = lax.while_loop(is_running, step, (x, np.asarray(False), 0))
    return x, (converged, k)


def is_small(change: Any, x: Any, rtol: float, atol: float) -> Any:
    """Return whether the root-mean-square of change / (atol + rtol · |x|) is at most 1."""
    scaled = change / (atol + rtol * abs(x))
    return sum(scaled * scaled) <= scaled.shape[0]


def _bisect(f: Callable[[Any], Any], x: Any, solver: Bisection, max_steps: int) -> tuple[Any, tuple[Any, Any]]:
    lower, upper = (reshape(convert(limit, x.dtype), (1,)) for limit in (solver.lower, solver.upper))

    def step(state: Any) -> Any:
        lower, upper, k = state
        middle = (lower + upper) / 2
        is_lower = sign(f(middle)) == lower_sign
        return where(is_lower, middle, lower), where(is_lower, upper, middle), k + 1

    def is_wide(lower: Any, upper: Any) -> Any:
        return greater(max(upper - lower), solver.atol + solver.rtol * max(maximum(abs(lower), abs(upper))))

    lower_sign = sign(f(lower))
    lower, upper, k = lax.while_loop(lambda s: logical_and(is_wide(s[0], s[1]), less(s[2], max_steps)), step, (lower, upper, 0))
    has_change = max(abs(lower_sign - sign(f(upper)))) > 0
    return (lower + upper) / 2, (logical_and(has_change, logical_not(is_wide(lower, upper))), k)
