"""`dlc.lax.associative_scan` against NumPy's running sums, and against a loop for a function that does not commute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, ShapeError

X = np.random.default_rng(0).normal(size=(13, 3))


def compose(first: Any, second: Any) -> Any:
    """Compose the affine functions x → scale x + shift."""
    return {"scale": second["scale"] * first["scale"], "shift": second["scale"] * first["shift"] + second["shift"]}


def composed(scale: np.ndarray, shift: np.ndarray, reverse: bool) -> dict[str, np.ndarray]:
    order = range(len(scale))[::-1] if reverse else range(len(scale))
    results = {"scale": np.empty_like(scale), "shift": np.empty_like(shift)}
    total = None
    for i in order:
        element = {"scale": scale[i], "shift": shift[i]}
        total = element if total is None else compose(total, element)
        for name, value in total.items():
            results[name][i] = value
    return results


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8, 13])
def test_against_a_loop(size: int, reverse: bool) -> None:
    scale, shift = X[:size], X[:size] ** 2

    def scan(scale: Any, shift: Any) -> Any:
        return lax.associative_scan(compose, {"scale": scale, "shift": shift}, reverse=reverse)

    expected = composed(scale, shift, reverse)
    for function in (scan, dlc.jit(scan), dlc.jit(scan, target="reference")):
        got = function(scale, shift)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-12)


def test_axis_and_symbolic_size() -> None:
    sums = dlc.jit(lambda x: lax.associative_scan(dnp.add, x, axis=-1), dynamic={"x": {1: "n"}})
    for size in (1, 2, 7, 12):
        x = np.ascontiguousarray(X[:size].T)
        np.testing.assert_allclose(sums(x), np.cumsum(x, 1), rtol=1e-12)
        np.testing.assert_allclose(lax.associative_scan(dnp.maximum, x, axis=1), np.maximum.accumulate(x, 1))


def test_derivative() -> None:
    gradient = dlc.grad(lambda x: (lax.associative_scan(dnp.multiply, x) * dnp.arange(13.0)[:, None]).sum())(X)
    expected = dlc.grad(lambda x: (dnp.cumprod(x, axis=0) * dnp.arange(13.0)[:, None]).sum())(X)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)


def test_errors() -> None:
    with pytest.raises(ShapeError, match=r"different sizes of axis 0 \(elems\[0\]: 13, elems\[1\]: 2\)"):
        lax.associative_scan(lambda a, b: a, (X, X[:2]))
    with pytest.raises(DlcError, match=r"the result of fn is float64\[6, 1\]; expected float64\[6, 3\]"):
        lax.associative_scan(lambda a, b: a[:, :1], X)
    with pytest.raises(ShapeError, match="no arrays in elems"):
        lax.associative_scan(lambda a, b: a, ())
