"""Programs for different calls as a block of bytes that says which is for which, for who runs them without Python.

    "dlcparts" · header · parts · conditions · names, shapes and values

It is a section of the file of a model that is compiled for values or shapes (variants.py). A part is a program's block
(image.py), or one of these again, and lies before it in the file; it is for calls in which each of its conditions holds: an
input has these bytes, or this shape. Numbers are i64, places count in bytes from the block's beginning; dlc.h reads the same.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.runtime.container import VERSION, Placed

MAGIC = b"dlcparts"
# What a program's block has for its code.
_ENTRY = bytes(16)
_HEADER = struct.Struct("<16s8s6q")  # version, bytes, checksum, parts, where conditions are, how many
_PART = struct.Struct("<4q")  # how far away it is, its checksum; its first condition, how many
_CONDITION = struct.Struct("<4q")  # where the name is; 1 for a value, 0 for a shape; where that is, how many bytes or sizes
# An input's name, and its bytes or its shape.
Condition: TypeAlias = "tuple[str, bytes | tuple[int, ...]]"


@dataclass(frozen=True)
class Part:
    """A program, placed as the block sees it, and what holds of calls that it is for."""

    program: Placed
    conditions: Sequence[Condition]


def parts_block(parts: Sequence[Part]) -> bytes:
    """The block that lists these."""
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
    for name, wanted in conditions:
        where = placed(name.replace("\0", "").encode(errors="replace") + b"\0")
        is_value = isinstance(wanted, bytes)
        content = wanted if isinstance(wanted, bytes) else struct.pack(f"<{len(wanted)}q", *wanted)
        rows += _CONDITION.pack(where, is_value, placed(content), len(wanted))

    def whole(checksum: int) -> bytes:
        size = begin + len(data)
        return _HEADER.pack(_ENTRY, MAGIC, VERSION, size, checksum, len(parts), first, len(conditions)) + rows + data

    # Of the block with 0 in its place.
    return whole(zlib.crc32(whole(0)))
