"""Relocated objects of each architecture run at any address."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from dlc.backends.cpu.llvm import compile_text
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.errors import CompileError
from dlc.machine.architectures import ARCHITECTURES
from dlc.runtime.cpu.code.loader import link_object
from dlc.runtime.cpu.code.relocations import RELOCATE, Relocation
from dlc.target import CPU_LEVELS

CONSTANTS = """
define void @f(ptr %p) {
  %v = load <4 x float>, ptr %p
  %w = fadd <4 x float> %v, <float 1.125, float 2.25, float 3.5, float 4.75>
  store <4 x float> %w, ptr %p
  ret void
}
"""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_code_and_its_constants(name: str) -> None:
    target = next(t for t in CPU_LEVELS.values() if t.architecture == name)
    code = link_object(compile_text(CONSTANTS, target))
    assert code.entries == {"f": 0} and struct.pack("<f", 4.75) in code.bytes
    assert {"dlc_call", "dlc_execute", "dlc_pool_worker"} <= set(link_object(runtime_object(name)).entries)


def filled(name: str, words: Sequence[int], *relocations: Relocation) -> list[int]:
    memory = bytearray(struct.pack(f"<{len(words)}I", *words))
    RELOCATE[ARCHITECTURES[name].machine](memory, relocations)
    return list(struct.unpack(f"<{len(words)}I", memory))


def test_adrp_becomes_adr_on_aarch64() -> None:
    page, load = Relocation(275, 0, 4098, "x"), Relocation(299, 4, 4098, "x")
    # adrp x8; ldr q1, [x8] -> adr x8, 4098; ldr q1, [x8]
    assert filled("aarch64", [0x90000008, 0x3DC00101], page, load) == [0x10000008 | 2 << 29 | 1024 << 5, 0x3DC00101]
    with pytest.raises(CompileError, match="relocation 299 to 'x'; the page offset has no matching adrp"):
        filled("aarch64", [0x90000008, 0x3DC00101], page, load._replace(symbol_offset=4114))
    with pytest.raises(CompileError, match="more than 1 MiB away"):
        filled("aarch64", [0x90000008], page._replace(symbol_offset=1 << 20))


def test_displacements_are_split_on_riscv64() -> None:
    # auipc a0; lw a1, (a0) and sw a1, (a0): the lower part is a number with a sign
    high, load, store = Relocation(23, 0, 7000, "x"), Relocation(24, 4, 0, "first"), Relocation(25, 8, 0, "first")
    low = (7000 - 8192) & 0xFFF
    made = [0x517 | 2 << 12, 0x52583 | low << 20, 0xB52023 | low >> 5 << 25 | (low & 31) << 7]
    assert filled("riscv64", [0x517, 0x52583, 0xB52023], high, load, store) == made
    with pytest.raises(CompileError, match="the low part has no matching high part"):
        filled("riscv64", [0x517, 0x52583], high, load._replace(symbol_offset=4))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_absolute_addresses_are_rejected(name: str) -> None:
    with pytest.raises(CompileError, match="relocation 1 to 'x'; only PC-relative relocations"):
        filled(name, [0], Relocation(1, 0, 0, "x"))


def test_another_architecture_is_rejected() -> None:
    data = bytearray(runtime_object())
    data[18:20] = struct.pack("<H", 22)
    with pytest.raises(CompileError, match="machine 22"):
        link_object(bytes(data))
