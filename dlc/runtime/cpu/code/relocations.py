"""What is filled into code once it is known where everything lies: distances, as each architecture writes them.

Note [Addresses on AArch64]. A code generator loads an address in two instructions: `adrp` makes the page of 4096 bytes that it
lies in, and what follows adds the place in that page. So code would run only where it lies as it did to a multiple of 4096.
Kernels are small: here the first instruction becomes `adr`, which reaches a million bytes and makes the address itself, and
what the second adds stays 0, as it is in an object. The two name the same place; an addition to a place that no `adrp` makes
is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlc.errors import CompileError
from dlc.machine.architectures import ARCHITECTURES


class Relocation(NamedTuple):
    """What to write where: a kind, as the architecture numbers them, and the place that is meant by it."""

    kind: int
    place: int
    target: int
    symbol: str

    @property
    def distance(self) -> int:
        return self.target - self.place

    def refused(self, reason: str) -> CompileError:
        return CompileError(f"the object has relocation {self.kind} to {self.symbol!r}; {reason}")


_ONLY_DISTANCES = "only distances can be loaded"
# R_X86_64_PC32, PLT32
_X86_DISTANCES = (2, 4)


def _x86_64(memory: bytearray, relocations: Sequence[Relocation]) -> None:
    for r in relocations:
        if r.kind not in _X86_DISTANCES:
            raise r.refused(_ONLY_DISTANCES)
        struct.pack_into("<i", memory, r.place, r.distance)


# R_AARCH64_PREL32; ADR_PREL_PG_HI21; the additions ADD_ABS_LO12_NC and LDST8 to LDST128_ABS_LO12_NC; JUMP26, CALL26
_ARM_DISTANCE, _ARM_PAGE, _ARM_PLACES, _ARM_CALLS = 261, 275, (277, 278, 284, 285, 286, 299), (282, 283)
_PAGE_BIT = 1 << 31  # what tells `adrp` from `adr`


def _aarch64(memory: bytearray, relocations: Sequence[Relocation]) -> None:
    """See note [Addresses on AArch64]."""
    pages = {r.target for r in relocations if r.kind == _ARM_PAGE}
    for r in relocations:
        (word,) = struct.unpack_from("<I", memory, r.place)
        if r.kind == _ARM_DISTANCE:
            word = r.distance & 0xFFFFFFFF
        elif r.kind == _ARM_PAGE:
            if not -1 << 20 <= r.distance < 1 << 20:
                raise r.refused("more than a million bytes away, which code of one kernel never is")
            word = word & ~_PAGE_BIT | (r.distance & 3) << 29 | (r.distance >> 2 & (1 << 19) - 1) << 5
        elif r.kind in _ARM_CALLS:
            if not -1 << 27 <= r.distance < 1 << 27:
                raise r.refused("too far to be called")
            word |= r.distance >> 2 & (1 << 26) - 1
        elif r.kind not in _ARM_PLACES:
            raise r.refused(_ONLY_DISTANCES)
        elif r.target not in pages:
            raise r.refused("no instruction makes the page that it adds to")
        struct.pack_into("<I", memory, r.place, word)


# R_RISCV_CALL_PLT; PCREL_HI20; PCREL_LO12_I, PCREL_LO12_S; ADD32, SUB32
_RISC_V_CALL, _RISC_V_HIGH, _RISC_V_LOADS, _RISC_V_STORES, _RISC_V_ADD, _RISC_V_SUB = 19, 23, 24, 25, 35, 39


def _riscv64(memory: bytearray, relocations: Sequence[Relocation]) -> None:
    """Distances are in two instructions; of the second one, the place is that of the first."""
    highs = {r.place: r.distance for r in relocations if r.kind == _RISC_V_HIGH}

    def add(place: int, bits: int) -> None:
        (word,) = struct.unpack_from("<I", memory, place)
        struct.pack_into("<I", memory, place, word + bits & 0xFFFFFFFF)

    for r in relocations:
        if r.kind in (_RISC_V_LOADS, _RISC_V_STORES):
            if r.target not in highs:
                raise r.refused("no instruction makes the rest of the distance")
            _, low = halves(highs[r.target])
            add(r.place, low << 20 if r.kind == _RISC_V_LOADS else (low >> 5) << 25 | (low & 31) << 7)
        elif r.kind in (_RISC_V_CALL, _RISC_V_HIGH):
            high, low = halves(r.distance)
            add(r.place, high << 12)
            if r.kind == _RISC_V_CALL:
                add(r.place + 4, low << 20)
        elif r.kind in (_RISC_V_ADD, _RISC_V_SUB):
            add(r.place, r.target if r.kind == _RISC_V_ADD else -r.target)
        else:
            raise r.refused(_ONLY_DISTANCES)


def halves(distance: int) -> tuple[int, int]:
    """The upper 20 bits of a distance, and the lower 12, which RISC-V adds as a number with a sign."""
    return distance + (1 << 11) >> 12 & (1 << 20) - 1, distance & (1 << 12) - 1


Relocate = Callable[[bytearray, Sequence[Relocation]], None]
# By the number of the architecture in ELF files: fills in what `relocations` say; raises CompileError for what is no distance.
RELOCATE: Mapping[int, Relocate] = {
    ARCHITECTURES["x86_64"].machine: _x86_64,
    ARCHITECTURES["aarch64"].machine: _aarch64,
    ARCHITECTURES["riscv64"].machine: _riscv64,
}
