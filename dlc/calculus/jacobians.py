"""Jacobians and Hessians, by vmap over JVPs and VJPs, with JAX's names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.calculus.batching import vmap
from dlc.calculus.differentiated_arguments import DifferentiatedArguments
from dlc.calculus.gradients import gradient_of
from dlc.calculus.linear_maps import push_forward, vjp
from dlc.calculus.transformed_calls import trace_or_compile
from dlc.errors import DTypeError
from dlc.frontend.trace import with_user_line
from dlc.numpy import eye, reshape, zeros_like
from dlc.traced_functions.leaf_functions import NamedLeaves

Function = Callable[..., Any]


def jacfwd(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """Return a function that returns the Jacobian of `fun` by forward mode: one JVP for each element of the arguments.

    For each leaf of the result there is a pytree like the arguments at `argnums`, whose arrays have the axes of the result's
    leaf followed by those of the argument's. Cheaper than `jacrev` if the arguments have fewer elements than the result. With
    `has_aux` the function returns `(jacobian, aux)`.
    """
    api_name = "dlc.jacfwd"

    def call(*args: Any, **kwargs: Any) -> Any:
        selected = DifferentiatedArguments.of(api_name, fun, argnums, (), args, kwargs)
        selected.leaves.require_floats(api_name, "tangent")
        values = selected.leaves.values
        if not values:
            raise with_user_line(DTypeError(f"{api_name}: argnums={argnums!r} selects no argument"))
        columns: list[list[Any]] = []
        aux: Any = None
        outs: NamedLeaves | None = None
        for i, leaf in enumerate(values):

            def push(t: Any, i: int = i) -> Any:
                tangents = [t if k == i else None for k in range(len(values))]
                return push_forward(api_name, selected.call, values, tangents, has_aux)

            count = leaf.size
            basis = reshape(eye(count, dtype=leaf.dtype), (count, *leaf.shape))
            result = vmap(push, out_axes=(None, -1, None) if has_aux else (None, -1))(basis)
            outs, tangent_leaves = NamedLeaves.of(api_name, "result", result[0]), NamedLeaves.of(api_name, "result", result[1])
            aux = result[2] if has_aux else None
            columns.append([reshape(c, (*c.shape[:-1], *leaf.shape)) for c in tangent_leaves.values])
        assert outs is not None
        jacobian = outs.with_leaves(
            [selected.leaves.with_leaves([column[k] for column in columns]) for k in range(len(outs.values))]
        )
        return (jacobian, aux) if has_aux else jacobian

    return trace_or_compile(call, fun, "the Jacobian")


def jacrev(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """Return a function that returns the Jacobian of `fun` by reverse mode: one VJP for each element of the result.

    The structure is that of `jacfwd`. Cheaper if the result has fewer elements than the arguments.
    """
    api_name = "dlc.jacrev"

    def call(*args: Any, **kwargs: Any) -> Any:
        selected = DifferentiatedArguments.of(api_name, fun, argnums, (), args, kwargs)
        selected.leaves.require_floats(api_name, "gradient")
        result, pullback, *aux = vjp(selected.call, *selected.leaves.values, has_aux=has_aux)
        outs = NamedLeaves.of(api_name, "result", result)
        outs.require_floats(api_name, "gradient", "use dlc.jacfwd")
        rows: list[Any] = []
        for i, out in enumerate(outs.values):

            def pull(cotangent: Any, i: int = i) -> Any:
                return pullback(outs.with_leaves([cotangent if k == i else zeros_like(v) for k, v in enumerate(outs.values)]))

            basis = reshape(eye(out.size, dtype=out.dtype), (out.size, *out.shape))
            gradients = NamedLeaves.of(api_name, "gradient", vmap(pull)(basis)).values
            rows.append(selected.leaves.with_leaves([reshape(g, (*out.shape, *g.shape[1:])) for g in gradients]))
        jacobian = outs.with_leaves(rows)
        return (jacobian, *aux) if has_aux else jacobian

    return trace_or_compile(call, fun, "the Jacobian")


def hessian(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """Return a function that returns the Hessian of `fun`: the forward-mode Jacobian of its reverse-mode Jacobian."""
    return jacfwd(jacrev(fun, argnums, has_aux), argnums, has_aux)


def hvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the Hessian-vector product of a function that returns a float scalar, by forward over reverse mode.

    `primals` and `tangents` are as for `jvp`; the result is like the primal, or a tuple like several primals.
    """
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return push_forward("dlc.hvp", gradient_of("dlc.hvp", fun, argnums), primals, tangents)[1]
