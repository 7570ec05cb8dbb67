"""Texts of modules that passes change a little at a time: what stays as it was is not printed again."""

from __future__ import annotations

from io import StringIO
from typing import Any

from dlc.ir import Attribute, Operation, Printer, SSAValue


class TextCache:
    """Texts of ops and attributes, by what they are made of."""

    def __init__(self) -> None:
        # What an op's text hangs on, and the text; its attributes are kept alive, so that their identity is sound.
        self.ops: dict[Operation, tuple[tuple[Any, ...], str]] = {}
        self.attributes: dict[int, tuple[Attribute, str]] = {}

    def text_of(self, op: Operation) -> tuple[str, dict[Operation, int]]:
        """The text of `op` without locations, and the line, from 0, on which it and each op in it begins."""
        printer = _CachedPrinter(self)
        printer.print_op(op)
        return printer.text.getvalue() + "\n", printer.lines


class _CachedPrinter(Printer):
    def __init__(self, cache: TextCache) -> None:
        self.text = StringIO()
        super().__init__(stream=self.text)
        self.cache, self.lines = cache, dict[Operation, int]()

    def print_op(self, op: Operation) -> None:
        self.lines[op] = self._current_line
        if op.regions or op.successors:
            super().print_op(op)
            return
        names = [self.named(v) for v in (*op.results, *op.operands)]
        made_of = (names, *op.properties.values(), *op.attributes.values(), *op.result_types)
        known = self.cache.ops.get(op)
        if known is not None and known[0] == made_of:
            self.text.write(known[1])
            return
        begin = self.text.tell()
        super().print_op(op)
        self.cache.ops[op] = made_of, self.written_since(begin)

    def print_attribute(self, attribute: Attribute) -> None:
        known = self.cache.attributes.get(id(attribute))
        if known is not None:
            self.text.write(known[1])
            return
        begin = self.text.tell()
        super().print_attribute(attribute)
        self.cache.attributes[id(attribute)] = attribute, self.written_since(begin)

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:
            self.text.write(text)

    def print_ssa_value(self, value: SSAValue) -> str:
        name = self.named(value)
        self.text.write(f"%{name}")
        return name

    def written_since(self, begin: int) -> str:
        self.text.seek(begin)
        return self.text.read()

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
