"""Which converter an ONNX operator has at an opset: tables that the op families fill and `operators/` joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node

# The opsets of ONNX's own domain that dlc reads.
FIRST_OPSET, LAST_OPSET = 7, 28

Converter: TypeAlias = Callable[[Node], "Value | Sequence[Value]"]


@dataclass(frozen=True)
class Entry:
    """A converter, for nodes of the opsets `since` to `until`."""

    convert: Converter
    since: int
    until: int


class Table:
    """The converters of one family: `@table("Gemm")`, or `@table("Squeeze", since=13)` beside one for `until=12`."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}

    def __call__(self, *names: str, since: int = FIRST_OPSET, until: int = LAST_OPSET) -> Callable[[Converter], Converter]:
        def register(convert: Converter) -> Converter:
            for name in names:
                self.entries.setdefault(name, []).append(Entry(convert, since, until))
            return convert

        return register
