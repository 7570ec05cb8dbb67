"""Shape specifications: shapes of inputs by name, as users write them.

{"x": ("N:1..32", None, 224, 224)}      a named dimension with a range, one that is unchanged, two static ones
{"batch": 8}                            the size of the model's dimension `batch`, wherever it occurs
{"frames": [(64, 64), (32, 32)]}        a list of two arrays
{"past": None}                          an optional input without a value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex, TypeAlias, cast

from dlc.arrays import TensorInfo
from dlc.errors import ShapeError
from dlc.shapes.dims import Dim, Size, substitute
from dlc.shapes.parsing import identifier, parse_size, parse_size_and_range
from dlc.shapes.ranges import SizeRange

TensorShape: TypeAlias = "Sequence[int | str | None]"
# A list has one shape per element.
ShapeSpec: TypeAlias = "TensorShape | Sequence[ShapeSpec] | None"
ShapeSpecs: TypeAlias = "Mapping[str, ShapeSpec]"


def parse_shape_specs(shapes: Mapping[Any, Any] | None) -> ShapeSpecs:
    """Validate the `input_shapes` of `compile_model`; a single size may be given without a sequence around it.

    Raises ShapeError for an invalid name or shape.
    """
    return {_parse_name(name): _parse_shape(name, shape) for name, shape in (shapes or {}).items()}


def _parse_name(name: object) -> str:
    if not isinstance(name, str):
        raise ShapeError(f"input_shapes: expected the name of an input, got {name!r}")
    return name


def _parse_shape(name: str, shape: object) -> ShapeSpec:
    if shape is None:
        return None
    is_single = isinstance(shape, str) or not isinstance(shape, Sequence)
    entries = cast("Sequence[Any]", (shape,) if is_single else shape)
    if _is_list(entries):
        return tuple(_parse_shape(f"{name}[{k}]", entry) for k, entry in enumerate(entries))
    if not all(s is None or isinstance(s, str) or _is_size(s) for s in entries):
        raise ShapeError(
            f"input_shapes: {name!r}: {shape!r} is not a shape; sizes are integers >= 0, names (N, N:1..32) or None, such as "
            "(None, 3, 224, 224)"
        )
    return tuple(s if s is None or isinstance(s, str) else index(s) for s in entries)


def tensor_shape(name: str, shape: ShapeSpec) -> TensorShape:
    """Return a shape that must be a tensor's. Raises ShapeError for a list of shapes and for None."""
    if shape is None or _is_list(shape):
        raise ShapeError(f"input '{name}': expected the shape of a tensor, got {shape}")
    return cast("TensorShape", shape)


def apply_input_shapes(infos: Sequence[TensorInfo], input_shapes: ShapeSpecs) -> tuple[TensorInfo, ...]:
    """Return the inputs of a model with the specified shapes. Raises what `specified_sizes` raises."""
    bindings = specified_sizes(infos, input_shapes)
    return tuple(TensorInfo(i.name, tuple(substitute(s, bindings) for s in i.shape), i.dtype) for i in infos)


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
            if substitute(size, bindings) != substitute(requested, bindings):
                raise ShapeError(f"input '{info.name}': expected size {size}, got {requested}")
    return bindings


def _bindings_by_name(infos: Sequence[TensorInfo], specified: Mapping[str, TensorShape]) -> dict[str, Size]:
    """Return the sizes of the symbols that are specified by name."""
    symbols = sorted({symbol for info in infos for size in info.shape if isinstance(size, Dim) for symbol in size.symbols()})
    bindings: dict[str, Size] = {}
    for name, shape in specified.items():
        if identifier(name) not in symbols:
            sizes = f", nor a symbolic dimension of this name: {', '.join(symbols)}" if symbols else ""
            inputs = ", ".join(info.name for info in infos)
            raise ShapeError(f"the model has no input '{name}'; inputs: {inputs}{sizes}")
        size = shape[0] if len(shape) == 1 else None
        if size is None:
            raise ShapeError(f"the symbolic dimension '{name}': expected one integer, got {tuple(shape)}")
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
        raise ShapeError(
            f"input '{info.name}': '{symbol}' is {specified}, but {bindings[symbol]} in another input or axis; use one size"
        )


def bind_symbolic_sizes(infos: Sequence[TensorInfo], shapes: ShapeSpecs) -> dict[str, int]:
    """Return the integer sizes of the symbols of a compiled model for the specified shapes of inputs.

    Raises ShapeError for a size that is not an integer, and what `specified_sizes` raises.
    """
    sizes = specified_sizes(infos, shapes)
    if symbolic := [f"{symbol}: {size}" for symbol, size in sizes.items() if not isinstance(size, int)]:
        raise ShapeError(f"the size of the dimension {symbolic[0]}; expected an integer")
    return {symbol: int(size) for symbol, size in sizes.items()}


def _is_list(entries: Sequence[Any]) -> bool:
    return any(isinstance(entry, Sequence) and not isinstance(entry, str) for entry in cast("Sequence[object]", entries))


def _is_size(value: object) -> bool:
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and index(value) >= 0


def split_ranges(
    shapes: ShapeSpecs,
) -> tuple[dict[str, ShapeSpec], dict[str, SizeRange]]:
    """Return shape specifications without their ranges, and the ranges by symbol.

    Raises ShapeError for an invalid range, and for different ranges of the same symbol.
    """
    ranges: dict[str, SizeRange] = {}

    def without_range(where: str, entry: int | str | None) -> int | str | None:
        if not isinstance(entry, str):
            return entry
        try:
            # A range without a name belongs to the symbol that is the key, as in {"batch": "1..32"}.
            size, size_range = parse_size_and_range(f"{where}:{entry}" if ".." in entry and ":" not in entry else entry)
        except ValueError as error:
            raise ShapeError(f"input '{where}': {entry!r}: {error}; write N, N:1..32 or N:1..") from error
        if size_range is not None and ranges.setdefault(size, size_range) != size_range:
            raise ShapeError(f"input '{where}': the range of {size} is {size_range} here and {ranges[size]} elsewhere")
        return size

    def without_ranges(name: str, shape: ShapeSpec) -> ShapeSpec:
        if shape is None or _is_list(shape):
            return shape
        return tuple(without_range(name, entry) for entry in tensor_shape(name, shape))

    return {name: without_ranges(name, shape) for name, shape in shapes.items()}, ranges
