"""The sizes that a caller gives in place of a model's symbolic ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc import dims
from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size
from dlc.errors import ShapeError
from dlc.frontend.identifiers import identifier
from dlc.given_shapes import GivenShapes, TensorShape, tensor_shape


def given_sizes(infos: Sequence[TensorInfo], input_shapes: GivenShapes) -> tuple[TensorInfo, ...]:
    """The inputs of a model under the shapes given.

    A symbol that one input's shape gives a size has it in all of them. Raises ShapeError for shapes that contradict the
    model or one another.
    """
    shapes = {name: tensor_shape(name, shape) for name, shape in input_shapes.items()}
    bindings = _bound_by_name(infos, {name: shape for name, shape in shapes.items() if name not in {i.name for i in infos}})
    given = [(i, _given_shape(i, shapes[i.name])) for i in infos if i.name in shapes]
    for info, shape in given:
        for size, wanted in zip(info.shape, shape, strict=True):
            if wanted != size:
                _bind(info, size, wanted, bindings)
    for info, shape in given:
        for size, wanted in zip(info.shape, shape, strict=True):
            if dims.substitute(size, bindings) != dims.substitute(wanted, bindings):
                raise ShapeError(f"input '{info.name}': size {wanted} given where the model has {size}")
    return tuple(TensorInfo(i.name, tuple(dims.substitute(s, bindings) for s in i.shape), i.dtype) for i in infos)


def _bound_by_name(infos: Sequence[TensorInfo], given: Mapping[str, TensorShape]) -> dict[str, Size]:
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


def _given_shape(info: TensorInfo, shape: TensorShape) -> tuple[Size, ...]:
    given = [dims.parse(s) if isinstance(s, str) else s for s in shape]
    if len(given) != len(info.shape) or any(isinstance(s, int) and s < 0 for s in given):
        raise ShapeError(f"input '{info.name}': the shape {tuple(given)} does not fit the model's {info.shape}")
    return tuple(own if size is None else size for own, size in zip(info.shape, given, strict=True))


def _bind(info: TensorInfo, size: Size, given: Size, bindings: dict[str, Size]) -> None:
    """Notes the size of a symbol."""
    symbol = str(size)
    if isinstance(size, Dim) and size.symbols() == {symbol} and bindings.setdefault(symbol, given) != given:
        raise ShapeError(f"input '{info.name}': '{symbol}' is {given} here and {bindings[symbol]} in another place")
