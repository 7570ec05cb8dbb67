"""Load a model file and validate its graphs.

Checked here: each name has one producer, each name read is produced, there are no cycles. Nodes are returned in topological
order (ONNX requires files to be sorted already; sorting is cheap and repairs the others).
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from dlc.errors import ModelError
from dlc.frontend.onnx.large_tensors import Content, open_content, read_all, without_large_tensors
from dlc.frontend.onnx.other_formats import describe_format


@dataclass(frozen=True)
class ModelFile:
    """A parsed model, the folder of its external data, and its name in messages.

    `content`: the contents of the file, if `proto` lacks the large tensors (large_tensors.py).
    """

    proto: ModelProto
    folder: Path | None
    name: str
    content: Content | None = None

    @property
    def stem(self) -> str:
        """The file name without its extension, which names the programs of the model."""
        return Path(self.name).stem


# This operator also reads a tensor that is not among its inputs: the tensor `y` that it differentiates.
_GRADIENT = "ai.onnx.preview.training", "Gradient"

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | ModelFile"


def load(source: ModelSource, *, with_large_tensors: bool = True) -> ModelFile:
    """Return the model of a path, of the bytes of a file, or of a ModelProto; raises ModelError for anything else.

    Unless `with_large_tensors`, large tensors of files are not parsed but referenced in `content`.
    """
    if isinstance(source, ModelFile):
        return source
    if isinstance(source, ModelProto):
        return _require_graph(ModelFile(source, None, source.graph.name or "model"))
    if isinstance(source, bytes):
        return replace(
            load(_parse(source, "model", with_large_tensors=with_large_tensors)), content=None if with_large_tensors else source
        )
    path = Path(source)
    try:
        content = open_content(path)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    proto = _parse(content, str(path), with_large_tensors=with_large_tensors)
    return _require_graph(ModelFile(proto, path.parent, str(path), None if with_large_tensors else content))


def _parse(content: Content, name: str, *, with_large_tensors: bool) -> ModelProto:
    proto, data = ModelProto(), read_all(content) if with_large_tensors else without_large_tensors(content)
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        format_text = describe_format(data) or f"or a truncated one ({len(data)} bytes)"
        raise ModelError(f"{name}: not an ONNX model, {format_text}") from error
    if not proto.HasField("graph") and (format_text := describe_format(data)) is not None:
        raise ModelError(f"{name}: not an ONNX model, {format_text}")
    if (invalid := next(_invalid_strings(proto), None)) is not None:
        raise ModelError(f"{name}: damaged: {invalid!r} is not valid UTF-8")
    return proto


def _invalid_strings(message: Message) -> Iterator[bytes]:
    """Yield the string fields of a message that are not valid UTF-8: protobuf returns them as bytes."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _invalid_strings(inner)
        elif field.type == field.TYPE_STRING:
            yield from (text for text in (value if field.is_repeated else [value]) if isinstance(text, bytes))


def _require_graph(model: ModelFile) -> ModelFile:
    if not model.proto.HasField("graph") or not model.proto.graph.output:
        raise ModelError(
            f"{model.name}: not an ONNX model: it has no graph with outputs; is it the file that an exporter wrote?"
        )
    if not model.proto.opset_import:
        raise ModelError(f"{model.name}: the model does not import an opset (opset_import is empty)")
    return model


def label(node: NodeProto) -> str:
    """Return the name of a node for messages and locations: its name, or that of its first output."""
    return node.name or next((o for o in node.output if o), node.op_type)


def describe(node: NodeProto) -> str:
    """Return the description of a node for messages."""
    return f"node '{label(node)}' ({node.op_type})"


