"""The shape of a model file: parsing, and the rules that every graph obeys before it is imported.

Checked here: each name has one producer, each name read is produced, no cycles. Nodes come out in an order in which every
node follows its producers (files have them sorted already, as ONNX demands; sorting costs nothing and mends the rest).
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
from dlc.frontend.onnx.large_tensors import Content, all_of, content_of, without_large_tensors
from dlc.frontend.onnx.other_formats import described


@dataclass(frozen=True)
class ModelFile:
    """A parsed model, the folder its external data may lie in, and what messages call it.

    `content`: what the file holds, where `proto` lacks the large tensors (large_tensors.py).
    """

    proto: ModelProto
    folder: Path | None
    name: str
    content: Content | None = None

    @property
    def stem(self) -> str:
        """What its programs are called."""
        return Path(self.name).stem


# The operator that reads a tensor which is none of its inputs, the one that it differentiates.
_GRADIENT = "ai.onnx.preview.training", "Gradient"

Source: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | ModelFile"


def load(source: Source, *, whole: bool = True) -> ModelFile:
    """The model of a path, of the bytes of a file, or a ModelProto; raises ModelError where there is none.

    Unless it is to be `whole`, large tensors of files stay where they are, as `content`.
    """
    if isinstance(source, ModelFile):
        return source
    if isinstance(source, ModelProto):
        return _checked(ModelFile(source, None, source.graph.name or "model"))
    if isinstance(source, bytes):
        return replace(load(_parse(source, "model", whole=whole)), content=None if whole else source)
    path = Path(source)
    try:
        content = content_of(path)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    proto = _parse(content, str(path), whole=whole)
    return _checked(ModelFile(proto, path.parent, str(path), None if whole else content))


def _parse(content: Content, name: str, *, whole: bool) -> ModelProto:
    proto, data = ModelProto(), all_of(content) if whole else without_large_tensors(content)
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        what = described(data) or f"or a truncated one ({len(data)} bytes)"
        raise ModelError(f"{name}: not an ONNX model, {what}") from error
    if not proto.HasField("graph") and (what := described(data)) is not None:
        raise ModelError(f"{name}: not an ONNX model, {what}")
    if (spoiled := next(_spoiled_texts(proto), None)) is not None:
        raise ModelError(f"{name}: damaged: {spoiled!r} in it is no UTF-8 text")
    return proto


def _spoiled_texts(message: Message) -> Iterator[bytes]:
    """What should be text in a message and is not: protobuf hands it out as bytes."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _spoiled_texts(inner)
        elif field.type == field.TYPE_STRING:
            yield from (text for text in (value if field.is_repeated else [value]) if isinstance(text, bytes))


def _checked(model: ModelFile) -> ModelFile:
    if not model.proto.HasField("graph") or not model.proto.graph.output:
        raise ModelError(
            f"{model.name}: not an ONNX model: it has no graph with outputs; is it the file that an exporter wrote?"
        )
    if not model.proto.opset_import:
        raise ModelError(f"{model.name}: the model does not say which opset it uses (opset_import)")
    return model


def label(node: NodeProto) -> str:
    """What messages and locations call a node: its name, or its first result's."""
    return node.name or next((o for o in node.output if o), node.op_type)


def place(node: NodeProto) -> str:
    """A node in a message."""
    return f"node '{label(node)}' ({node.op_type})"


