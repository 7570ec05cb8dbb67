"""Running a graph on traced arrays: each node becomes the ops that its rule makes, at the user's line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from dlc import random
from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import is_complex, of_parts, parts_of
from dlc.frontend.trace import Trace, current_trace, line_location
from dlc.misuse import unexplained
from dlc.numpy.apply import convert
from dlc.pytorch.graph import Graph, Node, Operator, Ref
from dlc.pytorch.rules import DRAWN, OF_COMPLEX, RULES
from dlc.pytorch.rules.table import Dtype


def gaps(graph: Graph, *, inner: bool = False) -> list[Node]:
    """The nodes that there is no rule for; in a body, numbers are not drawn."""
    found: list[Node] = []
    for node in graph.nodes:
        if node.op not in RULES and (inner or node.op not in DRAWN):
            found.append(node)
        found += [gap for body in node.args if isinstance(body, Graph) for gap in gaps(body, inner=True)]
    return found


def draws(graph: Graph) -> bool:
    """Whether random numbers are drawn in a graph."""
    return any(node.op in DRAWN for node in graph.nodes)


def refuse_gaps(name: str, missing: Sequence[Node]) -> None:
    """Raises UnsupportedError with each operator that there is no rule for, and where the model calls it."""
    if not missing:
        return
    lines: dict[str, list[str]] = {}
    for node in missing:
        lines.setdefault(node.op, []).append(place_of(node))
    listed = "\n".join(f"  {op}: {', '.join(dict.fromkeys(places))}" for op, places in lines.items())
    raise UnsupportedError(
        f"{name}: dlc has no rule for\n{listed}\na rule is a few lines in dlc/pytorch/rules (docs/pytorch.md)"
    )


def place_of(node: Node) -> str:
    """Where a node is called, as it is told: the module and the line."""
    file = f"{node.file.rsplit('/', 1)[-1]}:{node.line}" if node.file else ""
    return f"{node.module} ({file})" if node.module and file else node.module or file or f"node {node.name}"


def interpret(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The outputs for these inputs, of which the one behind those of the graph is a seed where numbers are drawn. Called while
    the graph is traced.

    Raises DlcError, which starts with the user's line.
    """
    trace = cast(Trace, current_trace())
    values: dict[str, Any] = {info.name: array for info, array in zip(graph.inputs, arrays, strict=False)}
    key: Any = random.key(arrays[-1]) if draws(graph) else None
    values |= graph.known

    def value_of(argument: Any) -> Any:
        if isinstance(argument, Ref):
            if argument.name in graph.constants and argument.name not in values:
                name = argument.name
                values[name] = _constant(trace, graph.constants[name], graph.titles.get(name, name))
            return values[argument.name]
        if isinstance(argument, Graph):
            return partial(_applied, argument)
        if isinstance(argument, Operator):
            return partial(_called_with_key, argument.name)
        return [value_of(a) for a in cast("Sequence[Any]", argument)] if isinstance(argument, list | tuple) else argument

    for number, node in enumerate(graph.nodes):
        args, kwargs = [value_of(a) for a in node.args], {k: value_of(a) for k, a in node.kwargs.items()}
        with trace.at(line_location(node.file, node.line) if node.file else None):
            if node.op in DRAWN:
                args.insert(0, random.fold_in(key, number))
            values[node.name] = _typed(_called(node, args, kwargs), node.dtypes)
    return [value_of(output) for output in graph.values]


def _typed(result: Any, dtypes: Sequence[Dtype | None]) -> Any:
    """A result with the dtypes that PyTorch has for it: operators differ in what they make of 16 bits beside 32."""
    if isinstance(result, list | tuple):
        results = cast("Sequence[Any]", result)
        return [_as(r, d) for r, d in zip(results, dtypes, strict=True)] if dtypes else results
    return _as(result, *dtypes)


def _as(result: Any, dtype: Dtype | None = None) -> Any:
    return result if dtype is None or result is None or is_complex(result) else convert(result, dtype)


def _called_with_key(op: str, key: Any, *args: Any, **kwargs: Any) -> Any:
    return DRAWN[op](key, *args, **kwargs) if op in DRAWN else RULES[op](*args, **kwargs)


def _applied(body: Graph, *arrays: Any) -> list[Any]:
    return interpret(body, arrays)


def _constant(trace: Trace, array: Any, title: str) -> Any:
    if not is_complex(array):
        return trace.constant(array, title)
    real, imag = parts_of(array)
    return of_parts(trace.constant(real, f"{title}_real"), trace.constant(imag, f"{title}_imag"))


def _has_complex(argument: Any) -> bool:
    if isinstance(argument, np.dtype):
        return argument.kind == "c"
    return any(map(is_complex, cast("Sequence[Any]", argument))) if isinstance(argument, list) else is_complex(argument)


def _called(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    rule = OF_COMPLEX.get(node.op) if any(map(_has_complex, (*args, *kwargs.values()))) else None
    try:
        return unexplained(rule or DRAWN.get(node.op) or RULES[node.op])(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        # The call itself failed: an argument that the rule does not know.
        raise UnsupportedError(f"{place_of(node)}: {node.op}: {error}") from error
