"""Inputs and outputs of all forms as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlc.arrays import TensorInfo, named_dtype
from dlc.forms import OBJECTS, Border, Form, ListOf, MapOf, Maybe, Nothing, Plain, Rows, Several, ValueShapes, form_of, told
from dlc.runtime.saving.header.values import count, plain, read_size, text


def given_to_json(info: TensorInfo) -> list[Any]:
    """Name and form."""
    return [info.name, _to_json(form_of(info))]


def given_from_json(written: Sequence[Any]) -> TensorInfo:
    """Raises ValueError, KeyError or TypeError for what is none."""
    name, form = written
    return told(text(name), _from_json(form))


def border_to_json(border: Border) -> dict[str, Any]:
    sides = {"inputs": border.inputs, "outputs": border.outputs}
    return {**{side: list(map(given_to_json, infos)) for side, infos in sides.items()}, "texts": list(border.texts)}


def border_from_json(fields: Mapping[str, Any]) -> Border:
    """Raises ValueError, KeyError or TypeError for what is none."""
    inputs, outputs = (tuple(map(given_from_json, fields[side])) for side in ("inputs", "outputs"))
    return Border(inputs, outputs, tuple(map(text, fields["texts"])))


def shapes_from_json(written: Any) -> ValueShapes:
    """ValueShapes of a value, which are lists in JSON."""
    if written is None:
        return None
    return tuple(shapes_from_json(part) if isinstance(part, list | None) else count(part) for part in written)


def _to_json(form: Form) -> Any:
    match form:
        case Plain():
            shape = None if form.shape is None else list(map(plain, form.shape))
            return {"dtype": "text" if form.is_text else form.dtype.name, "shape": shape}
        case ListOf():
            return {"list_of": _to_json(form.element)}
        case Several():
            return {"several": list(map(_to_json, form.parts))}
        case Maybe():
            return {"maybe": _to_json(form.value)}
        case Rows():
            return {"keys": list(form.keys)}
        case MapOf():
            return {"map": [_to_json(form.keys), _to_json(form.values)]}
        case Nothing():
            return None


def _from_json(written: Any) -> Form:
    match written:
        case {"dtype": dtype, "shape": shape}:
            sizes = None if shape is None else tuple(map(read_size, shape))
            return Plain(OBJECTS if dtype == "text" else named_dtype(dtype), sizes)
        case {"list_of": element}:
            return ListOf(_from_json(element))
        case {"several": parts}:
            return Several(tuple(map(_from_json, parts)))
        case {"maybe": value}:
            return Maybe(_from_json(value))
        case {"map": [keys, values]} if isinstance(of := _from_json(keys), Plain) and isinstance(
            to := _from_json(values), Plain
        ):
            return MapOf(of, to)
        case {"keys": keys} if all(isinstance(key, int | str) for key in keys):
            return Rows(tuple(keys))
        case None:
            return Nothing()
        case _:
            raise ValueError(f"{written!r} is no form of an input or output")
