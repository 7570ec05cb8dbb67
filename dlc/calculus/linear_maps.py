"""The derivative of a function as a linear map, and its transpose, with JAX's names and arguments.

`jvp` and `linearize` map tangents of the arguments to tangents of the results (forward mode); `vjp` maps cotangents of the
results to cotangents of the arguments (reverse mode).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dlc.argument_validation.validate import call_user_function
from dlc.calculus.transformed_calls import trace_or_compile
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import flatten
from dlc.frontend.trace import Tracer, with_user_line
from dlc.numpy import zeros_like
from dlc.traced_functions.bodies import discard_on_error
from dlc.traced_functions.leaf_functions import (
    NamedLeaves,
    insert_with_weak_types,
    require_tuple,
    ssa_values,
    trace_differentiated_body,
)

Function = Callable[..., Any]


def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Return `fun(*primals)` and its tangent (directional derivative) along `tangents`: `(results, tangents)`.

    `tangents` have the structure, shapes and dtypes of `primals`. A tangent of None is zero, for an argument of any dtype.
    Results that are not floats have zero tangents. With `has_aux`, `fun` returns a pair whose second entry is not
    differentiated: `(results, tangents, aux)`.

    Raises ShapeError or DTypeError, naming the leaf, for a tangent that does not match its primal.
    """
    return push_forward("dlc.jvp", fun, primals, tangents, has_aux)


def push_forward(api_name: str, fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    def call(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        active = [i for i, t in enumerate(tangents) if t is not None]
        arguments = NamedLeaves.of(api_name, "primals", {i: primals[i] for i in active})
        arguments.require_floats(api_name, "tangent", "give None as its tangent")
        tangent_leaves = arguments.match_leaves(api_name, "tangents", {i: tangents[i] for i in active})

        def run(*values: Any) -> Any:
            active_primals = arguments.with_leaves(values)
            return call_user_function(fun, *(active_primals.get(i, p) for i, p in enumerate(primals)))

        block, results = trace_differentiated_body(api_name, run, arguments)
        float_results = _float_indices(results.values)
        op = dl.JvpOp.of(ssa_values(arguments.values), ssa_values(tangent_leaves), block, range(len(arguments.values)))
        jvp_results = insert_with_weak_types(op, [*results.values, *(results.values[i] for i in float_results)])
        values = jvp_results[: len(results.values)]
        tangent_of = dict(zip(float_results, jvp_results[len(results.values) :], strict=True))
        result_tangents = [tangent_of[i] if i in tangent_of else zeros_like(v) for i, v in enumerate(values)]
        if not has_aux:
            return results.with_leaves(values), results.with_leaves(result_tangents)
        result, aux = require_tuple(
            api_name, "has_aux is set, and the function", results.with_leaves(values), 2, "(results, aux)"
        )
        return result, results.with_leaves(result_tangents)[0], aux

    for name, arguments_tuple in (("primals", primals), ("tangents", tangents)):
        if not isinstance(cast(object, arguments_tuple), tuple | list):
            got = type(arguments_tuple).__name__
            raise with_user_line(DTypeError(f"{api_name}: {name} is a {got}; expected a tuple with an entry for each argument"))
    if len(primals) != len(tangents):
        raise with_user_line(
            ShapeError(f"{api_name}: {len(primals)} primals and {len(tangents)} tangents; expected equal numbers")
        )
    return trace_or_compile(call, fun, "the tangent")(tuple(primals), tuple(tangents))


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Return `fun(*primals)` and a function from cotangents of the results to cotangents of the primals: `(results, pullback)`.

    `pullback` takes a pytree like the results and returns a tuple with an entry for each primal. With `has_aux`, `fun` returns
    a pair whose second entry is not differentiated: `(results, pullback, aux)`.

    Raises DTypeError, naming the leaf, for a primal that is not a float.
    """
    api_name = "dlc.vjp"
    arguments = [*primals]

    def run(primals: Sequence[Any], cotangents: Any, has_cotangents: bool) -> Any:
        leaves = NamedLeaves.of(api_name, "primals", tuple(primals))
        leaves.require_floats(api_name, "gradient", "let the function close over it")
        block, results = trace_differentiated_body(api_name, lambda *v: call_user_function(fun, *leaves.with_leaves(v)), leaves)
        primal_values = ssa_values(leaves.values)
        if not has_cotangents:
            return results.with_leaves(insert_with_weak_types(dl.VjpOp.of(primal_values, [], block, [], []), results.values))
        outs = results.with_leaves(results.values)
        with discard_on_error([block]):
            if has_aux:
                outs, _ = require_tuple(api_name, "has_aux is set, and the function", outs, 2, "(results, aux)")
            values, tree = flatten(outs)
            cotangent_leaves = NamedLeaves(values, tree, []).match_leaves(api_name, "cotangent", cotangents)
        float_positions = _float_indices(values)
        seeds = [cotangent_leaves[i].value for i in float_positions]
        vjp_results = insert_with_weak_types(
            dl.VjpOp.of(primal_values, seeds, block, range(len(primal_values)), float_positions),
            [*results.values, *leaves.values],
        )
        return leaves.with_leaves(vjp_results[len(results.values) :])

    def results_of(primals: Sequence[Any]) -> Any:
        return run(primals, None, False)

    def pull(primals: Sequence[Any], cotangents: Any) -> Any:
        return run(primals, cotangents, True)

    vjp_results = trace_or_compile(results_of, fun, "the value")(arguments)
    backward = trace_or_compile(pull, fun, "the pullback")

    def pullback(cotangents: Any) -> Any:
        """Return the cotangents of the primals for cotangents of the results."""
        return backward(arguments, cotangents)

    if not has_aux:
        return vjp_results, pullback
    value, aux = require_tuple(api_name, "has_aux is set, and the function", vjp_results, 2, "(results, aux)")
    return value, pullback, aux


def linearize(fun: Function, *primals: Any) -> Any:
    """Return `fun(*primals)`, and a function from tangents of the primals to tangents of the results.

    The result is `(results, pushforward)`.
    """
    saved_primals = [*primals]

    def value(primals: Sequence[Any]) -> Any:
        return call_user_function(fun, *primals)

    def push(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return push_forward("dlc.linearize", fun, primals, tangents)[1]

    forward = trace_or_compile(push, fun, "the tangent")

    def pushforward(*tangents: Any) -> Any:
        """Return the tangents of the results for tangents of the primals."""
        return forward(saved_primals, list(tangents))

    return trace_or_compile(value, fun, "the value")(saved_primals), pushforward


def _float_indices(tracers: Sequence[Tracer]) -> list[int]:
    return [i for i, t in enumerate(tracers) if is_float(element_type_of(t.value))]
