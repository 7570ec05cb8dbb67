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
from dlc.frontend.trace import Trace, Tracer
from dlc.ir import Attribute, Block
from dlc.numpy.apply import Operand, convert

# (result, operands, tangents of the operands) → tangent of the result; tuples for a function with several results.
Rule: TypeAlias = "Callable[[Any, Sequence[Operand], Sequence[Operand]], Any]"


def with_jvp_rule(rule: Rule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of operands of one float dtype: forward and reverse mode differentiate it by `rule`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*operands: Operand) -> Any:
            trace = next((x.owner for x in operands if isinstance(x, Tracer)), None)
            if trace is None or trace.derivative_orders == 0:
                return function(*operands)
            values = [trace.value(x) for x in operands]
            types = [tensor_of(v.value) for v in values]
            has_multiple_results = False

            def function_results(arguments: Sequence[Tracer]) -> Sequence[Any]:
                nonlocal has_multiple_results
                results = function(*arguments)
                has_multiple_results = isinstance(results, tuple)
                return results if has_multiple_results else (results,)

            def rule_results(arguments: Sequence[Tracer]) -> list[Any]:
                primals, tangents = arguments[: len(types)], arguments[len(types) :]
                # `call` applies the rule again, for higher-order derivatives.
                results = call(*primals)
                result_tangents = rule(results, primals, tangents)
                pairs = (
                    list(zip(results, result_tangents, strict=True)) if has_multiple_results else [(results, result_tangents)]
                )
                return [*(r for r, _ in pairs), *(convert(tangent, r.dtype) for r, tangent in pairs)]

            body = _trace_body(trace, types, function_results, 0)
            rule_body = _trace_body(trace, [*types, *types], rule_results, trace.derivative_orders - 1)
            op_results = trace.insert(dl.CustomJvpOp.of([v.value for v in values], body, rule_body))
            return tuple(op_results) if has_multiple_results else op_results[0]

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
