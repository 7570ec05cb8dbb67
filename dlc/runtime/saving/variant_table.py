"""Variant tables: programs for different calls in one block, with their conditions, for running models without Python.

    code that selects one · "dlcparts" · header · programs · conditions · names, shapes and values

A variant table is a section of the file of a model with several programs (models/); there the code is empty, since dlc.h
selects the program. In a shared library of such a model, it is the entry symbol. An entry is a program image
(cpu/program_image.py), or in a file another variant table, which is stored before this one. It serves calls for which all its
conditions hold: an input has these bytes, or this shape. Numbers are i64, positions are byte offsets from the start of the
block; dlc.h and program_selection.ll read the same format.
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
_CONDITION = struct.Struct("<4q")  # position of the name, 1: value or 0: shape, its position, number of bytes or sizes


class InputCondition(NamedTuple):
    """The condition that an input has these bytes, or this shape; `text` shows the value or shape."""

    name: str
    wanted: bytes | tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.name}{' =' if isinstance(self.wanted, bytes) else ':'} {self.text}"


# All conditions of the calls that a program serves.
Conditions: TypeAlias = "tuple[InputCondition, ...]"


@dataclass(frozen=True)
class ModelVariant:
    """One of several models, with the conditions of the calls that it serves."""

    model: Model
    conditions: Conditions


@dataclass(frozen=True)
class SavedProgram:
    """A program, by its relative position, with the conditions of the calls that it serves."""

    program: SectionRef
    conditions: Conditions


def encode_variant_table(parts: Sequence[SavedProgram], code: bytes = bytes(ENTRY_BYTES)) -> bytes:
    """Return the table of these programs; the first one whose conditions hold is selected."""
    conditions = [condition for part in parts for condition in part.conditions]
    first = _HEADER.size + _ENTRY.size * len(parts)
    rows, data, begin = bytearray(), bytearray(), first + _CONDITION.size * len(conditions)

    def placed(content: bytes) -> int:
        at = begin + len(data)
        data.extend(content + bytes(-len(content) % 8))
        return at

    count = 0
    for part in parts:
        rows += _ENTRY.pack(part.program.distance, part.program.checksum, count, len(part.conditions))
        count += len(part.conditions)
    for name, wanted, _ in conditions:
        where = placed(name.replace("\0", "").encode(errors="replace") + b"\0")
        is_value = isinstance(wanted, bytes)
        content = wanted if isinstance(wanted, bytes) else struct.pack(f"<{len(wanted)}q", *wanted)
        rows += _CONDITION.pack(where, is_value, placed(content), len(wanted))

    def whole(checksum: int) -> bytes:
        size = begin + len(data)
        return _HEADER.pack(code, MAGIC, VERSION, size, checksum, len(parts), first, len(conditions)) + rows + data

    # The checksum is computed with 0 in its field.
    return whole(zlib.crc32(whole(0)))


def variant_image_field(writer: SectionWriter, parts: Sequence[tuple[Conditions, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the header field with the section that runs without Python: a program for all calls, or a variant table.

    Return no field if one of the programs needs Python.
    """
    if not parts or not all("image" in fields for _, fields in parts):
        return {}
    conditions, fields = parts[0]
    if not conditions:
        return {"image": fields["image"]}
    listed = [SavedProgram(writer.placed(fields["image"]), conditions) for conditions, fields in parts]
    return {"image": writer.add(memoryview(encode_variant_table(listed)))}
