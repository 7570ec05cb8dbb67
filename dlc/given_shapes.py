"""Shapes of inputs by name, as people give them.

{"x": ("N:1..32", None, 224, 224)}      a size with a name and a range, one that is as the model says, two known ones
{"batch": 8}                            the size that the model calls so, wherever it stands
{"frames": [(64, 64), (32, 32)]}        a list of two arrays
{"past": None}                          an input that may be None, and is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex, TypeAlias, cast

from dlc.arrays import TensorInfo
from dlc.dims import Range, bind_sizes, is_static, parse_ranged
from dlc.errors import ShapeError

TensorShape: TypeAlias = "Sequence[int | str | None]"
# Of a list a shape for each element.
GivenShape: TypeAlias = "TensorShape | Sequence[GivenShape] | None"
GivenShapes: TypeAlias = "Mapping[str, GivenShape]"


def given_shapes(shapes: Mapping[Any, Any] | None) -> GivenShapes:
    """Shapes as `compile_model` takes them, where a size by its name may be given without a sequence around it.

    Raises ShapeError for anything else.
    """
    return {_given_name(name): _given_shape(name, shape) for name, shape in (shapes or {}).items()}


def _given_name(name: object) -> str:
    if not isinstance(name, str):
        raise ShapeError(f"input_shapes: expected the name of an input, got {name!r}")
    return name


def _given_shape(name: str, shape: object) -> GivenShape:
    if shape is None:
        return None
    alone = isinstance(shape, str) or not isinstance(shape, Sequence)
    entries = cast("Sequence[Any]", (shape,) if alone else shape)
    if _is_list(entries):
        return tuple(_given_shape(f"{name}[{k}]", entry) for k, entry in enumerate(entries))
    if not all(s is None or isinstance(s, str) or _is_size(s) for s in entries):
        raise ShapeError(
            f"input_shapes: {name!r}: {shape!r} is no shape; write sizes as numbers from 0 on, names (N, N:1..32) or None, "
            "such as (None, 3, 224, 224)"
        )
    return tuple(s if s is None or isinstance(s, str) else index(s) for s in entries)


def tensor_shape(name: str, shape: GivenShape) -> TensorShape:
    """A shape that has to be a tensor's. Raises ShapeError for that of a list, and for None."""
    if shape is None or _is_list(shape):
        raise ShapeError(f"input '{name}': {shape} is no shape of a tensor, which the model has there")
    return cast("TensorShape", shape)


def sizes_given(infos: Sequence[TensorInfo], shapes: GivenShapes) -> dict[str, int]:
    """The sizes that shapes give to what inputs leave open, by name.

    Raises ShapeError for a shape of anything else, and for one that does not say all sizes.
    """
    sizes: dict[str, int] = {}
    open_ = {info.name: info for info in infos if not is_static(info.shape)}
    for name, shape in shapes.items():
        if name not in open_:
            known = f"those of {', '.join(map(str, open_.values()))}" if open_ else "there are none"
            raise ShapeError(f"a shape of '{name}': only sizes that inputs leave open can be given; {known}")
        numbers = [size for size in tensor_shape(name, shape) if isinstance(size, int)]
        if not len(numbers) == len(shape or ()) == len(open_[name].shape):
            wanted = f"expected a number for each size of {open_[name]}, got {shape}"
            raise ShapeError(f"a shape of '{name}': only sizes that inputs leave open can be given; {wanted}")
        bind_sizes(open_[name].shape, numbers, sizes)
    return sizes


def _is_list(entries: Sequence[Any]) -> bool:
    return any(isinstance(entry, Sequence) and not isinstance(entry, str) for entry in cast("Sequence[object]", entries))


def _is_size(value: object) -> bool:
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and index(value) >= 0


def split_ranges(
    shapes: GivenShapes,
) -> tuple[dict[str, GivenShape], dict[str, Range]]:
    """Shapes as people give them, without the ranges in them, and these.

    Raises ShapeError for a range that is none, or that differs from another one of the same size.
    """
    ranges: dict[str, Range] = {}

    def plain(where: str, entry: int | str | None) -> int | str | None:
        if not isinstance(entry, str):
            return entry
        try:
            # A range alone is of the size that is given by its name.
            size, stated = parse_ranged(f"{where}:{entry}" if ".." in entry and ":" not in entry else entry)
        except ValueError as error:
            raise ShapeError(f"input '{where}': {entry!r}: {error}; write N, N:1..32 or N:1..") from error
        if stated is not None and ranges.setdefault(size, stated) != stated:
            raise ShapeError(f"input '{where}': {size} is {stated} here and {ranges[size]} in another place")
        return size

    def without(name: str, shape: GivenShape) -> GivenShape:
        if shape is None or _is_list(shape):
            return shape
        return tuple(plain(name, entry) for entry in tensor_shape(name, shape))

    return {name: without(name, shape) for name, shape in shapes.items()}, ranges
