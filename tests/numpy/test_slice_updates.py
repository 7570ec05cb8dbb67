"""Updates of static slices: as NumPy's assignments, in one kernel, without index constants."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.targets import NATIVE

X = np.array([[-0.0, np.nan, 2, 3, 4], [5, np.inf, 7, 8, 9], [1, 2, -np.inf, 4, 5], [9, 8, 7, 6, 5]], np.float32)
KEYS: list[Any] = [
    np.s_[1:-1, 1:-1],
    np.s_[2],
    np.s_[:, -1],
    np.s_[::2, 1::3],
    np.s_[::-1, 3:0:-2],
    np.s_[..., 1:2],
    np.s_[:],
    np.s_[3:1],
    np.s_[1, None, 1:4],
]
METHODS: dict[str, Any] = {
    "set": lambda old, new: new,
    "add": operator.add,
    "multiply": operator.mul,
    "max": np.maximum,
    "min": np.minimum,
}


def update(x: Any, key: Any, method: str) -> Any:
    value = np.arange(1, 1 + X[key].size, dtype=np.float32).reshape(X[key].shape)
    return getattr(dnp.at(x)[key], method)(value)


@pytest.mark.parametrize("target", NATIVE)
def test_updates(target: str) -> None:
    calls = [(key, method) for key in KEYS for method in METHODS]
    results = dlc.jit(lambda x: [update(x, *c) for c in calls], target=target)(X)
    for got, (key, method) in zip(results, calls, strict=True):
        expected = X.copy()
        expected[key] = METHODS[method](X[key], np.arange(1, 1 + X[key].size, dtype=np.float32).reshape(X[key].shape))
        np.testing.assert_array_equal(got, expected, f"{key} {method}")
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_one_kernel_without_constants() -> None:
    x, value = np.ones((64, 64), np.float32), np.ones((62, 62), np.float32)
    program = dlc.jit(lambda x, v: x.at[1:-1, 1:-1].add(v)).lower(x, value).program
    assert "dense_resource" not in str(program.module) and "gather" not in str(program.module)


def test_gradient() -> None:
    def total(v: Any, method: str) -> Any:
        return (
            (dnp.at(2 * v)[1:3].set(v[:2]) * np.float32([1, 10, 100, 1000])).sum()
            if method == "set"
            else v.at[::2].multiply(v[:2]).sum()
        )

    v = np.float32([3, 4, 5, 6])
    np.testing.assert_array_equal(dlc.grad(total)(v, "set"), [2 + 10, 100, 0, 2000])
    np.testing.assert_array_equal(dlc.grad(total)(v, "multiply"), [6, 1 + 5, 4, 1])


def test_arrays_that_are_not_traced() -> None:
    x = np.arange(3)
    np.testing.assert_array_equal(dlc.jit(lambda x: dnp.zeros_like(x).at[1].set(x[2]))(x), [0, 2, 0])
    np.testing.assert_array_equal(dnp.zeros_like(x).at[1].set(7), [0, 7, 0])
    np.testing.assert_array_equal(dnp.exp(dnp.zeros(2)).at[0].add(1), [2, 1])
