"""Samples lie in the range that a distribution states, where its bounds are close together or far from 0."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dlc


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("float16", 1, 1.5), ("float32", 1e6, 1e6 + 1), ("float64", 1e15, 1e15 + 1), ("bfloat16", -3, 100), ("float32", -1, 0)],
)
def test_uniform_excludes_the_upper_bound(dtype: str, low: float, high: float) -> None:
    for draw in (dlc.random.uniform, dlc.jit(dlc.random.uniform, static_argnums=(1, 2), target="reference")):
        x = np.asarray(draw(dlc.random.key(0), (20_000,), dtype, low, high)).astype(np.float64)
        assert low <= x.min()
        assert x.max() < high
        assert abs((x - low).mean() / (high - low) - 0.5) < 0.05


def test_uniform_of_an_empty_range() -> None:
    np.testing.assert_array_equal(dlc.random.uniform(dlc.random.key(0), (3,), np.float32, 2, 2), 2)


def _tail_probability(x: float) -> float:
    return math.erfc(x / math.sqrt(2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("low", "high"), [(8, 9), (-9, -8), (2.5, 3), (20, math.inf), (-math.inf, -36), (30, 31), (1.5, 9)])
def test_truncated_normal_in_a_tail(dtype: str, low: float, high: float) -> None:
    """The Kolmogorov-Smirnov distance to the exact distribution."""
    x = np.asarray(dlc.random.truncated_normal(dlc.random.key(1), low, high, (5000,), dtype)).astype(np.float64)
    assert low < x.min()
    assert x.max() < high
    near, far = (low, high) if low > 0 else (-high, -low)
    first, last = _tail_probability(near), _tail_probability(far)
    exact = [(first - _tail_probability(v)) / (first - last) for v in np.sort(np.abs(x))]
    assert np.abs(np.array(exact) - np.arange(5000) / 5000).max() < 1.63 / math.sqrt(5000)


def test_truncated_normal_of_array_bounds() -> None:
    low, high = np.array([[8, -2, -9, 0], [9, 2, -8, 1]], np.float32)
    x = dlc.jit(dlc.random.truncated_normal, target="reference")(dlc.random.key(0), low, high)
    assert np.all(low < x)
    assert np.all(x < high)
