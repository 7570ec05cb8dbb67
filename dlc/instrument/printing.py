"""Texts of modules that passes change a little at a time: what stays as it was is not printed again."""

from __future__ import annotations

from io import StringIO
from typing import Any, TypeAlias

from dlc.ir import Attribute, Operation, Printer, SSAValue

# A text with the places of values, among operands and results, where their names stand: these change more often than ops do.
Parts: TypeAlias = tuple[str | int, ...]


class Alike:
    """Texts of ops and attributes that are made of the same."""

    def __init__(self) -> None:
        # By all that an op is made of, but which values they are.
        self.ops: dict[tuple[Any, ...], Parts] = {}
        # They are kept alive, so that their identity is sound.
        self.attributes: dict[int, tuple[Attribute, str]] = {}


class TextCache:
    """Texts of ops, by what they are made of; those of what is `alike` may be shared with other modules."""

    def __init__(self, alike: Alike | None = None) -> None:
        # What an op's text hangs on, and its values and text.
        self.ops: dict[Operation, tuple[tuple[Any, ...], tuple[SSAValue, ...], Parts]] = {}
        self.alike = alike or Alike()

    def text_of(self, op: Operation) -> tuple[str, dict[Operation, int]]:
        """The text of `op` without locations, and the line, from 0, on which it and each op in it begins."""
        printer = _CachedPrinter(self)
        printer.print_op(op)
        return printer.text.getvalue() + "\n", printer.lines


class _CachedPrinter(Printer):
    def __init__(self, cache: TextCache) -> None:
        self.text = StringIO()
        super().__init__(stream=self.text)
        self.cache, self.alike, self.lines = cache, cache.alike, dict[Operation, int]()
        # Of an op that is printed for the first time.
        self.parts: list[str | int] | None = None
        self.values: tuple[SSAValue, ...] = ()

    def print_op(self, op: Operation) -> None:
        self.lines[op] = self._current_line
        if op.regions or op.successors:
            super().print_op(op)
            return
        values = (*op.operands, *op.results)
        made_of = (*values, *[v.type for v in values], *op.properties.values(), *op.attributes.values())
        known = self.cache.ops.get(op)
        if known is None or known[0] != made_of:
            known = self.cache.ops[op] = made_of, values, self.parts_of(op, values)
        names, values = self._ssa_values, known[1]
        self.text.write(
            "".join([p if isinstance(p, str) else f"%{names.get(values[p]) or self.named(values[p])}" for p in known[2]])
        )

    def parts_of(self, op: Operation, values: tuple[SSAValue, ...]) -> Parts:
        """The text of an op without regions, which is printed apart from the rest, unless one is made of the same."""
        made_of = (
            type(op),
            len(op.operands),
            *map(values.index, values),
            *[v.type for v in values],
            *op.properties.items(),
            *op.attributes.items(),
        )
        if (parts := self.alike.ops.get(made_of)) is None:
            parts = self.alike.ops[made_of] = self.printed_parts(op, values)
        return parts

    def printed_parts(self, op: Operation, values: tuple[SSAValue, ...]) -> Parts:
        rest, self.parts, self.values = self.text, list[str | int](), values
        self.write_to(StringIO())
        super().print_op(op)
        parts, self.parts = (*self.parts, self.text.getvalue()), None
        self.write_to(rest)
        return parts

    def write_to(self, text: StringIO) -> None:
        self.text = self.stream = text

    def print_attribute(self, attribute: Attribute) -> None:
        known = self.alike.attributes.get(id(attribute))
        if known is not None:
            self.text.write(known[1])
            return
        begin = self.text.tell()
        super().print_attribute(attribute)
        self.text.seek(begin)
        self.alike.attributes[id(attribute)] = attribute, self.text.read()

    def _print_new_line(self, indent: int | None = None, print_message: bool = True) -> None:
        self._current_line += 1
        self.text.write("\n" + " " * ((self._indent if indent is None else indent) * self.indent_num_spaces))

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:
            self.text.write(text)

    def print_ssa_value(self, value: SSAValue) -> str:
        name = self.named(value)
        if self.parts is None:
            self.text.write(f"%{name}")
        else:
            self.parts += self.text.getvalue(), self.values.index(value)
            self.write_to(StringIO())
        return name

    def named(self, value: SSAValue) -> str:
        """The name of a value, which it is given where it is first printed: those of results come before all else."""
        if (name := self._ssa_values.get(value)) is not None:
            return name
        if value.name_hint:
            count = self.ssa_names.get(value.name_hint, 0)
            self.ssa_names[value.name_hint] = count + 1
            name = f"{value.name_hint}_{count}" if count else value.name_hint
        else:
            name = self._get_new_valid_name_id()
        self._ssa_values[value] = name
        return name
