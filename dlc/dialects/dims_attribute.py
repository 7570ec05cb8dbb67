"""The attribute `#dl.dims`: a list of static and symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.ir import (
    ArrayAttr,
    Attribute,
    AttrParser,
    IntAttr,
    ParametrizedAttribute,
    Printer,
    StringAttr,
    irdl_attr_definition,
    param_def,
)
from dlc.shapes.dims import Dim, Size
from dlc.shapes.parsing import parse_size


@irdl_attr_definition
class DimsAttr(ParametrizedAttribute):
    """A list of sizes; symbolic ones are strings: `#dl.dims<"batch", 3, "past + 1">`."""

    name = "dl.dims"
    entries: ArrayAttr[IntAttr | StringAttr] = param_def()

    @staticmethod
    def of(sizes: Iterable[Size]) -> DimsAttr:
        return DimsAttr(ArrayAttr([IntAttr(int(s)) if not isinstance(s, Dim) else StringAttr(str(s)) for s in sizes]))

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(e.data if isinstance(e, IntAttr) else parse_size(e.data) for e in self.entries)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def entry() -> IntAttr | StringAttr:
            text = parser.parse_optional_str_literal()
            return StringAttr(text) if text is not None else IntAttr(parser.parse_integer())

        return [ArrayAttr(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry))]

    def print_parameters(self, printer: Printer) -> None:
        def entry(entry: IntAttr | StringAttr) -> None:
            printer.print_string(str(entry.data)) if isinstance(entry, IntAttr) else printer.print_string_literal(entry.data)

        with printer.in_angle_brackets():
            printer.print_list(self.entries.data, entry)
