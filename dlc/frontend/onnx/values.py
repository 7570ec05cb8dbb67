"""Values that are no tensors. They pass through If, Identity and functions like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlc.frontend.onnx.emit import Value
from dlc.frontend.onnx.problems import NodeProblem


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
