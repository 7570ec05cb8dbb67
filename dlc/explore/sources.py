"""What the user wrote, as the first text of a program: the nodes of an ONNX file, the operators of a TFLite file, or lines of
Python.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from pathlib import Path

from onnx import AttributeProto, GraphProto, NodeProto
from onnx.helper import get_attribute_value

from dlc.frontend.onnx.graph import ModelFile, label, load
from dlc.frontend.tflite import operator_lines
from dlc.instrument.recording import Listing

# Lines of a file that lie so near to each other are shown with those between them.
_NEAR = 12
# What is longer than this of an attribute is left out.
_LONG = 60


def onnx_listing(source: Path | bytes | ModelFile) -> Listing:
    """The nodes of a model, one a line: `y = Conv(x, w) {strides = [1, 1]}`, of which each is its own origin."""
    lines = list(_nodes(load(source).proto.graph, ""))
    return Listing("".join(f"{text}\n" for text, _ in lines), tuple((name,) for _, name in lines))


def _nodes(graph: GraphProto, indent: str) -> Iterator[tuple[str, str]]:
    for node in graph.node:
        results, operands = (", ".join(names) for names in (node.output, node.input))
        settings = ", ".join(f"{a.name} = {_value(a)}" for a in node.attribute if a.type != AttributeProto.GRAPH)
        kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        yield f"{indent}{results} = {kind}({operands})" + (f" {{{settings}}}" if settings else ""), label(node)
        for name, inner in _graphs(node):
            yield f"{indent}  {name}:", label(node)
            yield from _nodes(inner, indent + "    ")


def _graphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g


def _value(attribute: AttributeProto) -> str:
    if attribute.type in (AttributeProto.TENSOR, AttributeProto.SPARSE_TENSOR):
        return f"a tensor of {'×'.join(map(str, attribute.t.dims)) or 'one number'}"
    value = get_attribute_value(attribute)
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def tflite_listing(source: Path | bytes) -> Listing:
    """The operators of a TFLite file, one a line: `y = CONV_2D(x, w, b)`, of which each is its own origin."""
    lines = operator_lines(source)
    return Listing("".join(f"{text}\n" for text, _ in lines), tuple((name,) for _, name in lines))


def python_listing(origins: Sequence[str]) -> Listing | None:
    """The lines of Python that origins such as `file.py:12` name, with what is between them; None if there are none."""
    named: dict[str, set[int]] = {}
    for origin in origins:
        file, _, line = origin.removeprefix("∂ ").rpartition(":")
        if line.isdecimal() and linecache.getline(file, int(line)):
            named.setdefault(file, set()).add(int(line))
    shown: list[tuple[str, tuple[str, ...]]] = []
    for file, lines in named.items():
        for k, (first, last) in enumerate(_stretches(sorted(lines))):
            shown.append(("" if k else f"# {file}", ()))
            shown += [(linecache.getline(file, n).rstrip("\n"), (f"{file}:{n}",)) for n in range(first, last + 1)]
    if not shown:
        return None
    return Listing("".join(f"{text}\n" for text, _ in shown), tuple(names for _, names in shown))


def _stretches(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last lines of stretches without long gaps."""
    first = last = lines[0]
    for line in lines[1:]:
        if line - last > _NEAR:
            yield first, last
            first = line
        last = line
    yield first, last
