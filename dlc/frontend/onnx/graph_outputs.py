"""Graph outputs: their value types, and the tensors that represent strings, sequences, maps and optionals in the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx import NodeProto, defs

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.values import EmptyOptional, MapSequence, MapValue, SequenceValue, StringTensor
from dlc.frontend.problems import NodeProblem
from dlc.ir import SSAValue
from dlc.value_types import OBJECT_DTYPE, AbsentType, DictType, FixedListType, RowDictsType, TensorValueType, ValueType


def string_outputs(node: NodeProto, opset: int, inputs: Sequence[ImportedValue | None]) -> frozenset[int]:
    """Return the indices of the string outputs of an ONNX operator: outputs with the same type variable as a string input.

    Raises NodeProblem for an operator that does not accept strings.
    """
    string_inputs = [k for k, v in enumerate(inputs) if isinstance(v, StringTensor)]
    if not string_inputs:
        return frozenset()
    schema = defs.get_schema(node.op_type, opset)
    parameters = [schema.inputs[min(k, len(schema.inputs) - 1)] for k in string_inputs]
    for k, parameter in zip(string_inputs, parameters, strict=True):
        if not {"tensor(string)", "V"} & {*parameter.types, parameter.type_str}:
            raise NodeProblem("dtype", f"input {k} ('{node.input[k]}') is a string tensor, which is not supported here")
    names = {parameter.type_str for parameter in parameters}
    last = len(schema.outputs) - 1
    return frozenset(k for k in range(len(node.output)) if schema.outputs[min(k, last)].type_str in names)


@dataclass(frozen=True)
class GraphOutput:
    """An output of a graph: its value type, and by name the tensors that represent it in the program."""

    name: str
    value: ImportedValue

    @property
    def value_type(self) -> ValueType:
        return _value_type(self.value)

    @property
    def tensors(self) -> Iterator[tuple[str, ImportedValue]]:
        yield from _tensors(self.name, self.value)


def _value_type(value: ImportedValue) -> ValueType:
    match value:
        case SequenceValue():
            return FixedListType(tuple(map(_value_type, value.elements)))
        case MapSequence():
            return RowDictsType(value.keys)
        case MapValue():
            return DictType(_tensor_type(value.keys), _tensor_type(value.values))
        case EmptyOptional():
            return AbsentType()
        case _:
            return _tensor_type(value)


def _tensor_type(value: ImportedValue) -> TensorValueType:
    return TensorValueType(OBJECT_DTYPE if value.is_string else numpy_dtype(value.element_type), value.shape)


def _tensors(name: str, value: ImportedValue) -> Iterator[tuple[str, ImportedValue]]:
    match value:
        case SequenceValue():
            for k, element in enumerate(value.elements):
                yield from _tensors(f"{name}[{k}]", element)
        case MapSequence():
            yield name, value.rows
        case MapValue():
            yield from zip(
                DictType(_tensor_type(value.keys), _tensor_type(value.values)).vector_types(name),
                (value.keys, value.values),
                strict=True,
            )
        case EmptyOptional():
            return
        case _:
            yield name, value


def tensor_infos(names: Sequence[str], values: Sequence[SSAValue]) -> tuple[TensorInfo, ...]:
    """Return the name, shape and dtype of tensors of the program."""
    pairs = zip(names, values, strict=True)
    return tuple(TensorInfo(name, shape_of(value), numpy_dtype(element_type_of(value))) for name, value in pairs)
