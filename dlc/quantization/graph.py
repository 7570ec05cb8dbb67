"""A model's graph during rewriting: nodes in topological order, constants as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from dlc.errors import DlcError
from dlc.files.atomic_writes import atomic_write
from dlc.frontend.onnx.graph import ModelFile, names_read, sorted_nodes
from dlc.frontend.onnx.tensors import TensorReader, data_type_of
from dlc.frontend.problems import NodeProblem
from dlc.weights import Array


class QuantizationGraph:
    """A mutable copy of a model's graph: nodes in topological order and initializers by name.

    Initializers that are also inputs are constants. The file is not changed.
    """

    def __init__(self, file: ModelFile) -> None:
        self.name = file.name
        self.model = ModelProto()
        self.model.CopyFrom(file.proto)
        self.nodes = sorted_nodes(self.model.graph)
        reader, inputs = TensorReader(file.folder), {value.name for value in self.model.graph.input}
        # Files before IR version 4 list initializers as inputs too; they are treated as constants.
        self.inputs = [v for v in self.model.graph.input if v.name not in {t.name for t in self.model.graph.initializer}]
        self.constants: dict[str, Array] = {}
        for tensor in self.model.graph.initializer:
            try:
                self.constants[tensor.name] = reader.read(tensor, f"initializer '{tensor.name}'")
            except NodeProblem as problem:
                raise DlcError(f"{file.name}: initializer '{tensor.name}': {problem.message}") from problem
        self._names = inputs | self.constants.keys() | {name for node in self.nodes for name in node.output}

    def copy(self) -> QuantizationGraph:
        """Return an independent graph with the same arrays, which are not copied."""
        other = object.__new__(QuantizationGraph)
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
        """The node that produces each tensor."""
        return {name: node for node in self.nodes for name in node.output if name}

    @property
    def users(self) -> dict[str, list[NodeProto]]:
        """The nodes that use each tensor, directly or in a subgraph."""
        users: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(names_read(node)):
                users.setdefault(name, []).append(node)
        return users

    def has_single_user(self, name: str, users: dict[str, list[NodeProto]]) -> bool:
        """Return whether exactly one node uses a tensor, and it is not an output of the graph."""
        return len(users.get(name, ())) == 1 and name not in self.outputs

    def unique_name(self, base: str) -> str:
        """Return an unused name: `base`, or `base` with a number."""
        name, k = base, 0
        while name in self._names:
            k += 1
            name = f"{base}_{k}"
        self._names.add(name)
        return name

    def constant(self, base: str, array: Array) -> str:
        """Add a constant and return its name."""
        name = self.unique_name(base)
        self.constants[name] = np.asarray(array)
        return name

    def replace_uses(self, name: str, replacement: tuple[Sequence[NodeProto], str]) -> None:
        """Insert nodes after the producer of a tensor, and make all users of the tensor use their result instead.

        Outputs and uses in subgraphs keep the original tensor.
        """
        nodes, result = replacement
        for node in self.nodes:
            replace_input(node, name, result)
        self.insert_after(name, nodes)

    def insert_after(self, name: str, nodes: Sequence[NodeProto]) -> None:
        """Insert nodes after the producer of a tensor."""
        position = next((k + 1 for k, node in enumerate(self.nodes) if name in node.output), 0)
        self.nodes[position:position] = nodes

    def to_model(self, *, outputs: Iterable[str] = (), inputs: Iterable[tuple[str, Array]] = ()) -> ModelProto:
        """Return the model with this graph, with additional outputs, and additional inputs with the types of the arrays."""
        model, graph = ModelProto(), self.model.graph
        for field, value in self.model.ListFields():
            if field.name != "graph":
                _set(model, field.name, value)
        used_names = {name for node in self.nodes for name in names_read(node)} | set(self.outputs)
        constants = [numpy_helper.from_array(_contiguous(a), name) for name, a in self.constants.items() if name in used_names]
        model.graph.CopyFrom(helper.make_graph(self.nodes, graph.name or "graph", self.inputs, graph.output, constants))
        output_names = {name for node in self.nodes for name in node.output}
        model.graph.value_info.extend(v for v in graph.value_info if v.name in output_names)
        for name, array in inputs:
            model.graph.input.append(helper.make_tensor_value_info(name, data_type_of(array.dtype), array.shape))
        model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
        return model


def replace_input(node: NodeProto, name: str, other: str) -> None:
    """Replace a tensor in the inputs of a node."""
    for k, input_name in enumerate(node.input):
        if input_name == name:
            node.input[k] = other


def int_attribute(node: NodeProto, name: str, default: int = 0) -> int:
    """Return an integer attribute of a node."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _set(model: ModelProto, field: str, value: object) -> None:
    """Set a field of a protobuf message: scalar, repeated or message."""
    if isinstance(value, str | int | bytes):
        setattr(model, field, value)
    elif isinstance(value, Sequence):
        getattr(model, field).extend(value)
    else:
        getattr(model, field).CopyFrom(value)


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape)


def save(model: ModelProto, path: Path) -> None:
    """Write an ONNX file atomically.

    Raises DlcError if it cannot be written.
    """
    try:
        data = model.SerializeToString()
    except ValueError as error:
        raise DlcError(f"{path}: the model exceeds the 2 GiB limit of an ONNX file: {error}") from error
    with atomic_write(path) as file:
        file.write(data)
