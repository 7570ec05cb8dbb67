"""Serialization of value types of inputs and outputs. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlc.arrays import TensorInfo, named_dtype
from dlc.runtime.saving.header.values import count, size_from_json, size_to_json, text
from dlc.value_types import (
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
    value_info,
    value_type_of,
)


def value_info_to_json(info: TensorInfo) -> list[Any]:
    """Return name and value type."""
    return [info.name, _to_json(value_type_of(info))]


def value_info_from_json(written: Sequence[Any]) -> TensorInfo:
    """Read name and value type. Raises ValueError, KeyError or TypeError for invalid input."""
    name, value_type = written
    return value_info(text(name), _from_json(value_type))


def io_signature_to_json(io_signature: IOSignature) -> dict[str, Any]:
    sides = {"inputs": io_signature.inputs, "outputs": io_signature.outputs}
    return {
        **{side: list(map(value_info_to_json, infos)) for side, infos in sides.items()},
        "strings": list(io_signature.strings),
    }


def io_signature_from_json(fields: Mapping[str, Any]) -> IOSignature:
    """Read an IOSignature. Raises ValueError, KeyError or TypeError for invalid input."""
    inputs, outputs = (tuple(map(value_info_from_json, fields[side])) for side in ("inputs", "outputs"))
    return IOSignature(inputs, outputs, tuple(map(text, fields["strings"])))


def shapes_from_json(written: Any) -> ValueShapes:
    """Read ValueShapes, whose tuples are lists in JSON."""
    if written is None:
        return None
    return tuple(shapes_from_json(inner) if isinstance(inner, list | None) else count(inner) for inner in written)


def _to_json(value_type: ValueType) -> Any:
    match value_type:
        case TensorValueType():
            shape = None if value_type.shape is None else list(map(size_to_json, value_type.shape))
            return {"dtype": "string" if value_type.is_string else value_type.dtype.name, "shape": shape}
        case ListType():
            return {"list_of": _to_json(value_type.element)}
        case FixedListType():
            return {"fixed_list": list(map(_to_json, value_type.element_types))}
        case OptionalType():
            return {"optional": _to_json(value_type.value)}
        case RowDictsType():
            return {"keys": list(value_type.keys)}
        case DictType():
            return {"map": [_to_json(value_type.keys), _to_json(value_type.values)]}
        case AbsentType():
            return None


def _from_json(written: Any) -> ValueType:
    match written:
        case {"dtype": dtype, "shape": shape}:
            sizes = None if shape is None else tuple(map(size_from_json, shape))
            return TensorValueType(OBJECT_DTYPE if dtype == "string" else named_dtype(dtype), sizes)
        case {"list_of": element}:
            return ListType(_from_json(element))
        case {"fixed_list": element_types}:
            return FixedListType(tuple(map(_from_json, element_types)))
        case {"optional": value}:
            return OptionalType(_from_json(value))
        case {"map": [keys, values]} if isinstance(key_type := _from_json(keys), TensorValueType) and isinstance(
            value_type := _from_json(values), TensorValueType
        ):
            return DictType(key_type, value_type)
        case {"keys": keys} if all(isinstance(key, int | str) for key in keys):
            return RowDictsType(tuple(keys))
        case None:
            return AbsentType()
        case _:
            raise ValueError(f"{written!r} is not a value type")
