"""The NumPy checksum equals that of the native run-time."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.cpu.runtime_code import runtime_object
from dlc.errors import DeviceError
from dlc.runtime.cpu.code.loader import load_object
from dlc.runtime.saving.checksum import choose_checksum, crc32c
from dlc.target import CPU_LEVELS, host_supports


def test_a_known_checksum() -> None:
    assert crc32c(memoryview(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 63, 64, 1000, 65537, 600_001])
def test_the_numpy_implementation(size: int) -> None:
    native = choose_checksum(CPU_LEVELS["cpu:generic"], runtime_object())
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).data
    for start in (0, 12345, 0xFFFFFFFF):
        assert crc32c(data, start) == native(data, start)


def test_code_of_another_processor_is_not_run() -> None:
    """Code for another architecture or for a missing instruction set is not executed."""
    for target in CPU_LEVELS.values():
        own = choose_checksum(target, runtime_object(target.architecture))
        assert (own is crc32c) != host_supports(target)
    with pytest.raises(DeviceError, match="is for ELF machine 183"):
        load_object(runtime_object("aarch64"))