def sorted_nodes(graph: GraphProto, outside: Container[str] = ()) -> list[NodeProto]:
    """The nodes, each after the producers of what it reads; names of `outside` are known where the graph stands.

    Raises ModelError for a name with two producers, a name that nothing produces, or a cycle.
    """
    nodes = list(graph.node)
    producers = _producers(graph, nodes)
    order: list[NodeProto] = []
    finished: dict[int, bool] = {}
    for root in range(len(nodes)):
        if root in finished:
            continue
        # Depth first with an explicit stack: graphs are deeper than Python's recursion limit.
        stack = [(root, iter(list(reads(nodes[root]))))]
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
                if name in outside:
                    continue
                raise ModelError(f"{place(nodes[k])}: reads '{name}', which nothing produces")
            producer = producers[name]
            if isinstance(producer, str) or finished.get(producer):
                continue
            if producer in finished:
                members = [n for n, _ in stack]
                cycle = [label(nodes[n]) for n in (*members[members.index(producer) :], producer)]
                raise ModelError(f"{place(nodes[producer])}: depends on itself: {' reads '.join(cycle)}")
            finished[producer] = False
            stack.append((producer, iter(list(reads(nodes[producer])))))
    for output in graph.output:
        if output.name not in producers and output.name not in outside:
            raise ModelError(f"output '{output.name}': nothing produces it")
    return order


def _producers(graph: GraphProto, nodes: Sequence[NodeProto]) -> dict[str, int | str]:
    """What makes each name: a node's number, or an input or initialiser as messages call it."""
    producers: dict[str, int | str] = {}

    def add(name: str, producer: int | str) -> None:
        if name in producers:
            texts = [p if isinstance(p, str) else place(nodes[p]) for p in (producers[name], producer)]
            raise ModelError(f"'{name}' has two producers: {texts[0]} and {texts[1]}")
        producers[name] = producer

    for value in graph.input:
        add(value.name, f"input '{value.name}'")
    initialisers: set[str] = set()
    for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
        # Up to ir_version 3 every initialiser is listed as an input too; later it is a default that a caller may replace.
        if tensor.name in initialisers or tensor.name not in producers:
            add(tensor.name, f"initialiser '{tensor.name}'")
        initialisers.add(tensor.name)
    for k, node in enumerate(nodes):
        for name in node.output:
            if name:
                add(name, k)
    return producers


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, those captured by its subgraphs included; a gradient what it is of."""
    yield from (name for name in node.input if name)
    if (node.domain, node.op_type) == _GRADIENT:
        yield from (a.s.decode(errors="replace") for a in node.attribute if a.name == "y")
    for inner in subgraphs(node):
        local = {v.name for v in inner.input} | {t.name for t in inner.initializer}
        local |= {s.values.name for s in inner.sparse_initializer}
        local |= {name for n in inner.node for name in n.output}
        captured = (name for n in inner.node for name in reads(n))
        yield from (name for name in (*captured, *(o.name for o in inner.output)) if name not in local)


def between(graphs: Sequence[Sequence[NodeProto]], inputs: Sequence[str], output: str) -> GraphProto:
    """The function from some names to another one that nodes of these graphs are: those that lead from the ones to the other.

    It reads what hangs on no input where the nodes stand.
    """
    producers = {name: node for nodes in graphs for node in nodes for name in node.output if name}
    # Whether a name hangs on an input: producers first, which are on the stack above who reads them.
    hangs: dict[str, bool] = dict.fromkeys(inputs, True)
    found: list[NodeProto] = []
    stack, begun = [output], set[str]()
    while stack:
        name = stack[-1]
        node = producers.get(name)
        # Names that mean different tensors in these graphs may lead in a circle, which is gone through once.
        seen = name in hangs or name in begun
        pending = [] if node is None or seen else [n for n in reads(node) if n not in hangs]
        begun.add(name)
        stack.extend(pending)
        if pending:
            continue
        stack.pop()
        if name not in hangs:
            is_on = node is not None and any(hangs.get(n) for n in reads(node))
            if node is not None:
                found += [node] * is_on
                hangs.update(dict.fromkeys((n for n in node.output if n and n not in hangs), is_on))
            hangs[name] = is_on
    return GraphProto(
        node=found,
        input=[ValueInfoProto(name=name) for name in inputs],
        output=[ValueInfoProto(name=output)],
    )


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of those inside them."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among a node's attributes (branches, loop bodies)."""
    for attribute in node.attribute:
        yield from graphs_of(attribute)


def graphs_of(attribute: AttributeProto) -> Iterator[GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs
