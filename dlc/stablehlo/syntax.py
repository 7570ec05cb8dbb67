"""MLIR text of StableHLO as plain records: functions, ops by name with what they are given, and regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A size that a type leaves open, `?`.
OPEN = -1


@dataclass(frozen=True)
class Type:
    """A tensor type: sizes, of which some may be OPEN, and the element type as MLIR writes it."""

    shape: tuple[int, ...]
    element: str

    @property
    def part(self) -> Type | None:
        """The type of each part of complex numbers; None of others."""
        return Type(self.shape, self.element[8:-1]) if self.element.startswith("complex<") else None

    def __str__(self) -> str:
        sizes = "".join("?x" if size == OPEN else f"{size}x" for size in self.shape)
        return f"tensor<{sizes}{self.element}>"


@dataclass(frozen=True)
class Dense:
    """The elements of a constant, as they are written, and their type."""

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
    """Ops, the last of which returns, over arguments."""

    arguments: tuple[Argument, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Op:
    """An op: its name, the names of its operands, attributes (words without a name under "words"), and where it stands."""

    name: str
    operands: tuple[str, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...]
    results: tuple[str, ...]
    types: tuple[Type, ...]
    line: int

    @property
    def called(self) -> str:
        """Its name, and behind it what it calls, `stablehlo.custom_call @lapack_spotrf_ffi`."""
        callee = self.attributes.get("callee") or self.attributes.get("call_target_name")
        return f"{self.name} @{callee}" if callee else self.name


@dataclass(frozen=True)
class Function:
    """A function: its name, its body, and what is said of its results."""

    name: str
    body: Region
    results: tuple[Type, ...]
    result_attributes: tuple[Mapping[str, Any], ...]
