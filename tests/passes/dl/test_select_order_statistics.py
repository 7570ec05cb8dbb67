"""`select-order-statistics`: medians and quantiles of long rows are selected without sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.backends.reference import evaluate
from dlc.dialects import dl
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp
from dlc.passes.dl.simplification.select_order_statistics import SelectOrderStatisticsPass
from tests.targets import NATIVE


def selected(function: Any, *arguments: np.ndarray) -> ModuleOp:
    module = dlc.jit(function).lower(*arguments).program.module
    SelectOrderStatisticsPass().apply(make_context(), module)
    module.verify()
    return module


def count_sorts(module: ModuleOp) -> bool:
    return any(isinstance(op, dl.SortOp) for op in module.walk())


def quantiles(x: Any) -> Any:
    return dnp.median(x, 0), dnp.quantile(x, [0.1, 0.77], 0), dnp.sort(x, 0, descending=True)[3:9:4], dnp.sort(x, 0)[-1]


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", (40_001,)), ("float16", (1500,)), ("float64", (6001, 3)), ("uint16", (2100, 1, 2)), ("int64", (1500,))],
)
def test_selected_elements_equal_sorted_ones(dtype: str, shape: tuple[int, ...], target: str) -> None:
    x = (np.random.default_rng(0).standard_normal(shape) * 40).astype(dtype)
    if x.dtype.kind == "f":
        x.flat[5], x.flat[11] = -np.inf, -0.0
    got = dlc.jit(quantiles, target=target)(x)
    wide = x.astype(np.float64)
    ordered = np.sort(x, 0)
    expected = (np.median(wide, 0), np.quantile(wide, [0.1, 0.77], 0), ordered[::-1][3:9:4], ordered[-1])
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=2e-3 if dtype == "float16" else 2e-6)


def test_sort_is_removed() -> None:
    x = np.random.default_rng(0).standard_normal((6000, 2), np.float32)
    x[7, 1] = np.nan

    def read(x: Any) -> Any:
        ordered = dnp.sort(x, 0)
        return ordered[7], ordered[5998:]

    module = selected(read, x)
    assert not count_sorts(module)
    ordered = np.sort(x, 0)
    for found, expected in zip(evaluate(module, [x]), (ordered[7], ordered[5998:]), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (dnp.sort(x)[5], dnp.sort(x)),
        lambda x: dnp.sort(x)[:40],
        lambda x: dnp.quantile(x, x[0]),
        lambda x: dnp.quantile(x, np.linspace(0, 1, 20)),
        lambda x: dnp.sort(x[:20])[3],
        lambda x: dnp.sort(x.reshape(-1, 4), 0)[3, :2],
    ],
)
def test_reads_of_many_positions_keep_the_sort(function: Any) -> None:
    assert count_sorts(selected(lambda x: function(x * 2), np.ones(4000, np.float32)))


def test_gradient_of_median() -> None:
    x = np.random.default_rng(0).permutation(1001).astype(np.float32)
    slope = dlc.grad(lambda x: dnp.median(x) * 2)(x)
    np.testing.assert_array_equal(slope, np.float32(2 * (x == 500)))
