"""ELF relocatable objects to code that runs wherever it lies, and that to executable memory, without LLVM or a linker.

The objects are freestanding (every symbol that they use they define), position-independent and small, so the only
relocations are distances (relocations.py): once these are filled in, nothing of the code hangs on its address.
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
_UNDEFINED = 0  # section number of a symbol that another object defines
_FUNCTION = 2  # type of a symbol
_UNWINDING = ".eh_frame"  # for exceptions, of which there are none
# The widest vector's constants lie as they like it.
CODE_ALIGNMENT = 64
_PROT_READ, _PROT_EXEC = 1, 4
_PAGE = mmap.PAGESIZE


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
    """The number of the architecture that an object is for."""
    if data[:6] != b"\x7fELF\x02\x01" or data[16:18] != b"\1\0":
        raise CompileError("the object is not a relocatable ELF file of 64 bits, the lowest byte first")
    return int.from_bytes(data[18:20], "little")


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    strings = headers[names][4]
    return [_Section(_string(data, strings + h[0]), h[1], h[2], *h[4:9]) for h in headers]


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


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
    """The names that an object uses and does not define."""
    return [s.name for s in _symbols(data, _sections(data)) if s.section == _UNDEFINED and s.name]


class Code(NamedTuple):
    """Code and its constants, to be placed at any multiple of CODE_ALIGNMENT; by the names of its functions, where they begin,
    and how many bytes they are.
    """

    bytes: bytes
    entries: Mapping[str, int]
    sizes: Mapping[str, int]


def linked(data: bytes) -> Code:
    """The code of an object.

    Raises CompileError for an undefined symbol or a relocation that is no distance.
    """
    relocate = RELOCATE.get(_machine(data))
    if relocate is None:
        raise CompileError(f"the object is for machine {_machine(data)}, of which no relocation is known")
    sections = _sections(data)
    symbols = _symbols(data, sections)
    if missing := undefined_symbols(data):
        raise CompileError(f"the object needs symbols that it does not define: {', '.join(missing)}")
    places: dict[int, int] = {}
    end = 0
    for i, s in enumerate(sections):
        if s.flags & _ALLOCATED and s.size and s.name != _UNWINDING:
            if s.align > CODE_ALIGNMENT:
                raise CompileError(f"section {s.name} of the object wants multiples of {s.align}, code has {CODE_ALIGNMENT}")
            end = -(-end // s.align) * s.align if s.align else end
            places[i] = end
            end += s.size
    memory = bytearray(end)
    for i, place in places.items():
        s = sections[i]
        if s.type != _NOBITS:
            memory[place : place + s.size] = data[s.offset : s.offset + s.size]
    tables = [s for s in sections if s.type == _RELA and s.info in places]
    relocate(memory, [r for table in tables for r in _relocations(data, table, places, symbols)])
    functions = [s for s in symbols if s.is_function and s.section in places]
    entries = {s.name: places[s.section] + s.value for s in functions}
    return Code(bytes(memory), entries, {s.name: s.size for s in functions})


def _relocations(data: bytes, table: _Section, places: dict[int, int], symbols: list[_Symbol]) -> Iterator[Relocation]:
    for offset, info, addend in struct.iter_unpack("<QQq", data[table.offset : table.offset + table.size]):
        kind, symbol = info & 0xFFFFFFFF, symbols[info >> 32]
        if symbol.section not in places:
            raise CompileError(f"the object has relocation {kind} to {symbol.name!r}, which is not in memory")
        yield Relocation(kind, places[table.info] + offset, places[symbol.section] + symbol.value + addend, symbol.name)


class LoadedCode:
    """Code in executable memory, from the address `begin` on; it lives as long as this value."""

    def __init__(self, code: bytes, entries: Mapping[str, int]) -> None:
        """Raises DeviceError if the system refuses."""
        self._memory = mmap.mmap(-1, max(-(-len(code) // _PAGE) * _PAGE, _PAGE))
        self._memory[: len(code)] = code
        anchor = ctypes.c_char.from_buffer(self._memory)
        self.begin = ctypes.addressof(anchor)
        del anchor  # else the mapping could not be closed
        size, executable = ctypes.c_size_t(len(self._memory)), _PROT_READ | _PROT_EXEC
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(self.begin), size, executable):
            raise DeviceError(f"the system refuses executable memory: errno {ctypes.get_errno()}")
        self._entries = entries

    def address(self, entry: str) -> int:
        """The address of a function; raises KeyError for a name that the code does not define."""
        return self.begin + self._entries[entry]


def load_object(data: bytes) -> LoadedCode:
    """An object's code in executable memory; raises what `linked` and LoadedCode raise, DeviceError for another processor's."""
    if (machine := _machine(data)) != ARCHITECTURES[HOST].machine:
        raise DeviceError(f"the object is for machine {machine} of ELF files, and code of {HOST} runs here")
    code = linked(data)
    return LoadedCode(code.bytes, code.entries)
