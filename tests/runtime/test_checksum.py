"""Checksums by NumPy are those of the run-time's code."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.cpu.runtime_code import runtime_object
from dlc.runtime.checksum import checksum_of, crc32c
from dlc.target import CPU_LEVELS


def test_a_known_one() -> None:
    assert crc32c(memoryview(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 63, 64, 1000, 65537, 600_001])
def test_by_numpy(size: int) -> None:
    native = checksum_of(CPU_LEVELS["cpu:generic"], runtime_object())
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).data
    for start in (0, 12345, 0xFFFFFFFF):
        assert crc32c(data, start) == native(data, start)
