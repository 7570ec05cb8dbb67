"""The representation of values during emission: vectors as registers, buffers as addresses.

Note [Registers of a vector] An n-D vector value is a list of registers, row-major over its leading dimensions. Each row of the
last dimension is split into registers of `lanes` elements; the target language determines the registers of the remainder
(`KernelEmitter.row_registers`). A register of one element is a scalar, and a scalar value has one register, so one loop over
registers handles both. `lanes` is the same for all element types (a vector register of f32), and the split depends only on the
number of elements: after a conversion, register i still has the same elements.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

from dlc.emission.common.linear_expression import LinearExpression
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
    """`width` elements of a kind (f32 f64 f16 bf16 i1 i8 i16 i32 i64); only the first `used` of them are meaningful."""

    kind: str
    width: int = 1
    used: int = 1

    def with_kind(self, kind: str) -> Register:
        """Return a register of the same width with another element kind."""
        return Register(kind, self.width, self.used)

    def with_width(self, width: int) -> Register:
        """Return a register of `width` elements of this kind, all used."""
        return Register(self.kind, width, width)

    @property
    def scalar(self) -> Register:
        """The type of one element."""
        return Register(self.kind)


# A static number of elements, or one that is computed from the kernel's symbolic sizes.
Stride: TypeAlias = "int | LinearExpression"


class MemrefAddress(NamedTuple):
    """A memref: elements of a kind at `base[offset + Σ index · stride]`; `base` is aligned to `align` bytes."""

    base: str
    align: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[Stride, ...]
    offset: LinearExpression


def kind_of(element: Attribute) -> str | None:
    """Return the kind of an element type, or None for unsupported types."""
    return f"i{element.width.data}" if isinstance(element, IntegerType) else _KINDS.get(type(element))


def is_half(kind: str) -> bool:
    """Return whether a kind is a 16-bit float (f16 or bf16)."""
    return kind in ("f16", "bf16")


def is_float(kind: str) -> bool:
    """Return whether a kind is a floating-point type."""
    return kind.lstrip("b").startswith("f")


def element_bytes(kind: str) -> int:
    """Return the size of an element in memory; a boolean takes one byte, as in NumPy."""
    return _BYTES.get(kind) or int(kind[1:]) // 8


def vector_shape(type: Attribute) -> tuple[int, ...]:
    """Return the shape of a vector type, or () for a scalar type."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def memref_type(value: SSAValue) -> MemRefType[Attribute]:
    """Return the memref type of `value`."""
    assert isinstance(value.type, MemRefType)
    return cast("MemRefType[Attribute]", value.type)
