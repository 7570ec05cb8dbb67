"""A model's graph while it is rewritten: its nodes in order, its constants as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from dlc.errors import DlcError
from dlc.files.whole_files import written_whole
from dlc.frontend.onnx.graph import ModelFile, reads, sorted_nodes
from dlc.frontend.onnx.tensors import TensorReader, data_type_of
from dlc.frontend.problems import NodeProblem
from dlc.weights import Array


class Graph:
    """The nodes of a model's graph, each after its producers, and its initialisers by name, those that a caller may replace
    left out. The file itself is not changed."""

    def __init__(self, file: ModelFile) -> None:
        self.name = file.name
        self.model = ModelProto()
        self.model.CopyFrom(file.proto)
        self.nodes = sorted_nodes(self.model.graph)
        reader, inputs = TensorReader(file.folder), {value.name for value in self.model.graph.input}
        # What older files list as inputs too is a constant that a caller could replace, which nobody does.
        self.inputs = [v for v in self.model.graph.input if v.name not in {t.name for t in self.model.graph.initializer}]
        self.constants: dict[str, Array] = {}
        for tensor in self.model.graph.initializer:
            try:
                self.constants[tensor.name] = reader.read(tensor, f"initialiser '{tensor.name}'")
            except NodeProblem as problem:
                raise DlcError(f"{file.name}: initialiser '{tensor.name}': {problem.message}") from problem
        self._names = inputs | self.constants.keys() | {name for node in self.nodes for name in node.output}

    def copy(self) -> Graph:
        """A graph of its own, with the same arrays."""
        other = object.__new__(Graph)
        other.name, other.inputs, other.constants = self.name, list(self.inputs), dict(self.constants)
        other.model = self.model
        other.nodes = []
        for node in self.nodes:
            copied = NodeProto()
            copied.CopyFrom(node)
            other.nodes.append(copied)
        other._names = set(self._names)
        return other

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [output.name for output in self.model.graph.output]

    @property
    def producers(self) -> dict[str, NodeProto]:
        """The node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.output if name}

    @property
    def readers(self) -> dict[str, list[NodeProto]]:
        """The nodes that read each tensor, those that do so in a graph inside of them among them."""
        readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(reads(node)):
                readers.setdefault(name, []).append(node)
        return readers

    def is_private(self, name: str, readers: dict[str, list[NodeProto]]) -> bool:
        """Whether one node reads a tensor and nobody else sees it."""
        return len(readers.get(name, ())) == 1 and name not in self.outputs

    def new_name(self, wanted: str) -> str:
        """A name like `wanted` that nothing has yet."""
        name, k = wanted, 0
        while name in self._names:
            k += 1
            name = f"{wanted}_{k}"
        self._names.add(name)
        return name

    def constant(self, wanted: str, array: Array) -> str:
        """The name of a new constant."""
        name = self.new_name(wanted)
        self.constants[name] = np.asarray(array)
        return name

    def read_instead(self, name: str, made: tuple[Sequence[NodeProto], str]) -> None:
        """Puts nodes that make something of a tensor behind its producer, and has the nodes of the graph read that; an output,
        and what a graph inside of a node reads, stays what it was."""
        nodes, result = made
        for node in self.nodes:
            read_other(node, name, result)
        self.put_behind(name, nodes)

    def put_behind(self, name: str, nodes: Sequence[NodeProto]) -> None:
        """Puts nodes behind the one that makes a tensor."""
        place = next((k + 1 for k, node in enumerate(self.nodes) if name in node.output), 0)
        self.nodes[place:place] = nodes

    def written(self, *, outputs: Iterable[str] = (), inputs: Iterable[tuple[str, Array]] = ()) -> ModelProto:
        """The model with this graph; with more outputs, and with more inputs, of the types of these arrays."""
        model, graph = ModelProto(), self.model.graph
        for field, value in self.model.ListFields():
            if field.name != "graph":
                _set(model, field.name, value)
        read = {name for node in self.nodes for name in reads(node)} | set(self.outputs)
        constants = [numpy_helper.from_array(_little(a), name) for name, a in self.constants.items() if name in read]
        model.graph.CopyFrom(helper.make_graph(self.nodes, graph.name or "graph", self.inputs, graph.output, constants))
        known = {name for node in self.nodes for name in node.output}
        model.graph.value_info.extend(v for v in graph.value_info if v.name in known)
        for name, array in inputs:
            model.graph.input.append(helper.make_tensor_value_info(name, data_type_of(array.dtype), array.shape))
        model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
        return model


def read_other(node: NodeProto, name: str, other: str) -> None:
    """Has a node read another tensor in place of one."""
    for k, read in enumerate(node.input):
        if read == name:
            node.input[k] = other


def integer(node: NodeProto, name: str, default: int = 0) -> int:
    """An attribute of a node that is a number."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _set(model: ModelProto, field: str, value: object) -> None:
    """Sets a field of a message, which has lists to be filled and others to be set."""
    if isinstance(value, str | int | bytes):
        setattr(model, field, value)
    elif isinstance(value, Sequence):
        getattr(model, field).extend(value)
    else:
        getattr(model, field).CopyFrom(value)


def _little(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape)


def save(model: ModelProto, path: Path) -> None:
    """Writes an ONNX file, which is either whole or what was there before.

    Raises DlcError when it cannot be written.
    """
    try:
        data = model.SerializeToString()
    except ValueError as error:
        raise DlcError(f"{path}: the model is larger than the 2 GiB that an ONNX file holds: {error}") from error
    with written_whole(path) as file:
        file.write(data)
