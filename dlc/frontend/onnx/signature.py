"""The inputs of a model: their types, with the sizes that the caller gives in place of symbolic ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword
from typing import TypeAlias

import numpy as np
from onnx import TensorProto, ValueInfoProto

from dlc import dims
from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size
from dlc.errors import ModelError, ShapeError
from dlc.frontend.onnx.problems import NodeProblem
from dlc.frontend.onnx.tensors import dtype_of
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


def given_sizes(infos: Sequence[TensorInfo], input_shapes: GivenShapes) -> tuple[TensorInfo, ...]:
    """The inputs of a model under the shapes given.

    A symbol that one input's shape gives a size has it in all of them. Raises ShapeError for shapes that contradict the
    model or one another.
    """
    bindings = _bound_by_name(
        infos, {name: shape for name, shape in input_shapes.items() if name not in {i.name for i in infos}}
    )
    given = [(i, _given_shape(i, input_shapes[i.name])) for i in infos if i.name in input_shapes]
    for info, shape in given:
        for size, wanted in zip(info.shape, shape, strict=True):
            if wanted != size:
                _bind(info, size, wanted, bindings)
    for info, shape in given:
        for size, wanted in zip(info.shape, shape, strict=True):
            if dims.substitute(size, bindings) != dims.substitute(wanted, bindings):
                raise ShapeError(f"input '{info.name}': size {wanted} given where the model has {size}")
    return tuple(TensorInfo(i.name, tuple(dims.substitute(s, bindings) for s in i.shape), i.dtype) for i in infos)


def _bound_by_name(infos: Sequence[TensorInfo], given: GivenShapes) -> dict[str, Size]:
    """The sizes of symbols that are given by their names alone."""
    symbols = sorted({symbol for info in infos for size in info.shape if isinstance(size, Dim) for symbol in size.symbols()})
    bindings: dict[str, Size] = {}
    for name, shape in given.items():
        size = shape[0] if len(shape) == 1 else None
        if identifier(name) not in symbols or size is None:
            sizes = f", nor a size of this name for one number: {', '.join(symbols)}" if symbols else ""
            inputs = ", ".join(info.name for info in infos)
            raise ShapeError(f"there is no input '{name}' to give a shape; inputs: {inputs}{sizes}")
        bindings[identifier(name)] = dims.parse(size) if isinstance(size, str) else size
    return bindings


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


def _given_shape(info: TensorInfo, shape: Sequence[int | str | None]) -> tuple[Size, ...]:
    given = [dims.parse(s) if isinstance(s, str) else s for s in shape]
    if len(given) != len(info.shape) or any(isinstance(s, int) and s < 0 for s in given):
        raise ShapeError(f"input '{info.name}': the shape {tuple(given)} does not fit the model's {info.shape}")
    return tuple(own if size is None else size for own, size in zip(info.shape, given, strict=True))


def _bind(info: TensorInfo, size: Size, given: Size, bindings: dict[str, Size]) -> None:
    """Notes the size of a symbol."""
    symbol = str(size)
    if isinstance(size, Dim) and size.symbols() == {symbol} and bindings.setdefault(symbol, given) != given:
        raise ShapeError(f"input '{info.name}': '{symbol}' is {given} here and {bindings[symbol]} in another place")


def identifier(name: str) -> str:
    """A name that dims.parse and MLIR read as one symbol."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() or iskeyword(text) else text


def short_name(name: str) -> str | None:
    """What dumps call a value: the last part of a path, not too much of it, and no number, which printing adds."""
    parts = [part for part in re.split("[/;]", name) if part]
    return re.sub(r"(_\d*)+$", "", identifier(parts[-1] if parts else name)[:40]) or None


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
