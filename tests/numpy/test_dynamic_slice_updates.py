"""Updates of slices with symbolic sizes or traced bounds, against NumPy's in-place updates."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import ShapeError

# Key of the updated slice of a vector, method, and value.
VECTORS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "tail": ("1:", "set", lambda x: 5),
    "inner": ("1:-1", "add", lambda x: x[:-2]),
    "even": ("::2", "set", lambda x: 0),
    "shifted": ("1:", "set", lambda x: x[:-1]),
    "half": (":x.shape[0] // 2", "set", lambda x: x[x.shape[0] // 2 : 2 * (x.shape[0] // 2)]),
    "last": ("-2:", "multiply", lambda x: 3),
    "odd": ("1::2", "divide", lambda x: 2.0),
    "all": (":", "set", lambda x: x[::-1]),
    "new_axis": ("None, 1:", "set", lambda x: x[None, :-1]),
    "few": ("2:5", "max", lambda x: 100),
}
MATRICES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "inner": ("1:-1, 1:-1", "set", lambda x: 0),
    "corner": ("1:, :-1", "add", lambda x: x[:-1, 1:]),
    "rows": ("..., 1:, :", "subtract", lambda x: x.sum(axis=0)),
}
IN_PLACE = {
    "set": lambda y, key, v: y.__setitem__(key, v), "add": lambda y, key, v: y.__setitem__(key, y[key] + v),
    "subtract": lambda y, key, v: y.__setitem__(key, y[key] - v), "multiply": lambda y, key, v: y.__setitem__(key, y[key] * v),
    "divide": lambda y, key, v: y.__setitem__(key, y[key] / v), "max": lambda y, key, v: y.__setitem__(key, np.maximum(y[key], v)),
}  # fmt: skip


class _Key:
    def __getitem__(self, key: Any) -> Any:
        return key


def key_of(text: str, x: Any) -> Any:
    return eval(f"key[{text}]", {"key": _Key(), "x": x})


def updated(cases: dict[str, tuple[str, str, Callable[[Any], Any]]], x: Any) -> dict[str, Any]:
    """Return each case applied to `x`, in place for a plain array."""
    made: dict[str, Any] = {}
    for name, (text, method, value) in cases.items():
        if isinstance(x, np.ndarray):
            made[name] = x.copy()
            IN_PLACE[method](made[name], key_of(text, x), value(x))
        else:
            made[name] = getattr(dnp.at(x)[key_of(text, x)], method)(value(x))
    return made


def vector(n: int) -> Any:
    return np.arange(1, n + 1, dtype=np.float32)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_slices_of_symbolic_sizes(target: str) -> None:
    compiled = dlc.jit(target=target, dynamic={"x": {0: "N"}})(lambda x: updated(VECTORS, x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (0, 1, 2, 3, 5, 17):
            expected = updated(VECTORS, vector(n))
            for name, found in compiled(vector(n)).items():
                assert np.array_equal(found, expected[name]), (name, n)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_slices_of_two_symbolic_sizes(target: str) -> None:
    compiled = dlc.jit(target=target, dynamic={"x": {0: "N", 1: "M"}})(lambda x: updated(MATRICES, x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((1, 1), (1, 5), (4, 2), (5, 17), (3, 0)):
            x = vector(shape[0] * shape[1]).reshape(shape)
            expected = updated(MATRICES, x)
            for name, found in compiled(x).items():
                assert np.array_equal(found, expected[name]), (name, shape)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_slices_between_traced_bounds(target: str) -> None:
    def updates(x: Any, i: Any, j: Any) -> Any:
        return dnp.at(x)[i:j].set(0), dnp.at(x)[:i].add(x[:i]), dnp.at(dnp.stack([x, x]))[1, j:].set(x[j:] * 2)

    compiled = dlc.jit(target=target)(updates)
    for i, j in ((0, 3), (2, 2), (3, 1), (-2, 99), (5, 8)):
        x, first, second, third = (vector(6) for _ in range(4))
        first[i:j] = 0
        second[:i] += x[:i]
        third[j:] *= 2
        found = compiled(x, i, j)
        assert np.array_equal(found[0], first) and np.array_equal(found[1], second)
        assert np.array_equal(found[2], [x, third])


def test_slices_of_data_dependent_sizes() -> None:
    compiled = dlc.jit(target="reference")(lambda x: dnp.at(x[x > 2])[1:].set(0))
    assert np.array_equal(compiled(vector(6)), [3, 0, 0, 0])
    assert np.array_equal(compiled(vector(1)), [])


def test_a_gradient_through_an_update() -> None:
    x, step = vector(6).astype(np.float64), 1e-6

    def loss(x: Any) -> Any:
        return (updated({"y": ("1:-1", "multiply", lambda x: x[:-2])}, x)["y"] ** 2).sum()

    found = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(dlc.grad(loss))(x)
    slopes = [(loss(x + row) - loss(x - row)) / (2 * step) for row in step * np.eye(6)]
    assert np.allclose(found, slopes, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*for each set of sizes")
def test_a_value_of_another_size_is_an_error() -> None:
    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(lambda x: dnp.at(x)[1:].set(x))
    with pytest.raises(
        ShapeError,
        match=r"test_dynamic_slice_updates\.py:\d+: a value of shape \(3,\) does not broadcast to the selected shape \(2,\)",
    ):
        compiled(vector(3))
