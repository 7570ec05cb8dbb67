"""Derivatives of functions: gradients, Jacobians and what they are made of, with the arguments of JAX's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, TypeAlias, cast

from dlc.calculus.batching import vmap
from dlc.calculus.call import traced
from dlc.calculus.function import Leaves, differentiated, parts_of, require_trace
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import captured
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Tracer, at_user_line
from dlc.ir import Block, SSAValue
from dlc.lax.bodies import discard_on_error
from dlc.numpy import eye, reshape, zeros_like

Function = Callable[..., Any]
# What becomes of an argument that a value does not depend on.
Unused: TypeAlias = Literal["zeros", "error"]


@dataclass(frozen=True)
class _Selected:
    """The arguments of a call that a function is differentiated by, and the call for others in their place."""

    leaves: Leaves
    call: Function

    @classmethod
    def of(
        cls,
        where: str,
        fun: Function,
        argnums: int | Sequence[int],
        argnames: str | Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Selected:
        """The arguments of these numbers and names; one by itself is no tuple. Raises DTypeError for one that is not given,
        or twice.
        """
        alone = isinstance(argnums, SupportsIndex) and not argnames
        numbers = [argnums] if isinstance(argnums, SupportsIndex) else list(argnums)
        names = [argnames] if isinstance(argnames, str) else list(argnames)
        for number in cast("list[object]", numbers):
            if not isinstance(number, SupportsIndex):
                problem = f"{where}: argnums {number!r} is no number of a positional argument; argnames are names"
                raise at_user_line(DTypeError(problem))
            if not -len(args) <= operator.index(number) < len(args):
                problem = f"{where}: argnums {number} of a call with {len(args)} positional arguments"
                raise at_user_line(DTypeError(problem + ("; argnums=() is none of them" if names else "")))
        for name in names:
            if name not in kwargs:
                given = ", ".join(kwargs) or "none"
                raise at_user_line(DTypeError(f"{where}: argnames {name!r} of a call with the keyword arguments {given}"))
        numbers = [number % len(args) for number in numbers]
        for chosen in (numbers, names):
            if len(set(chosen)) < len(chosen):
                raise at_user_line(DTypeError(f"{where}: {chosen} has an argument twice; name each once"))
        parts = [(args[i], f"argument {i}") for i in numbers] + [(kwargs[name], name) for name in names]
        tree = parts[0][0] if alone else tuple(part for part, _ in parts)
        leaves = Leaves.of(where, parts[0][1] if alone else "argument", tree)
        if not alone:
            paths = [path for part, name in parts for path in Leaves.of(where, name, part).names]
            leaves = Leaves(leaves.values, leaves.tree, paths)

        def call(*values: Any) -> Any:
            chosen = unflatten(leaves.tree, iter(values))
            replaced = [chosen] if alone else list(chosen)
            positional, named = list(args), dict(kwargs)
            for i, value in zip(numbers, replaced, strict=False):
                positional[i] = value
            named |= zip(names, replaced[len(numbers) :], strict=True)
            return fun(*positional, **named)

        return cls(leaves, call)


def _inserted(op: dl.JvpOp | dl.VjpOp, like: Sequence[Tracer]) -> list[Tracer]:
    """The results of an op as numbers where what they stand for are."""
    results = require_trace().insert(op)
    return [Tracer(r.owner, r.value, model.weak) for r, model in zip(results, like, strict=True)]


def _values(tracers: Sequence[Tracer]) -> list[SSAValue]:
    return [t.value for t in tracers]


def _of_floats(tracers: Sequence[Tracer]) -> list[int]:
    return [i for i, t in enumerate(tracers) if is_float(element_type_of(t.value))]


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
    return _value_and_grad("dlc.value_and_grad", fun, argnums, has_aux, argnames, unused)


def _value_and_grad(
    where: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool,
    argnames: str | Sequence[str] = (),
    unused: Unused = "zeros",
) -> Function:
    if unused not in ("zeros", "error"):
        raise at_user_line(DlcError(f'{where}: unused={unused!r}; expected "zeros" or "error"'))

    def call(*args: Any, **kwargs: Any) -> Any:
        selected = _Selected.of(where, fun, argnums, argnames, args, kwargs)
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
        op = dl.VjpOp.of(_values(primals), [one], block, range(len(primals)), [0])
        made = _inserted(op, [*results.values, *primals])
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
    return _grad("dlc.grad", fun, argnums, has_aux, argnames, unused)


def _grad(
    where: str,
    fun: Function,
    argnums: int | Sequence[int],
    has_aux: bool = False,
    argnames: str | Sequence[str] = (),
    unused: Unused = "zeros",
) -> Function:
    both = _value_and_grad(where, fun, argnums, has_aux, argnames, unused)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return traced(call, fun, "the gradient")


def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """What `fun(*primals)` returns, and its change for a change of the arguments by `tangents`: `(results, tangents)`.

    `tangents` have the structure, shapes and dtypes of `primals`; None in place of an argument, which may be of anything, is no
    change. Results that are not of floats have tangents of zeros. With `has_aux`, `fun` returns a pair whose second is not
    differentiated: `(results, tangents, aux)`.

    Raises ShapeError or DTypeError, naming the leaf, for a tangent that differs from its argument.
    """
    return _jvp("dlc.jvp", fun, primals, tangents, has_aux)


def _jvp(where: str, fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    def call(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        moving = [i for i, t in enumerate(tangents) if t is not None]
        arguments = Leaves.of(where, "primals", {i: primals[i] for i in moving})
        arguments.require_floats(where, "tangent", "give None as its tangent")
        given = arguments.matching(where, "tangents", {i: tangents[i] for i in moving})

        def run(*values: Any) -> Any:
            moved = arguments.like(values)
            return fun(*(moved.get(i, p) for i, p in enumerate(primals)))

        block, results = differentiated(where, run, arguments)
        counted = _of_floats(results.values)
        op = dl.JvpOp.of(_values(arguments.values), _values(given), block, range(len(arguments.values)))
        made = _inserted(op, [*results.values, *(results.values[i] for i in counted)])
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
        block, results = differentiated(where, lambda *v: fun(*leaves.like(v)), leaves)
        whole = _values(leaves.values)
        if not pulled:
            return results.like(_inserted(dl.VjpOp.of(whole, [], block, [], []), results.values))
        outs = results.like(results.values)
        with discard_on_error([block]):
            if has_aux:
                outs, _ = parts_of(where, "has_aux is set, and the function", outs, 2, "(results, aux)")
            values, tree = flatten(outs)
            given = Leaves(values, tree, []).matching(where, "cotangent", cotangents)
        of = _of_floats(values)
        seeds = [given[i].value for i in of]
        made = _inserted(dl.VjpOp.of(whole, seeds, block, range(len(whole)), of), [*results.values, *leaves.values])
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
        return fun(*primals)

    def push(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return _jvp("dlc.linearize", fun, primals, tangents)[1]

    forward = traced(push, fun, "the tangent")

    def pushforward(*tangents: Any) -> Any:
        """The tangents of the results, from those of the primals."""
        return forward(given, list(tangents))

    return traced(value, fun, "the value")(given), pushforward


def jacfwd(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that returns the Jacobian of `fun`, by forward mode: one tangent for each element of the arguments.

    For each leaf of the result, a tree like the arguments of `argnums` with arrays of the shape of the result's leaf, then of
    the argument's. Cheaper than `jacrev` where the arguments have fewer elements than the result. With `has_aux`
    `(jacobian, aux)`.
    """
    where = "dlc.jacfwd"

    def call(*args: Any, **kwargs: Any) -> Any:
        selected = _Selected.of(where, fun, argnums, (), args, kwargs)
        selected.leaves.require_floats(where, "tangent")
        values = selected.leaves.values
        columns: list[list[Any]] = []
        aux: Any = None
        outs: Leaves | None = None
        for i, leaf in enumerate(values):

            def push(t: Any, i: int = i) -> Any:
                tangents = [t if k == i else None for k in range(len(values))]
                return _jvp(where, selected.call, values, tangents, has_aux)

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
        selected = _Selected.of(where, fun, argnums, (), args, kwargs)
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
    return _jvp("dlc.hvp", _grad("dlc.hvp", fun, every), primals, tangents)[1]
