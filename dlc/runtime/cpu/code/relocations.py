"""Apply relocations: write PC-relative displacements into code after its layout.

Note [Addresses on AArch64]. A code generator forms an address with two instructions: `adrp` computes the 4096-byte page, and
the next one adds the offset within the page. Such code runs only at its original offset modulo 4096. Kernels are small, so
the first instruction is rewritten to `adr`, which reaches 1 MiB and forms the whole address, and the added offset stays 0,
as in the object. A page offset without a matching `adrp` is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlc.errors import CompileError
from dlc.machine.architectures import ARCHITECTURES


class Relocation(NamedTuple):
    """A relocation of an address in code.

    Attributes:
        kind: The relocation type of the architecture (R_…).
        offset: The offset to patch.
        symbol_offset: The offset of the symbol.
    """

    kind: int
    offset: int
    symbol_offset: int
    symbol: str

    @property
    def distance(self) -> int:
        return self.symbol_offset - self.offset

    def unsupported(self, reason: str) -> CompileError:
        return CompileError(f"the object has relocation {self.kind} to {self.symbol!r}; {reason}")


_ONLY_PC_RELATIVE = "only PC-relative relocations are supported"
# R_X86_64_PC32, PLT32
_X86_PC_RELATIVE = (2, 4)


def _x86_64(memory: bytearray, relocations: Sequence[Relocation]) -> None:
    for r in relocations:
        if r.kind not in _X86_PC_RELATIVE:
            raise r.unsupported(_ONLY_PC_RELATIVE)
        struct.pack_into("<i", memory, r.offset, r.distance)


# R_AARCH64_PREL32; ADR_PREL_PG_HI21; the page offsets ADD_ABS_LO12_NC and LDST8 to LDST128_ABS_LO12_NC; JUMP26, CALL26
_ARM_PC_RELATIVE, _ARM_PAGE, _ARM_PAGE_OFFSETS, _ARM_CALLS = 261, 275, (277, 278, 284, 285, 286, 299), (282, 283)
_PAGE_BIT = 1 << 31  # Set in `adrp`, clear in `adr`.


def _aarch64(memory: bytearray, relocations: Sequence[Relocation]) -> None:
    """See note [Addresses on AArch64]."""
    pages = {r.symbol_offset for r in relocations if r.kind == _ARM_PAGE}
    for r in relocations:
        (word,) = struct.unpack_from("<I", memory, r.offset)
        if r.kind == _ARM_PC_RELATIVE:
            word = r.distance & 0xFFFFFFFF
        elif r.kind == _ARM_PAGE:
            if not -1 << 20 <= r.distance < 1 << 20:
                raise r.unsupported("the symbol is more than 1 MiB away")
            word = word & ~_PAGE_BIT | (r.distance & 3) << 29 | (r.distance >> 2 & (1 << 19) - 1) << 5
        elif r.kind in _ARM_CALLS:
            if not -1 << 27 <= r.distance < 1 << 27:
                raise r.unsupported("the symbol is out of range of a call")
            word |= r.distance >> 2 & (1 << 26) - 1
        elif r.kind not in _ARM_PAGE_OFFSETS:
            raise r.unsupported(_ONLY_PC_RELATIVE)
        elif r.symbol_offset not in pages:
            raise r.unsupported("the page offset has no matching adrp")
        struct.pack_into("<I", memory, r.offset, word)


# R_RISCV_CALL_PLT; PCREL_HI20; PCREL_LO12_I, PCREL_LO12_S; ADD32, SUB32
_RISC_V_CALL, _RISC_V_HIGH, _RISC_V_LOADS, _RISC_V_STORES, _RISC_V_ADD, _RISC_V_SUB = 19, 23, 24, 25, 35, 39


def _riscv64(memory: bytearray, relocations: Sequence[Relocation]) -> None:
    """Displacements are split over two instructions; the second one refers to the offset of the first."""
    highs = {r.offset: r.distance for r in relocations if r.kind == _RISC_V_HIGH}

    def add(offset: int, bits: int) -> None:
        (word,) = struct.unpack_from("<I", memory, offset)
        struct.pack_into("<I", memory, offset, word + bits & 0xFFFFFFFF)

    for r in relocations:
        if r.kind in (_RISC_V_LOADS, _RISC_V_STORES):
            if r.symbol_offset not in highs:
                raise r.unsupported("the low part has no matching high part")
            _, low = split_hi20_lo12(highs[r.symbol_offset])
            add(r.offset, low << 20 if r.kind == _RISC_V_LOADS else (low >> 5) << 25 | (low & 31) << 7)
        elif r.kind in (_RISC_V_CALL, _RISC_V_HIGH):
            high, low = split_hi20_lo12(r.distance)
            add(r.offset, high << 12)
            if r.kind == _RISC_V_CALL:
                add(r.offset + 4, low << 20)
        elif r.kind in (_RISC_V_ADD, _RISC_V_SUB):
            add(r.offset, r.symbol_offset if r.kind == _RISC_V_ADD else -r.symbol_offset)
        else:
            raise r.unsupported(_ONLY_PC_RELATIVE)


def split_hi20_lo12(distance: int) -> tuple[int, int]:
    """Return the upper 20 bits of a displacement and the lower 12, which RISC-V adds sign-extended."""
    return distance + (1 << 11) >> 12 & (1 << 20) - 1, distance & (1 << 12) - 1


Relocate = Callable[[bytearray, Sequence[Relocation]], None]
# By ELF machine number. Each function applies relocations to code in place; it raises CompileError for unsupported ones.
RELOCATE: Mapping[int, Relocate] = {
    ARCHITECTURES["x86_64"].machine: _x86_64,
    ARCHITECTURES["aarch64"].machine: _aarch64,
    ARCHITECTURES["riscv64"].machine: _riscv64,
}
