"""The words of a dialect for one kernel on one device: types, expressions, and what the program must define for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from string import Formatter

from dlc.emission.c.syntax import Syntax
from dlc.emission.c.text import Code, code
from dlc.emission.visit.registers import Register, kind_of, vector_shape
from dlc.emission.visit.visit import Handlers, Visit
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, SSAValue, func
from dlc.target import Target


def bits_of(t: Register) -> int:
    """Of one element as it is computed with."""
    return 32 if t.kind == "i1" else int(t.kind.lstrip("bfiu"))


class Vocabulary(Visit):
    """How a dialect says what a kernel computes with. Beside a visit's kinds there are u8…u64 in expressions.

    `definitions` collects what the text needs before it: a program's types and functions.
    """

    def __init__(
        self, kernel: func.FuncOp, target: Target, handlers: Handlers, syntax: Syntax, definitions: dict[str, None]
    ) -> None:
        super().__init__(kernel, target, min(16, target.lanes(4)), handlers)
        self.syntax, self.definitions, self.language = syntax, definitions, syntax.name
        self._templates: dict[tuple[str, Register, Register], list[tuple[str, int | str | None]]] = {}

    # Types

    def kind(self, element: Attribute) -> str:
        kind = kind_of(element)
        if kind is None or (kind not in ("i1", "f16", "bf16") and kind not in self.syntax.types):
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

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """What is left over goes into halves, quarters… of a register: vector<7x20xf32> with 16 lanes is seven rows of
        float16, float4."""
        widths, width = [self.lanes] * (size // self.lanes), self.lanes
        rest = size % self.lanes
        while rest:
            width //= 2
            if rest >= width:
                widths.append(width)
                rest -= width
        return [(width, width) for width in widths]

    def hints(self, value: SSAValue, default: str) -> Iterable[str]:
        hint, shape = value.name_hint or default, vector_shape(value.type)
        rows, pieces = prod(shape[:-1]), len(self.pieces(shape[-1] if shape else 1))
        for row in range(rows):
            for piece in range(pieces):
                yield hint + (f"_{row}" if rows > 1 else "") + (f"_{piece}" if pieces > 1 else "")

    # Expressions

    def has(self, op: str) -> bool:
        return op in self.syntax.expressions

    def _template(self, op: str, vector: bool) -> str | None:
        table = self.syntax.expressions
        return table.get(f"{op}.{'vector' if vector else 'scalar'}") or table.get(op)

    def expression(
        self, op: str, t: Register, *operands: str, s: Register | None = None, words: Mapping[str, str] | None = None
    ) -> Code:
        """`op` on the operands in the dialect's words; `t` is the result's register, `s` that of the first operand."""
        s = s or t
        if (template := self._templates.get((op, t, s))) is None:
            template = self._templates[op, t, s] = self._instantiate(op, t, s)
        parts: list[str] = []
        for text, field in template:
            parts.append(text)
            if isinstance(field, int):
                parts.append(operands[field])
            elif field is not None and words is not None:
                parts.append(words[field])
        return code(*parts)

    def _instantiate(self, op: str, t: Register, s: Register) -> list[tuple[str, int | str | None]]:
        template = self._template(op, max(t.width, s.width) > 1)
        if template is None:
            raise UnsupportedError(f"kernel @{self.kernel}: {self.syntax.name} has no expression for {op!r}")
        bits = bits_of(t)
        words = {
            "T": self.type(t), "t": self.type(t.single), "n": t.width,
            "S": self.type(s), "s": self.type(s.single),
            "U": self.type(t.of(f"u{bits}")), "V": self.type(s.of(f"u{bits_of(s)}")), "M": self.type(t.of(f"i{bits}")),
            "u": self.syntax.types[f"u{bits}"], "W": self.syntax.types[f"u{max(32, bits)}"],
        }  # fmt: skip
        suffix = "vector" if max(t.width, s.width) > 1 else "scalar"
        if definition := self.syntax.definitions.get(f"{op}.{suffix}") or self.syntax.definitions.get(op):
            self.definitions.setdefault(_fill(definition, words))
        parsed = Formatter().parse(_fill(template, words))
        return [(text, int(field) if field and field.isdecimal() else field) for text, field, _, _ in parsed]


def _fill(template: str, words: Mapping[str, object]) -> str:
    """The template with these words in it; its other fields stay."""
    return re.sub(r"\{(\w+)\}", lambda m: str(words[m[1]]) if m[1] in words else m[0], template)
