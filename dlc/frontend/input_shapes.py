"""Apply the input shapes that a caller specifies to the symbolic dimensions of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.arrays import TensorInfo
from dlc.errors import ShapeError
from dlc.frontend.identifiers import identifier
from dlc.shapes import dims
from dlc.shapes.dims import Dim, Size
from dlc.shapes.parsing import parse_size
from dlc.shapes.shape_specs import ShapeSpecs, TensorShape, tensor_shape


def apply_input_shapes(infos: Sequence[TensorInfo], input_shapes: ShapeSpecs) -> tuple[TensorInfo, ...]:
    """Return the inputs of a model with the specified shapes. Raises what `specified_sizes` raises."""
    bindings = specified_sizes(infos, input_shapes)
    return tuple(TensorInfo(i.name, tuple(dims.substitute(s, bindings) for s in i.shape), i.dtype) for i in infos)


def specified_sizes(infos: Sequence[TensorInfo], input_shapes: ShapeSpecs) -> dict[str, Size]:
    """Return the sizes of the symbols of a model for the specified shapes of inputs.

    Raises ShapeError for shapes that contradict the model or one another.
    """
    shapes = {name: tensor_shape(name, shape) for name, shape in input_shapes.items()}
    bindings = _bindings_by_name(infos, {name: shape for name, shape in shapes.items() if name not in {i.name for i in infos}})
    specified = [(i, _resolve_shape(i, shapes[i.name])) for i in infos if i.name in shapes]
    for info, shape in specified:
        for size, requested in zip(info.shape, shape, strict=True):
            if requested != size:
                _bind(info, size, requested, bindings)
    for info, shape in specified:
        for size, requested in zip(info.shape, shape, strict=True):
            if dims.substitute(size, bindings) != dims.substitute(requested, bindings):
                raise ShapeError(f"input '{info.name}': expected size {size}, got {requested}")
    return bindings


def _bindings_by_name(infos: Sequence[TensorInfo], specified: Mapping[str, TensorShape]) -> dict[str, Size]:
    """Return the sizes of the symbols that are specified by name."""
    symbols = sorted({symbol for info in infos for size in info.shape if isinstance(size, Dim) for symbol in size.symbols()})
    bindings: dict[str, Size] = {}
    for name, shape in specified.items():
        size = shape[0] if len(shape) == 1 else None
        if identifier(name) not in symbols or size is None:
            sizes = f", nor a symbolic dimension of this name: {', '.join(symbols)}" if symbols else ""
            inputs = ", ".join(info.name for info in infos)
            raise ShapeError(f"the model has no input '{name}'; inputs: {inputs}{sizes}")
        bindings[identifier(name)] = parse_size(size) if isinstance(size, str) else size
    return bindings


def _resolve_shape(info: TensorInfo, shape: TensorShape) -> tuple[Size, ...]:
    specified = [parse_size(s) if isinstance(s, str) else s for s in shape]
    if len(specified) != len(info.shape) or any(isinstance(s, int) and s < 0 for s in specified):
        raise ShapeError(f"input '{info.name}': expected shape {info.shape}, got {tuple(specified)}")
    return tuple(declared if size is None else size for declared, size in zip(info.shape, specified, strict=True))


def _bind(info: TensorInfo, size: Size, specified: Size, bindings: dict[str, Size]) -> None:
    """Bind the symbol that a size consists of."""
    symbol = str(size)
    if isinstance(size, Dim) and size.symbols() == {symbol} and bindings.setdefault(symbol, specified) != specified:
        raise ShapeError(f"input '{info.name}': '{symbol}' is {specified}, but {bindings[symbol]} in another input or axis")
