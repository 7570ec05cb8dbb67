"""Instantiation of a dialect's templates for one kernel on one device: types, expressions and required definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from string import Formatter

from dlc.emission.c.statements import SourceText, concat
from dlc.emission.c.syntax import Syntax
from dlc.emission.common.emitter import Handlers, KernelEmitter
from dlc.emission.common.registers import Register, kind_of, vector_shape
from dlc.errors import UnsupportedError
from dlc.ir import Attribute, SSAValue, func
from dlc.target import Target


def bits_of(type: Register) -> int:
    """Return the bit width of one element in the type that it is computed in."""
    return 32 if type.kind == "i1" else int(type.kind.lstrip("bfiu"))


class TemplateEmitter(KernelEmitter):
    """Emitter whose types and expressions are templates of a C dialect. Expressions also have the kinds u8…u64.

    `definitions` collects the types and functions that must precede the text in the program.
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
        if kind == "f64" and not self.target.has_f64:
            raise UnsupportedError(f"kernel @{self.kernel}: target {self.target.name} does not compute in f64; cast to f32")
        return kind

    def computed_kind(self, kind: str) -> str:
        """Return the kind in which values are computed; half precision without device arithmetic is computed in f32."""
        if kind == "bf16" or (kind == "f16" and not self.target.has_f16):
            return "f32"
        return "i32" if kind == "i1" else kind

    def stored_kind(self, kind: str) -> str:
        """Return the kind of an element in memory: a byte for a boolean, as in NumPy; the bits of emulated half precision."""
        if kind == "i1":
            return "u8"
        return kind if self.computed_kind(kind) == kind else "u16"

    def memory_type(self, kind: str) -> str:
        """Return the C type of an element in memory."""
        return self.syntax.types[self.stored_kind(kind)]

    def type(self, register: Register) -> str:
        """Return the C type of a register."""
        kind = self.computed_kind(register.kind)
        if extension := self.syntax.extensions.get(kind):
            self.definitions.setdefault(extension)
        scalar = self.syntax.types[kind]
        if register.width == 1:
            return scalar
        fields = {"t": scalar, "n": register.width}
        name = self.syntax.vector.format(**fields)
        if self.syntax.vector_definition:
            self.definitions.setdefault(self.syntax.vector_definition.format(T=name, **fields))
        return name

    def row_registers(self, size: int) -> list[tuple[int, int]]:
        """Split a row into full registers; the remainder is split into halves, quarters, … of a register.

        vector<7x20xf32> with 16 lanes is seven rows of float16, float4.
        """
        widths, width = [self.lanes] * (size // self.lanes), self.lanes
        remainder = size % self.lanes
        while remainder:
            width //= 2
            if remainder >= width:
                widths.append(width)
                remainder -= width
        return [(width, width) for width in widths]

    def hints(self, value: SSAValue, default: str) -> Iterable[str]:
        hint, shape = value.name_hint or default, vector_shape(value.type)
        rows, registers_per_row = prod(shape[:-1]), len(self.row_registers(shape[-1] if shape else 1))
        for row in range(rows):
            for column in range(registers_per_row):
                yield hint + (f"_{row}" if rows > 1 else "") + (f"_{column}" if registers_per_row > 1 else "")

    # Expressions

    def has(self, op: str) -> bool:
        """Return whether the dialect has an expression for `op`."""
        return op in self.syntax.expressions

    def _template(self, op: str, vector: bool) -> str | None:
        table = self.syntax.expressions
        return table.get(f"{op}.{'vector' if vector else 'scalar'}") or table.get(op)

    def expression(
        self,
        op: str,
        type: Register,
        *operands: str,
        source_type: Register | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> SourceText:
        """Return `op` applied to the operands; `type` is the result's register, `source_type` that of the first operand."""
        source_type = source_type or type
        if (template := self._templates.get((op, type, source_type))) is None:
            template = self._templates[op, type, source_type] = self._instantiate(op, type, source_type)
        parts: list[str] = []
        for text, field in template:
            parts.append(text)
            if isinstance(field, int):
                parts.append(operands[field])
            elif field is not None and fields is not None:
                parts.append(fields[field])
        return concat(*parts)

    def _instantiate(self, op: str, type: Register, source_type: Register) -> list[tuple[str, int | str | None]]:
        """Return the template of `op` for these registers as pairs of text and field; add the definition that it needs."""
        template = self._template(op, max(type.width, source_type.width) > 1)
        if template is None:
            raise UnsupportedError(f"kernel @{self.kernel}: {self.syntax.name} has no expression for {op!r}")
        bits = bits_of(type)
        fields = {
            "T": self.type(type), "t": self.type(type.scalar), "n": type.width,
            "S": self.type(source_type), "s": self.type(source_type.scalar),
            "U": self.type(type.with_kind(f"u{bits}")), "V": self.type(source_type.with_kind(f"u{bits_of(source_type)}")),
            "M": self.type(type.with_kind(f"i{bits}")),
            "u": self.syntax.types[f"u{bits}"], "W": self.syntax.types[f"u{max(32, bits)}"],
        }  # fmt: skip
        suffix = "vector" if max(type.width, source_type.width) > 1 else "scalar"
        if definition := self.syntax.definitions.get(f"{op}.{suffix}") or self.syntax.definitions.get(op):
            self.definitions.setdefault(_fill(definition, fields))
        parsed = Formatter().parse(_fill(template, fields))
        return [(text, int(field) if field and field.isdecimal() else field) for text, field, _, _ in parsed]


def _fill(template: str, fields: Mapping[str, object]) -> str:
    """Substitute these fields of a template and keep the other fields."""
    return re.sub(r"\{(\w+)\}", lambda m: str(fields[m[1]]) if m[1] in fields else m[0], template)
