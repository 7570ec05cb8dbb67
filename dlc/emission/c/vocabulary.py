"""The words of a dialect for one kernel on one device: types, expressions, and what the program must define for them.

Note [Registers of a vector in C]
An n-D vector value is a list of C values ("registers"), row-major over its leading dimensions; each row of the last
dimension is cut into pieces of `lanes` elements, and what is left over into halves, quarters… of that: vector<7x20xf32>
with 16 lanes is seven rows of float16, float4. A piece of one element is a scalar, and a scalar value is one piece. The
pieces depend on the number of elements alone, so that lists stay aligned across conversions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple, cast

from dlc.emission.c.syntax import Syntax
from dlc.errors import UnsupportedError
from dlc.ir import (
    Attribute,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    VectorType,
)
from dlc.target import Target

_KINDS: dict[type[Attribute], str] = {
    Float32Type: "f32",
    Float64Type: "f64",
    Float16Type: "f16",
    BFloat16Type: "bf16",
    IndexType: "i64",
}
_BYTES = {"i1": 1, "bf16": 2}


class Register(NamedTuple):
    """One C value: `width` elements of a kind (f32 f64 f16 bf16 i1 i8 i16 i32 i64, and u8…u64 in expressions)."""

    kind: str
    width: int

    def of(self, kind: str) -> Register:
        return Register(kind, self.width)

    @property
    def bits(self) -> int:
        """Of one element as it is computed with."""
        return 32 if self.kind == "i1" else int(self.kind.lstrip("bfiu"))


def is_float(kind: str) -> bool:
    return kind.lstrip("b").startswith("f")


def element_bytes(kind: str) -> int:
    """In memory."""
    return _BYTES.get(kind) or int(kind[1:]) // 8


def vector_shape(type: Attribute) -> tuple[int, ...]:
    """The shape of a vector, () for a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


class Vocabulary:
    """How a dialect says what a kernel computes with.

    `definitions` collects what the text needs before it: a program's types and functions.
    """

    def __init__(self, syntax: Syntax, target: Target, kernel: str, definitions: dict[str, None]) -> None:
        self.syntax, self.target, self.kernel, self.definitions = syntax, target, kernel, definitions
        self.lanes = min(16, target.lanes(4))
        self._layouts: dict[int, tuple[Register, ...]] = {}
        self._templates: dict[tuple[str, Register, Register], str] = {}

    # Types

    def kind(self, element: Attribute) -> str:
        """The kind of an element type.

        Raises UnsupportedError for one that the dialect or the device lacks.
        """
        kind = f"i{element.width.data}" if isinstance(element, IntegerType) else _KINDS.get(type(element), str(element))
        if kind not in ("i1", "f16", "bf16") and kind not in self.syntax.types:
            raise UnsupportedError(f"kernel @{self.kernel}: {self.syntax.name} has no element type {element}; cast to another")
        if kind == "f64" and not self.target.doubles:
            raise UnsupportedError(f"kernel @{self.kernel}: target {self.target.name} does not compute in f64; cast to f32")
        return kind

    def computed(self, kind: str) -> str:
        """The kind that values of this one are held in: halves that the device does not compute with are floats."""
        if kind == "bf16" or (kind == "f16" and not self.target.halves):
            return "f32"
        return "i32" if kind == "i1" else kind

    def stored(self, kind: str) -> str:
        """The kind of an element in memory: a truth value takes a byte, as in NumPy; other halves are their bits."""
        if kind == "i1":
            return "u8"
        return kind if self.computed(kind) == kind else "u16"

    def memory_type(self, kind: str) -> str:
        """C's name of it."""
        return self.syntax.types[self.stored(kind)]

    def type(self, register: Register) -> str:
        """C's name of a register's type."""
        kind = self.computed(register.kind)
        if extension := self.syntax.extensions.get(kind):
            self.definitions.setdefault(extension)
        scalar = self.syntax.types[kind]
        if register.width == 1:
            return scalar
        words = {"t": scalar, "n": register.width}
        name = self.syntax.vector.format(**words)
        if self.syntax.vector_definition:
            self.definitions.setdefault(self.syntax.vector_definition.format(T=name, **words))
        return name

    def layout(self, type: Attribute) -> tuple[Register, ...]:
        """The registers of a value of this type; see Note [Registers of a vector in C]."""
        # The IR keeps the types alive while it is visited, so their identity is a sound key, and a quick one.
        if (found := self._layouts.get(id(type))) is None:
            found = self._layouts[id(type)] = self._layout(type)
        return found

    def _layout(self, type: Attribute) -> tuple[Register, ...]:
        if not isinstance(type, VectorType):
            return (Register(self.kind(type), 1),)
        vector = cast("VectorType[Attribute]", type)
        shape, kind = vector.get_shape(), self.kind(vector.element_type)
        return tuple(Register(kind, width) for width in self.pieces(shape[-1] if shape else 1)) * prod(shape[:-1])

    def pieces(self, size: int) -> list[int]:
        """The lanes of each register of a row of `size` elements."""
        widths, width = [self.lanes] * (size // self.lanes), self.lanes
        rest = size % self.lanes
        while rest:
            width //= 2
            if rest >= width:
                widths.append(width)
                rest -= width
        return widths

    def suffixes(self, type: Attribute) -> Iterator[str]:
        """What tells the names of a value's registers apart."""
        shape = vector_shape(type)
        rows, pieces = prod(shape[:-1]), len(self.pieces(shape[-1] if shape else 1))
        for row in range(rows):
            for piece in range(pieces):
                yield (f"_{row}" if rows > 1 else "") + (f"_{piece}" if pieces > 1 else "")

    # Expressions

    def has(self, op: str) -> bool:
        return op in self.syntax.expressions

    def _template(self, op: str, vector: bool) -> str | None:
        table = self.syntax.expressions
        return table.get(f"{op}.{'vector' if vector else 'scalar'}") or table.get(op)

    def expression(
        self, op: str, t: Register, *operands: str, s: Register | None = None, words: Mapping[str, object] | None = None
    ) -> str:
        """`op` on the operands in the dialect's words; `t` is the result's register, `s` that of the first operand."""
        s = s or t
        if (template := self._templates.get((op, t, s))) is None:
            template = self._templates[op, t, s] = self._instantiate(op, t, s)
        return template.format(*operands, **(words or {}))

    def _instantiate(self, op: str, t: Register, s: Register) -> str:
        template = self._template(op, max(t.width, s.width) > 1)
        if template is None:
            raise UnsupportedError(f"kernel @{self.kernel}: {self.syntax.name} has no expression for {op!r}")
        words = {
            "T": self.type(t), "t": self.type(t._replace(width=1)), "n": t.width,
            "S": self.type(s), "s": self.type(s._replace(width=1)), "m": s.width,
            "U": self.type(t.of(f"u{t.bits}")), "V": self.type(s.of(f"u{s.bits}")), "M": self.type(t.of(f"i{t.bits}")),
            "u": self.syntax.types[f"u{t.bits}"], "W": self.syntax.types[f"u{max(32, t.bits)}"],
        }  # fmt: skip
        suffix = "vector" if max(t.width, s.width) > 1 else "scalar"
        if definition := self.syntax.definitions.get(f"{op}.{suffix}") or self.syntax.definitions.get(op):
            self.definitions.setdefault(_fill(definition, words))
        return _fill(template, words)


def _fill(template: str, words: Mapping[str, object]) -> str:
    """The template with these words in it; its other fields stay."""
    return re.sub(r"\{(\w+)\}", lambda m: str(words[m[1]]) if m[1] in words else m[0], template)
