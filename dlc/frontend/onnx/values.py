"""Values that are no tensors, and text. They pass through If, Identity and functions like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.problems import NodeProblem


class NoTensor(Value):
    """What a converter that takes it for a tensor hears of: it has no type, no shape and no elements."""

    kind: str

    def __init__(self) -> None:
        self.name = ""

    def __getattr__(self, name: str) -> Any:
        raise NodeProblem("input", f"{self.kind} is not supported here, only a tensor")


class SequenceValue(NoTensor):
    """A sequence of known length."""

    kind = "a sequence"

    def __init__(self, elements: Iterable[Value]) -> None:
        super().__init__()
        self.elements = tuple(elements)


class Absent(NoTensor):
    """An optional without a value."""

    kind = "an optional without a value"


class MapValue(NoTensor):
    """A dict: vectors of its keys, in order, and of what is at them."""

    kind = "a map"

    def __init__(self, keys: Value, values: Value) -> None:
        super().__init__()
        self.keys = keys
        self.values = values


class Maps(NoTensor):
    """A dict for each row of a tensor: from keys, which are the same for all rows, to the numbers in it."""

    kind = "a sequence of maps"

    def __init__(self, rows: Value, keys: Iterable[int | str]) -> None:
        super().__init__()
        self.rows = rows
        self.keys = tuple(keys)


class Text(Value):
    """Text: an i64 tensor of places in the list of all texts that the model knows; what a call brings comes behind them.

    So text is moved, compared and looked up like any number, and only at the borders of the model it is text.
    """

    is_text = True

    @staticmethod
    def of(places: Value) -> Text:
        """A tensor of places as text."""
        return Text(places.type, known=places.known, ssa=places.ssa, name=places.name)

    @staticmethod
    def known_as(emit: Emitter, strings: Array, name: str = "") -> Text:
        """Text that the model brings along, as an array of strings."""
        flat = [emit.texts.setdefault(str(text), len(emit.texts)) for text in strings.reshape(-1)]
        return Text.of(emit.constant(np.asarray(flat, np.int64).reshape(strings.shape), name=name))
