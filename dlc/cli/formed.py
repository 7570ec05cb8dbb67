"""Lists, dicts and None on the command line: the elements of `frames` are called `frames[0]`, `frames[1]`, …, in files too, and
the two parts of a dict `words[keys]` and `words[values]`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count, takewhile
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import DTypeError
from dlc.forms import Form, FormInfo, ListOf, MapOf, Maybe, Nothing, Plain, Several, form_of, tensors_of


def is_named(name: str, infos: Collection[TensorInfo]) -> bool:
    """Whether an input, or an element of one, has this name."""
    names = {info.name for info in infos}
    return name in names or name.partition("[")[0] in {info.name for info in infos if isinstance(info, FormInfo)}


def form_given(info: TensorInfo, names: Collection[str]) -> Form:
    """The form of an input for which the tensors of these names are given.

    Raises DTypeError for a list of which no element is.
    """

    def of(form: Form, name: str) -> Form:
        match form:
            case Maybe():
                is_there = any(n == name or n.startswith(f"{name}[") for n in names)
                return of(form.value, name) if is_there else Nothing()
            case ListOf():
                elements = takewhile(lambda n: any(x == n or x.startswith(f"{n}[") for x in names), _elements(name))
                parts = tuple(of(form.element, element) for element in elements)
                if not parts:
                    raise DTypeError(
                        f"input {info}: a list is not drawn at random; give its elements, --input {name}[0]=FILE.npy"
                    )
                return Several(parts)
            case _:
                return form

    return of(form_of(info), info.name)


def tensors_given(name: str, form: Form, arrays: Mapping[str, NDArray[Any]]) -> Iterator[TensorInfo]:
    """The tensors of a form of a call; one of any shape has that of its array."""
    for part, plain in tensors_of(name, form):
        shape = plain.shape if plain.shape is not None or part not in arrays else arrays[part].shape
        yield TensorInfo(part, shape or (), plain.dtype)


def assembled(name: str, form: Form, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """A value of a form, of its tensors by name."""
    match form:
        case Several():
            return [assembled(element, part, arrays) for element, part in zip(_elements(name), form.parts, strict=False)]
        case MapOf():
            keys, values = (arrays[part].tolist() for part in form.parts(name))
            return dict(zip(keys, values, strict=True))
        case Plain():
            return arrays[name]
        case _:
            return None


def flattened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of a value by name; there is none of None."""
    if isinstance(value, dict):
        made = cast("dict[Any, Any]", value)
        yield from ((f"{name}[keys]", np.array(list(made))), (f"{name}[values]", np.array(list(made.values()))))
    elif isinstance(value, list):
        for element, part in zip(_elements(name), cast("list[Any]", value), strict=False):
            yield from flattened(element, part)
    elif value is not None:
        yield name, value


def _elements(name: str) -> Iterator[str]:
    return (f"{name}[{k}]" for k in count())
