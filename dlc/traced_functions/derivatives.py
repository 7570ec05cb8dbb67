"""Derivatives of functions inside a trace, for derivative rules that differentiate another function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.dialects import dl
from dlc.frontend.trace import Tracer, current_trace
from dlc.numpy.functions.creation import ones_like
from dlc.traced_functions.leaf_functions import NamedLeaves, require_trace, ssa_values, trace_body, trace_differentiated_body


def directional_derivative(function: Callable[[Any], Any], x: Any) -> Any:
    """Return the derivative of a function of one array, elementwise, along ones. Requires a trace."""
    point = NamedLeaves.of("derivative", "x", x)
    tangent = require_trace().value(ones_like(point.values[0]))
    return push_forward("derivative", function, point, [tangent])[0]


def constant(api_name: str, function: Callable[[], Any]) -> Any:
    """Return the result of a function without arguments, as a constant for derivatives."""
    trace = current_trace()
    if trace is None or trace.derivative_orders == 0:
        return function()
    block, results = trace_body(api_name, function, NamedLeaves.of(api_name, "argument", ()), 0)
    return results.with_leaves(trace.insert(dl.LinearCallOp.of([], block)))


def push_forward(api_name: str, function: Callable[..., Any], point: NamedLeaves, tangents: Sequence[Tracer]) -> list[Tracer]:
    """Return the tangents of the results of `function(*leaves)`, which are floats, at a point. Requires a trace."""
    block, results = trace_differentiated_body(api_name, function, point)
    op = dl.JvpOp.of(ssa_values(point.values), ssa_values(tangents), block, range(len(point.values)))
    return list(require_trace().insert(op))[len(results.values) :]


def pull_back(api_name: str, function: Callable[..., Any], point: NamedLeaves, cotangents: Sequence[Tracer]) -> list[Tracer]:
    """Return the cotangents of the leaves for cotangents of the results of `function(*leaves)`, floats. Requires a trace."""
    block, results = trace_differentiated_body(api_name, function, point)
    seeds = range(len(cotangents))
    op = dl.VjpOp.of(ssa_values(point.values), ssa_values(cotangents), block, range(len(point.values)), seeds)
    return list(require_trace().insert(op))[len(results.values) :]
