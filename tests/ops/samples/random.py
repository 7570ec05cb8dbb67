"""Samples of random bits, against threefry2x32 on Python integers and its published test vectors."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.testing.sample import U8, U16, U32, U64, Sample

WORD = 1 << 32
# Key, counter and result of the test vectors that the authors published.
KNOWN = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((WORD - 1, WORD - 1), (WORD - 1, WORD - 1), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
)


def threefry(key: tuple[int, int], counter: int) -> tuple[int, int]:
    """Return the two words of a 64-bit counter."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter // WORD + keys[0]) % WORD, (counter + keys[1]) % WORD
    for step in range(20):
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[step % 8]
        x = (x + y) % WORD
        y = x ^ (y << turn | y >> (32 - turn)) % WORD
        if step % 4 == 3:
            k = step // 4 + 1
            x, y = (x + keys[k % 3]) % WORD, (y + keys[(k + 1) % 3] + k) % WORD
    return x, y


def drawn(key: np.ndarray, first: np.ndarray, shape: tuple[int, ...], bits: int) -> np.ndarray:
    """Compute the bits as the op defines them."""
    lanes = []
    for (high, low), start in zip(key.reshape(-1, 2).tolist(), first.reshape(-1).tolist(), strict=True):
        words = [threefry((high, low), (start + i) % WORD**2) for i in range(math.prod(shape))]
        lanes.append([x * WORD + y if bits == 64 else (x ^ y) % (1 << bits) for x, y in words])
    return np.array(lanes, np.uint64).reshape((*first.shape, *shape))


def _sample(label: str, key: list, first: int | list, shape: tuple[int, ...], dtype: np.dtype) -> Sample:
    bits = 8 * dtype.itemsize
    operands = np.array(key, U32), np.array(first, U64)
    properties = {"shape": shape, "to": element_type(dtype)}
    return Sample(dl.RandomBitsOp, operands, lambda k, f: drawn(k, f, shape, bits), properties, label=label)


SAMPLES = [
    *(
        Sample(
            dl.RandomBitsOp,
            (np.array(key, U32), np.array(high * WORD + low, U64)),
            lambda k, f, x=x, y=y: np.array(x * WORD + y, U64),
            {"shape": (), "to": element_type(U64)},
            label=f"known{k}",
        )
        for k, (key, (high, low), (x, y)) in enumerate(KNOWN)
    ),
    *(_sample(dtype.name, [1, 2], 0, (3, 37), dtype) for dtype in (U8, U16, U32, U64)),
    _sample("carries", [7, WORD - 1], 3 * WORD - 5, (2, 2, 5), U32),
    _sample("wraps", [7, 9], WORD**2 - 3, (6,), U64),
    _sample("lanes", [[1, 2], [3, 4]], [0, 5], (4,), U32),
    _sample("scalar_lanes", [[[1, 2]], [[3, 4]]], [[0], [5]], (), U32),
]
