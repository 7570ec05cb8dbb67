"""Write shared libraries and relocatable objects that contain one function and the constants that it accesses.

The code is position-independent and accesses the constants at a fixed distance, so that files need no relocations and no other
libraries.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum

from dlc.machine.architectures import Architecture

_RELOCATABLE, _SHARED = 1, 3  # file types ET_REL, ET_DYN
_LOAD, _DYNAMIC, _GNU_STACK = 1, 2, 0x6474E551  # segment types PT_…
_X, _W, _R = 1, 2, 4  # segment flags PF_…
_WRITE, _ALLOC, _EXEC = 1, 2, 4  # section flags SHF_…
_HEADER, _SEGMENT, _SECTION, _SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), "<IIQQQQQQ", "<IIQQQQIIQQ", "<IBBHQQ"
_GLOBAL_FUNCTION = 1 << 4 | 2


class _Type(IntEnum):
    """Section types (SHT_…)."""

    NULL = 0
    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    HASH = 5
    DYNAMIC = 6
    DYNSYM = 11


class _Tag(IntEnum):
    """Tags of the dynamic section (DT_…)."""

    NULL = 0
    HASH = 4
    STRTAB = 5
    SYMTAB = 6
    STRSZ = 10
    SYMENT = 11
    SONAME = 14


@dataclass(frozen=True)
class ElfFunction:
    """A function called `symbol`, which begins at byte `entry` of its code; `data` follows the code at the next page."""

    symbol: str
    code: bytes
    data: bytes
    architecture: Architecture
    entry: int = 0

    @property
    def data_distance(self) -> int:
        """The distance from the start of the code to the start of the data, in bytes."""
        return _round_up(len(self.code), self.architecture.page_bytes)


@dataclass(frozen=True)
class _Section:
    """A section header."""

    name: str
    type: _Type
    flags: int = 0
    offset: int = 0
    size: int = 0
    link: int = 0
    info: int = 0
    align: int = 1
    entry: int = 0


class _StringTable:
    """A string table; a string is identified by its offset."""

    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        offset = len(self.data)
        self.data += os.fsencode(text) + b"\0"
        return offset


def shared_library(function: ElfFunction, name: str) -> bytes:
    """Return a shared library with the soname `name`."""
    strings, page = _StringTable(), function.architecture.page_bytes
    symbol, soname = strings.add(function.symbol), strings.add(name)
    # Dynamic linkers refuse to map an empty segment.
    segments = 6 if function.data else 5
    at_hash = _HEADER.size + segments * struct.calcsize(_SEGMENT)
    hash_table = struct.pack("<5I", 1, 2, 1, 0, 0)  # One bucket that contains symbol 1 only.
    at_symbols = _round_up(at_hash + len(hash_table), 8)
    entry = struct.calcsize(_SYMBOL)
    at_strings = at_symbols + 2 * entry
    end = at_strings + len(strings.data)
    at_code = _round_up(end, page)
    at_data = at_code + function.data_distance
    # The dynamic section is writable: dynamic linkers update it.
    at_dynamic = _round_up(at_data + len(function.data), page)
    begins, length = at_code + function.entry, len(function.code) - function.entry
    symbols = bytes(entry) + struct.pack(_SYMBOL, symbol, _GLOBAL_FUNCTION, 0, 4, begins, length)
    tags = {
        _Tag.SONAME: soname,
        _Tag.HASH: at_hash,
        _Tag.STRTAB: at_strings,
        _Tag.SYMTAB: at_symbols,
        _Tag.STRSZ: len(strings.data),
        _Tag.SYMENT: entry,
        _Tag.NULL: 0,
    }
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in tags.items())
    program = b"".join(
        struct.pack(_SEGMENT, kind, flags, offset, offset, offset, size, size, align)
        for kind, flags, offset, size, align in (
            (_LOAD, _R, 0, end, page),
            (_LOAD, _R | _X, at_code, len(function.code), page),
            (_LOAD, _R, at_data, len(function.data), page),
            (_LOAD, _R | _W, at_dynamic, len(dynamic), page),
            (_DYNAMIC, _R | _W, at_dynamic, len(dynamic), 8),
            (_GNU_STACK, _R | _W, 0, 0, 16),
        )
        if kind != _LOAD or size
    )
    sections = [
        _Section(".hash", _Type.HASH, _ALLOC, at_hash, len(hash_table), link=2, align=8, entry=4),
        _Section(".dynsym", _Type.DYNSYM, _ALLOC, at_symbols, len(symbols), link=3, info=1, align=8, entry=entry),
        _Section(".dynstr", _Type.STRTAB, _ALLOC, at_strings, len(strings.data)),
        _Section(".text", _Type.PROGBITS, _ALLOC | _EXEC, at_code, len(function.code), align=page),
        _Section(".rodata", _Type.PROGBITS, _ALLOC, at_data, len(function.data), align=page),
        _Section(".dynamic", _Type.DYNAMIC, _ALLOC | _WRITE, at_dynamic, len(dynamic), link=3, align=8, entry=16),
    ]
    contents = {
        _HEADER.size: program,
        at_hash: hash_table,
        at_symbols: symbols,
        at_strings: strings.data,
        at_code: function.code,
        at_data: function.data,
        at_dynamic: dynamic,
    }
    return _assemble_file(_SHARED, function.architecture, segments, contents, sections)


def relocatable_object(function: ElfFunction) -> bytes:
    """Return a relocatable object with code and data in one section, since the code depends on their distance."""
    strings, page = _StringTable(), function.architecture.page_bytes
    symbol = strings.add(function.symbol)
    entry = struct.calcsize(_SYMBOL)
    length = len(function.code) - function.entry
    symbols = bytes(entry) + struct.pack(_SYMBOL, symbol, _GLOBAL_FUNCTION, 0, 1, function.entry, length)
    content = function.code + bytes(function.data_distance - len(function.code)) + function.data
    at_code = _round_up(_HEADER.size, page)
    at_symbols = _round_up(at_code + len(content), 8)
    at_strings = at_symbols + len(symbols)
    sections = [
        _Section(f".text.{function.symbol}", _Type.PROGBITS, _ALLOC | _EXEC, at_code, len(content), align=page),
        _Section(".symtab", _Type.SYMTAB, 0, at_symbols, len(symbols), link=3, info=1, align=8, entry=entry),
        _Section(".strtab", _Type.STRTAB, 0, at_strings, len(strings.data)),
        # Without this section, linkers mark the stack as executable.
        _Section(".note.GNU-stack", _Type.PROGBITS, 0, at_strings),
    ]
    return _assemble_file(
        _RELOCATABLE, function.architecture, 0, {at_code: content, at_symbols: symbols, at_strings: strings.data}, sections
    )


def _assemble_file(
    kind: int, architecture: Architecture, segments: int, contents: dict[int, bytes], sections: list[_Section]
) -> bytes:
    """Return a file with these contents at their offsets, followed by the section headers."""
    names = _StringTable()
    at_names = max(offset + len(content) for offset, content in contents.items())
    all_sections = [_Section("", _Type.NULL, align=0), *sections, _Section(".shstrtab", _Type.STRTAB, 0, at_names)]
    starts = [names.add(s.name) if s.name else 0 for s in all_sections]
    at_headers = _round_up(at_names + len(names.data), 8)
    headers = b"".join(
        struct.pack(
            _SECTION,
            *(start, s.type, s.flags, s.offset if s.flags & _ALLOC and kind == _SHARED else 0, s.offset),
            *(len(names.data) if s.offset == at_names and s.name == ".shstrtab" else s.size, s.link, s.info, s.align, s.entry),
        )
        for start, s in zip(starts, all_sections, strict=True)
    )
    sizes = (_HEADER.size, struct.calcsize(_SEGMENT) if segments else 0, segments, struct.calcsize(_SECTION))
    identity = b"\x7fELF\x02\x01\x01"
    program = _HEADER.size if segments else 0
    counts = (*sizes, len(all_sections), len(all_sections) - 1)
    file = bytearray(at_headers + len(headers))
    offsets = (0, program, at_headers, architecture.flags)
    file[: _HEADER.size] = _HEADER.pack(identity, kind, architecture.machine, 1, *offsets, *counts)
    for offset, content in {**contents, at_names: names.data, at_headers: headers}.items():
        file[offset : offset + len(content)] = content
    return bytes(file)


def _round_up(size: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-size // multiple) * multiple
