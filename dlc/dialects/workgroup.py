"""The memory that the items of a group share, `#gpu.address_space<workgroup>`, which MLIR has and xDSL lacks."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.ir import (
    Attribute,
    AttrParser,
    MemRefType,
    ParametrizedAttribute,
    Printer,
    SSAValue,
    irdl_attr_definition,
)


@irdl_attr_definition
class WorkgroupMemory(ParametrizedAttribute):
    """The memory space of buffers that a group's items share: one for each group, allocated in the grid's body."""

    name = "gpu.address_space"

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("workgroup")
        return []

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("workgroup")


WORKGROUP = WorkgroupMemory()


def is_workgroup(buffer: SSAValue) -> bool:
    """Whether a buffer, or the one that it is a view of, is shared by the items of a group."""
    return isinstance(buffer.type, MemRefType) and buffer.type.memory_space == WORKGROUP
