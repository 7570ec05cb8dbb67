"""CRC-32C, the checksum of sections: by the run-time's code; by NumPy where that is not for this machine.

Where there is no such code, kernels being for another device, it is zlib's CRC-32.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.cpu.code.native import runtime
from dlc.target import Target, host_supports

# Of bytes, continued from the checksum of what came before.
Checksum = Callable[[memoryview, int], int]
Tables = tuple[NDArray[np.uint32], NDArray[np.uint32]]
_POLYNOMIAL = np.uint32(0x82F63B78)  # of Castagnoli, its lowest bit last
_WORD_BYTES = 4
_LANES = 1 << 16


def checksum_of(target: Target, object: bytes) -> Checksum:
    """What computes checksums in files of programs for a target, whose run-time's code is `object`, if it has any."""
    if not object:
        return zlib.crc32
    if not host_supports(target):
        return crc32c
    native = runtime(object)

    def checksum(data: memoryview, start: int) -> int:
        return native.checksum(np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0, len(data), start)

    return checksum


def crc32c(data: memoryview, start: int = 0) -> int:
    """The checksum by NumPy, at some hundred million bytes a second.

    A register of the remainder goes over words of 32 bits. Zeros at the beginning change nothing, and remainders of parts add
    up: so lanes of words go on side by side, each over every so many-th word, and are put together at the end.
    """
    register = np.array([start ^ 0xFFFFFFFF], np.uint32)
    bytes = np.frombuffer(data, np.uint8)
    words = -(-len(bytes) // _WORD_BYTES)
    if len(bytes) < _WORD_BYTES:
        for k in range(len(bytes)):
            register = _shifted(register ^ bytes[k : k + 1])
        return int(register[0]) ^ 0xFFFFFFFF
    lanes = min(_LANES, 1 << (words.bit_length() - 1))
    rows = -(-words // lanes)
    # What the register holds is added to the first word.
    head = np.zeros(rows * lanes * _WORD_BYTES - len(bytes), np.uint8)
    padded = np.concatenate([head, bytes[:_WORD_BYTES] ^ register.view(np.uint8), bytes[_WORD_BYTES:]])
    remainders = np.zeros(lanes, np.uint32)
    step = _tables(lanes * _WORD_BYTES)
    for row in padded.view("<u4").reshape(rows, lanes):
        remainders = _after(step, remainders) ^ row
    while len(remainders) > 1:
        half = len(remainders) // 2
        remainders = _after(_tables(half * _WORD_BYTES), remainders[:half]) ^ remainders[half:]
    return int(_after(_tables(_WORD_BYTES), remainders)[0]) ^ 0xFFFFFFFF


def _after(tables: Tables, remainders: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Remainders after so many zeros as the tables are for."""
    halves = remainders.view(np.uint16).reshape(-1, 2)
    return tables[0].take(halves[:, 0]) ^ tables[1].take(halves[:, 1])


@lru_cache
def _tables(zeros: int) -> Tables:
    """What each half of a register, the lower one first, becomes after so many zeros, a power of two of them."""
    if zeros == 1:
        halves = np.arange(1 << 16, dtype=np.uint32)
        return _shifted(halves), _shifted(halves << np.uint32(16))
    half = _tables(zeros // 2)
    return _after(half, half[0]), _after(half, half[1])


def _shifted(register: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A register after a byte that was added to it."""
    one = np.uint32(1)
    for _ in range(8):
        register = register >> one ^ (register & one) * _POLYNOMIAL
    return register
