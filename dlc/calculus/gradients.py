"""Gradients by reverse mode, with JAX's names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from dlc.calculus.differentiated_arguments import DifferentiatedArguments
from dlc.calculus.transformed_calls import trace_or_compile
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import captured_values
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.trace import with_user_line
from dlc.ir import Block
from dlc.traced_functions.bodies import discard_on_error
from dlc.traced_functions.leaf_functions import (
    NamedLeaves,
    insert_with_weak_types,
    require_trace,
    require_tuple,
    ssa_values,
    trace_differentiated_body,
)

Function = Callable[..., Any]
# The treatment of an argument that the value does not depend on.
Unused: TypeAlias = Literal["zeros", "error"]


def value_and_grad(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    argnames: str | Sequence[str] = (),
    *,
    unused: Unused = "zeros",
) -> Function:
    """Return a function that returns `fun`'s value and gradient.

    Its result is `(value, gradient)`, or `((value, aux), gradient)` with `has_aux`.

    `fun` returns a float of rank 0; with `has_aux`, a pair of that and any pytree of arrays. `argnums` and `argnames` select
    the arguments to differentiate with respect to. The gradient has their structure, shapes and dtypes; it is a tuple unless
    `argnums` is one integer. The gradient with respect to an argument that the value does not depend on is zeros; with
    `unused="error"` it is a DlcError that names the leaf.

    Raises DTypeError, naming the leaf, for an argument that is not a float, and ShapeError for a value with axes.
    """
    return value_and_gradient_of("dlc.value_and_grad", fun, argnums, has_aux, argnames, unused)


def value_and_gradient_of(
    api_name: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool,
    argnames: str | Sequence[str] = (),
    unused: Unused = "zeros",
) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        selected = DifferentiatedArguments.of(api_name, fun, argnums, argnames, args, kwargs)
        selected.leaves.require_floats(api_name, "gradient")

        def function(*values: Any) -> Any:
            return _scalar_first(api_name, selected.call(*values), has_aux)

        block, results = trace_differentiated_body(api_name, function, selected.leaves)
        if unused == "error":
            with discard_on_error([block]):
                _require_used(api_name, block, selected.leaves.names)
        primals = selected.leaves.values
        seed = require_trace().build.scalar(1.0, like=block.last_op.operands[0]) if block.last_op is not None else None
        assert seed is not None
        op = dl.VjpOp.of(ssa_values(primals), [seed], block, range(len(primals)), [0])
        op_results = insert_with_weak_types(op, [*results.values, *primals])
        count = len(results.values)
        return results.with_leaves(op_results[:count]), selected.leaves.with_leaves(op_results[count:])

    return trace_or_compile(call, fun, "the gradient")


def _require_used(api_name: str, block: Block, names: Sequence[str]) -> None:
    """Raise DlcError, naming them, for arguments of a body that its first result does not depend on."""
    *ops, last = block.ops
    used_values = {last.operands[0]}
    for op in reversed(ops):
        if not used_values.isdisjoint(op.results):
            used_values.update(op.operands, *(captured_values(region.block) for region in op.regions))
    if unused := [name for name, argument in zip(names, block.args, strict=True) if argument not in used_values]:
        hint = 'leave it out of the arguments, or pass unused="zeros"'
        raise with_user_line(DlcError(f"{api_name}: the value does not depend on {', '.join(unused)}; {hint}"))


def _scalar_first(api_name: str, result: Any, has_aux: bool) -> Any:
    """Return a function's result, which must be a float scalar, or a pair that begins with one.

    Raises ShapeError or DTypeError for another result.
    """
    value_tree = (
        require_tuple(api_name, "has_aux is set, and the function", result, 2, "(value, aux)")[0] if has_aux else result
    )
    value = NamedLeaves.of(api_name, "result", value_tree)
    if value.tree.kind is not None:
        raise with_user_line(
            ShapeError(
                f"{api_name}: the function returned {value.tree}; expected a float scalar (for other results, set has_aux)"
            )
        )
    (loss,) = value.values
    if loss.shape:
        hint = "sum or average it, or use dlc.jacrev"
        raise with_user_line(
            ShapeError(f"{api_name}: the function returned an array of shape {loss.shape}; expected a scalar: {hint}")
        )
    if not is_float(element_type_of(loss.value)):
        raise with_user_line(
            DTypeError(f"{api_name}: the function returned {loss.dtype}; expected a float: convert it with .astype")
        )
    return result


def grad(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    argnames: str | Sequence[str] = (),
    *,
    unused: Unused = "zeros",
) -> Function:
    """Return a function that returns the gradient of `fun`; `(gradient, aux)` with `has_aux`. See `value_and_grad`."""
    return gradient_of("dlc.grad", fun, argnums, has_aux, argnames, unused)


def gradient_of(
    api_name: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool = False,
    argnames: str | Sequence[str] = (),
    unused: Unused = "zeros",
) -> Function:
    value_and_gradient = value_and_gradient_of(api_name, fun, argnums, has_aux, argnames, unused)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = value_and_gradient(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return trace_or_compile(call, fun, "the gradient")
