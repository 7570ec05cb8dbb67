"""CRC-32C checksums of sections: computed by the native runtime, or by NumPy for another architecture.

Files without native code, for OpenCL devices, use zlib's CRC-32.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.cpu.code.native import runtime
from dlc.target import Target, host_supports

# Continues the checksum of preceding bytes.
Checksum = Callable[[memoryview, int], int]
Tables = tuple[NDArray[np.uint32], NDArray[np.uint32]]
_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli's, bit-reversed.
_WORD_BYTES = 4
_MAX_LANES = 1 << 16


def choose_checksum(target: Target, object: bytes) -> Checksum:
    """Return the checksum function for files of a target; `object` is the runtime's object code, empty if there is none."""
    if not object:
        return zlib.crc32
    if not host_supports(target):
        return crc32c
    native = runtime(object)

    def checksum(data: memoryview, start: int) -> int:
        return native.checksum(np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0, len(data), start)

    return checksum


def crc32c(data: memoryview, start: int = 0) -> int:
    """Compute CRC-32C with NumPy, at some 100 MB/s.

    The remainder is computed for 32-bit words. CRC is linear, and leading zeros do not change it. So interleaved lanes of words
    are processed in parallel, and their remainders are combined at the end.
    """
    register = np.array([start ^ 0xFFFFFFFF], np.uint32)
    bytes = np.frombuffer(data, np.uint8)
    words = -(-len(bytes) // _WORD_BYTES)
    if len(bytes) < _WORD_BYTES:
        for k in range(len(bytes)):
            register = _shift_byte(register ^ bytes[k : k + 1])
        return int(register[0]) ^ 0xFFFFFFFF
    lanes = min(_MAX_LANES, 1 << (words.bit_length() - 1))
    rows = -(-words // lanes)
    # The initial register is XORed to the first word.
    head = np.zeros(rows * lanes * _WORD_BYTES - len(bytes), np.uint8)
    padded = np.concatenate([head, bytes[:_WORD_BYTES] ^ register.view(np.uint8), bytes[_WORD_BYTES:]])
    remainders = np.zeros(lanes, np.uint32)
    step = _tables(lanes * _WORD_BYTES)
    for row in padded.view("<u4").reshape(rows, lanes):
        remainders = _advance(step, remainders) ^ row
    while len(remainders) > 1:
        half = len(remainders) // 2
        remainders = _advance(_tables(half * _WORD_BYTES), remainders[:half]) ^ remainders[half:]
    return int(_advance(_tables(_WORD_BYTES), remainders)[0]) ^ 0xFFFFFFFF


def _advance(tables: Tables, remainders: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return remainders after appending zero bytes; their number determines `tables`."""
    halves = remainders.view(np.uint16).reshape(-1, 2)
    return tables[0].take(halves[:, 0]) ^ tables[1].take(halves[:, 1])


@lru_cache
def _tables(zeros: int) -> Tables:
    """Return lookup tables of the remainders of 16-bit halves, low half first, after this many zero bytes, a power of two."""
    if zeros == 1:
        halves = np.arange(1 << 16, dtype=np.uint32)
        return _shift_byte(halves), _shift_byte(halves << np.uint32(16))
    half = _tables(zeros // 2)
    return _advance(half, half[0]), _advance(half, half[1])


def _shift_byte(register: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return a register after processing one byte, which was XORed to it."""
    one = np.uint32(1)
    for _ in range(8):
        register = register >> one ^ (register & one) * _POLYNOMIAL
    return register
