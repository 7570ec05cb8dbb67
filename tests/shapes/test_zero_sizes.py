"""Axes without elements, static and symbolic: the result of NumPy, or an error when an element is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError, ShapeError
from tests.targets import NATIVE

DYNAMIC = {"x": {0: "N"}}
FIVE = np.arange(5, dtype=np.float32)


# Shifts of axes of N and M elements.
SHIFTS: dict[str, Callable[[int, int], int]] = {
    "1": lambda n, m: 1, "-2": lambda n, m: -2, "7": lambda n, m: 7, "half": lambda n, m: n // 2, "minus half": lambda n, m: -(n // 2),
    "size": lambda n, m: n, "minus size": lambda n, m: -n, "twice": lambda n, m: 2 * n + 1, "other axis": lambda n, m: m - n,
}  # fmt: skip


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("target", NATIVE)
def test_roll(name: str, target: str) -> None:
    def rolled(m: Any, x: Any) -> Any:
        return m.roll(x, SHIFTS[name](*x.shape), 0), m.roll(x, SHIFTS[name](*x.shape[::-1]), 1)

    function = dlc.jit(lambda x: rolled(dnp, x), dynamic={"x": {0: "N", 1: "M"}}, target=target)
    for shape in ((0, 3), (1, 2), (5, 3), (4, 40)):
        x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        for got, expected in zip(function(x), rolled(np, x), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_roll_by_a_part_of_the_size_copies_slices() -> None:
    lowered = dlc.jit(lambda x: dnp.roll(x, x.shape[0] // 2, 0), dynamic=DYNAMIC, target="reference").lower(FIVE)
    assert "dl.concat" in lowered.as_text()


@pytest.mark.filterwarnings("error")  # One program serves all sizes.
@pytest.mark.parametrize("limit", [-1, 2, 9])
def test_roll_and_split_a_selection(limit: int) -> None:
    for function in (lambda m, x: [m.roll(x[x > limit], 1)], lambda m, x: m.array_split(x[x > limit], 3)):
        got, expected = dlc.jit(lambda x, f=function: f(dnp, x))(FIVE), function(np, FIVE)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)


INFERRED: dict[str, Callable[[Any, Any], Any]] = {
    "same axis": lambda m, x: m.reshape(x, (x.shape[0], -1)),
    "other axis": lambda m, x: m.reshape(x.T, (-1, x.shape[0])),
    "multiple": lambda m, x: m.reshape(x, (x.shape[0] * 3, -1)),
    "static axis": lambda m, x: m.reshape(x, (-1, 3)),
    "selection": lambda m, x: m.reshape(rows := x[x[:, 0] > 0], (rows.shape[0], -1)),
    "other selection": lambda m, x: m.reshape(m.stack([rows := x[x[:, 0] > 0], rows]), (rows.shape[0] * 2, -1)),
}


@pytest.mark.parametrize("name", INFERRED)
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_an_inferred_size_next_to_a_size_of_zero_is_an_error(name: str, target: str) -> None:
    reshaped = INFERRED[name]
    static, dynamic = (dlc.jit(lambda x: reshaped(dnp, x), dynamic=d, target=target) for d in ({}, DYNAMIC))
    x = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    for array in (x, x[:0], -x):
        try:
            expected = reshaped(np, array)
        except ValueError:
            expected = None
        for function in (static, dynamic):
            if expected is not None:
                np.testing.assert_array_equal(function(array), expected)
            else:
                with pytest.raises(DlcError, match=r"0 elements of shape|requires .* >= 1"):
                    function(array)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "read": lambda x: lax.fori_loop(0, x.shape[0], lambda i, total: total + x[i] ** 2, np.float32(0)),
    "read by a vector": lambda x: lax.fori_loop(0, x.shape[0], lambda i, total: total + dnp.take(x, i + dnp.zeros(2, int)).sum(), np.float32(0)),
    "write": lambda x: lax.fori_loop(0, x.shape[0], lambda i, y: y.at[i].set(y[i] * 2), x).sum(),
    "add": lambda x: lax.fori_loop(0, x.shape[0], lambda i, y: y.at[i].add(x[i]), x).sum(),
    "while": lambda x: lax.while_loop(lambda c: c[0] < x.shape[0], lambda c: (c[0] + 1, c[1] + x[c[0]]), (0, np.float32(0)))[1],
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("dynamic", [{}, DYNAMIC], ids=["static", "symbolic"])
def test_loops_without_iterations(name: str, dynamic: Any) -> None:
    loop = LOOPS[name]
    jitted = dlc.jit(loop, dynamic=dynamic)
    for x in (FIVE[:0], FIVE):
        expected = {"read": x @ x, "while": x.sum()}.get(name, 2 * x.sum())
        np.testing.assert_allclose(jitted(x), expected)
    if name != "while":
        gradient = dlc.jit(dlc.grad(loop), dynamic=dynamic)
        for x in (FIVE[:0], FIVE):
            np.testing.assert_allclose(gradient(x), 2 * x if name == "read" else np.full_like(x, 2))


@pytest.mark.parametrize("target", NATIVE)
def test_an_element_of_an_empty_axis(target: str) -> None:
    for function in (lambda x, i: x[i], lambda x, i: x.at[i].set(1)):
        with pytest.raises(DlcError, match="index 3 is outside axis 0 of size 0"):
            dlc.jit(function, target=target)(FIVE[:0], np.int64(3))


def test_a_size_beyond_64_bits() -> None:
    scaled = dlc.jit(lambda x: x * x.shape[0] ** 5, dynamic=DYNAMIC)
    np.testing.assert_array_equal(scaled(FIVE), FIVE * 5**5)
    # A specialization for this size computes the power in Python; a model has no function to trace.
    np.testing.assert_allclose(scaled(np.ones(20000, np.float32))[0], 20000.0**5, rtol=1e-6)
    with pytest.raises(ShapeError, match="exceeds 64 bits; compute it in floats"):
        scaled.lower(FIVE).compile()(np.ones(20000, np.float32))
    in_floats = dlc.jit(lambda x: x * (x.shape[0] * 1.0) ** 5, dynamic=DYNAMIC)
    np.testing.assert_allclose(in_floats(np.ones(20000, np.float32))[0], 20000.0**5, rtol=1e-6)
