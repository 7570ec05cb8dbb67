"""Functions whose derivative is not that of the steps they are computed by.

What is right in value may be wrong in slope: where a case is chosen whose formula is a constant, or where a sign is taken off
and put back. Such a function brings a rule for its tangent.
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

# The tangent of a result, from the result, the operands and their tangents; tuples of both for a function with several.
Rule: TypeAlias = "Callable[[Any, Sequence[Operand], Sequence[Operand]], Any]"


def with_tangent(rule: Rule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for functions of operands of one float dtype: derivatives go by `rule`, both modes."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*operands: Operand) -> Any:
            trace = next((x.owner for x in operands if isinstance(x, Tracer)), None)
            if trace is None or trace.orders == 0:
                return function(*operands)
            values = [trace.value(x) for x in operands]
            types = [tensor_of(v.value) for v in values]
            several = False

            def computed(arguments: Sequence[Tracer]) -> Sequence[Any]:
                nonlocal several
                results = function(*arguments)
                several = isinstance(results, tuple)
                return results if several else (results,)

            def ruled(arguments: Sequence[Tracer]) -> list[Any]:
                given, tangents = arguments[: len(types)], arguments[len(types) :]
                # The results in it have a rule themselves, for derivatives of derivatives.
                results = call(*given)
                changes = rule(results, given, tangents)
                pairs = list(zip(results, changes, strict=True)) if several else [(results, changes)]
                return [*(r for r, _ in pairs), *(convert(change, r.dtype) for r, change in pairs)]

            body = _body(trace, types, computed, 0)
            rule_body = _body(trace, [*types, *types], ruled, trace.orders - 1)
            made = trace.insert(dl.CustomJvpOp.of([v.value for v in values], body, rule_body))
            return tuple(made) if several else made[0]

        return call

    return decorate


def _body(trace: Trace, types: Sequence[Attribute], make: Callable[[Sequence[Tracer]], Sequence[Any]], orders: int) -> Block:
    """The body that `make` traces on arguments of these types, to be differentiated so often."""
    block = Block(arg_types=types)
    with trace.inside(block, orders):
        results = make([Tracer(trace, a) for a in block.args])
        block.add_op(dl.YieldOp([trace.value(r).value for r in results]))
    return block
