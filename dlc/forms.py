"""What a model takes and gives that is not a tensor: text, sequences, optionals, maps.

    labels: text[n]                               i64[n]: numbers of texts
    frames: list of float32[h, w]                 in a call of three: frames[0], frames[1], frames[2]
    probabilities: list of {"no": …, "yes": …}    f32[n, 2]: a row for each
    words: dict of text to float32                words[keys]: i64[n], words[values]: f32[n], in the order of the keys

A program has tensors only. What its inputs and outputs are made of is said by their forms; `runtime/models/border.py` makes
one of the other. A form that a call decides, a list of any length or what may be None, becomes one of a call by the *shapes* of
a value: those of its tensors, in a tuple for a list, and None where there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.arrays import TensorInfo, type_text
from dlc.dims import Dim, Size
from dlc.errors import ShapeError

# What users are told of text, lists and dicts.
OBJECTS: np.dtype[Any] = np.dtype(object)

# As many elements a list may have: each is a tensor of its own.
MOST_PARTS = 10_000
# Sizes; shapes of the elements of a list; None.
ValueShapes: TypeAlias = "tuple[int | ValueShapes | None, ...] | None"


@dataclass(frozen=True)
class Plain:
    """A tensor of numbers, or of text if its dtype is OBJECTS; of any shape where that is None."""

    dtype: np.dtype[Any]
    shape: tuple[Size, ...] | None

    def __str__(self) -> str:
        return type_text(self.dtype, ("…",) if self.shape is None else self.shape)

    @property
    def is_text(self) -> bool:
        return self.dtype == OBJECTS


@dataclass(frozen=True)
class ListOf:
    """A sequence: a list as long as a call has it."""

    element: Form

    def __str__(self) -> str:
        return f"list of {self.element}"


@dataclass(frozen=True)
class Several:
    """A sequence of known length."""

    parts: tuple[Form, ...]

    def __str__(self) -> str:
        return f"list of {len(self.parts)}: {', '.join(map(str, self.parts))}" if self.parts else "empty list"


@dataclass(frozen=True)
class Maybe:
    """An optional: a value, or None, as a call has it."""

    value: Form

    def __str__(self) -> str:
        return f"{self.value}, or None"


@dataclass(frozen=True)
class Nothing:
    """An optional without a value: None."""

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True)
class Rows:
    """A list of dicts, one for each row of a tensor."""

    keys: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"list of dicts of {', '.join(map(repr, self.keys))}"


@dataclass(frozen=True)
class MapOf:
    """A dict: its keys, and what is at them, two vectors of one length."""

    keys: Plain
    values: Plain

    def __str__(self) -> str:
        of, to = ("text" if part.is_text else part.dtype.name for part in (self.keys, self.values))
        return f"dict of {of} to {to}"

    def parts(self, name: str) -> dict[str, Plain]:
        """Both as they are called."""
        return {f"{name}[keys]": self.keys, f"{name}[values]": self.values}


Form: TypeAlias = "Plain | ListOf | Several | Maybe | Nothing | Rows | MapOf"


@dataclass(frozen=True)
class FormInfo(TensorInfo):
    """An input or output that is no tensor."""

    form: Form

    def __str__(self) -> str:
        return f"{self.name}: {self.form}"


def told(name: str, form: Form) -> TensorInfo:
    """What users are told of an input or output."""
    if isinstance(form, Plain) and form.shape is not None:
        return TensorInfo(name, form.shape, form.dtype)
    return FormInfo(name, (), OBJECTS, form)


def form_of(info: TensorInfo) -> Form:
    """The form of an input or output."""
    return info.form if isinstance(info, FormInfo) else Plain(info.dtype, info.shape)


def hangs_on_the_call(info: TensorInfo) -> bool:
    """Whether only a call says which tensors an input is made of."""
    return isinstance(form_of(info), ListOf | Maybe)


def of_a_call(form: Form, shapes: ValueShapes, where: str) -> Form:
    """What a form is for a value of these shapes. Raises ShapeError for shapes that contradict it."""
    match form:
        case Maybe():
            return Nothing() if shapes is None else of_a_call(form.value, shapes, where)
        case ListOf() if shapes is not None and all(isinstance(s, tuple | None) for s in shapes):
            parts = cast("tuple[ValueShapes, ...]", shapes)
            return Several(tuple(of_a_call(form.element, part, f"{where}[{k}]") for k, part in enumerate(parts)))
        case MapOf() if shapes is not None and len(shapes) == 2 and all(isinstance(s, tuple) for s in shapes):
            made = map(of_a_call, (form.keys, form.values), cast("Sequence[ValueShapes]", shapes), (where, where))
            return MapOf(*cast("Iterator[Plain]", made))
        case Plain() if shapes is not None and all(isinstance(s, int) for s in shapes):
            sizes = cast("tuple[int, ...]", shapes)
            own = sizes if form.shape is None else form.shape
            if len(own) == len(sizes) and all(isinstance(s, Dim) or s == size for s, size in zip(own, sizes, strict=True)):
                return Plain(form.dtype, sizes)
        case _:
            pass
    raise ShapeError(f"{where}: the shape {shapes} does not fit the model's {form}")


def tensors_of(name: str, form: Form) -> Iterator[tuple[str, Plain]]:
    """The tensors that a form of a call is made of, by name."""
    match form:
        case Plain():
            yield name, form
        case Several():
            for k, part in enumerate(form.parts):
                yield from tensors_of(f"{name}[{k}]", part)
        case MapOf():
            yield from form.parts(name).items()
        case _:
            return


@dataclass(frozen=True)
class Border:
    """The inputs and outputs of a model in the forms that they have over its program's tensors, and the texts that it knows."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    texts: tuple[str, ...] = ()
