"""What a model takes and gives that is not a tensor: text, sequences, optionals, maps.

    labels: text [n]                    i64 [n]: places in a list of texts
    probabilities: [{"no": 0.1, …}, …]  f32 [n, 2], and the keys

A program has tensors only. What its inputs and outputs are made of is said by their forms; `runtime/border.py` makes one of the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc.arrays import TensorInfo
from dlc.dims import Size


@dataclass(frozen=True)
class Plain:
    """A tensor, of numbers or of text."""

    is_text: bool = False


@dataclass(frozen=True)
class Several:
    """A sequence, as a list."""

    parts: tuple[Form, ...]


@dataclass(frozen=True)
class Rows:
    """A list of dicts, one for each row of a tensor."""

    keys: tuple[int | str, ...]


@dataclass(frozen=True)
class Nothing:
    """An optional without a value: None."""


Form: TypeAlias = "Plain | Several | Rows | Nothing"

# What users are told of text, lists and dicts.
OBJECTS: np.dtype[Any] = np.dtype(object)


@dataclass(frozen=True)
class Border:
    """The inputs and outputs of a model and their forms over the tensors of its program; the texts that the model knows."""

    inputs: tuple[tuple[TensorInfo, Form], ...]
    outputs: tuple[tuple[TensorInfo, Form], ...]
    texts: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[TensorInfo, ...]:
        """What users are told of the inputs."""
        return tuple(info for info, _ in self.inputs)


def told(name: str, form: Form, shape: Sequence[Size], dtype: np.dtype[Any]) -> TensorInfo:
    """What users are told of an input or output."""
    return TensorInfo(name, tuple(shape), dtype if form == Plain() else OBJECTS)