def sorted_nodes(graph: GraphProto, outer_names: Container[str] = ()) -> list[NodeProto]:
    """Return the nodes in topological order; names in `outer_names` are defined by the enclosing graphs.

    Raises ModelError for a name with two producers, a name without a producer, or a cycle.
    """
    nodes = list(graph.node)
    producers = _producers(graph, nodes)
    order: list[NodeProto] = []
    finished: dict[int, bool] = {}
    for root in range(len(nodes)):
        if root in finished:
            continue
        # Depth first with an explicit stack: graphs are deeper than Python's recursion limit.
        stack = [(root, iter(list(names_read(nodes[root]))))]
        finished[root] = False
        while stack:
            k, pending = stack[-1]
            name = next(pending, None)
            if name is None:
                finished[k] = True
                order.append(nodes[k])
                stack.pop()
                continue
            if name not in producers:
                if name in outer_names:
                    continue
                raise ModelError(f"{describe(nodes[k])}: reads '{name}', which nothing produces")
            producer = producers[name]
            if isinstance(producer, str) or finished.get(producer):
                continue
            if producer in finished:
                members = [n for n, _ in stack]
                cycle = [label(nodes[n]) for n in (*members[members.index(producer) :], producer)]
                raise ModelError(f"{describe(nodes[producer])}: depends on itself: {' reads '.join(cycle)}")
            finished[producer] = False
            stack.append((producer, iter(list(names_read(nodes[producer])))))
    for output in graph.output:
        if output.name not in producers and output.name not in outer_names:
            raise ModelError(f"output '{output.name}': nothing produces it")
    return order


def _producers(graph: GraphProto, nodes: Sequence[NodeProto]) -> dict[str, int | str]:
    """Return the producer of each name: the index of a node, or an input or initializer as described in messages."""
    producers: dict[str, int | str] = {}

    def add(name: str, producer: int | str) -> None:
        if name in producers:
            texts = [p if isinstance(p, str) else describe(nodes[p]) for p in (producers[name], producer)]
            raise ModelError(f"'{name}' has two producers: {texts[0]} and {texts[1]}")
        producers[name] = producer

    for value in graph.input:
        add(value.name, f"input '{value.name}'")
    initializers: set[str] = set()
    for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
        # Up to ir_version 3 initializers are listed as inputs too; later such an input has a default that a caller may replace.
        if tensor.name in initializers or tensor.name not in producers:
            add(tensor.name, f"initializer '{tensor.name}'")
        initializers.add(tensor.name)
    for k, node in enumerate(nodes):
        for name in node.output:
            if name:
                add(name, k)
    return producers


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, including captures of its subgraphs and the output that a Gradient differentiates."""
    yield from (name for name in node.input if name)
    if (node.domain, node.op_type) == _GRADIENT:
        yield from (a.s.decode(errors="replace") for a in node.attribute if a.name == "y")
    for inner in subgraphs(node):
        local = {v.name for v in inner.input} | {t.name for t in inner.initializer}
        local |= {s.values.name for s in inner.sparse_initializer}
        local |= {name for n in inner.node for name in n.output}
        captured = (name for n in inner.node for name in names_read(n))
        yield from (name for name in (*captured, *(o.name for o in inner.output)) if name not in local)


def subgraph_between(graphs: Sequence[Sequence[NodeProto]], inputs: Sequence[str], output: str) -> GraphProto:
    """Return the subgraph that computes `output` from `inputs`: the nodes of `graphs` on paths between them.

    Values that depend on no input are captured.
    """
    producers = {name: node for nodes in graphs for node in nodes for name in node.output if name}
    # Whether a name depends on an input; producers are visited before their consumers.
    depends: dict[str, bool] = dict.fromkeys(inputs, True)
    path_nodes: list[NodeProto] = []
    stack, visited = [output], set[str]()
    while stack:
        name = stack[-1]
        node = producers.get(name)
        # Equal names in different graphs may form a cycle, which is traversed once.
        is_visited = name in depends or name in visited
        pending = [] if node is None or is_visited else [n for n in names_read(node) if n not in depends]
        visited.add(name)
        stack.extend(pending)
        if pending:
            continue
        stack.pop()
        if name not in depends:
            is_dependent = node is not None and any(depends.get(n) for n in names_read(node))
            if node is not None:
                path_nodes += [node] * is_dependent
                depends.update(dict.fromkeys((n for n in node.output if n and n not in depends), is_dependent))
            depends[name] = is_dependent
    return GraphProto(
        node=path_nodes,
        input=[ValueInfoProto(name=name) for name in inputs],
        output=[ValueInfoProto(name=output)],
    )


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs among the attributes of a node (branches, loop bodies)."""
    for attribute in node.attribute:
        yield from graphs_of(attribute)


def graphs_of(attribute: AttributeProto) -> Iterator[GraphProto]:
    """Yield the graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs
