"""Measurement of the machine's limits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from dlc.arrays import aligned_empty
from dlc.backends.cpu.limits import measured_limits, peak_flops, peak_text
from dlc.backends.cpu.llvm import compile_text
from dlc.runtime.cpu.code.loader import load_object
from dlc.target import CPU_LEVELS, Target
from tests.backends.cpu.native import LEVELS


@pytest.mark.parametrize("target", LEVELS)
def test_peak_flops_match_the_executed_operations(target: Target) -> None:
    code = load_object(compile_text(peak_text(target), target))
    array = aligned_empty((4096,), np.dtype(np.float32))
    array[:] = 1
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))(array.ctypes.data, 10)
    lanes = target.lanes(4)
    # Accumulator i starts at i and adds 1 · 1 per step: one multiply-add each.
    sums = peak_flops(target, 1) // (2 * lanes)
    assert array[: sums * lanes].reshape(sums, lanes)[:, 0].tolist() == [i + 10 for i in range(sums)]


def test_limits_are_plausible() -> None:
    limits = measured_limits(CPU_LEVELS["cpu:generic"], 2)
    assert min(limits.flops, limits.cache, limits.memory) > 1e8
    assert limits.seconds(limits.flops, 0) == 1 and limits.seconds(0, 2 * limits.memory) == 2
