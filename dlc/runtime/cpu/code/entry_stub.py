"""The entry stub of a program image: it calls dlc_call(argument, image, image), where `image` is the address of the stub."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from dlc.runtime.cpu.code.relocations import split_hi20_lo12

ENTRY_BYTES = 16


def entry_code(architecture: str, call: int) -> bytes:
    """Return the instructions of the stub; dlc_call is `call` bytes after the start of the image."""
    code = _ENTRIES[architecture](call)
    return code + bytes(ENTRY_BYTES - len(code))


def _x86_64(call: int) -> bytes:
    code = b"\x48\x8d\x35" + struct.pack("<i", -7)  # lea rsi, [rip - 7]
    code += b"\x48\x89\xf2"  # mov rdx, rsi
    return code + b"\xe9" + struct.pack("<i", call - len(code) - 5)  # jmp


def _aarch64(call: int) -> bytes:
    # adr x1, .; mov x2, x1; b
    return struct.pack("<3I", 0x10000001, 0xAA0103E2, 0x14000000 | call - 8 >> 2 & (1 << 26) - 1)


def _riscv64(call: int) -> bytes:
    # auipc a1, 0; mv a2, a1; auipc t1, …; jr …(t1)
    high, low = split_hi20_lo12(call - 8)
    return struct.pack("<4I", 0x597, 0x58613, high << 12 | 0x317, low << 20 | 0x30067)


_ENTRIES: Mapping[str, Callable[[int], bytes]] = {"x86_64": _x86_64, "aarch64": _aarch64, "riscv64": _riscv64}
