"""The borders of a model: what of its inputs and outputs is text, or no tensor, and the tensors that this is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx import NodeProto, defs

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.forms import OBJECTS, Form, MapOf, Nothing, Plain, Rows, Several
from dlc.frontend.emit import Value
from dlc.frontend.onnx.values import Absent, Maps, MapValue, SequenceValue, Text
from dlc.frontend.problems import NodeProblem
from dlc.ir import SSAValue


def text_outputs(node: NodeProto, opset: int, inputs: Sequence[Value | None]) -> frozenset[int]:
    """The outputs of an operator of ONNX's own that are text, since they have the type of inputs that are.

    Raises NodeProblem for an operator that takes no text.
    """
    given = [k for k, v in enumerate(inputs) if isinstance(v, Text)]
    if not given:
        return frozenset()
    schema = defs.get_schema(node.op_type, opset)
    formal = [schema.inputs[min(k, len(schema.inputs) - 1)] for k in given]
    for k, of in zip(given, formal, strict=True):
        if not {"tensor(string)", "V"} & {*of.types, of.type_str}:
            raise NodeProblem("dtype", f"input {k} ('{node.input[k]}') is text, which is not supported here")
    names = {of.type_str for of in formal}
    last = len(schema.outputs) - 1
    return frozenset(k for k in range(len(node.output)) if schema.outputs[min(k, last)].type_str in names)


@dataclass(frozen=True)
class Output:
    """An output of a graph: its form, and its tensors by name."""

    name: str
    value: Value

    @property
    def form(self) -> Form:
        return _form(self.value)

    @property
    def tensors(self) -> Iterator[tuple[str, Value]]:
        yield from _tensors(self.name, self.value)


def _form(value: Value) -> Form:
    match value:
        case SequenceValue():
            return Several(tuple(map(_form, value.elements)))
        case Maps():
            return Rows(value.keys)
        case MapValue():
            return MapOf(_plain(value.keys), _plain(value.values))
        case Absent():
            return Nothing()
        case _:
            return _plain(value)


def _plain(value: Value) -> Plain:
    return Plain(OBJECTS if value.is_text else numpy_dtype(value.element_type), value.shape)


def _tensors(name: str, value: Value) -> Iterator[tuple[str, Value]]:
    match value:
        case SequenceValue():
            for k, element in enumerate(value.elements):
                yield from _tensors(f"{name}[{k}]", element)
        case Maps():
            yield name, value.rows
        case MapValue():
            yield from zip(MapOf(_plain(value.keys), _plain(value.values)).parts(name), (value.keys, value.values), strict=True)
        case Absent():
            return
        case _:
            yield name, value


def tensor_infos(names: Sequence[str], values: Sequence[SSAValue]) -> tuple[TensorInfo, ...]:
    """What is told of tensors of the program."""
    pairs = zip(names, values, strict=True)
    return tuple(TensorInfo(name, shape_of(value), numpy_dtype(element_type_of(value))) for name, value in pairs)
