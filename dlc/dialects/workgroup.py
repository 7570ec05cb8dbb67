"""Workgroup (local) memory, `#gpu.address_space<workgroup>`, which MLIR has and xDSL lacks."""

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
    """Memory that all work-items of a group can access. Buffers are allocated once per group, in the body of the grid."""

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
    """Return whether a buffer, or the buffer that it is a view of, is in workgroup memory."""
    return isinstance(buffer.type, MemRefType) and buffer.type.memory_space == WORKGROUP
