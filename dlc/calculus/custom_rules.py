"""Custom derivative rules, checkpointing and stop_gradient."""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

from dlc.argument_validation.validate import require_call_signature, validate_methods
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.errors import DlcError, ShapeError
from dlc.frontend.pytree import flatten, is_array_like, unflatten
from dlc.frontend.trace import Tracer, current_trace, with_user_line
from dlc.ir import Block
from dlc.numpy import zeros_like
from dlc.numpy.apply import apply, convert, operand, refuse
from dlc.traced_functions.bodies import discard_on_error
from dlc.traced_functions.leaf_functions import NamedLeaves, require_trace, require_tuple, trace_body

Function = Callable[..., Any]
CheckpointPolicy: TypeAlias = Literal["recompute", "binomial"]


def stop_gradient(x: Any) -> Any:
    """Return `x`, treated as a constant by derivatives; applies to every leaf of a pytree."""
    leaves, tree = flatten(x)
    return unflatten(tree, iter([_stop_gradient(leaf) for leaf in leaves]))


def _stop_gradient(leaf: Any) -> Any:
    array = operand(leaf)
    if not is_float(element_type_of(array.value) if isinstance(array, Tracer) else element_type(array.dtype)):
        return leaf
    return apply(dl.StopGradientOp, array)


def checkpoint(
    fun: Function | None = None,
    *,
    policy: CheckpointPolicy = "recompute",
    memory: int | str | None = None,
) -> Function:
    """Return `fun` with a derivative that needs less memory. Without `fun`, return a decorator.

    Policy `recompute`: reverse mode saves only the arguments and computes the intermediate values again. Policy `binomial`:
    each scan saves states of some steps in at most `memory` bytes (a number, or text such as "200M"), and reverse mode repeats
    the steps between them (Griewank and Walther, Revolve, 2000). By default, each step is repeated once, with the least memory
    that this allows. While loops always use this policy.

    Arguments and results are arrays, numbers and containers of them. Raises DlcError for a `memory` that is not a positive
    number of bytes, or without policy `binomial`.
    """
    if fun is None:
        return functools.partial(checkpoint, policy=policy, memory=memory)
    memory_bytes = None if policy == "recompute" else 0
    if memory is not None:
        if policy == "recompute":
            refuse(DlcError('dlc.checkpoint: memory requires policy="binomial"'))
        memory_bytes = _parse_bytes(memory)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None:
            return fun(*args, **kwargs)
        arguments, run = _arrays_of("dlc.checkpoint", fun, args, kwargs)
        block, results = trace_body("dlc.checkpoint", run, arguments)
        checkpoint_results = trace.insert(dl.CheckpointOp.of([v.value for v in arguments.values], block, memory_bytes))
        return results.with_leaves(checkpoint_results)

    return call


def _parse_bytes(memory: int | str) -> int:
    """Return a number of bytes, which may be text with the suffix K, M or G."""
    if match := re.fullmatch(r"([1-9]\d*)([KMG]?)", str(memory)):
        return int(match[1]) * 1000 ** " KMG".index(match[2] or " ")
    return refuse(DlcError(f'dlc.checkpoint: memory is {memory!r}; expected a positive number of bytes, such as "200M"'))


