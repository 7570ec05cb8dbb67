"""The inputs of a model: their types as the file declares them, with the shapes that the caller specifies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from onnx import TensorProto, TypeProto, ValueInfoProto

from dlc.arrays import TensorInfo
from dlc.errors import ModelError
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.shapes.dims import Dim, Size
from dlc.shapes.parsing import identifier, parse_size
from dlc.shapes.shape_specs import ShapeSpec, ShapeSpecs, apply_input_shapes
from dlc.value_types import (
    OBJECT_DTYPE,
    DictType,
    ListType,
    OptionalType,
    TensorValueType,
    ValueShapes,
    ValueType,
    specialize_value_type,
    value_info,
)

# Called with the location and the description of an unsupported feature.
ReportProblem: TypeAlias = Callable[[str, NodeProblem], None]


def signature(
    declared: Sequence[ValueInfoProto],
    input_shapes: ShapeSpecs,
    report: ReportProblem,
) -> tuple[TensorInfo, ...]:
    """Return the inputs with the shapes that the caller specifies, and their value types; `report` receives problems.

    Raises ShapeError for shapes that contradict the model or one another.
    """
    non_tensors = {i.name: _non_tensor_input(i, input_shapes, report) for i in declared if not i.type.HasField("tensor_type")}
    tensors = [_tensor_input(i, input_shapes.get(i.name), report) for i in declared if i.name not in non_tensors]
    with_shapes = apply_input_shapes(tensors, {name: shape for name, shape in input_shapes.items() if name not in non_tensors})
    return tuple((non_tensors | {info.name: info for info in with_shapes})[i.name] for i in declared)


def _non_tensor_input(value: ValueInfoProto, input_shapes: ShapeSpecs, report: ReportProblem) -> TensorInfo:
    """Return an input that is not a tensor; with a specified shape, its structure is static."""
    where = f"input '{value.name}'"
    try:
        value_type = _value_type(value.name, value.type)
    except NodeProblem as problem:
        report(where, problem)
        return TensorInfo(value.name, (), np.dtype(np.float32))
    has_shape_spec = value.name in input_shapes
    return value_info(
        value.name,
        specialize_value_type(value_type, cast("ValueShapes", input_shapes[value.name]), where)
        if has_shape_spec
        else value_type,
    )


def _value_type(name: str, declared: TypeProto) -> ValueType:
    """Return the value type of an ONNX type. Raises NodeProblem for an unsupported one."""
    match declared.WhichOneof("value"):
        case "sequence_type":
            return ListType(_value_type(name, declared.sequence_type.elem_type))
        case "optional_type":
            return OptionalType(_value_type(name, declared.optional_type.elem_type))
        case "tensor_type":
            tensor = declared.tensor_type
            # A symbolic dimension may differ between the elements.
            return TensorValueType(_dtype(tensor), tuple(sizes_of(name, tensor)) if tensor.HasField("shape") else None)
        case "map_type" if declared.map_type.value_type.HasField("tensor_type"):
            shape = (Dim.symbol(f"{identifier(name)}_entries"),)
            keys = OBJECT_DTYPE if declared.map_type.key_type == TensorProto.STRING else dtype_of(declared.map_type.key_type)
            return DictType(
                TensorValueType(keys, shape), TensorValueType(_dtype(declared.map_type.value_type.tensor_type), shape)
            )
        case kind:
            raise NodeProblem(
                "dtype", f"inputs of type {kind} are not supported, only tensors and sequences, optionals and maps of them"
            )


def _tensor_input(value: ValueInfoProto, spec: ShapeSpec, report: ReportProblem) -> TensorInfo:
    where, dtype = f"input '{value.name}'", np.dtype(np.float32)
    try:
        dtype = _dtype(value.type.tensor_type)
    except NodeProblem as problem:
        report(where, problem)
    if value.type.tensor_type.HasField("shape"):
        return TensorInfo(value.name, tuple(sizes_of(value.name, value.type.tensor_type)), dtype)
    if spec is None:
        report(where, NodeProblem("value", "its rank is unknown; give its shape"))
    return TensorInfo(value.name, tuple(_unnamed_symbol(value.name, k) for k in range(len(spec or ()))), dtype)


def _dtype(tensor: TypeProto.Tensor) -> np.dtype[Any]:
    return OBJECT_DTYPE if tensor.elem_type == TensorProto.STRING else dtype_of(tensor.elem_type)


def sizes_of(name: str, tensor: TypeProto.Tensor) -> Iterator[Size]:
    """Yield the sizes that a tensor type declares; -1 is an unnamed symbolic dimension.

    Raises ModelError for other negative sizes.
    """
    for k, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            yield dim.dim_value
        elif dim.HasField("dim_value") and dim.dim_value < -1:
            raise ModelError(f"'{name}': negative size {dim.dim_value} in axis {k}")
        elif dim.dim_param.strip(" ?"):
            size = parse_size(dim.dim_param)
            is_symbol = isinstance(size, Dim) and size.symbols() == {dim.dim_param}
            yield Dim.symbol(identifier(dim.dim_param)) if is_symbol else size
        else:
            yield _unnamed_symbol(name, k)


def _unnamed_symbol(name: str, axis: int) -> Size:
    # Each unnamed dimension, also one named "?", gets a separate symbol.
    return Dim.symbol(f"{identifier(name)}_{axis}")
