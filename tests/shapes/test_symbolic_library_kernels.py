"""Sorts, arg-extrema and scans of symbolic sizes: vectors of rows and columns, and their remainders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.targets import SHORT

BOTH = {0: "N", 1: "M"}
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda np, x: np.sort(x, axis=-1),
    "sort of columns": lambda np, x: np.sort(x, axis=0),
    "argsort": lambda np, x: np.argsort(x, axis=-1, stable=True),
    "argmax": lambda np, x: np.argmax(x, axis=-1),
    "argmin of columns": lambda np, x: np.argmin(x, axis=0),
    "cumulative sum of columns": lambda np, x: np.cumsum(x, axis=0),
}


def _array(n: int, m: int, dtype: str) -> np.ndarray:
    """Return whole numbers with ties, and NaN if the dtype has it."""
    x = np.random.default_rng(n * 1000 + m).integers(-20, 20, (n, m)).astype(dtype)
    if x.dtype.kind == "f" and m % 3 == 1:
        x[x == 7] = np.nan
    return x


@pytest.mark.parametrize("target", ["cpu", SHORT])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, target: str) -> None:
    function = FUNCTIONS[name]
    compiled = dlc.jit(lambda x: function(dnp, x), target=target, dynamic={"x": BOTH}, cache=False, num_threads=1)
    for dtype in ("float32", "int8"):
        for n, m in ((1, 1), (2, 7), (3, 8), (15, 9), (16, 31), (17, 64), (33, 100), (5, 193), (40, 5), (1, 1030), (18, 1025)):
            x = _array(n, m, dtype)
            np.testing.assert_array_equal(compiled(x), function(np, x), str((dtype, n, m)))


@pytest.mark.parametrize("sizes", [{0: "N"}, {1: "M"}])
def test_one_symbolic_size(sizes: dict[int, str]) -> None:
    compiled = dlc.jit(lambda x: dnp.sort(x, axis=-1), target=SHORT, dynamic={"x": sizes}, cache=False, num_threads=1)
    for k in (1, 2, 16, 19, 120):
        x = _array(k if 0 in sizes else 37, k if 1 in sizes else 120, "float32")
        np.testing.assert_array_equal(compiled(x), np.sort(x, axis=-1))


def test_short_rows_are_sorted_in_lanes(tmp_path: Path) -> None:
    compiled = dlc.jit(target=SHORT, dynamic={"x": BOTH}, cache=False, dump_ir=tmp_path)(lambda x: dnp.sort(x, axis=-1))
    compiled(np.zeros((9, 9), np.float32))
    (vectorized,) = tmp_path.glob("*-vectorize.mlir")
    assert "vector<8x16xi32>" in vectorized.read_text()
