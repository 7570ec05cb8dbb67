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
from dlc.shapes.dims import Dim, is_static
from dlc.shapes.input_sizes import bind_sizes
from dlc.shapes.parsing import parse_size_and_range
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


def bind_symbolic_sizes(infos: Sequence[TensorInfo], shapes: ShapeSpecs) -> dict[str, int]:
    """Match `shapes` to the symbolic dimensions of inputs; return the size of each symbol.

    Raises ShapeError for a shape of an input without symbolic dimensions, for a name that is neither an input nor a symbolic
    dimension, and for a shape that is not fully static.
    """
    sizes: dict[str, int] = {}
    infos_by_name = {info.name: info for info in infos if not is_static(info.shape)}
    symbols = {symbol for info in infos for size in info.shape if isinstance(size, Dim) for symbol in size.symbols()}
    names = {info.name for info in infos}
    for name, shape in shapes.items():
        if name in symbols - names:
            size = shape[0] if shape is not None and len(shape) == 1 else None
            if not isinstance(size, int):
                raise ShapeError(f"the symbolic dimension '{name}': expected one integer, got {shape}")
            sizes[name] = size
            continue
        if name not in infos_by_name:
            dynamic_inputs = f"those of {', '.join(map(str, infos_by_name.values()))}" if infos_by_name else "there are none"
            raise ShapeError(f"the shape of '{name}': only symbolic dimensions can be set; {dynamic_inputs}")
        values = [size for size in tensor_shape(name, shape) if isinstance(size, int)]
        if not len(values) == len(shape or ()) == len(infos_by_name[name].shape):
            expected = f"expected an integer for each dimension of {infos_by_name[name]}, got {shape}"
            raise ShapeError(f"the shape of '{name}': only symbolic dimensions can be set; {expected}")
        bind_sizes(infos_by_name[name].shape, values, sizes)
    return sizes


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