def _arrays_of(api_name: str, fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[NamedLeaves, Function]:
    """Return the array arguments of a call, and a function of these alone."""
    leaves, tree = flatten((args, kwargs))
    array_positions = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
    arguments = NamedLeaves.of(api_name, "argument", [leaves[i] for i in array_positions])

    def run(*values: Any) -> Any:
        replaced_leaves = list(leaves)
        for i, value in zip(array_positions, values, strict=True):
            replaced_leaves[i] = value
        args, kwargs = unflatten(tree, iter(replaced_leaves))
        return fun(*args, **kwargs)

    return arguments, run


class _CustomRuleFunction(ABC):
    """Base of functions with custom derivative rules.

    The rules are traced where the function is called. A rule may call the function itself: that call has the rules again, for
    one order of differentiation less.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(cast(Any, self), fun)
        self._fun = fun
        self._static_positions = tuple(nondiff_argnums)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result."""
        if kwargs:
            require_call_signature(self._fun, args, kwargs)
            bound = inspect.signature(self._fun).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        trace = current_trace()
        return (
            self._fun(*args)
            if trace is None or trace.derivative_orders == 0
            else self._insert_rules(trace.derivative_orders, args)
        )

    @abstractmethod
    def _insert_rules(self, orders: int, args: tuple[Any, ...]) -> Any:
        """Insert the op that carries the rules, which may be differentiated `orders` - 1 more times."""


@validate_methods("dlc.custom_jvp")
class custom_jvp(_CustomRuleFunction):
    """A function with a custom JVP rule. The rule also defines reverse mode, which transposes it.

        @dlc.custom_jvp
        def log1pexp(x):
            return dnp.log1p(dnp.exp(x))

        @log1pexp.defjvp
        def _(primals, tangents):
            (x,), (dx,) = primals, tangents
            return log1pexp(x), dx / (1 + dnp.exp(-x))

    The rule takes the tuple of primals and the tuple of tangents; the tangent of a primal that is not a float is None. It
    returns the result and its tangent, which must be linear in the tangents. Arguments at `nondiff_argnums` are static: the
    rule takes them first, in order.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self._rule: Function | None = None

    def defjvp(self, rule: Function) -> Function:
        """Set the JVP rule. Returns the rule, so that it works as a decorator."""
        self._rule = rule
        return rule

    def _insert_rules(self, orders: int, args: tuple[Any, ...]) -> Any:
        api_name = "dlc.custom_jvp"
        if self._rule is None:
            raise with_user_line(DlcError(f"{api_name}: {self._fun.__name__} has no JVP rule; set one with .defjvp"))
        rule, static_args = self._rule, [args[i] for i in self._static_positions]
        primals = _without(args, self._static_positions)
        arguments = NamedLeaves.of(api_name, "argument", primals)

        def call_function(*values: Any) -> Any:
            return self._fun(*_insert_static_args(arguments.with_leaves(values), self._static_positions, static_args))

        block, results = trace_body(api_name, call_function, arguments, 0)
        floats = [i for i, v in enumerate(arguments.values) if is_float(element_type_of(v.value))]
        tangents = NamedLeaves([arguments.values[i] for i in floats], arguments.tree, [])

        def traced_rule(*values: Any) -> Any:
            count = len(arguments.values)
            tangent_of = dict(zip(floats, values[count:], strict=True))
            primals = arguments.with_leaves(values[:count])
            input_tangents = arguments.with_leaves([tangent_of.get(i) for i in range(count)])
            rule_results = require_tuple(
                api_name, "the rule", rule(*static_args, primals, input_tangents), 2, "(result, tangent)"
            )
            result = results.match_leaves(api_name, "the rule's result", rule_results[0])
            tangent = results.match_leaves(api_name, "the rule's tangent", rule_results[1])
            float_tangents = [t for t, r in zip(tangent, results.values, strict=True) if is_float(element_type_of(r.value))]
            return [*result, *float_tangents]

        with discard_on_error([block]):
            rule_arguments = NamedLeaves([*arguments.values, *tangents.values], arguments.tree, [])
            rule_block, _ = trace_body(api_name, traced_rule, rule_arguments, orders - 1, binds_arguments=False)
        op = dl.CustomJvpOp.of([v.value for v in arguments.values], block, rule_block)
        return results.with_leaves(require_trace().insert(op))


@validate_methods("dlc.custom_vjp")
class custom_vjp(_CustomRuleFunction):
    """A function with a custom VJP rule: `f.defvjp(forward, backward)`.

    `forward(*arguments)` returns the result and the residuals that the backward rule needs; `backward(residuals, cotangent)`
    returns a tuple with the cotangent of each argument, None for zero. Arguments at `nondiff_argnums` are static: `backward`
    takes them first, in order.
    """

    def __init__(self, fun: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self._rules: tuple[Function, Function] | None = None

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Set the forward and the backward rule."""
        self._rules = forward, backward

    def _insert_rules(self, orders: int, args: tuple[Any, ...]) -> Any:
        api_name = "dlc.custom_vjp"
        if self._rules is None:
            raise with_user_line(DlcError(f"{api_name}: {self._fun.__name__} has no VJP rule; set one with .defvjp"))
        (forward, backward), static_args = self._rules, [args[i] for i in self._static_positions]
        arguments = NamedLeaves.of(api_name, "argument", _without(args, self._static_positions))

        def call_function(function: Function) -> Function:
            return lambda *values: function(
                *_insert_static_args(arguments.with_leaves(values), self._static_positions, static_args)
            )

        block, results = trace_body(api_name, call_function(self._fun), arguments, 0)
        blocks: list[Block] = [block]
        with discard_on_error(blocks):
            structure: list[Any] = []

            def forward_rule(*values: Any) -> Any:
                value, residuals_tree = require_tuple(
                    api_name, "the forward rule", call_function(forward)(*values), 2, "(result, residuals)"
                )
                result = results.match_leaves(api_name, "the forward rule's result", value)
                leaves, tree = flatten(residuals_tree)
                structure[:] = leaves, tree
                return [*result, *(leaf for leaf in leaves if is_array_like(leaf))]

            forward_block, outputs = trace_body(api_name, forward_rule, arguments, orders - 1)
            blocks.append(forward_block)
            leaves, tree = structure
            residuals = outputs.values[len(results.values) :]
            cotangents = [v for v in results.values if is_float(element_type_of(v.value))]

            def backward_rule(*values: Any) -> Any:
                arrays = iter(values)
                saved = unflatten(tree, iter([next(arrays) if is_array_like(leaf) else leaf for leaf in leaves]))
                cotangent_values = iter(values[len(residuals) :])
                cotangent = results.with_leaves(
                    [next(cotangent_values) if is_float(element_type_of(v.value)) else None for v in results.values]
                )
                return _cotangent_arrays(api_name, backward(*static_args, saved, cotangent), arguments)

            backward_arguments = NamedLeaves([*residuals, *cotangents], tree, [])
            backward_block, _ = trace_body(api_name, backward_rule, backward_arguments, orders - 1, binds_arguments=False)
        op = dl.CustomVjpOp.of([v.value for v in arguments.values], block, forward_block, backward_block)
        return results.with_leaves(require_trace().insert(op))


def _cotangent_arrays(api_name: str, cotangents: Any, arguments: NamedLeaves) -> list[Any]:
    """Return the result of a backward rule as one array for each float leaf of the arguments."""
    expected = arguments.with_leaves(arguments.values)
    argument_cotangents = require_tuple(api_name, "the backward rule", cotangents, len(expected), f"a tuple of {len(expected)}")
    cotangent_leaves: list[Any] = []
    for k, (cotangent, argument) in enumerate(zip(argument_cotangents, expected, strict=True)):
        name = f"cotangent[{k}]"
        leaves, tree = flatten(argument)
        cotangent_values, other = ([None] * len(leaves), tree) if cotangent is None else flatten(cotangent)
        if difference := tree.first_difference(other):
            path, expected_structure, actual = difference
            raise with_user_line(
                ShapeError(f"{api_name}: the backward rule's {name}{path} is {actual}; expected {expected_structure}")
            )
        for leaf, cotangent, path in zip(leaves, tree.reordered_leaves(other, cotangent_values), tree.paths(name), strict=True):
            if not is_float(element_type_of(leaf.value)):
                continue
            value = require_trace().value(zeros_like(leaf) if cotangent is None else cotangent)
            if value.shape != leaf.shape:
                raise with_user_line(
                    ShapeError(f"{api_name}: the backward rule's {path} has shape {value.shape}; expected {leaf.shape}")
                )
            cotangent_leaves.append(convert(value, leaf.dtype))
    return cotangent_leaves


def _without(args: Sequence[Any], static_args: Sequence[int]) -> tuple[Any, ...]:
    return tuple(a for i, a in enumerate(args) if i not in static_args)


def _insert_static_args(args: Sequence[Any], positions: Sequence[int], static_args: Sequence[Any]) -> list[Any]:
    """Insert the static arguments at their positions."""
    extended_args = list(args)
    for i, static_arg in sorted(zip(positions, static_args, strict=True), key=lambda pair: pair[0]):
        extended_args.insert(i, static_arg)
    return extended_args
