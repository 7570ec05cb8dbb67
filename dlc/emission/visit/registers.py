"""How values are held while text is written: vectors as registers, buffers as views.

Note [Registers of a vector]
An n-D vector value is a list of registers, row-major over its leading dimensions; each row of the last dimension is cut
into pieces of `lanes` elements, and what is left over as the language likes it (`Visit.pieces`). A piece of one element is a
scalar, and a scalar value is one piece, so that one loop over registers serves both. `lanes` is the same for all element
types (a register of f32), and pieces depend on the number of elements alone: lists stay aligned across conversions.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

from dlc.emission.visit.linear import Linear
from dlc.ir import (
    Attribute,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
    SSAValue,
    VectorType,
)

Registers = tuple[str, ...]
_KINDS: dict[type[Attribute], str] = {
    Float32Type: "f32",
    Float64Type: "f64",
    Float16Type: "f16",
    BFloat16Type: "bf16",
    IndexType: "i64",
}
_BYTES = {"i1": 1, "bf16": 2}


class Register(NamedTuple):
    """`width` elements of a kind (f32 f64 f16 bf16 i1 i8 i16 i32 i64), of which the first `used` mean something."""

    kind: str
    width: int = 1
    used: int = 1

    def of(self, kind: str) -> Register:
        """As many elements of another kind."""
        return Register(kind, self.width, self.used)

    def wide(self, width: int) -> Register:
        """A register of `width` elements of this kind."""
        return Register(self.kind, width, width)

    @property
    def single(self) -> Register:
        """One of its elements."""
        return Register(self.kind)


# A number of elements, or one that the kernel's sizes make.
Stride: TypeAlias = "int | Linear"


class View(NamedTuple):
    """A memref: elements of a kind at `base[offset + Σ index · stride]`; `base` is a multiple of `align` bytes."""

    base: str
    align: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[Stride, ...]
    offset: Linear


def kind_of(element: Attribute) -> str | None:
    """The kind of an element type, if there is one."""
    return f"i{element.width.data}" if isinstance(element, IntegerType) else _KINDS.get(type(element))


def is_half(kind: str) -> bool:
    return kind in ("f16", "bf16")


def is_float(kind: str) -> bool:
    return kind.lstrip("b").startswith("f")


def element_bytes(kind: str) -> int:
    """In memory, where a truth value takes a byte, as in NumPy."""
    return _BYTES.get(kind) or int(kind[1:]) // 8


def vector_shape(type: Attribute) -> tuple[int, ...]:
    """The shape of a vector, () for a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def memref_type(value: SSAValue) -> MemRefType[Attribute]:
    assert isinstance(value.type, MemRefType)
    return cast("MemRefType[Attribute]", value.type)
