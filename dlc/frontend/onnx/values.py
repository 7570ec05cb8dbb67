"""Values other than numeric tensors: strings, sequences, maps, optionals. They pass through If and functions unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.problems import NodeProblem


class NonTensorValue(ImportedValue):
    """A value without type, shape and elements: converters that expect a tensor raise NodeProblem on access."""

    kind: str

    def __init__(self) -> None:
        self.name = ""

    def __getattr__(self, name: str) -> Any:
        raise NodeProblem("input", f"{self.kind} is not supported here, only a tensor")


class SequenceValue(NonTensorValue):
    """A sequence of static length."""

    kind = "a sequence"

    def __init__(self, elements: Iterable[ImportedValue]) -> None:
        super().__init__()
        self.elements = tuple(elements)


class EmptyOptional(NonTensorValue):
    """An optional without a value."""

    kind = "an optional without a value"


class MapValue(NonTensorValue):
    """A map: vectors of its keys, in order, and of its values."""

    kind = "a map"

    def __init__(self, keys: ImportedValue, values: ImportedValue) -> None:
        super().__init__()
        self.keys = keys
        self.values = values


class MapSequence(NonTensorValue):
    """A sequence of maps, one per row of a tensor. All rows have the same keys; the elements of a row are the values."""

    kind = "a sequence of maps"

    def __init__(self, rows: ImportedValue, keys: Iterable[int | str]) -> None:
        super().__init__()
        self.rows = rows
        self.keys = tuple(keys)


class StringTensor(ImportedValue):
    """A string tensor: an i64 tensor of indices into the string pool of the model. Strings passed at run time are appended.

    So strings are moved, compared and looked up like integers, and become strings only at the graph boundary.
    """

    is_string = True

    @staticmethod
    def of(indices: ImportedValue) -> StringTensor:
        """Mark a tensor of string pool indices as a string tensor."""
        return StringTensor(indices.type, constant_value=indices.constant_value, ssa=indices.ssa, name=indices.name)

    @staticmethod
    def from_strings(emit: Emitter, strings: Array, name: str = "") -> StringTensor:
        """Add an array of strings to the string pool and return it as a constant."""
        flat = [emit.strings.setdefault(str(text), len(emit.strings)) for text in strings.reshape(-1)]
        return StringTensor.of(emit.constant(np.asarray(flat, np.int64).reshape(strings.shape), name=name))
