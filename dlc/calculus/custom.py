"""Functions with rules of their own for their derivatives, and what derivatives keep."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

from dlc.calculus.function import Leaves, body_of, parts_of, require_trace
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.errors import DlcError, ShapeError
from dlc.frontend.pytree import flatten, is_array_like, unflatten
from dlc.frontend.trace import Tracer, at_user_line, current_trace
from dlc.ir import Block
from dlc.lax.bodies import discard_on_error
from dlc.misuse import explaining_methods, require_bound
from dlc.numpy import zeros_like
from dlc.numpy.apply import apply, convert, operand

Function = Callable[..., Any]


def stop_gradient(x: Any) -> Any:
    """`x`, which derivatives take as constant; a tree is taken leaf by leaf."""
    leaves, tree = flatten(x)
    return unflatten(tree, iter([_stopped(leaf) for leaf in leaves]))


def _stopped(leaf: Any) -> Any:
    array = operand(leaf)
    if not is_float(element_type_of(array.value) if isinstance(array, Tracer) else element_type(array.dtype)):
        return leaf
    return apply(dl.StopGradientOp, array)


def checkpoint(fun: Function) -> Function:
    """`fun`, of which reverse mode keeps the arguments only and computes the rest again: less memory for more time.

    What it takes and returns are arrays, numbers and containers of them.
    """

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None:
            return fun(*args, **kwargs)
        arguments, run = _arrays_of("dlc.checkpoint", fun, args, kwargs)
        block, results = body_of("dlc.checkpoint", run, arguments)
        made = trace.insert(dl.CheckpointOp.of([v.value for v in arguments.values], block))
        return results.like(made)

    return call


def _arrays_of(where: str, fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Leaves, Function]:
    """The arrays among a call's arguments, and the function of them alone."""
    leaves, tree = flatten((args, kwargs))
    chosen = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
    arguments = Leaves.of(where, "argument", [leaves[i] for i in chosen])

    def run(*values: Any) -> Any:
        given = list(leaves)
        for i, value in zip(chosen, values, strict=True):
            given[i] = value
        args, kwargs = unflatten(tree, iter(given))
        return fun(*args, **kwargs)

    return arguments, run


class _Ruled(ABC):
    """A function with rules of its own, which its rules may call.

    A rule is traced where the function is called, and the function in it has its rules again, as often as there are
    derivatives around the call.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(cast(Any, self), fun)
        self._fun = fun
        self._settings = tuple(nondiff_argnums)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        if kwargs:
            require_bound(self._fun, args, kwargs)
            bound = inspect.signature(self._fun).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        trace = current_trace()
        return self._fun(*args) if trace is None or trace.orders == 0 else self._ruled(trace.orders, args)

    @abstractmethod
    def _ruled(self, orders: int, args: tuple[Any, ...]) -> Any:
        """The op that has the rules, which may be differentiated so often, less once."""


@explaining_methods("dlc.custom_jvp")
class custom_jvp(_Ruled):
    """A function with a rule for its tangent, which serves both modes: reverse mode transposes it.

        @dlc.custom_jvp
        def log1pexp(x):
            return dnp.log1p(dnp.exp(x))

        @log1pexp.defjvp
        def _(primals, tangents):
            (x,), (dx,) = primals, tangents
            return log1pexp(x), dx / (1 + dnp.exp(-x))

    The rule takes tuples of arguments and of their tangents, None for what is not of floats, and returns the result and its
    tangent, which is linear in the tangents. Arguments `nondiff_argnums` are settings: the rule takes them first, in order.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self._rule: Function | None = None

    def defjvp(self, rule: Function) -> Function:
        """Sets the rule; returns it, so that it can stand as a decorator."""
        self._rule = rule
        return rule

    def _ruled(self, orders: int, args: tuple[Any, ...]) -> Any:
        where = "dlc.custom_jvp"
        if self._rule is None:
            raise at_user_line(DlcError(f"{where}: {self._fun.__name__} has no rule yet; give it one with .defjvp"))
        rule, settings = self._rule, [args[i] for i in self._settings]
        primals = _without(args, self._settings)
        arguments = Leaves.of(where, "argument", primals)

        def called(*values: Any) -> Any:
            return self._fun(*_with(arguments.like(values), self._settings, settings))

        block, results = body_of(where, called, arguments, 0)
        floats = [i for i, v in enumerate(arguments.values) if is_float(element_type_of(v.value))]
        tangents = Leaves([arguments.values[i] for i in floats], arguments.tree, [])

        def ruled(*values: Any) -> Any:
            count = len(arguments.values)
            moving = dict(zip(floats, values[count:], strict=True))
            given = arguments.like([moving.get(i) for i in range(count)])
            made = parts_of(where, "the rule", rule(*settings, arguments.like(values[:count]), given), 2, "(result, tangent)")
            result = results.matching(where, "the rule's result", made[0])
            tangent = results.matching(where, "the rule's tangent", made[1])
            moved = [t for t, r in zip(tangent, results.values, strict=True) if is_float(element_type_of(r.value))]
            return [*result, *moved]

        with discard_on_error([block]):
            given = Leaves([*arguments.values, *tangents.values], arguments.tree, [])
            rule_block, _ = body_of(where, ruled, given, orders - 1, computed=False)
        op = dl.CustomJvpOp.of([v.value for v in arguments.values], block, rule_block)
        return results.like(require_trace().insert(op))


