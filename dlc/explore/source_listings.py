"""The user's source as the first text of a program: ONNX nodes, TFLite operators, or lines of Python."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from pathlib import Path

from onnx import AttributeProto, GraphProto, NodeProto
from onnx.helper import get_attribute_value

from dlc.frontend.onnx.graph import ModelFile, label, load
from dlc.frontend.tflite import operator_lines
from dlc.instrument.compilation_record import Listing

# Lines at most this far apart are shown with the lines between them.
_MAX_GAP_LINES = 12
# Longer attribute values are truncated.
_MAX_ATTRIBUTE_CHARS = 60


def onnx_listing(source: Path | bytes | ModelFile) -> Listing:
    """Return the nodes of a model, one per line, each its own origin: `y = Conv(x, w) {strides = [1, 1]}`."""
    lines = list(_nodes(load(source).proto.graph, ""))
    return Listing("".join(f"{text}\n" for text, _ in lines), tuple((name,) for _, name in lines))


def _nodes(graph: GraphProto, indent: str) -> Iterator[tuple[str, str]]:
    for node in graph.node:
        results, operands = (", ".join(names) for names in (node.output, node.input))
        settings = ", ".join(f"{a.name} = {_value(a)}" for a in node.attribute if a.type != AttributeProto.GRAPH)
        op_type = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        yield f"{indent}{results} = {op_type}({operands})" + (f" {{{settings}}}" if settings else ""), label(node)
        for name, subgraph in _graphs(node):
            yield f"{indent}  {name}:", label(node)
            yield from _nodes(subgraph, indent + "    ")


def _graphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g


def _value(attribute: AttributeProto) -> str:
    if attribute.type in (AttributeProto.TENSOR, AttributeProto.SPARSE_TENSOR):
        return f"a tensor of {'×'.join(map(str, attribute.t.dims)) or 'one element'}"
    value = get_attribute_value(attribute)
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_ATTRIBUTE_CHARS else f"{text[:_MAX_ATTRIBUTE_CHARS]}…"


def tflite_listing(source: Path | bytes) -> Listing:
    """Return the operators of a TFLite file, one per line, each its own origin: `y = CONV_2D(x, w, b)`."""
    lines = operator_lines(source)
    return Listing("".join(f"{text}\n" for text, _ in lines), tuple((name,) for _, name in lines))


def python_listing(origins: Sequence[str]) -> Listing | None:
    """Return the Python lines that origins such as `file.py:12` name, with the lines between them; None if there are none."""
    named_lines: dict[str, set[int]] = {}
    for origin in origins:
        file, _, line = origin.removeprefix("∂ ").rpartition(":")
        if line.isdecimal() and linecache.getline(file, int(line)):
            named_lines.setdefault(file, set()).add(int(line))
    rows: list[tuple[str, tuple[str, ...]]] = []
    for file, lines in named_lines.items():
        for k, (first, last) in enumerate(_line_ranges(sorted(lines))):
            rows.append(("" if k else f"# {file}", ()))
            rows += [(linecache.getline(file, n).rstrip("\n"), (f"{file}:{n}",)) for n in range(first, last + 1)]
    if not rows:
        return None
    return Listing("".join(f"{text}\n" for text, _ in rows), tuple(names for _, names in rows))


def _line_ranges(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of ranges without long gaps."""
    first = last = lines[0]
    for line in lines[1:]:
        if line - last > _MAX_GAP_LINES:
            yield first, last
            first = line
        last = line
    yield first, last
