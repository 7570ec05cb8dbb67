"""Solutions of equations, differentiated by the implicit function theorem instead of through the solver.

Let r(x, θ) = 0 define x. The solver runs for constant θ. Then, once for each order of differentiation, x ← x - A⁻¹ r(x, θ),
where A = ∂r/∂x is a constant. This chord step raises by one the order up to which the derivatives of x with respect to θ are
exact. It does not change the value of x, since the value of r is subtracted from r.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dlc.dialects import dl
from dlc.frontend.trace import Trace, Tracer, current_trace
from dlc.numpy.apply import apply
from dlc.numpy.functions.comparison import equal, logical_and
from dlc.numpy.functions.creation import zeros_like
from dlc.numpy.functions.elementwise import subtract, where
from dlc.numpy.functions.reductions import all
from dlc.traced_functions.bodies import require_functions
from dlc.traced_functions.derivatives import constant, pull_back, push_forward
from dlc.traced_functions.leaf_functions import NamedLeaves, require_trace, require_tuple, ssa_values, trace_body

__all__ = ["custom_linear_solve", "custom_root"]

Function = Callable[..., Any]


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Any, Any], Any],
    transpose_solve: Callable[[Any, Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return the solution of `matvec(x) = b` that `solve(matvec, b)` computes, with derivatives that do not depend on `solve`.

    `matvec` is a linear function of a pytree with the structure, shapes and dtypes of `b`; derivatives with respect to `b` and
    to the values that `matvec` closes over solve one more system each. In reverse mode that system is the transposed one,
    `transpose_solve(vecmat, cotangent)` with the transpose `vecmat` of `matvec`. With `symmetric`, `matvec` is its own
    transpose, and `solve` solves the transposed system unless `transpose_solve` is given. Without both, reverse mode transposes
    `solve` op by op, which is impossible for a while loop. With `has_aux`, both solvers return a pair of the solution and a
    pytree of arrays, which has no derivative; the result is such a pair.

    Raises DTypeError for a `b` that is not a float, ShapeError or DTypeError, naming the leaf, for a solution or a value of
    `matvec` that does not match `b`.
    """
    api_name, trace = "dlc.lax.custom_linear_solve", current_trace()
    require_functions(api_name, matvec=matvec, solve=solve)
    if transpose_solve is not None:
        require_functions(api_name, transpose_solve=transpose_solve)
    if trace is None or (has_aux and trace.derivative_orders == 0):
        return solve(matvec, b)
    right_side = NamedLeaves.of(api_name, "b", b)
    right_side.require_floats(api_name, "derivative", "solve the system in floats")
    transposed_solver = transpose_solve or (solve if symmetric else None)

    def solve_for(solver: Function, operator: Function, values: Sequence[Any]) -> Any:
        result = solver(operator, right_side.with_leaves(values))
        return (
            require_tuple(api_name, "has_aux is set, and the solver", result, 2, "(solution, aux)") if has_aux else (result, ())
        )

    def transposed_matvec(x: Any) -> Any:
        cotangents = right_side.match_leaves(api_name, "argument of vecmat", x)
        point = NamedLeaves([require_trace().value(zeros_like(v)) for v in cotangents], right_side.tree, right_side.names)
        return right_side.with_leaves(pull_back(api_name, product, point, cotangents))

    def product(*values: Any) -> Sequence[Tracer]:
        return right_side.match_leaves(api_name, "matvec(x)", matvec(right_side.with_leaves(values)))

    def residual(*values: Any) -> Sequence[Tracer]:
        return [subtract(p, v) for p, v in zip(product(*values), right_side.values, strict=True)]

    def correct(*values: Any) -> Any:
        return right_side.match_leaves(api_name, "solution", solve_for(solve, matvec, values)[0])

    def transposed_correction(*values: Any) -> Any:
        assert transposed_solver is not None
        operator = matvec if symmetric else transposed_matvec
        return right_side.match_leaves(api_name, "transposed solution", solve_for(transposed_solver, operator, values)[0])

    if trace.derivative_orders == 0:
        # Not differentiated, except as a linear function of b: in a rule that reverse mode transposes.
        transposed = transposed_correction if transposed_solver else None
        return right_side.with_leaves(_linear_call(api_name, trace, right_side, correct, transposed))
    solution, aux = constant(api_name, lambda: solve_for(solve, matvec, right_side.values))
    x = right_side.match_leaves(api_name, "solution", solution)
    for _ in range(trace.derivative_orders):
        x = _chord_step(api_name, trace, x, residual, correct, transposed_correction if transposed_solver else None)
    return (right_side.with_leaves(x), aux) if has_aux else right_side.with_leaves(x)


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Any, Any], Any],
    tangent_solve: Callable[[Any, Any], Any],
    has_aux: bool = False,
) -> Any:
    """Return the root of `f` that `solve(f, initial_guess)` computes, with derivatives that do not depend on `solve`.

    `f` maps a pytree of floats to one with the same structure, shapes and dtypes. Derivatives with respect to the values that
    `f` closes over solve one linear system: `tangent_solve(g, y)` returns the solution x of `g(x) = y`, where the linear
    function `g` is the derivative of `f` at the root. For a scalar it is `lambda g, y: y / g(1.0)`. Reverse mode transposes
    `tangent_solve` op by op; one that iterates uses `custom_linear_solve`. The derivative with respect to `initial_guess` is
    zero. With `has_aux`, `solve` returns a pair of the root and a pytree of arrays, which has no derivative; the result is such
    a pair.

    Raises DTypeError for a guess that is not a float, ShapeError or DTypeError, naming the leaf, for a root or a value of `f`
    that does not match it.
    """
    api_name, trace = "dlc.lax.custom_root", current_trace()
    require_functions(api_name, f=f, solve=solve, tangent_solve=tangent_solve)
    if trace is None or trace.derivative_orders == 0:
        return solve(f, initial_guess)
    guess = NamedLeaves.of(api_name, "initial_guess", initial_guess)
    guess.require_floats(api_name, "derivative", "solve the equation in floats")

    def run_solver() -> Any:
        result = solve(f, guess.with_leaves(guess.values))
        return require_tuple(api_name, "has_aux is set, and solve", result, 2, "(root, aux)") if has_aux else (result, ())

    def residual(*values: Any) -> Sequence[Tracer]:
        return guess.match_leaves(api_name, "f(x)", f(guess.with_leaves(values)))

    root, aux = constant(api_name, run_solver)
    x = guess.match_leaves(api_name, "root", root)
    for _ in range(trace.derivative_orders):
        point = NamedLeaves(x, guess.tree, guess.names)

        def correct(*values: Any, point: NamedLeaves = point) -> Any:
            def derivative(tangent: Any) -> Any:
                tangents = point.match_leaves(api_name, "argument of g", tangent)
                return point.with_leaves(push_forward(api_name, residual, point, tangents))

            solution = tangent_solve(derivative, point.with_leaves(values))
            return point.match_leaves(api_name, "tangent_solve(g, y)", solution)

        x = _chord_step(api_name, trace, x, residual, correct, None)
    return (guess.with_leaves(x), aux) if has_aux else guess.with_leaves(x)