@explaining_methods("dlc.custom_vjp")
class custom_vjp(_Ruled):
    """A function with a rule for its cotangents: `f.defvjp(forward, backward)`.

    `forward(*arguments)` returns the result and what the backward rule needs; `backward(kept, cotangent)` returns a tuple
    with the cotangent of each argument, None where it is zero. Arguments `nondiff_argnums` are settings: `backward` takes
    them first, in order.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self._rules: tuple[Function, Function] | None = None

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Sets both rules."""
        self._rules = forward, backward

    def _ruled(self, orders: int, args: tuple[Any, ...]) -> Any:
        where = "dlc.custom_vjp"
        if self._rules is None:
            raise at_user_line(DlcError(f"{where}: {self._fun.__name__} has no rules yet; give it both with .defvjp"))
        (forward, backward), settings = self._rules, [args[i] for i in self._settings]
        arguments = Leaves.of(where, "argument", _without(args, self._settings))

        def called(function: Function) -> Function:
            return lambda *values: function(*_with(arguments.like(values), self._settings, settings))

        block, results = body_of(where, called(self._fun), arguments, 0)
        made: list[Block] = [block]
        with discard_on_error(made):
            kept: list[Any] = []

            def keeping(*values: Any) -> Any:
                value, needed = parts_of(where, "the forward rule", called(forward)(*values), 2, "(result, kept)")
                result = results.matching(where, "the forward rule's result", value)
                leaves, tree = flatten(needed)
                kept[:] = leaves, tree
                return [*result, *(leaf for leaf in leaves if is_array_like(leaf))]

            forward_block, all_made = body_of(where, keeping, arguments, orders - 1)
            made.append(forward_block)
            leaves, tree = kept
            residuals = all_made.values[len(results.values) :]
            cotangents = [v for v in results.values if is_float(element_type_of(v.value))]

            def pulling(*values: Any) -> Any:
                arrays = iter(values)
                given = unflatten(tree, iter([next(arrays) if is_array_like(leaf) else leaf for leaf in leaves]))
                moving = iter(values[len(residuals) :])
                ct = results.like([next(moving) if is_float(element_type_of(v.value)) else None for v in results.values])
                return _pulled(where, backward(*settings, given, ct), arguments)

            given = Leaves([*residuals, *cotangents], tree, [])
            backward_block, _ = body_of(where, pulling, given, orders - 1, computed=False)
        op = dl.CustomVjpOp.of([v.value for v in arguments.values], block, forward_block, backward_block)
        return results.like(require_trace().insert(op))


def _pulled(where: str, cotangents: Any, arguments: Leaves) -> list[Any]:
    """What a backward rule returned, as one array for each float leaf of the arguments."""
    expected = arguments.like(arguments.values)
    parts = parts_of(where, "the backward rule", cotangents, len(expected), f"a tuple of {len(expected)}")
    made: list[Any] = []
    for k, (given, argument) in enumerate(zip(parts, expected, strict=True)):
        name = f"cotangent[{k}]"
        leaves, tree = flatten(argument)
        found, other = ([None] * len(leaves), tree) if given is None else flatten(given)
        if difference := tree.difference(other):
            path, there, here = difference
            raise at_user_line(ShapeError(f"{where}: the backward rule's {name}{path} is {here}, expected {there}"))
        for leaf, ct, path in zip(leaves, tree.leaves_of(other, found), tree.paths(name), strict=True):
            if not is_float(element_type_of(leaf.value)):
                continue
            value = require_trace().value(zeros_like(leaf) if ct is None else ct)
            if value.shape != leaf.shape:
                raise at_user_line(
                    ShapeError(f"{where}: the backward rule's {path} has the shape {value.shape}, expected {leaf.shape}")
                )
            made.append(convert(value, leaf.dtype))
    return made


def _without(args: Sequence[Any], settings: Sequence[int]) -> tuple[Any, ...]:
    return tuple(a for i, a in enumerate(args) if i not in settings)


def _with(args: Sequence[Any], places: Sequence[int], settings: Sequence[Any]) -> list[Any]:
    """Arguments with settings put in at their places."""
    made = list(args)
    for i, setting in sorted(zip(places, settings, strict=True), key=lambda pair: pair[0]):
        made.insert(i, setting)
    return made
