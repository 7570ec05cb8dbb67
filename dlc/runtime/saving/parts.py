"""Programs for different calls as a block of bytes that says which is for which, for who runs them without Python.

    code that picks one · "dlcparts" · header · parts · conditions · names, shapes and values

It is a section of the file of a model that is several programs by values, shapes or sizes (models/), without the
code there, since dlc.h picks, and what the symbol of a library of them is. A part is a program's block (cpu/image.py), or in a
file one of these again, and lies before it; it is for calls in which each of its conditions holds: an input has these bytes, or
this shape. Numbers are i64, places count in bytes from the block's beginning; dlc.h and picking.ll read the same.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dlc.runtime.cpu.code.entry import ENTRY_BYTES
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import VERSION, Placed, Writer

MAGIC = b"dlcparts"
_HEADER = struct.Struct(f"<{ENTRY_BYTES}s8s6q")  # version, bytes, checksum, parts, where conditions are, how many
_PART = struct.Struct("<4q")  # how far away it is, its checksum; its first condition, how many
_CONDITION = struct.Struct("<4q")  # where the name is; 1 for a value, 0 for a shape; where that is, how many bytes or sizes


class Condition(NamedTuple):
    """An input has these bytes, or this shape; `told` is that in words."""

    name: str
    wanted: bytes | tuple[int, ...]
    told: str

    def __str__(self) -> str:
        return f"{self.name}{' =' if isinstance(self.wanted, bytes) else ':'} {self.told}"


# What holds of the calls that a program is for.
Conditions: TypeAlias = "tuple[Condition, ...]"


@dataclass(frozen=True)
class Choice:
    """A model, of several, and what holds of the calls that it is for."""

    model: Model
    conditions: Conditions


@dataclass(frozen=True)
class Part:
    """A program, placed as the block sees it, and what holds of the calls that it is for."""

    program: Placed
    conditions: Conditions


def parts_block(parts: Sequence[Part], code: bytes = bytes(ENTRY_BYTES)) -> bytes:
    """The block that lists these, the first that fits a call first."""
    conditions = [condition for part in parts for condition in part.conditions]
    first = _HEADER.size + _PART.size * len(parts)
    rows, data, begin = bytearray(), bytearray(), first + _CONDITION.size * len(conditions)

    def placed(content: bytes) -> int:
        at = begin + len(data)
        data.extend(content + bytes(-len(content) % 8))
        return at

    count = 0
    for part in parts:
        rows += _PART.pack(part.program.distance, part.program.checksum, count, len(part.conditions))
        count += len(part.conditions)
    for name, wanted, _ in conditions:
        where = placed(name.replace("\0", "").encode(errors="replace") + b"\0")
        is_value = isinstance(wanted, bytes)
        content = wanted if isinstance(wanted, bytes) else struct.pack(f"<{len(wanted)}q", *wanted)
        rows += _CONDITION.pack(where, is_value, placed(content), len(wanted))

    def whole(checksum: int) -> bytes:
        size = begin + len(data)
        return _HEADER.pack(code, MAGIC, VERSION, size, checksum, len(parts), first, len(conditions)) + rows + data

    # Of the block with 0 in its place.
    return whole(zlib.crc32(whole(0)))


def picked_program(writer: Writer, parts: Sequence[tuple[Conditions, Mapping[str, Any]]]) -> dict[str, Any]:
    """The field of a file's header that says which section runs without Python, of several parts of the header: that of a part
    for all calls, or a list of theirs; none where one of them has none."""
    if not parts or not all("image" in fields for _, fields in parts):
        return {}
    conditions, fields = parts[0]
    if not conditions:
        return {"image": fields["image"]}
    listed = [Part(writer.placed(fields["image"]), conditions) for conditions, fields in parts]
    return {"image": writer.add(memoryview(parts_block(listed)))}