def _chord_step(
    api_name: str, trace: Trace, x: Sequence[Tracer], residual: Function, correct: Function, transposed: Function | None
) -> list[Tracer]:
    """Return x - correct(r - stop_gradient(r)) for the residual r at x. `correct` is linear; x keeps its value."""
    changes = [subtract(r, apply(dl.StopGradientOp, r)) for r in residual(*x)]
    if transposed is not None:
        correct, transposed = _without_zeros(correct), _without_zeros(transposed)
    corrections = _linear_call(api_name, trace, NamedLeaves.of(api_name, "residual", changes), correct, transposed)
    return [trace.value(subtract(v, correction)) for v, correction in zip(x, corrections, strict=True)]


def _without_zeros(solve: Function) -> Function:
    """Return a linear solver that is not called for zeros, for which it may divide 0 by 0. Chord steps solve for them."""

    def call(*values: Tracer) -> list[Any]:
        is_zero = functools.reduce(logical_and, [all(equal(v, 0)) for v in values])
        return [where(is_zero, 0, x) for x in solve(*(where(is_zero, 1, v) for v in values))]

    return call


def _linear_call(
    api_name: str, trace: Trace, arguments: NamedLeaves, function: Function, transposed: Function | None
) -> Sequence[Tracer]:
    """Return the results of a linear function, with its transpose if that is given."""
    bodies = [trace_body(api_name, body, arguments, 0)[0] for body in (function, transposed) if body is not None]
    return trace.insert(dl.LinearCallOp.of(ssa_values(arguments.values), *bodies))
