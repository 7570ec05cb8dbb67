"""Load ELF relocatable objects into executable memory, without LLVM or a linker.

The objects are freestanding (they define every symbol that they use), position-independent and small. So all relocations
are PC-relative (relocations.py), and the relocated code runs at any address.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dlc.errors import CompileError, DeviceError
from dlc.machine.architectures import ARCHITECTURES, HOST
from dlc.runtime.cpu.code.relocations import RELOCATE, Relocation

_ALLOCATED = 0x2  # SHF_ALLOC: part of the memory image
_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # section types
_UNDEFINED = 0  # SHN_UNDEF
_FUNCTION = 2  # STT_FUNC
_UNWINDING = ".eh_frame"  # Not needed: the code raises no exceptions.
# In bytes: the alignment of constants of the widest vector type.
CODE_ALIGNMENT = 64
_PROT_READ, _PROT_EXEC = 1, 4
_PAGE_BYTES = mmap.PAGESIZE


class _Section(NamedTuple):
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    size: int
    is_function: bool


def _machine(data: bytes) -> int:
    """Return the ELF machine number of an object."""
    if data[:6] != b"\x7fELF\x02\x01" or data[16:18] != b"\1\0":
        raise CompileError("the object is not a relocatable little-endian ELF64 file")
    return int.from_bytes(data[18:20], "little")


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    strings = headers[names][4]
    return [_Section(_string(data, strings + h[0]), h[1], h[2], *h[4:9]) for h in headers]


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def _symbols(data: bytes, sections: list[_Section]) -> list[_Symbol]:
    table = next((s for s in sections if s.type == _SYMTAB), None)
    if table is None:
        return []
    strings = sections[table.link].offset
    entries = struct.iter_unpack("<IBBHQQ", data[table.offset : table.offset + table.size])
    return [
        _Symbol(_string(data, strings + name), section, value, size, info & 15 == _FUNCTION)
        for name, info, _, section, value, size in entries
    ]


def undefined_symbols(data: bytes) -> list[str]:
    """Return the names of the symbols that an object uses but does not define."""
    return [s.name for s in _symbols(data, _sections(data)) if s.section == _UNDEFINED and s.name]


class MachineCode(NamedTuple):
    """Relocated code and constants, to be loaded at any multiple of CODE_ALIGNMENT.

    `entries` and `sizes` have the offset and the size in bytes of each function.
    """

    bytes: bytes
    entries: Mapping[str, int]
    sizes: Mapping[str, int]


def link_object(data: bytes) -> MachineCode:
    """Relocate the code of an object.

    Raises CompileError for an undefined symbol or a relocation that is not PC-relative.
    """
    relocate = RELOCATE.get(_machine(data))
    if relocate is None:
        raise CompileError(f"the object is for ELF machine {_machine(data)}, whose relocations are not supported")
    sections = _sections(data)
    symbols = _symbols(data, sections)
    if missing := undefined_symbols(data):
        raise CompileError(f"the object has undefined symbols: {', '.join(missing)}")
    section_offsets: dict[int, int] = {}
    end = 0
    for i, s in enumerate(sections):
        if s.flags & _ALLOCATED and s.size and s.name != _UNWINDING:
            if s.align > CODE_ALIGNMENT:
                raise CompileError(f"section {s.name} needs an alignment of {s.align} bytes; the maximum is {CODE_ALIGNMENT}")
            end = -(-end // s.align) * s.align if s.align else end
            section_offsets[i] = end
            end += s.size
    memory = bytearray(end)
    for i, section_offset in section_offsets.items():
        s = sections[i]
        if s.type != _NOBITS:
            memory[section_offset : section_offset + s.size] = data[s.offset : s.offset + s.size]
    tables = [s for s in sections if s.type == _RELA and s.info in section_offsets]
    relocate(memory, [r for table in tables for r in _relocations(data, table, section_offsets, symbols)])
    functions = [s for s in symbols if s.is_function and s.section in section_offsets]
    entries = {s.name: section_offsets[s.section] + s.value for s in functions}
    return MachineCode(bytes(memory), entries, {s.name: s.size for s in functions})


def _relocations(data: bytes, table: _Section, section_offsets: dict[int, int], symbols: list[_Symbol]) -> Iterator[Relocation]:
    for offset, info, addend in struct.iter_unpack("<QQq", data[table.offset : table.offset + table.size]):
        kind, symbol = info & 0xFFFFFFFF, symbols[info >> 32]
        if symbol.section not in section_offsets:
            raise CompileError(f"the object has relocation {kind} to {symbol.name!r}, which is not in a loaded section")
        yield Relocation(
            kind, section_offsets[table.info] + offset, section_offsets[symbol.section] + symbol.value + addend, symbol.name
        )


class LoadedCode:
    """Code in executable memory, from the address `begin` on; it is unmapped with this object."""

    def __init__(self, code: bytes, entries: Mapping[str, int]) -> None:
        """Raises DeviceError if the system does not provide executable memory."""
        self._memory = mmap.mmap(-1, max(-(-len(code) // _PAGE_BYTES) * _PAGE_BYTES, _PAGE_BYTES))
        self._memory[: len(code)] = code
        anchor = ctypes.c_char.from_buffer(self._memory)
        self.begin = ctypes.addressof(anchor)
        del anchor  # An exported buffer would keep the mapping from being closed.
        size, executable = ctypes.c_size_t(len(self._memory)), _PROT_READ | _PROT_EXEC
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(self.begin), size, executable):
            raise DeviceError(f"the system refuses executable memory: errno {ctypes.get_errno()}")
        self._entries = entries

    def address(self, entry: str) -> int:
        """Return the address of a function; raise KeyError for an unknown name."""
        return self.begin + self._entries[entry]


def load_object(data: bytes) -> LoadedCode:
    """Load an object into executable memory.

    Raises what `link_object` and LoadedCode raise, and DeviceError for an object of another architecture.
    """
    if (machine := _machine(data)) != ARCHITECTURES[HOST].machine:
        raise DeviceError(f"the object is for ELF machine {machine}, but this machine is {HOST}")
    code = link_object(data)
    return LoadedCode(code.bytes, code.entries)
