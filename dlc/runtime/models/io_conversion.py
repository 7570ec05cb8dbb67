"""Models whose inputs or outputs are not all tensors: convert between Python values and tensors (see `dlc/value_types.py`).

Strings are converted to indices into a string pool (`python_ops/string_pool.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, format_type
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.runtime.models.model import Model, ModelInspector, as_result, to_input_array
from dlc.runtime.python_ops.string_pool import StringPool, to_string_array
from dlc.runtime.saving.container import SectionWriter
from dlc.runtime.saving.header.value_types import io_signature_to_json
from dlc.shapes.input_sizes import require_matching_inputs
from dlc.value_types import (
    MAX_LIST_LENGTH,
    OBJECT_DTYPE,
    AbsentType,
    DictType,
    FixedListType,
    IOSignature,
    ListType,
    OptionalType,
    RowDictsType,
    TensorValueType,
    ValueShapes,
    ValueType,
    value_type_of,
)

# Python types of a dict's keys and values, by dtype kind.
_SCALAR_TYPES: dict[str, tuple[type, ...]] = {
    "i": (int, np.integer),
    "u": (int, np.integer),
    "f": (int, float, np.integer, np.floating),
}


class StructuredModel(Model):
    """A model that takes lists, None or strings; its `run` receives lists of arrays, None, and arrays."""

    def checked(self, /, *arguments: Any, **named: Any) -> list[Any]:
        by_name, arrays_found = self._by_name(arguments, named), list[tuple[TensorInfo, Any]]()
        values = [_convert_input(value_type_of(info), by_name[info.name], info.name, arrays_found) for info in self.inputs]
        require_matching_inputs(self.name, [info for info, _ in arrays_found], [array for _, array in arrays_found])
        return values

    def check_and_run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return self.run_unchecked(arrays)

    def _inspected(self) -> ModelInspector:
        if any(info.dtype == OBJECT_DTYPE for info in self.inputs):
            raise UnsupportedError(f"{self.name}: it takes strings, lists or None; use `dlc explore FILE` for its program")
        return super()._inspected()

    def _by_name(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Mapping[str, Any]:
        """Return the inputs of a call by name; omitted optional inputs are None."""
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            arguments, named = (), {**cast("Mapping[str, Any]", arguments[0]), **named}
        optional_inputs = [
            info for info in self.inputs[len(arguments) :] if isinstance(value_type_of(info), OptionalType | AbsentType)
        ]
        return super()._by_name(arguments, {**dict.fromkeys(info.name for info in optional_inputs), **named})


class ConvertedModel(StructuredModel):
    """A model that converts its inputs and outputs to and from the tensors of its program."""

    def __init__(self, program: Model, io_signature: IOSignature) -> None:
        super().__init__(io_signature.inputs, io_signature.outputs, self._run, program.name, self)
        self.program, self.io_signature = program, io_signature
        self.num_threads, self.streams, self.cpus = program.num_threads, program.streams, program.cpus
        self._string_indices = {string: k for k, string in enumerate(io_signature.strings)}

    def _run(self, values: Sequence[Any]) -> list[Any]:
        pool = StringPool(self._string_indices)
        flat = [pool.encode(array) if array.dtype == OBJECT_DTYPE else array for array in _arrays_of(values)]
        with pool.in_use():
            results = iter(self.program.run_unchecked(self.program.checked(*flat)))
        return [_build_output(value_type_of(info), results, pool) for info in self.io_signature.outputs]

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        return {"io_signature": io_signature_to_json(self.io_signature), "program": self.program.serialize(writer, defaults)}


def shapes_of(value: Any) -> ValueShapes:
    """Return the shapes of a converted input value."""
    if value is None:
        return None
    return tuple(map(shapes_of, cast("list[Any]", value))) if isinstance(value, list) else value.shape


def _convert_input(
    value_type: ValueType, value: Any, name: str, arrays_found: list[tuple[TensorInfo, Any]], in_list: bool = False
) -> Any:
    """Convert a value to nested lists of arrays; append the arrays, with the expected tensor types, to `arrays_found`.

    Raises DTypeError or ShapeError if the value does not have the type.
    """
    match value_type:
        case OptionalType():
            return None if value is None else _convert_input(value_type.value, value, name, arrays_found)
        case ListType() | FixedListType() if isinstance(value, list | tuple):
            elements = cast("Sequence[Any]", value)
            count = len(value_type.element_types) if isinstance(value_type, FixedListType) else len(elements)
            if len(elements) != count or count > MAX_LIST_LENGTH:
                expected = value_type if count <= MAX_LIST_LENGTH else f"{value_type}, of up to {MAX_LIST_LENGTH} elements"
                raise ShapeError(f"input {name}: expected a {expected}; got {len(elements)} elements")
            element_types = value_type.element_types if isinstance(value_type, FixedListType) else [value_type.element] * count
            return [
                _convert_input(element_type, element, f"{name}[{k}]", arrays_found, True)
                for k, (element_type, element) in enumerate(zip(element_types, elements, strict=True))
            ]
        case DictType() if isinstance(value, Mapping):
            return _convert_dict(value_type, cast("Mapping[Any, Any]", value), name, arrays_found)
        case TensorValueType() if value is not None:
            info = TensorInfo(name, value_type.shape or (), value_type.dtype)
            array = to_string_array(value, f"input {info}") if value_type.is_string else to_input_array(value, info)
            arrays_found.append((_expected(info, value_type, array.shape, in_list), array))
            return array
        case AbsentType() if value is None:
            return None
        case _:
            raise DTypeError(f"input {name}: expected {value_type}; got {_described(value)}")


def _convert_dict(
    value_type: DictType, value: Mapping[Any, Any], name: str, arrays_found: list[tuple[TensorInfo, Any]]
) -> list[Any]:
    """Convert a dict to an array of its sorted keys and an array of its values.

    Raises DTypeError for keys and values of other types.
    """
    python_types = [
        (str,) if side_type.is_string else _SCALAR_TYPES[side_type.dtype.kind]
        for side_type in (value_type.keys, value_type.values)
    ]
    for side, python_type, elements in zip(("keys", "values"), python_types, (value.keys(), value.values()), strict=True):
        if invalid := [x for x in elements if not isinstance(x, python_type) or isinstance(x, bool)]:
            raise DTypeError(f"input {name}: expected a {value_type}; got {invalid[0]!r} among its {side}")
    entries = sorted(value.items())
    columns = [
        np.array([entry[k] for entry in entries], side_type.dtype)
        for k, side_type in enumerate((value_type.keys, value_type.values))
    ]
    arrays_found += [
        (TensorInfo(side_type, tensor_type.shape or (), tensor_type.dtype), x)
        for (side_type, tensor_type), x in zip(value_type.vector_types(name).items(), columns, strict=True)
    ]
    return columns


def _expected(info: TensorInfo, value_type: TensorValueType, shape: tuple[int, ...], in_list: bool) -> TensorInfo:
    """Return the expected name, shape and dtype of a tensor that has the actual shape `shape`."""
    if value_type.shape is None:
        return replace(info, shape=shape)
    if not in_list or len(value_type.shape) != len(shape):
        return info
    # A symbolic dimension may differ between the elements of a list.
    sizes = (size if isinstance(size, int) else got for size, got in zip(value_type.shape, shape, strict=True))
    return replace(info, shape=tuple(sizes))


def _described(value: Any) -> str:
    if isinstance(value, list | tuple):
        sequence = cast("Sequence[Any]", value)
        return f"a {type(sequence).__name__} of {len(sequence)}"
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        return f"an array, {format_type(array.dtype, array.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _arrays_of(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the arrays in nested lists, in order."""
    for value in values:
        if isinstance(value, list):
            yield from _arrays_of(cast("list[Any]", value))
        elif value is not None:
            yield value


def _build_output(value_type: ValueType, results: Iterator[Any], pool: StringPool) -> Any:
    """Build a value of this type from the next result tensors."""
    match value_type:
        case TensorValueType():
            return pool.decode(next(results)) if value_type.is_string else as_result(next(results))
        case FixedListType():
            return [_build_output(element_type, results, pool) for element_type in value_type.element_types]
        case DictType():
            keys, values = (
                _build_output(element_type, results, pool).tolist() for element_type in (value_type.keys, value_type.values)
            )
            return dict(zip(keys, values, strict=True))
        case RowDictsType():
            return [dict(zip(value_type.keys, row, strict=True)) for row in np.asarray(next(results)).tolist()]
        case _:
            return None
