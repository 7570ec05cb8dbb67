"""Models whose inputs or outputs are more than the tensors of their programs: the host makes one of the other (`forms.py`).

Of text it makes numbers (`texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.forms import OBJECTS, Border, Form, Nothing, Plain, Rows, Several
from dlc.runtime.container import Writer
from dlc.runtime.host_format import text
from dlc.runtime.info_format import info_from_json, info_to_json
from dlc.runtime.model import Model, as_result
from dlc.runtime.texts import Texts


class BorderedModel(Model):
    """A model with a border around its program."""

    def __init__(self, program: Model, border: Border) -> None:
        inputs, outputs = ([info for info, _ in side] for side in (border.inputs, border.outputs))
        super().__init__(inputs, outputs, self._run, program.name, self)
        self.program, self.border = program, border
        self.num_threads = program.num_threads
        self._known = {known: k for k, known in enumerate(border.texts)}

    def checked(self, /, *arguments: Any, **named: Any) -> list[Any]:
        """What is given for the inputs, in order; what does not fit their forms is found when it is taken apart."""
        given = self._by_name(arguments, named)
        return [given[info.name] for info in self.inputs]

    def _run(self, values: Sequence[Any]) -> list[Any]:
        texts, flat = Texts(self._known), list[Any]()
        for (info, form), value in zip(self.border.inputs, values, strict=True):
            flat += _tensors_of(form, value, texts, f"input {info}")
        with texts.in_use():
            results = iter(self.program.run(self.program.checked(*flat)))
        return [_made(form, results, texts) for _, form in self.border.outputs]

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        return {"border": border_to_json(self.border), "program": self.program.written(writer, defaults)}


def _tensors_of(form: Form, value: Any, texts: Texts, where: str) -> Iterator[Any]:
    """The tensors that a value of a form is made of."""
    match form:
        case Plain(is_text=True):
            yield texts.numbers(value, where)
        case Several():
            for k, (part, inner) in enumerate(zip(form.parts, value, strict=True)):
                yield from _tensors_of(part, inner, texts, f"{where}[{k}]")
        case Nothing():
            return
        case _:
            yield value


def _made(form: Form, results: Iterator[Any], texts: Texts) -> Any:
    """A value of a form, of the tensors that come next."""
    match form:
        case Plain():
            return texts.of(next(results)) if form.is_text else as_result(next(results))
        case Several():
            return [_made(part, results, texts) for part in form.parts]
        case Rows():
            return [dict(zip(form.keys, row, strict=True)) for row in np.asarray(next(results)).tolist()]
        case Nothing():
            return None


def border_to_json(border: Border) -> dict[str, Any]:
    def written(side: Sequence[tuple[TensorInfo, Form]]) -> list[Any]:
        return [[_info_to_json(info), _form_to_json(form)] for info, form in side]

    return {"inputs": written(border.inputs), "outputs": written(border.outputs), "texts": list(border.texts)}


def border_from_json(fields: Mapping[str, Any]) -> Border:
    """Raises ValueError, KeyError or TypeError for what is none."""

    def read(side: str) -> tuple[tuple[TensorInfo, Form], ...]:
        return tuple((_info_from_json(info), _form_from_json(form)) for info, form in fields[side])

    return Border(read("inputs"), read("outputs"), tuple(map(text, fields["texts"])))


def _info_to_json(info: TensorInfo) -> list[Any]:
    objects = info.dtype == OBJECTS
    return [objects, *info_to_json(TensorInfo(info.name, info.shape, np.dtype(np.int64) if objects else info.dtype))]


def _info_from_json(written: Sequence[Any]) -> TensorInfo:
    objects, *rest = written
    info = info_from_json(rest)
    return TensorInfo(info.name, info.shape, OBJECTS) if objects is True else info


def _form_to_json(form: Form) -> Any:
    match form:
        case Plain():
            return "text" if form.is_text else "tensor"
        case Several():
            return {"several": [_form_to_json(part) for part in form.parts]}
        case Rows():
            return {"keys": list(form.keys)}
        case Nothing():
            return "nothing"


def _form_from_json(written: Any) -> Form:
    match written:
        case "text" | "tensor":
            return Plain(written == "text")
        case {"several": list()}:
            return Several(tuple(map(_form_from_json, written["several"])))
        case {"keys": list()} if all(isinstance(key, int | str) for key in cast("list[Any]", written["keys"])):
            return Rows(tuple(written["keys"]))
        case "nothing":
            return Nothing()
        case _:
            raise ValueError(f"{written!r} is no form of an input or output")
