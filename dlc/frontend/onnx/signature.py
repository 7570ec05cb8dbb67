"""The inputs of a model: their types, as the file declares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from onnx import TensorProto, TypeProto, ValueInfoProto

from dlc import dims
from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size
from dlc.errors import ModelError
from dlc.forms import OBJECTS, Form, ListOf, MapOf, Maybe, Plain, ValueShapes, of_a_call, told
from dlc.frontend.identifiers import identifier
from dlc.frontend.input_sizes import given_sizes
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.given_shapes import GivenShape, GivenShapes

# Hears of what is not supported, and where.
Note: TypeAlias = Callable[[str, NodeProblem], None]


def signature(
    declared: Sequence[ValueInfoProto],
    input_shapes: GivenShapes,
    note: Note,
) -> tuple[TensorInfo, ...]:
    """The inputs under the shapes given, in the forms of `forms.py`; `note` hears of what is not supported.

    Raises ShapeError for shapes that contradict the model or one another.
    """
    formed = {i.name: _formed(i, input_shapes, note) for i in declared if not i.type.HasField("tensor_type")}
    tensors = [_declared(i, input_shapes.get(i.name), note) for i in declared if i.name not in formed]
    sized = given_sizes(tensors, {name: shape for name, shape in input_shapes.items() if name not in formed})
    return tuple((formed | {info.name: info for info in sized})[i.name] for i in declared)


def _formed(value: ValueInfoProto, input_shapes: GivenShapes, note: Note) -> TensorInfo:
    """An input that is no tensor; the tensors that it is made of are those of a call, whose shapes are given."""
    where = f"input '{value.name}'"
    try:
        form = _form(value.name, value.type)
    except NodeProblem as problem:
        note(where, problem)
        return TensorInfo(value.name, (), np.dtype(np.float32))
    given = value.name in input_shapes
    return told(value.name, of_a_call(form, cast("ValueShapes", input_shapes[value.name]), where) if given else form)


def _form(name: str, declared: TypeProto) -> Form:
    """The form of a type. Raises NodeProblem for one that is not supported."""
    match declared.WhichOneof("value"):
        case "sequence_type":
            return ListOf(_form(name, declared.sequence_type.elem_type))
        case "optional_type":
            return Maybe(_form(name, declared.optional_type.elem_type))
        case "tensor_type":
            tensor = declared.tensor_type
            # The same name of a size may be another one in each element.
            return Plain(_dtype(tensor), tuple(sizes_of(name, tensor)) if tensor.HasField("shape") else None)
        case "map_type" if declared.map_type.value_type.HasField("tensor_type"):
            shape = (Dim.symbol(f"{identifier(name)}_entries"),)
            keys = OBJECTS if declared.map_type.key_type == TensorProto.STRING else dtype_of(declared.map_type.key_type)
            return MapOf(Plain(keys, shape), Plain(_dtype(declared.map_type.value_type.tensor_type), shape))
        case kind:
            raise NodeProblem(
                "dtype", f"inputs of type {kind} are not supported, only tensors and sequences, optionals and maps of them"
            )


def _declared(value: ValueInfoProto, given: GivenShape, note: Note) -> TensorInfo:
    where, dtype = f"input '{value.name}'", np.dtype(np.float32)
    try:
        dtype = _dtype(value.type.tensor_type)
    except NodeProblem as problem:
        note(where, problem)
    if value.type.tensor_type.HasField("shape"):
        return TensorInfo(value.name, tuple(sizes_of(value.name, value.type.tensor_type)), dtype)
    if given is None:
        note(where, NodeProblem("value", "its rank is not known; give its shape"))
    return TensorInfo(value.name, tuple(_unnamed(value.name, k) for k in range(len(given or ()))), dtype)


def _dtype(tensor: TypeProto.Tensor) -> np.dtype[Any]:
    return OBJECTS if tensor.elem_type == TensorProto.STRING else dtype_of(tensor.elem_type)


def sizes_of(name: str, tensor: TypeProto.Tensor) -> Iterator[Size]:
    """The sizes that a tensor's type declares; raises ModelError for a negative one (-1 is an unnamed one)."""
    for k, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            yield dim.dim_value
        elif dim.HasField("dim_value") and dim.dim_value < -1:
            raise ModelError(f"'{name}': negative size {dim.dim_value} in axis {k}")
        elif dim.dim_param.strip(" ?"):
            size = dims.parse(dim.dim_param)
            named = isinstance(size, Dim) and size.symbols() == {dim.dim_param}
            yield Dim.symbol(identifier(dim.dim_param)) if named else size
        else:
            yield _unnamed(name, k)


def _unnamed(name: str, axis: int) -> Size:
    # Unnamed sizes, and those that exporters call "?", are each their own.
    return Dim.symbol(f"{identifier(name)}_{axis}")
