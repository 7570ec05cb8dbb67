"""Interpreter of FX graphs on traced arrays: each node becomes the ops of its rule, at the user's line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from dlc import random
from dlc.argument_validation.validate import without_validation
from dlc.distributed.annotations import shard
from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import component_dtype, from_parts, is_complex, real_and_imaginary
from dlc.frontend.trace import Trace, current_trace, line_location
from dlc.numpy import zeros_like
from dlc.numpy.apply import convert
from dlc.pytorch.fx_graph import FxGraph, FxNode, FxOperator, ValueRef
from dlc.pytorch.rules import COMPLEX_RULES, RANDOM_RULES, RULES
from dlc.pytorch.rules.rule_table import Dtype
from dlc.shapes.traced_dims import traced_size


def unsupported_nodes(graph: FxGraph, *, inner: bool = False) -> list[FxNode]:
    """Return the nodes without a rule; random operators are not supported inside a branch or loop body (`inner`)."""
    unsupported: list[FxNode] = []
    for node in graph.nodes:
        if node.op not in RULES and (inner or node.op not in RANDOM_RULES):
            unsupported.append(node)
        unsupported += [
            inner_node for body in node.args if isinstance(body, FxGraph) for inner_node in unsupported_nodes(body, inner=True)
        ]
    return unsupported


def draws_random_numbers(graph: FxGraph) -> bool:
    """Return whether the graph draws random numbers."""
    return any(node.op in RANDOM_RULES for node in graph.nodes)


def raise_unsupported_nodes(name: str, unsupported: Sequence[FxNode]) -> None:
    """Raise UnsupportedError with each operator that has no rule, and the lines that call it."""
    if not unsupported:
        return
    lines: dict[str, list[str]] = {}
    for node in unsupported:
        lines.setdefault(node.op, []).append(node_location(node))
    listing = "\n".join(f"  {op}: {', '.join(dict.fromkeys(locations))}" for op, locations in lines.items())
    raise UnsupportedError(
        f"{name}: dlc has no rule for\n{listing}\na rule is a few lines in dlc/pytorch/rules (docs/pytorch.md)"
    )


def node_location(node: FxNode) -> str:
    """Return the location of a node for messages: the module and the line."""
    file = f"{node.file.rsplit('/', 1)[-1]}:{node.line}" if node.file else ""
    return f"{node.module} ({file})" if node.module and file else node.module or file or f"node {node.name}"


def interpret(graph: FxGraph, arrays: Sequence[Any]) -> list[Any]:
    """Return the outputs for these input arrays; call it during tracing.

    If the graph draws random numbers, the array after the graph's inputs is the seed. A DlcError starts with the user's line.
    """
    trace = cast(Trace, current_trace())
    values: dict[str, Any] = {info.name: array for info, array in zip(graph.inputs, arrays, strict=False)}
    key: Any = random.key(arrays[-1]) if draws_random_numbers(graph) else None
    values |= {name: traced_size(value, trace) for name, value in graph.scalar_inputs.items()}

    def value_of(argument: Any) -> Any:
        if isinstance(argument, ValueRef):
            if argument.name in graph.constants and argument.name not in values:
                name = argument.name
                constant = _constant(trace, graph.constants[name], graph.constant_names.get(name, name))
                values[name] = shard(constant, graph.shardings[name]) if name in graph.shardings else constant
            return values[argument.name]
        if isinstance(argument, FxGraph):
            return partial(_run_subgraph, argument)
        if isinstance(argument, FxOperator):
            return partial(_call_random_operator, argument.name)
        return (
            [value_of(a) for a in cast("Sequence[Any]", argument)]
            if isinstance(argument, list | tuple)
            else traced_size(argument, trace)
        )

    for node_index, node in enumerate(graph.nodes):
        args, kwargs = [value_of(a) for a in node.args], {k: value_of(a) for k, a in node.kwargs.items()}
        with trace.at(line_location(node.file, node.line) if node.file else None):
            if node.op in RANDOM_RULES:
                args.insert(0, random.fold_in(key, node_index))
            values[node.name] = convert_result(_apply_rule(node, args, kwargs), node.dtypes)
    return [value_of(output) for output in graph.values]


def convert_result(result: Any, dtypes: Sequence[Dtype | None]) -> Any:
    """Convert a result to the dtypes that PyTorch has for it, which differ from NumPy's for mixed precision."""
    if isinstance(result, list | tuple):
        results = cast("Sequence[Any]", result)
        return [_convert_dtype(r, d) for r, d in zip(results, dtypes, strict=True)] if dtypes else results
    return _convert_dtype(result, *dtypes)


def _convert_dtype(result: Any, dtype: Dtype | None = None) -> Any:
    if dtype is None or result is None:
        return result
    if dtype.kind != "c":
        return convert(real_and_imaginary(result)[0] if is_complex(result) else result, dtype)
    parts = real_and_imaginary(result) if is_complex(result) else (result, zeros_like(result))
    return from_parts(*(convert(part, component_dtype(dtype)) for part in parts))


def _call_random_operator(op: str, key: Any, *args: Any, **kwargs: Any) -> Any:
    return RANDOM_RULES[op](key, *args, **kwargs) if op in RANDOM_RULES else RULES[op](*args, **kwargs)


def _run_subgraph(body: FxGraph, *arrays: Any) -> list[Any]:
    return interpret(body, arrays)


def _constant(trace: Trace, array: Any, name: str) -> Any:
    if not is_complex(array):
        return trace.constant(array, name)
    real, imag = real_and_imaginary(array)
    return from_parts(trace.constant(real, f"{name}_real"), trace.constant(imag, f"{name}_imag"))


def has_complex(argument: Any) -> bool:
    """Return whether an argument is complex, a complex dtype, or a list with a complex element."""
    if isinstance(argument, np.dtype):
        return argument.kind == "c"
    return any(map(is_complex, cast("Sequence[Any]", argument))) if isinstance(argument, list) else is_complex(argument)


def _apply_rule(node: FxNode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    rule = COMPLEX_RULES.get(node.op) if any(map(has_complex, (*args, *kwargs.values()))) else None
    try:
        return without_validation(rule or RANDOM_RULES.get(node.op) or RULES[node.op])(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        # The call itself failed: the rule does not have the parameter.
        raise UnsupportedError(f"{node_location(node)}: {node.op}: {error}") from error
