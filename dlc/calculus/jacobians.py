"""Jacobians and second derivatives, of the derivatives of `linear_maps.py` and of batches, with the arguments of JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.calculus.batching import vmap
from dlc.calculus.call import traced
from dlc.calculus.function import Leaves
from dlc.calculus.gradients import gradient_of
from dlc.calculus.linear_maps import push_forward, vjp
from dlc.calculus.selected import Selected
from dlc.errors import DTypeError
from dlc.frontend.trace import at_user_line
from dlc.numpy import eye, reshape, zeros_like

Function = Callable[..., Any]


def jacfwd(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the Jacobian of `fun`, by forward mode: one tangent for each element of the arguments.

    For each leaf of the result, a tree like the arguments of `argnums` with arrays of the shape of the result's leaf, then of
    the argument's. Cheaper than `jacrev` where the arguments have fewer elements than the result. With `has_aux`
    `(jacobian, aux)`.
    """
    where = "dlc.jacfwd"

    def call(*args: Any, **kwargs: Any) -> Any:
        selected = Selected.of(where, fun, argnums, (), args, kwargs)
        selected.leaves.require_floats(where, "tangent")
        values = selected.leaves.values
        if not values:
            raise at_user_line(DTypeError(f"{where}: no argument to differentiate by: argnums={argnums!r}"))
        columns: list[list[Any]] = []
        aux: Any = None
        outs: Leaves | None = None
        for i, leaf in enumerate(values):

            def push(t: Any, i: int = i) -> Any:
                tangents = [t if k == i else None for k in range(len(values))]
                return push_forward(where, selected.call, values, tangents, has_aux)

            count = leaf.size
            basis = reshape(eye(count, dtype=leaf.dtype), (count, *leaf.shape))
            result = vmap(push, out_axes=(None, -1, None) if has_aux else (None, -1))(basis)
            outs, changes = Leaves.of(where, "result", result[0]), Leaves.of(where, "result", result[1])
            aux = result[2] if has_aux else None
            columns.append([reshape(c, (*c.shape[:-1], *leaf.shape)) for c in changes.values])
        assert outs is not None
        jacobian = outs.like([selected.leaves.like([column[k] for column in columns]) for k in range(len(outs.values))])
        return (jacobian, aux) if has_aux else jacobian

    return traced(call, fun, "the Jacobian")


def jacrev(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the Jacobian of `fun`, by reverse mode: one cotangent for each element of the result.

    As `jacfwd` has it; cheaper where the result has fewer elements than the arguments.
    """
    where = "dlc.jacrev"

    def call(*args: Any, **kwargs: Any) -> Any:
        selected = Selected.of(where, fun, argnums, (), args, kwargs)
        selected.leaves.require_floats(where, "gradient")
        result, pullback, *aux = vjp(selected.call, *selected.leaves.values, has_aux=has_aux)
        outs = Leaves.of(where, "result", result)
        outs.require_floats(where, "gradient", "use dlc.jacfwd")
        rows: list[Any] = []
        for i, out in enumerate(outs.values):

            def pull(ct: Any, i: int = i) -> Any:
                return pullback(outs.like([ct if k == i else zeros_like(v) for k, v in enumerate(outs.values)]))

            basis = reshape(eye(out.size, dtype=out.dtype), (out.size, *out.shape))
            pulled = Leaves.of(where, "gradient", vmap(pull)(basis)).values
            rows.append(selected.leaves.like([reshape(g, (*out.shape, *g.shape[1:])) for g in pulled]))
        jacobian = outs.like(rows)
        return (jacobian, *aux) if has_aux else jacobian

    return traced(call, fun, "the Jacobian")


def hessian(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the second derivatives of `fun`: the Jacobian, forward, of its Jacobian, in reverse."""
    return jacfwd(jacrev(fun, argnums, has_aux), argnums, has_aux)


def hvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of a function that returns one float, times a vector: the tangent of the gradient, forward over reverse.

    `primals` and `tangents` as for `jvp`; the result is like the first of them, or a tuple like all of several.
    """
    every = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return push_forward("dlc.hvp", gradient_of("dlc.hvp", fun, every), primals, tangents)[1]
