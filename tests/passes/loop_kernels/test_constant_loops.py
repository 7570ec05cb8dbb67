"""Loops over constants run in each call: the evaluator of weight expressions would interpret each of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax


@pytest.mark.parametrize("size", [1, 100])
def test_constant_loops_are_kernels(size: int) -> None:
    def shifted(x: Any) -> Any:
        start = np.full(size, 0.25, np.float32)
        return x + lax.scan(lambda s, _: (dnp.sin(s) * 1.5, None), start, None, length=1000)[0]

    compiled, x = dlc.jit(shifted, cache=False), np.zeros(size, np.float32)
    assert "scf." in compiled.lower(x).as_text("fusion")
    fixed_point = np.float32(1.4957785)
    np.testing.assert_allclose(compiled(x), np.full(size, fixed_point), rtol=1e-5)
