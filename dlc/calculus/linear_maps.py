"""The derivative of a function at some arguments as a linear map, and its transpose, with the arguments of JAX's.

`jvp` and `linearize` take changes of the arguments to changes of the results (forward mode), `vjp` cotangents of the results
back to the arguments (reverse mode).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dlc.calculus.call import traced
from dlc.calculus.function import Leaves, differentiated, inserted, parts_of, ssa_values
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import flatten
from dlc.frontend.trace import Tracer, at_user_line
from dlc.lax.bodies import discard_on_error
from dlc.misuse import applied
from dlc.numpy import zeros_like

Function = Callable[..., Any]


def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """What `fun(*primals)` returns, and its change for a change of the arguments by `tangents`: `(results, tangents)`.

    `tangents` have the structure, shapes and dtypes of `primals`; None in place of an argument, which may be of anything, is no
    change. Results that are not of floats have tangents of zeros. With `has_aux`, `fun` returns a pair whose second is not
    differentiated: `(results, tangents, aux)`.

    Raises ShapeError or DTypeError, naming the leaf, for a tangent that differs from its argument.
    """
    return push_forward("dlc.jvp", fun, primals, tangents, has_aux)


def push_forward(where: str, fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    def call(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        moving = [i for i, t in enumerate(tangents) if t is not None]
        arguments = Leaves.of(where, "primals", {i: primals[i] for i in moving})
        arguments.require_floats(where, "tangent", "give None as its tangent")
        given = arguments.matching(where, "tangents", {i: tangents[i] for i in moving})

        def run(*values: Any) -> Any:
            moved = arguments.like(values)
            return applied(fun, *(moved.get(i, p) for i, p in enumerate(primals)))

        block, results = differentiated(where, run, arguments)
        counted = _of_floats(results.values)
        op = dl.JvpOp.of(ssa_values(arguments.values), ssa_values(given), block, range(len(arguments.values)))
        made = inserted(op, [*results.values, *(results.values[i] for i in counted)])
        values = made[: len(results.values)]
        changed = dict(zip(counted, made[len(results.values) :], strict=True))
        changes = [changed[i] if i in changed else zeros_like(v) for i, v in enumerate(values)]
        if not has_aux:
            return results.like(values), results.like(changes)
        result, aux = parts_of(where, "has_aux is set, and the function", results.like(values), 2, "(results, aux)")
        return result, results.like(changes)[0], aux

    for name, parts in (("primals", primals), ("tangents", tangents)):
        if not isinstance(cast(object, parts), tuple | list):
            got = type(parts).__name__
            raise at_user_line(DTypeError(f"{where}: {name} is a {got}; expected a tuple with an entry for each argument"))
    if len(primals) != len(tangents):
        raise at_user_line(ShapeError(f"{where}: {len(primals)} primals and {len(tangents)} tangents; expected as many"))
    return traced(call, fun, "the tangent")(tuple(primals), tuple(tangents))


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """What `fun(*primals)` returns, and a function from cotangents of that to those of the primals: `(results, pullback)`.

    `pullback` takes a tree like the results and returns a tuple, with an entry for each primal. With `has_aux`, `fun` returns
    a pair whose second is not differentiated: `(results, pullback, aux)`.

    Raises DTypeError, naming the leaf, for a primal that is not of floats.
    """
    where = "dlc.vjp"
    arguments = [*primals]

    def run(primals: Sequence[Any], cotangents: Any, pulled: bool) -> Any:
        leaves = Leaves.of(where, "primals", tuple(primals))
        leaves.require_floats(where, "gradient", "let the function read it from around it")
        block, results = differentiated(where, lambda *v: applied(fun, *leaves.like(v)), leaves)
        whole = ssa_values(leaves.values)
        if not pulled:
            return results.like(inserted(dl.VjpOp.of(whole, [], block, [], []), results.values))
        outs = results.like(results.values)
        with discard_on_error([block]):
            if has_aux:
                outs, _ = parts_of(where, "has_aux is set, and the function", outs, 2, "(results, aux)")
            values, tree = flatten(outs)
            given = Leaves(values, tree, []).matching(where, "cotangent", cotangents)
        of = _of_floats(values)
        seeds = [given[i].value for i in of]
        made = inserted(dl.VjpOp.of(whole, seeds, block, range(len(whole)), of), [*results.values, *leaves.values])
        return leaves.like(made[len(results.values) :])

    def results_of(primals: Sequence[Any]) -> Any:
        return run(primals, None, False)

    def pull(primals: Sequence[Any], cotangents: Any) -> Any:
        return run(primals, cotangents, True)

    made = traced(results_of, fun, "the value")(arguments)
    backward = traced(pull, fun, "the pullback")

    def pullback(cotangents: Any) -> Any:
        """The cotangents of the primals, from those of the results."""
        return backward(arguments, cotangents)

    if not has_aux:
        return made, pullback
    value, aux = parts_of(where, "has_aux is set, and the function", made, 2, "(results, aux)")
    return value, pullback, aux


def linearize(fun: Function, *primals: Any) -> Any:
    """What `fun(*primals)` returns, and a function from tangents of the primals to those of that: `(results, pushforward)`."""
    given = [*primals]

    def value(primals: Sequence[Any]) -> Any:
        return applied(fun, *primals)

    def push(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return push_forward("dlc.linearize", fun, primals, tangents)[1]

    forward = traced(push, fun, "the tangent")

    def pushforward(*tangents: Any) -> Any:
        """The tangents of the results, from those of the primals."""
        return forward(given, list(tangents))

    return traced(value, fun, "the value")(given), pushforward


def _of_floats(tracers: Sequence[Tracer]) -> list[int]:
    return [i for i, t in enumerate(tracers) if is_float(element_type_of(t.value))]
