"""Initializers of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import ShapeError
from dlc.nn import init

KEY = dlc.random.key(3)


@pytest.mark.parametrize(
    ("make", "deviation"),
    [
        (init.normal, 0.01),
        (init.uniform, 0.01 / 12**0.5),
        (init.he, (2 / 90) ** 0.5),
        (init.lecun, (1 / 90) ** 0.5),
        (init.glorot, (2 / (90 + 180)) ** 0.5),
        (lambda *a: init.he(*a, distribution="normal"), (2 / 90) ** 0.5),
        (lambda *a: init.he(*a, distribution="uniform"), (2 / 90) ** 0.5),
    ],
)
def test_deviation(make: Any, deviation: float) -> None:
    x = make(KEY, (3, 3, 10, 20), np.float32)
    assert (x.shape, x.dtype) == ((3, 3, 10, 20), np.float32)
    assert abs(x.std() / deviation - 1) < 0.05


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    x = init.orthogonal(KEY, shape, scale=2.0)
    products = x.T @ x if shape[0] >= shape[1] else x @ x.T
    np.testing.assert_allclose(products, 4 * np.eye(min(shape)), atol=1e-6)
    np.testing.assert_allclose(dlc.jit(lambda k: init.orthogonal(k, shape, scale=2.0))(KEY), x, atol=1e-6)


def test_zeros_draw_nothing() -> None:
    assert not dlc.jit(lambda k: init.zeros(k, (2, 3)) + init.zeros(k, (2, 3)))(KEY).any()


def test_mistakes() -> None:
    with pytest.raises(ShapeError, match=r"he: shape \(3,\); expected at least two axes, the last two inputs and outputs"):
        init.he(KEY, (3,))
    with pytest.raises(ShapeError, match="orthogonal"):
        init.orthogonal(KEY, (3, 3, 2))
    with pytest.raises(ShapeError, match="distribution 'cauchy'"):
        init.he(KEY, (3, 2), distribution="cauchy")
