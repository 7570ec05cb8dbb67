"""Gradients of functions that return one float, by reverse mode, with the arguments of JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from dlc.calculus.call import traced
from dlc.calculus.function import Leaves, differentiated, inserted, parts_of, require_trace, ssa_values
from dlc.calculus.selected import Selected
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import captured
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.trace import at_user_line
from dlc.ir import Block
from dlc.lax.bodies import discard_on_error

Function = Callable[..., Any]
# What becomes of an argument that a value does not depend on.
Unused: TypeAlias = Literal["zeros", "error"]


def value_and_grad(
    fun: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    argnames: str | Sequence[str] = (),
    *,
    unused: Unused = "zeros",
) -> Function:
    """A function that returns what `fun` does and its gradient: `(value, gradient)`, with `has_aux` `((value, aux), gradient)`.

    `fun` returns a float without axes; with `has_aux` a pair of that and other arrays, in any container. `argnums` and
    `argnames` say with respect to which arguments; the gradient has their structure, shapes and dtypes, and is a tuple
    unless `argnums` is one number. Where the value does not depend on an argument it is zeros; with
    `unused="error"` that is a DlcError, which names the leaf.

    Raises DTypeError, naming the leaf, for an argument that is not of floats, and ShapeError for a value with axes.
    """
    return value_and_gradient_of("dlc.value_and_grad", fun, argnums, has_aux, argnames, unused)


def value_and_gradient_of(
    where: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool,
    argnames: str | Sequence[str] = (),
    unused: Unused = "zeros",
) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        selected = Selected.of(where, fun, argnums, argnames, args, kwargs)
        selected.leaves.require_floats(where, "gradient")

        def function(*values: Any) -> Any:
            return _scalar_first(where, selected.call(*values), has_aux)

        block, results = differentiated(where, function, selected.leaves)
        if unused == "error":
            with discard_on_error([block]):
                _require_used(where, block, selected.leaves.names)
        primals = selected.leaves.values
        one = require_trace().build.scalar(1.0, like=block.last_op.operands[0]) if block.last_op is not None else None
        assert one is not None
        op = dl.VjpOp.of(ssa_values(primals), [one], block, range(len(primals)), [0])
        made = inserted(op, [*results.values, *primals])
        count = len(results.values)
        return results.like(made[:count]), selected.leaves.like(made[count:])

    return traced(call, fun, "the gradient")


def _require_used(where: str, block: Block, names: Sequence[str]) -> None:
    """Raises DlcError, naming them, for arguments of a body that its first result does not depend on."""
    *ops, last = block.ops
    used = {last.operands[0]}
    for op in reversed(ops):
        if not used.isdisjoint(op.results):
            used.update(op.operands, *(captured(region.block) for region in op.regions))
    if unused := [name for name, argument in zip(names, block.args, strict=True) if argument not in used]:
        repair = 'leave out what is not meant to be there, or say unused="zeros"'
        raise at_user_line(DlcError(f"{where}: the value does not depend on {', '.join(unused)}; {repair}"))


def _scalar_first(where: str, result: Any, has_aux: bool) -> Any:
    """What a function returned; raises ShapeError or DTypeError unless it is one float, or a pair that begins with one."""
    first = parts_of(where, "has_aux is set, and the function", result, 2, "(value, aux)")[0] if has_aux else result
    value = Leaves.of(where, "result", first)
    if value.tree.kind is not None:
        raise at_user_line(
            ShapeError(f"{where}: the function returned {value.tree}; expected one float (with others: has_aux)")
        )
    (loss,) = value.values
    if loss.shape:
        repair = "sum or average it, or use dlc.jacrev"
        raise at_user_line(
            ShapeError(f"{where}: the function returned an array of shape {loss.shape}, expected one value; {repair}")
        )
    if not is_float(element_type_of(loss.value)):
        raise at_user_line(
            DTypeError(f"{where}: the function returned {loss.dtype}, expected a float; convert it with .astype")
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
    """A function that returns the gradient of `fun`; with `has_aux` `(gradient, aux)`. See `value_and_grad`."""
    return gradient_of("dlc.grad", fun, argnums, has_aux, argnames, unused)


def gradient_of(
    where: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool = False,
    argnames: str | Sequence[str] = (),
    unused: Unused = "zeros",
) -> Function:
    both = value_and_gradient_of(where, fun, argnums, has_aux, argnames, unused)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return traced(call, fun, "the gradient")
