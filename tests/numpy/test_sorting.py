"""Sorts of rows of all lengths around those at which the algorithm changes, for the processors that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.targets import NATIVE


@pytest.mark.parametrize("target", [*NATIVE, "cpu:avx2", "cpu:generic"])
def test_rows(target: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        f"{dtype} {n}": rng.normal(0, 1e4, (2, n)).astype(dtype)
        for dtype in ("float32", "float64", "int32", "uint32", "int64")
        for n in (64, 65, 700, 1025)
    }
    for x in arrays.values():
        if x.dtype.kind == "f":
            x[:, :5] = [np.nan, 0.0, -np.inf, np.inf, -np.nan]

    @dlc.jit(target=target)
    def sort(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: (dnp.sort(x), dnp.sort(x, descending=True), dnp.argsort(x)) for name, x in arrays.items()}

    for name, (ascending, descending, order) in sort(arrays).items():
        np.testing.assert_array_equal(ascending, np.sort(arrays[name]), err_msg=name)
        np.testing.assert_array_equal(np.flip(np.asarray(descending), 1), np.sort(arrays[name]), err_msg=name)
        np.testing.assert_array_equal(order, np.argsort(arrays[name], kind="stable"), err_msg=name)


@pytest.mark.parametrize("spread", [8191, 8192, 1 << 31])
def test_a_long_row_of_values_in_a_range(spread: int) -> None:
    x = np.random.default_rng(0).integers(-spread // 2, spread // 2, 600_000, np.int64).astype(np.int32)
    x[:2] = -(spread // 2), (spread - 1) // 2
    np.testing.assert_array_equal(dlc.jit(dnp.sort)(x), np.sort(x))
