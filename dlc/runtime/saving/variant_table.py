"""Variant tables: several programs in one block, each with conditions on the inputs, for running models without Python.

    code that selects a program · "dlcparts" · header · programs · conditions · names, shapes and values

A variant table is a section of the file of a model with several programs (models/); there the code is empty, since dlc.h
selects the program. In a shared library of such a model, it is the entry symbol. An entry is a program image
(cpu/program_image.py), or in a file another variant table, which is stored before this one. A call selects the first entry
whose conditions all hold: an input has these bytes, this shape, or a size in this range. Fields are i64, positions are byte
offsets from the start of the block; dlc.h and program_selection.ll read the same format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dlc.runtime.cpu.code.entry_stub import ENTRY_BYTES
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import VERSION, SectionRef, SectionWriter

MAGIC = b"dlcparts"
_HEADER = struct.Struct(f"<{ENTRY_BYTES}s8s6q")  # version, bytes, checksum, programs, position and number of conditions
_ENTRY = struct.Struct("<4q")  # position of the program, its checksum, its first condition, number of conditions
_CONDITION = struct.Struct("<4q")  # position of the name, kind, position of the content, number of its bytes or sizes
# Kinds of conditions, by their content.
_SHAPE, _VALUE, _RANGE = 0, 1, 2
_MAX_SIZE = (1 << 63) - 1


class AxisRange(NamedTuple):
    """The sizes of an axis from `low` to `high`, both included; a `high` of None means unbounded."""

    axis: int
    low: int
    high: int | None


class InputCondition(NamedTuple):
    """The condition that an input has these bytes, this shape, or a size in a range; `text` states it in messages."""

    name: str
    expected: bytes | tuple[int, ...] | AxisRange
    text: str

    def __str__(self) -> str:
        return f"{self.name}{' =' if isinstance(self.expected, bytes) else ':'} {self.text}"


# The conditions under which a call uses a program; all must hold.
Conditions: TypeAlias = "tuple[InputCondition, ...]"


@dataclass(frozen=True)
class ModelVariant:
    """One of several models, with the conditions under which a call uses it."""

    model: Model
    conditions: Conditions


@dataclass(frozen=True)
class SavedProgram:
    """A reference to a program, with the conditions under which a call uses it."""

    program: SectionRef
    conditions: Conditions


def encode_variant_table(programs: Sequence[SavedProgram], code: bytes = bytes(ENTRY_BYTES)) -> bytes:
    """Return the table of these programs; the first one whose conditions hold is selected."""
    conditions = [condition for program in programs for condition in program.conditions]
    first = _HEADER.size + _ENTRY.size * len(programs)
    rows, data, begin = bytearray(), bytearray(), first + _CONDITION.size * len(conditions)

    def add_content(content: bytes) -> int:
        offset = begin + len(data)
        data.extend(content + bytes(-len(content) % 8))
        return offset

    count = 0
    for program in programs:
        rows += _ENTRY.pack(program.program.distance, program.program.checksum, count, len(program.conditions))
        count += len(program.conditions)
    for name, expected, _ in conditions:
        name_offset = add_content(name.replace("\0", "").encode(errors="replace") + b"\0")
        kind = _VALUE if isinstance(expected, bytes) else _RANGE if isinstance(expected, AxisRange) else _SHAPE
        if isinstance(expected, AxisRange):
            expected = expected.axis, expected.low, _MAX_SIZE if expected.high is None else expected.high
        content = expected if isinstance(expected, bytes) else struct.pack(f"<{len(expected)}q", *expected)
        rows += _CONDITION.pack(name_offset, kind, add_content(content), len(expected))

    def encode(checksum: int) -> bytes:
        size = begin + len(data)
        return _HEADER.pack(code, MAGIC, VERSION, size, checksum, len(programs), first, len(conditions)) + rows + data

    # The checksum is computed with 0 in its field.
    return encode(zlib.crc32(encode(0)))


def variant_image_field(writer: SectionWriter, programs: Sequence[tuple[Conditions, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the header field with the section that runs without Python: a program for all calls, or a variant table.

    Return no field if one of the programs needs Python.
    """
    if not programs or not all("image" in fields for _, fields in programs):
        return {}
    conditions, fields = programs[0]
    if not conditions:
        return {"image": fields["image"]}
    saved_programs = [SavedProgram(writer.reference_to(fields["image"]), conditions) for conditions, fields in programs]
    return {"image": writer.add(memoryview(encode_variant_table(saved_programs)))}
