"""What a converter sees of one StableHLO op: its operands as values, and its attributes by the names of both forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from dlc.dialects.dl.base import shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_bool
from dlc.dialects.dl.movement import BroadcastToOp, ReshapeOp, TransposeOp
from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.stablehlo.syntax import Op, Region, Type
from dlc.ir import Attribute, SSAValue, TensorType

# What MLIR calls element types, by NumPy's name.
_ELEMENTS = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip


def element_of(type: Type, where: str) -> Attribute:
    """The element type of a tensor type. Raises UnsupportedError for one that dlc has not."""
    if type.element not in _ELEMENTS:
        raise UnsupportedError(f"{where}: tensors of {type.element} are not supported; expected {', '.join(_ELEMENTS)}")
    return ELEMENT_TYPES[_ELEMENTS[type.element]]


def type_of(type: Type, where: str) -> TensorType[Attribute]:
    return tensor_type(type.shape, element_of(type, where))


# Runs a region on values: what it returns.
Inline: TypeAlias = Callable[[Build, Region, Sequence[SSAValue]], Sequence[SSAValue]]
Converter: TypeAlias = "Callable[[Node], SSAValue | Sequence[SSAValue]]"


class Node:
    """One op: `node.b` builds, `node[0]` is the first operand."""

    def __init__(self, op: Op, operands: Sequence[SSAValue], build: Build, inline: Inline, where: str) -> None:
        self.op, self.operands, self.b, self.inline, self.where = op, operands, build, inline, where

    def __getitem__(self, k: int) -> SSAValue:
        if k >= len(self.operands):
            raise ModelError(f"{self.where}: operand {k} of {len(self.operands)}")
        return self.operands[k]

    @property
    def element(self) -> Attribute:
        """The element type of its first result."""
        return element_of(self.op.types[0], self.where)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.types[0].shape

    @property
    def is_bool(self) -> bool:
        return is_bool(self.element)

    def get(self, *names: str, default: Any = None) -> Any:
        """An attribute by its name in either form. Raises ModelError where it is missing and there is no default."""
        for name in names:
            if name in self.op.attributes:
                return self.op.attributes[name]
        if default is None:
            raise ModelError(f"{self.where}: the attribute '{names[0]}' is missing")
        return default

    def integers(self, *names: str, default: Sequence[int] | None = None) -> list[int]:
        found: Any = self.get(*names, default=default)
        if not isinstance(found, list) or not all(isinstance(n, int) for n in cast("list[Any]", found)):
            raise ModelError(f"{self.where}: '{names[0]}' must be integers, got {found}")
        return list(cast("list[int]", found))

    def word(self, names: Sequence[str], *attributes: str) -> str:
        """One of some words, written by itself or as an attribute, `#stablehlo<comparison_direction LT>`."""
        said = [*self.get("words", default=[""]), *(str(self.op.attributes.get(a, "")) for a in attributes)]
        found = [word for text in said for word in re.findall(r"\w+", text) if word in names]
        if not found:
            raise self.unsupported(f"expected one of {', '.join(names)}, got {' '.join(said)}")
        return found[0]

    def unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {message}")

    # Shorthands

    def scalar(self, number: int | float | bool, like: SSAValue) -> SSAValue:
        return self.b.scalar(number, like=like)

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return x if shape_of(x) == tuple(shape) else self.b(ReshapeOp, x, shape=tuple(shape))

    def transpose(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        return x if list(permutation) == sorted(permutation) else self.b(TransposeOp, x, permutation=tuple(permutation))

    def broadcast(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return x if shape_of(x) == tuple(shape) else self.b(BroadcastToOp, x, shape=tuple(shape))


def sizes_of(value: SSAValue) -> tuple[int, ...]:
    """A value's shape, in a module whose sizes are all known."""
    return tuple(int(size) for size in shape_of(value))


def fields_of(text: Any) -> dict[str, list[int]]:
    """The lists of integers in an attribute such as `#stablehlo.dot<lhs_contracting_dimensions = [1], …>`."""
    found = re.findall(r"(\w+) = (\[[\d, ]*\]|\d+)", str(text))
    return {name: [int(n) for n in re.findall(r"\d+", numbers)] for name, numbers in found}
