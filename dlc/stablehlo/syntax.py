"""The text of a StableHLO module as records: functions, ops with their operands and attributes, regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A dynamic size, `?`.
DYNAMIC = -1


@dataclass(frozen=True)
class Type:
    """A tensor type: sizes, DYNAMIC for `?`, and the element type as MLIR writes it."""

    shape: tuple[int, ...]
    element: str

    @property
    def component(self) -> Type | None:
        """The type of the real and imaginary parts of a complex type; None for other types."""
        return Type(self.shape, self.element[8:-1]) if self.element.startswith("complex<") else None

    def __str__(self) -> str:
        sizes = "".join("?x" if size == DYNAMIC else f"{size}x" for size in self.shape)
        return f"tensor<{sizes}{self.element}>"


@dataclass(frozen=True)
class Dense:
    """The elements of a constant, as text, and their type."""

    text: str
    type: Type


@dataclass(frozen=True)
class Argument:
    """An argument of a function or a region."""

    name: str
    type: Type
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Region:
    """A region of one block: arguments and ops, of which the last one returns."""

    arguments: tuple[Argument, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Op:
    """An op: name, operands by name, attributes (unnamed keywords under "words"), and source line."""

    name: str
    operands: tuple[str, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...]
    results: tuple[str, ...]
    types: tuple[Type, ...]
    line: int

    @property
    def called(self) -> str:
        """The name of the op and of its callee, `stablehlo.custom_call @lapack_spotrf_ffi`."""
        callee = self.attributes.get("callee") or self.attributes.get("call_target_name")
        return f"{self.name} @{callee}" if callee else self.name


@dataclass(frozen=True)
class FunctionSyntax:
    """A function: its name, its body, and the types and attributes of its results."""

    name: str
    body: Region
    results: tuple[Type, ...]
    result_attributes: tuple[Mapping[str, Any], ...]
