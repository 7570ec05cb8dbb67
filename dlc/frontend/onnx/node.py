"""The converter API of ONNX operators: a node's inputs, attributes and emitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.graph import describe, subgraph_between
from dlc.frontend.onnx.tensors import TensorReader, decode_utf8
from dlc.frontend.onnx.values import StringTensor
from dlc.frontend.operator_inputs import OperatorInputs
from dlc.frontend.problems import NodeProblem, Problem

T = TypeVar("T")
# (subgraph, inputs, emitter) -> results: imports a subgraph. `ImportSubgraph` records problems in the diagnostics,
# `TryImportSubgraph` returns them.
ImportSubgraph: TypeAlias = Callable[[GraphProto, Sequence[ImportedValue], Emitter], Sequence[ImportedValue]]
TryImportSubgraph: TypeAlias = Callable[
    [GraphProto, Sequence[ImportedValue], Emitter], tuple[Sequence[ImportedValue], Sequence[Problem]]
]

_ATTRIBUTE_FIELDS = {
    AttributeProto.INT: "i", AttributeProto.FLOAT: "f", AttributeProto.STRING: "s", AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats", AttributeProto.STRINGS: "strings", AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g", AttributeProto.SPARSE_TENSOR: "sparse_tensor",
}  # fmt: skip


class OnnxNode(OperatorInputs):
    """One node of the graph: `node[0]` is its first input, `node.integer("axis", 1)` an attribute.

    Attributes and inputs that the converter never reads are reported as unsupported.
    """

    def __init__(
        self,
        proto: NodeProto,
        opset: int,
        inputs: Sequence[ImportedValue | None],
        emit: Emitter,
        tensors: TensorReader,
        import_subgraph: ImportSubgraph,
        try_import_subgraph: TryImportSubgraph,
        report: Callable[[Sequence[Problem]], None],
        graphs: Sequence[Sequence[NodeProto]],
    ) -> None:
        super().__init__(describe(proto), inputs, proto.input, emit)
        self.proto = proto
        self.opset = opset
        self.import_subgraph = import_subgraph
        self.try_import_subgraph = try_import_subgraph
        self.report = report
        self._graphs = graphs
        self._tensors = tensors
        self._attributes = {a.name: a for a in proto.attribute}
        self._read_attributes: set[str] = set()
        self._read_inputs: set[int] = set()

    def with_inputs(self, *inputs: ImportedValue | None) -> OnnxNode:
        """Return this node with other inputs, for the converter of a related operator; attributes and outputs are shared."""
        node = copy(self)
        node.inputs, node._read_inputs = inputs, set()
        return node

    # Inputs

    def get(self, k: int) -> ImportedValue | None:
        """Return an optional input."""
        self._read_inputs.add(k)
        return super().get(k)

    def ignore_input(self, k: int) -> None:
        """Mark an input that has no effect here as read."""
        self._read_inputs.add(k)

    def is_output_used(self, output: int) -> bool:
        """Return whether the model uses this output."""
        return output < len(self.proto.output) and bool(self.proto.output[output])

    def constant_scalar(self, k: int, value_name: str) -> Any:
        """Return the value of a constant input of one element as a Python number."""
        array = self.constant_input(k, value_name)
        if array.size != 1:
            raise ModelError(f"{self.description}: its {value_name} must have one element, got {array.size}")
        return array.reshape(()).item()

    # Attributes

    def has_attribute(self, name: str) -> bool:
        return name in self._attributes

    def ignore_attributes(self, *names: str) -> None:
        """Mark attributes that have no effect here as read."""
        self._read_attributes.update(names)

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, AttributeProto.INT, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def real(self, name: str, default: float | None = None) -> float:
        # ONNX attributes and their defaults are f32.
        return float(np.float32(self._attribute(name, AttributeProto.FLOAT, default)))

    def string(self, name: str, default: str | None = None) -> str:
        value = self._attribute(name, AttributeProto.STRING, default)
        return decode_utf8(value, f"{self.description}, attribute '{name}'")

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Return a string attribute that must be one of `choices`."""
        value = self.string(name, default)
        if value not in choices:
            raise NodeProblem("attribute", f"{name} = '{value}'; supported: {', '.join(choices)}")
        return value

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(map(int, self._attribute(name, AttributeProto.INTS, default)))

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        return tuple(float(np.float32(v)) for v in self._attribute(name, AttributeProto.FLOATS, default))

    def strings(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        where = f"{self.description}, attribute '{name}'"
        return tuple(decode_utf8(v, where) for v in self._attribute(name, AttributeProto.STRINGS, default))

    def constant_attribute(self, name: str) -> ImportedValue:
        """Return a tensor attribute as a constant, numeric or string."""
        value = self.array_attribute(name)
        return StringTensor.from_strings(self.emit, value) if value.dtype == object else self.emit.constant(value)

    def array_attribute(self, name: str) -> Array:
        """Return a tensor attribute; a string tensor as an object array."""
        return self._tensors.read(self._attribute(name, AttributeProto.TENSOR, None), f"{self.description}, attribute '{name}'")

    def sparse_tensor(self, name: str) -> Array:
        """Return a sparse tensor attribute as a dense array."""
        value = self._attribute(name, AttributeProto.SPARSE_TENSOR, None)
        return self._tensors.read_sparse(value, f"{self.description}, attribute '{name}'")

    def graph(self, name: str) -> GraphProto:
        """Return a subgraph attribute, a branch or a body; `import_subgraph` imports it."""
        return self._attribute(name, AttributeProto.GRAPH, None)

    def subgraph_between(self, inputs: Sequence[str], output: str) -> GraphProto:
        """Return the subgraph of the enclosing graphs that computes `output` from `inputs`."""
        return subgraph_between(self._graphs, inputs, output)

    def _attribute(self, name: str, kind: Any, default: Any) -> Any:
        self._read_attributes.add(name)
        if name not in self._attributes:
            if default is None:
                raise ModelError(f"{self.description}: the attribute '{name}' is missing")
            return default
        attribute = self._attributes[name]
        if attribute.type != kind:
            expected, got = (AttributeProto.AttributeType.Name(t) for t in (kind, attribute.type))
            raise ModelError(f"{self.description}: the attribute '{name}' must be of type {expected}, got {got}")
        return getattr(attribute, _ATTRIBUTE_FIELDS[kind])

    def unread_problems(self) -> list[NodeProblem]:
        """Return a problem for each attribute and input that the converter did not read."""
        attributes = sorted(set(self._attributes) - self._read_attributes)
        inputs = [k for k, v in enumerate(self.inputs) if v is not None and k not in self._read_inputs]
        return [
            *(NodeProblem("attribute", f"'{name}' is not supported") for name in attributes),
            *(NodeProblem("input", f"input {k} ('{self.proto.input[k]}') is not supported") for k in inputs),
        ]
