"""Functions with a custom JVP rule instead of the derivative of the ops that compute them.

Differentiating the implementation can be wrong although its values are right: where a branch with a constant is selected, or
where a sign is removed and restored. Such a function declares a rule for its tangent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import tensor_of
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.pytree import Tree, flatten, unflatten
from dlc.frontend.trace import Trace, Tracer
from dlc.ir import Attribute, Block
from dlc.numpy.apply import Operand, convert

# (result, operands, tangents of the operands) → tangent of the result; tuples for a function with several results.
Rule: TypeAlias = "Callable[[Any, Sequence[Any], Sequence[Any]], Any]"


def with_jvp_rule(rule: Rule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of real or complex operands of one precision: forward and reverse mode differentiate it by `rule`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*operands: Operand | Complex) -> Any:
            leaves, tree = flatten(operands)
            trace = next((x.owner for x in leaves if isinstance(x, Tracer)), None)
            if trace is None or trace.derivative_orders == 0:
                return function(*operands)
            values = [trace.value(x) for x in leaves]
            types = [tensor_of(v.value) for v in values]
            result_tree: Tree | None = None

            def function_results(arguments: Sequence[Tracer]) -> Sequence[Any]:
                nonlocal result_tree
                results, result_tree = flatten(function(*unflatten(tree, iter(arguments))))
                return results

            def rule_results(arguments: Sequence[Tracer]) -> list[Any]:
                primals, tangents = (unflatten(tree, iter(part)) for part in (arguments[: len(types)], arguments[len(types) :]))
                # `call` applies the rule again, for higher-order derivatives.
                results = call(*primals)
                result_leaves, tangent_leaves = (flatten(x)[0] for x in (results, rule(results, primals, tangents)))
                return [
                    *result_leaves,
                    *(convert(tangent, r.dtype) for r, tangent in zip(result_leaves, tangent_leaves, strict=True)),
                ]

            body = _trace_body(trace, types, function_results, 0)
            rule_body = _trace_body(trace, [*types, *types], rule_results, trace.derivative_orders - 1)
            op_results = trace.insert(dl.CustomJvpOp.of([v.value for v in values], body, rule_body))
            assert result_tree is not None
            return unflatten(result_tree, iter(op_results))

        return call

    return decorate


def _trace_body(
    trace: Trace, types: Sequence[Attribute], function: Callable[[Sequence[Tracer]], Sequence[Any]], orders: int
) -> Block:
    """Trace `function` on arguments of these types into a body that may be differentiated `orders` times."""
    block = Block(arg_types=types)
    with trace.in_body(block, orders):
        results = function([Tracer(trace, a) for a in block.args])
        block.add_op(dl.YieldOp([trace.value(r).value for r in results]))
    return block
