"""Models whose inputs or outputs are more than the tensors of their programs: the host makes one of the other (`dlc/forms.py`).

Of text it makes numbers (`python_ops/texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, type_text
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.forms import (
    MOST_PARTS,
    OBJECTS,
    Border,
    Form,
    ListOf,
    MapOf,
    Maybe,
    Nothing,
    Plain,
    Rows,
    Several,
    ValueShapes,
    form_of,
)
from dlc.runtime.models.model import Model, Study, as_result, given_as, require_fitting
from dlc.runtime.python_ops.texts import Texts, text_array
from dlc.runtime.saving.container import Writer
from dlc.runtime.saving.header.forms import border_to_json

# What may be an entry of a dict, by the kind of its dtype.
_NUMBERS: dict[str, tuple[type, ...]] = {
    "i": (int, np.integer),
    "u": (int, np.integer),
    "f": (int, float, np.integer, np.floating),
}


class FormedModel(Model):
    """A model that takes lists, None or text: what comes to its program are lists of arrays, None, and arrays."""

    def checked(self, /, *arguments: Any, **named: Any) -> list[Any]:
        given, found = self._by_name(arguments, named), list[tuple[TensorInfo, Any]]()
        values = [_taken(form_of(info), given[info.name], info.name, found) for info in self.inputs]
        require_fitting(self.name, [info for info, _ in found], [array for _, array in found])
        return values

    def run_fitting(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return self.run_unchecked(arrays)

    def _studied(self) -> Study:
        if any(info.dtype == OBJECTS for info in self.inputs):
            raise UnsupportedError(f"{self.name}: it takes text, lists or None; `dlc explore FILE` shows the program inside")
        return super()._studied()

    def _by_name(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Mapping[str, Any]:
        """The inputs of a call by name; those that may be None are where they are left out."""
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            arguments, named = (), {**cast("Mapping[str, Any]", arguments[0]), **named}
        behind = [info for info in self.inputs[len(arguments) :] if isinstance(form_of(info), Maybe | Nothing)]
        return super()._by_name(arguments, {**dict.fromkeys(info.name for info in behind), **named})


class BorderedModel(FormedModel):
    """A model with a border around its program."""

    def __init__(self, program: Model, border: Border) -> None:
        super().__init__(border.inputs, border.outputs, self._run, program.name, self)
        self.program, self.border = program, border
        self.num_threads = program.num_threads
        self._known = {known: k for k, known in enumerate(border.texts)}

    def _run(self, values: Sequence[Any]) -> list[Any]:
        texts = Texts(self._known)
        flat = [texts.numbers(array) if array.dtype == OBJECTS else array for array in _arrays_of(values)]
        with texts.in_use():
            results = iter(self.program.run_unchecked(self.program.checked(*flat)))
        return [_made(form_of(info), results, texts) for info in self.border.outputs]

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        return {"border": border_to_json(self.border), "program": self.program.written(writer, defaults)}


def shapes_of(value: Any) -> ValueShapes:
    """The shapes of what a model has taken."""
    if value is None:
        return None
    return tuple(map(shapes_of, cast("list[Any]", value))) if isinstance(value, list) else value.shape


def _taken(form: Form, value: Any, name: str, found: list[tuple[TensorInfo, Any]], in_list: bool = False) -> Any:
    """A value as lists of arrays; the arrays are `found`, and what each of them has to be.

    Raises DTypeError or ShapeError for a value that is none of the form.
    """
    match form:
        case Maybe():
            return None if value is None else _taken(form.value, value, name, found)
        case ListOf() | Several() if isinstance(value, list | tuple):
            parts = cast("Sequence[Any]", value)
            count = len(form.parts) if isinstance(form, Several) else len(parts)
            if len(parts) != count or count > MOST_PARTS:
                expected = form if count <= MOST_PARTS else f"{form}, of up to {MOST_PARTS} elements"
                raise ShapeError(f"input {name}: expected a {expected}; got {len(parts)} elements")
            forms = form.parts if isinstance(form, Several) else [form.element] * count
            return [
                _taken(of, part, f"{name}[{k}]", found, True) for k, (of, part) in enumerate(zip(forms, parts, strict=True))
            ]
        case MapOf() if isinstance(value, Mapping):
            return _entries(form, cast("Mapping[Any, Any]", value), name, found)
        case Plain() if value is not None:
            info = TensorInfo(name, form.shape or (), form.dtype)
            array = text_array(value, f"input {info}") if form.is_text else given_as(value, info)
            found.append((_expected(info, form, array.shape, in_list), array))
            return array
        case Nothing() if value is None:
            return None
        case _:
            raise DTypeError(f"input {name}: expected {form}; got {_described(value)}")


def _entries(form: MapOf, value: Mapping[Any, Any], name: str, found: list[tuple[TensorInfo, Any]]) -> list[Any]:
    """The keys of a dict, in order, and what is at them. Raises DTypeError for others than the form has."""
    kinds = [(str,) if part.is_text else _NUMBERS[part.dtype.kind] for part in (form.keys, form.values)]
    for side, kind, elements in zip(("keys", "values"), kinds, (value.keys(), value.values()), strict=True):
        if wrong := [x for x in elements if not isinstance(x, kind) or isinstance(x, bool)]:
            raise DTypeError(f"input {name}: expected a {form}; got {wrong[0]!r} among its {side}")
    entries = sorted(value.items())
    columns = [np.array([entry[k] for entry in entries], part.dtype) for k, part in enumerate((form.keys, form.values))]
    found += [
        (TensorInfo(part, of.shape or (), of.dtype), x) for (part, of), x in zip(form.parts(name).items(), columns, strict=True)
    ]
    return columns


def _expected(info: TensorInfo, form: Plain, shape: tuple[int, ...], in_list: bool) -> TensorInfo:
    """What a tensor of this shape has to be."""
    if form.shape is None:
        return replace(info, shape=shape)
    if not in_list or len(form.shape) != len(shape):
        return info
    # A size of one name may be another one in each element.
    sizes = (size if isinstance(size, int) else got for size, got in zip(form.shape, shape, strict=True))
    return replace(info, shape=tuple(sizes))


def _described(value: Any) -> str:
    if isinstance(value, list | tuple):
        parts = cast("Sequence[Any]", value)
        return f"a {type(parts).__name__} of {len(parts)}"
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        return f"an array, {type_text(array.dtype, array.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _arrays_of(values: Sequence[Any]) -> Iterator[Any]:
    """The arrays in lists, in order."""
    for value in values:
        if isinstance(value, list):
            yield from _arrays_of(cast("list[Any]", value))
        elif value is not None:
            yield value


def _made(form: Form, results: Iterator[Any], texts: Texts) -> Any:
    """A value of a form, of the tensors that come next."""
    match form:
        case Plain():
            return texts.of(next(results)) if form.is_text else as_result(next(results))
        case Several():
            return [_made(part, results, texts) for part in form.parts]
        case MapOf():
            keys, values = (_made(part, results, texts).tolist() for part in (form.keys, form.values))
            return dict(zip(keys, values, strict=True))
        case Rows():
            return [dict(zip(form.keys, row, strict=True)) for row in np.asarray(next(results)).tolist()]
        case _:
            return None
