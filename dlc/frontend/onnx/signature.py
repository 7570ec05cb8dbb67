"""The inputs of a model: their types, as the file declares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from onnx import TensorProto, ValueInfoProto

from dlc import dims
from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size
from dlc.errors import ModelError
from dlc.frontend.identifiers import identifier
from dlc.frontend.input_sizes import given_sizes
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.given_shapes import GivenShapes

# Hears of what is not supported, and where.
Note: TypeAlias = Callable[[str, NodeProblem], None]


def signature(
    declared: Sequence[ValueInfoProto],
    input_shapes: GivenShapes,
    note: Note,
) -> tuple[TensorInfo, ...]:
    """The inputs under the shapes given; `note` hears of what is not supported.

    Raises ShapeError for shapes that contradict the model or one another.
    """
    return given_sizes([_declared(i, input_shapes.get(i.name), note) for i in declared], input_shapes)


def is_text(info: ValueInfoProto) -> bool:
    """Whether a tensor is declared to be text."""
    return info.type.tensor_type.elem_type == TensorProto.STRING


def _declared(value: ValueInfoProto, given: Sequence[int | str | None] | None, note: Note) -> TensorInfo:
    where = f"input '{value.name}'"
    dtype = np.dtype(np.float32)
    if not value.type.HasField("tensor_type"):
        note(where, NodeProblem("dtype", f"inputs of type {value.type.WhichOneof('value')} are not supported, only tensors"))
        return TensorInfo(value.name, tuple(_unnamed(value, k) for k in range(len(given or ()))), dtype)
    try:
        # Text is places in a list of texts.
        dtype = np.dtype(np.int64) if is_text(value) else dtype_of(value.type.tensor_type.elem_type)
    except NodeProblem as problem:
        note(where, problem)
    if value.type.tensor_type.HasField("shape"):
        return TensorInfo(value.name, tuple(sizes_of(value)), dtype)
    if given is None:
        note(where, NodeProblem("value", "its rank is not known; give its shape"))
    return TensorInfo(value.name, tuple(_unnamed(value, k) for k in range(len(given or ()))), dtype)


def sizes_of(value: ValueInfoProto) -> Iterator[Size]:
    """The sizes that a tensor's type declares; raises ModelError for a negative one (-1 is an unnamed one)."""
    for k, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            yield dim.dim_value
        elif dim.HasField("dim_value") and dim.dim_value < -1:
            raise ModelError(f"'{value.name}': negative size {dim.dim_value} in axis {k}")
        elif dim.dim_param.strip(" ?"):
            size = dims.parse(dim.dim_param)
            named = isinstance(size, Dim) and size.symbols() == {dim.dim_param}
            yield Dim.symbol(identifier(dim.dim_param)) if named else size
        else:
            yield _unnamed(value, k)


def _unnamed(value: ValueInfoProto, axis: int) -> Size:
    # Unnamed sizes, and those that exporters call "?", are each their own.
    return Dim.symbol(f"{identifier(value.name)}_{axis}")
