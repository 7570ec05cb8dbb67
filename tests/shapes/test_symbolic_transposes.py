"""Transposes of symbolic sizes: blocks are transposed in registers, and their remainders element by element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from tests.targets import NATIVE, SHORT

SIZES = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33)
BOTH = {0: "N", 1: "M"}


@pytest.mark.parametrize("target", [*NATIVE, SHORT])
def test_transposes(target: str) -> None:
    @dlc.jit(target=target, dynamic={"x": BOTH, "y": BOTH}, cache=False, num_threads=1)
    def transposed(x: Any, y: Any) -> Any:
        return x.T + 1, ~y.T

    for n in SIZES:
        for m in SIZES:
            x = np.arange(n * m, dtype=np.float32).reshape(n, m)
            y = x % 3 == 0
            for got, expected in zip(transposed(x, y), (x.T + 1, ~y.T), strict=True):
                np.testing.assert_array_equal(got, expected, str((n, m)))


def test_blocks_are_transposed_in_registers(tmp_path: Path) -> None:
    transposed = dlc.jit(target=SHORT, dynamic={"x": BOTH}, cache=False, dump_ir=tmp_path)(lambda x: x.T + 1)
    transposed(np.zeros((9, 9), np.float32))
    (vectorized,) = tmp_path.glob("*-vectorize.mlir")
    assert "vector<8x16xf32>" in vectorized.read_text()
