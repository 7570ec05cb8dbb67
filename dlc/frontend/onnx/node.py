"""What a converter sees of one ONNX node: its inputs, its attributes, and the emitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.onnx.graph import between, place
from dlc.frontend.onnx.tensors import TensorReader, decoded
from dlc.frontend.onnx.values import Text
from dlc.frontend.operands import Operands
from dlc.frontend.problems import NodeProblem, Problem

T = TypeVar("T")
# Imports the nodes of a graph for these inputs, with an emitter: its results, and what of it is not supported, which is noted
# or, where it is only tried, not.
Inline: TypeAlias = Callable[[GraphProto, Sequence[Value], Emitter], Sequence[Value]]
Attempt: TypeAlias = Callable[[GraphProto, Sequence[Value], Emitter], tuple[Sequence[Value], Sequence[Problem]]]

_KINDS = {
    AttributeProto.INT: "i", AttributeProto.FLOAT: "f", AttributeProto.STRING: "s", AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats", AttributeProto.STRINGS: "strings", AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g", AttributeProto.SPARSE_TENSOR: "sparse_tensor",
}  # fmt: skip


class Node(Operands):
    """One node of the graph: `node[0]` is its first input, `node.integer("axis", 1)` an attribute.

    An attribute or an input that the converter never asks for is reported as unsupported.
    """

    def __init__(
        self,
        proto: NodeProto,
        opset: int,
        inputs: Sequence[Value | None],
        emit: Emitter,
        tensors: TensorReader,
        inline: Inline,
        attempt: Attempt,
        note: Callable[[Sequence[Problem]], None],
        graphs: Sequence[Sequence[NodeProto]],
    ) -> None:
        super().__init__(place(proto), inputs, proto.input, emit)
        self.proto = proto
        self.opset = opset
        self.inline = inline
        self.attempt = attempt
        self.note = note
        self._graphs = graphs
        self._tensors = tensors
        self._attributes = {a.name: a for a in proto.attribute}
        self._read: set[str] = set()
        self._read_inputs: set[int] = set()

    # Inputs

    def get(self, k: int) -> Value | None:
        """An optional input."""
        self._read_inputs.add(k)
        return super().get(k)

    def ignore_input(self, k: int) -> None:
        """An input that changes nothing here."""
        self._read_inputs.add(k)

    def wants(self, output: int) -> bool:
        """Whether the model uses this output."""
        return output < len(self.proto.output) and bool(self.proto.output[output])

    def number(self, k: int, what: str) -> Any:
        """The only element of a known input, as a Python number."""
        array = self.known(k, what)
        if array.size != 1:
            raise ModelError(f"{self.place}: its {what} must have one element, got {array.size}")
        return array.reshape(()).item()

    # Attributes

    def has(self, name: str) -> bool:
        return name in self._attributes

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing here."""
        self._read.update(names)

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, AttributeProto.INT, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def real(self, name: str, default: float | None = None) -> float:
        # ONNX's defaults are of f32, as what a file says is.
        return float(np.float32(self._attribute(name, AttributeProto.FLOAT, default)))

    def text(self, name: str, default: str | None = None) -> str:
        value = self._attribute(name, AttributeProto.STRING, default)
        return decoded(value, f"{self.place}, attribute '{name}'")

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """A text attribute that has to be one of `choices`."""
        value = self.text(name, default)
        if value not in choices:
            raise NodeProblem("attribute", f"{name} = '{value}'; supported: {', '.join(choices)}")
        return value

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        return tuple(map(int, self._attribute(name, AttributeProto.INTS, default)))

    def reals(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        return tuple(float(np.float32(v)) for v in self._attribute(name, AttributeProto.FLOATS, default))

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        where = f"{self.place}, attribute '{name}'"
        return tuple(decoded(v, where) for v in self._attribute(name, AttributeProto.STRINGS, default))

    def array(self, name: str) -> Value:
        """A tensor as a known value, text too."""
        found = self.tensor(name)
        return Text.known_as(self.emit, found) if found.dtype == object else self.emit.constant(found)

    def tensor(self, name: str) -> Array:
        """A tensor; one of text is an array of strings."""
        return self._tensors.read(self._attribute(name, AttributeProto.TENSOR, None), f"{self.place}, attribute '{name}'")

    def sparse_tensor(self, name: str) -> Array:
        """A sparse tensor, made dense."""
        found = self._attribute(name, AttributeProto.SPARSE_TENSOR, None)
        return self._tensors.read_sparse(found, f"{self.place}, attribute '{name}'")

    def graph(self, name: str) -> GraphProto:
        """A branch or a body; `inline` imports it."""
        return self._attribute(name, AttributeProto.GRAPH, None)

    def between(self, inputs: Sequence[str], output: str) -> GraphProto:
        """The function from some tensors to another one that nodes of the graphs around are."""
        return between(self._graphs, inputs, output)

    def _attribute(self, name: str, kind: Any, default: Any) -> Any:
        self._read.add(name)
        if name not in self._attributes:
            if default is None:
                raise ModelError(f"{self.place}: the attribute '{name}' is missing")
            return default
        attribute = self._attributes[name]
        if attribute.type != kind:
            expected, got = (AttributeProto.AttributeType.Name(t) for t in (kind, attribute.type))
            raise ModelError(f"{self.place}: the attribute '{name}' must be of type {expected}, got {got}")
        return getattr(attribute, _KINDS[kind])

    def unread(self) -> list[NodeProblem]:
        """The attributes and inputs that nobody asked for."""
        attributes = sorted(set(self._attributes) - self._read)
        inputs = [k for k, v in enumerate(self.inputs) if v is not None and k not in self._read_inputs]
        return [
            *(NodeProblem("attribute", f"'{name}' is not supported") for name in attributes),
            *(NodeProblem("input", f"input {k} ('{self.proto.input[k]}') is not supported") for k in inputs),
        ]
