"""Register converters by operator and opset: the operator families fill tables, which `operators/` joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode

# The supported opsets of the standard ONNX domain.
FIRST_OPSET, LAST_OPSET = 7, 28

Converter: TypeAlias = Callable[[OnnxNode], "ImportedValue | Sequence[ImportedValue]"]
ConverterT = TypeVar("ConverterT", bound=Converter)


@dataclass(frozen=True)
class ConverterEntry:
    """A converter for nodes of the opsets `since` to `until`."""

    convert: Converter
    since: int
    until: int


class ConverterTable:
    """The converters of one family: `@table("Gemm")`, or `@table("Squeeze", since=13)` in addition to one with `until=12`."""

    def __init__(self) -> None:
        self.entries: dict[str, list[ConverterEntry]] = {}

    def __call__(self, *names: str, since: int = FIRST_OPSET, until: int = LAST_OPSET) -> Callable[[ConverterT], ConverterT]:
        def register(convert: ConverterT) -> ConverterT:
            for name in names:
                self.entries.setdefault(name, []).append(ConverterEntry(convert, since, until))
            return convert

        return register
