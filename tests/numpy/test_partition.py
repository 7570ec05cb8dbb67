"""Partitions of long rows at one position: elements and indices keep their order on either side."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.targets import NATIVE

DTYPES = ("float32", "float64", "float16", "int8", "uint16", "int32", "uint32", "int64", "bool")


def _arrays() -> dict[str, np.ndarray]:
    arrays = {name: np.random.default_rng(2).normal(0, 9, (2, 700)).astype(name) for name in DTYPES}
    arrays["bfloat16"] = arrays["float32"].astype(ml_dtypes.bfloat16)
    arrays["long"] = np.random.default_rng(2).normal(size=(1, 9000)).astype(np.float32)
    for name, x in arrays.items():
        if name not in ("bool", *(n for n in DTYPES if "int" in n)):
            x[:, :6] = [0.0, np.nan, -0.0, np.inf, -np.inf, 0.0]
    return arrays


def _require_partition(x: np.ndarray, order: np.ndarray, kth: int, message: str) -> None:
    """Fail unless the elements at these indices are a partition."""
    assert (np.sort(order, axis=1) == np.arange(x.shape[1])).all(), message
    partitioned, pivots = np.take_along_axis(x, order, 1), np.sort(x, 1)[:, [kth]]
    np.testing.assert_array_equal(partitioned[:, [kth]], pivots, err_msg=message)
    low, high = partitioned[:, :kth], partitioned[:, kth:]
    assert ((low <= pivots) | np.isnan(pivots)).all() and ((high >= pivots) | np.isnan(high)).all(), message


@pytest.mark.parametrize("target", NATIVE)
def test_partitions_of_all_types(target: str) -> None:
    arrays, positions = _arrays(), (0, 350, -1)

    @dlc.jit(target=target)
    def partition(arrays: dict[str, Any]) -> dict[str, Any]:
        return {
            f"{name} at {kth}": (x, dnp.partition(x, kth), dnp.argpartition(x, kth))
            for name, x in arrays.items()
            for kth in positions
        }

    for name, results in partition(arrays).items():
        x, partitioned = (np.asarray(result).astype(np.float64) for result in results[:2])
        kth = int(name.split()[-1]) % x.shape[1]
        _require_partition(x, np.asarray(results[2]), kth, name)
        np.testing.assert_array_equal(np.sort(partitioned, 1), np.sort(x, 1), err_msg=name)
        _require_partition(partitioned, np.arange(x.shape[1])[None].repeat(len(x), 0), kth, name)


def test_partition_along_another_axis() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 2, 1))
    got = dlc.jit(lambda x: dnp.partition(x, [3], axis=0))(x)
    assert (got[:3] <= got[3]).all() and (got[4:] >= got[3]).all()
    np.testing.assert_array_equal(np.sort(got, 0), np.sort(x, 0))


def test_gradient_of_a_partition() -> None:
    x = np.random.default_rng(0).normal(size=1000)
    weights = np.arange(1000.0)
    (gradient, values) = dlc.jit(lambda x: (dlc.grad(lambda x: (dnp.partition(x, 500) * weights).sum())(x), dnp.sort(x)))(x)
    np.testing.assert_array_equal(gradient, np.argsort(np.argsort(x)))
    np.testing.assert_array_equal(values, np.sort(x))


@pytest.mark.parametrize("n", [700, 9000])
def test_orders_that_are_bad_for_pivots(n: int) -> None:
    rows = np.stack(
        [np.arange(n), np.arange(n)[::-1], np.r_[: n // 2, : n - n // 2], np.r_[np.full(n - 1, 5), 1], np.full(n, 3)]
    )
    rows = rows.astype(np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = dlc.jit(lambda x: dnp.partition(x, n // 3))(rows)
    np.testing.assert_array_equal(got[:, n // 3], np.sort(rows)[:, n // 3])
    np.testing.assert_array_equal(np.sort(got), np.sort(rows))
