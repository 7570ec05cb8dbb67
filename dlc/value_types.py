"""Value types of model inputs and outputs that are not tensors: strings, sequences, optionals and maps.

    labels: string[n]                               i64[n]: indices into the string pool
    frames: list of float32[h, w]                 three elements: frames[0], frames[1], frames[2]
    probabilities: list of {"no": …, "yes": …}    f32[n, 2]: one row per dict
    words: dict of string to float32                words[keys]: i64[n], words[values]: f32[n], in the order of the keys

Programs take and return tensors only. A value type says which tensors represent an input or output;
`runtime/models/io_conversion.py` converts between them. A type that depends on the call (a list of any length, an optional) is
specialized by the *shapes* of the value. They are a tuple of sizes for a tensor, a tuple of shapes for a list, and None for an
absent optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.arrays import TensorInfo, format_type
from dlc.errors import ShapeError
from dlc.shapes.dims import Dim, Size

# The dtype that `Model.inputs` and `Model.outputs` report for strings, lists and dicts.
OBJECT_DTYPE: np.dtype[Any] = np.dtype(object)

# Each element of a list is a tensor of its own.
MAX_LIST_LENGTH = 10_000
# The sizes of a tensor, the shapes of a list's elements, or None.
ValueShapes: TypeAlias = "tuple[int | ValueShapes | None, ...] | None"


@dataclass(frozen=True)
class TensorValueType:
    """A tensor of numbers, or of strings if the dtype is OBJECT_DTYPE; `shape` is None for any shape."""

    dtype: np.dtype[Any]
    shape: tuple[Size, ...] | None

    def __str__(self) -> str:
        return format_type(self.dtype, ("…",) if self.shape is None else self.shape)

    @property
    def is_string(self) -> bool:
        return self.dtype == OBJECT_DTYPE


@dataclass(frozen=True)
class ListType:
    """A list of any length."""

    element: ValueType

    def __str__(self) -> str:
        return f"list of {self.element}"


@dataclass(frozen=True)
class FixedListType:
    """A list of fixed length."""

    element_types: tuple[ValueType, ...]

    def __str__(self) -> str:
        return (
            f"list of {len(self.element_types)}: {', '.join(map(str, self.element_types))}"
            if self.element_types
            else "empty list"
        )


@dataclass(frozen=True)
class OptionalType:
    """A value or None, depending on the call."""

    value: ValueType

    def __str__(self) -> str:
        return f"{self.value}, or None"


@dataclass(frozen=True)
class AbsentType:
    """None, where an optional has no value."""

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True)
class RowDictsType:
    """A list of dicts, one for each row of a 2-D tensor; `keys` are those of its columns."""

    keys: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"list of dicts of {', '.join(map(repr, self.keys))}"


@dataclass(frozen=True)
class DictType:
    """A dict, represented by a vector of keys and a vector of values."""

    keys: TensorValueType
    values: TensorValueType

    def __str__(self) -> str:
        key_name, value_name = ("string" if vector.is_string else vector.dtype.name for vector in (self.keys, self.values))
        return f"dict of {key_name} to {value_name}"

    def vector_types(self, name: str) -> dict[str, TensorValueType]:
        """Return the types of both vectors by name."""
        return {f"{name}[keys]": self.keys, f"{name}[values]": self.values}


ValueType: TypeAlias = "TensorValueType | ListType | FixedListType | OptionalType | AbsentType | RowDictsType | DictType"


@dataclass(frozen=True)
class ValueInfo(TensorInfo):
    """The description of an input or output that is not a tensor."""

    value_type: ValueType

    def __str__(self) -> str:
        return f"{self.name}: {self.value_type}"


def value_info(name: str, value_type: ValueType) -> TensorInfo:
    """Return the description of an input or output of this type."""
    if isinstance(value_type, TensorValueType) and value_type.shape is not None:
        return TensorInfo(name, value_type.shape, value_type.dtype)
    return ValueInfo(name, (), OBJECT_DTYPE, value_type)


def value_type_of(info: TensorInfo) -> ValueType:
    """Return the value type of an input or output."""
    return info.value_type if isinstance(info, ValueInfo) else TensorValueType(info.dtype, info.shape)


def is_call_dependent(info: TensorInfo) -> bool:
    """Return whether the number of tensors that represent an input depends on the call."""
    return isinstance(value_type_of(info), ListType | OptionalType)


def specialize_value_type(value_type: ValueType, shapes: ValueShapes, where: str) -> ValueType:
    """Return the value type of a value with these shapes. Raises ShapeError for shapes that do not match the type."""
    match value_type:
        case OptionalType():
            return AbsentType() if shapes is None else specialize_value_type(value_type.value, shapes, where)
        case ListType() if shapes is not None and all(isinstance(s, tuple | None) for s in shapes):
            element_shapes = cast("tuple[ValueShapes, ...]", shapes)
            return FixedListType(
                tuple(
                    specialize_value_type(value_type.element, element_shape, f"{where}[{k}]")
                    for k, element_shape in enumerate(element_shapes)
                )
            )
        case DictType() if shapes is not None and len(shapes) == 2 and all(isinstance(s, tuple) for s in shapes):
            vectors = map(
                specialize_value_type,
                (value_type.keys, value_type.values),
                cast("Sequence[ValueShapes]", shapes),
                (where, where),
            )
            return DictType(*cast("Iterator[TensorValueType]", vectors))
        case TensorValueType() if shapes is not None and all(isinstance(s, int) for s in shapes):
            sizes = cast("tuple[int, ...]", shapes)
            declared = sizes if value_type.shape is None else value_type.shape
            if len(declared) == len(sizes) and all(
                isinstance(s, Dim) or s == size for s, size in zip(declared, sizes, strict=True)
            ):
                return TensorValueType(value_type.dtype, sizes)
        case _:
            pass
    raise ShapeError(f"{where}: shape {shapes} does not match {value_type}")


def flatten_value_type(name: str, value_type: ValueType) -> Iterator[tuple[str, TensorValueType]]:
    """Yield the tensors that represent a specialized type, with their names."""
    match value_type:
        case TensorValueType():
            yield name, value_type
        case FixedListType():
            for k, element_type in enumerate(value_type.element_types):
                yield from flatten_value_type(f"{name}[{k}]", element_type)
        case DictType():
            yield from value_type.vector_types(name).items()
        case _:
            return


@dataclass(frozen=True)
class IOSignature:
    """The value types of a model's inputs and outputs, and the string constants of its program."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    strings: tuple[str, ...] = ()
