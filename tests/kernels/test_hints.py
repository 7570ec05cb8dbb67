"""Schedule hints of loops: results do not depend on them, and errors name the hint that cannot be met."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from tests.targets import TARGETS

X = np.random.default_rng(0).normal(size=(7, 19)).astype(np.float32)


@dlc.kernel(results=lambda x: (k.Result(x.shape, x.dtype), k.Result(x.shape, x.dtype)))
def neighbors(x: Any, y: Any, z: Any, *, hints: tuple[tuple[str, Any], ...] = ()) -> None:
    """Elements minus their row's first element, plus their column number; and the alternating sums of columns up to each."""
    n, m = x.shape
    for i, j in k.grid(n, m, **dict(hints)):
        value = k.variable(x[i, j] - x[i, 0] + j.astype(np.float32))
        value.value = k.select(j > 3, value.value, 0)
        y[i, j] = value.value
        total = k.variable(0, x.dtype)
        for r in k.range(i + 1):
            total.value = x[r, j] - total.value
        z[i, j] = total.value


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    columns = np.arange(x.shape[1], dtype=np.float32)
    totals = [np.zeros_like(x[0])]
    for row in x:
        totals.append(row - totals[-1])
    return np.where(columns > 3, x - x[:, :1] + columns, 0), np.stack(totals[1:])


HINTS: dict[str, Mapping[str, Any]] = {
    "parallel": {"parallel": 5},
    "tile": {"tile": (2, 8)},
    "vectorize": {"vectorize": 8},
    "vectorize_and_tile": {"vectorize": 4, "tile": (3, 8)},
    "vectorize_and_parallel": {"vectorize": 16, "parallel": 2},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", HINTS)
def test_results(name: str, target: str) -> None:
    hints = tuple(HINTS[name].items())
    results = dlc.jit(target=target)(lambda x: neighbors(x, hints=hints))(X)
    for result, reference in zip(results, expected(X), strict=True):
        np.testing.assert_allclose(np.asarray(result), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["tile", "vectorize", "vectorize_and_tile"])
def test_symbolic_sizes_and_batches(name: str) -> None:
    hints = tuple(HINTS[name].items())
    function = dlc.jit(dynamic={"x": {1: "n", 2: "m"}})(lambda x: dlc.vmap(lambda x: neighbors(x, hints=hints)[0])(x))
    for x in (X, X[:3, :4]):
        np.testing.assert_allclose(np.asarray(function(np.stack([x, -x])))[1], expected(-x)[0], rtol=1e-5, atol=1e-5)


def test_derivative() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def square(x: Any, y: Any) -> None:
        for i, j in k.grid(*x.shape, vectorize=8):
            y[i, j] = x[i, j] * x[i, j]

    np.testing.assert_allclose(dlc.grad(lambda x: square(x).sum())(X), 2 * X, rtol=1e-6)


def _branch(x: Any, y: Any, i: Any, j: Any) -> None:
    with k.when(j > 0):
        y[i, j] = 0


def _bound(x: Any, y: Any, i: Any, j: Any) -> None:
    for _ in k.range(j):
        y[i, j] = 0


def _total(x: Any, y: Any, i: Any, j: Any) -> None:
    y[i, j] = x[i, j].sum()


def _strided(x: Any, y: Any, i: Any, j: Any) -> None:
    y[i, k.minimum(j, 3)] = 0


@pytest.mark.parametrize(
    ("body", "hints", "message"),
    [
        (
            _branch,
            {"vectorize": 8},
            r"k.when: Value\(bool\[8\]\); .*it differs in the lanes of k.grid\(…, vectorize=8\): use k.select",
        ),
        (_bound, {"vectorize": 8}, r"k.range with an index of k.grid\(…, vectorize=8\) cannot be vectorized"),
        (_total, {"vectorize": 8}, r".sum\(\) in k.grid\(…, vectorize=8\), in which values are single elements"),
        (_strided, {"vectorize": 8}, "k.minimum with an index of .* cannot be vectorized"),
        (lambda x, y, i, j: x[0, 18 - j], {"vectorize": 8}, "this access to x cannot be vectorized by k.grid"),
        (lambda x, y, i, j: k.buffer(3, x.dtype), {"vectorize": 8}, r"k.buffer in k.grid\(…, vectorize=8\)"),
        (_total, {"vectorize": 0}, "vectorize=0; expected a Python integer of 1 to 64"),
        (_total, {"tile": (2,)}, r"tile=\(2,\); expected 2 positive Python integers"),
        (_total, {"tile": (2, 4), "parallel": 2}, "parallel with tile; the points of a tile are a task"),
        (_total, {"tile": (2, 6), "vectorize": 4}, "expected a last size that it divides"),
    ],
)
def test_errors(body: Callable[..., None], hints: dict[str, Any], message: str) -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
    def kernel(x: Any, y: Any) -> None:
        for i, j in k.grid(*x.shape, **hints):
            body(x, y, i, j)

    with pytest.raises(dlc.DlcError, match=message):
        kernel(X)


@dlc.kernel(results=lambda x, *, vectorize, first: k.Result(x.shape, x.dtype, fill=0))
def scaled_differences(x: Any, y: Any, *, vectorize: int, first: int) -> None:
    """Differences of neighbors from column `first` on, through a buffer of the row, times the row's first element."""
    n, m = x.shape
    for i in k.grid(n):
        row = k.buffer(m, x.dtype)
        for j in k.range(m, vectorize=vectorize, unroll=2):
            row[j] = x[i, j] * x[i, 0]
        for j in k.range(first, m, vectorize=vectorize):
            shifted = k.variable(row[j] + j.astype(x.dtype))
            for _ in k.range(i):
                shifted.value = shifted.value + x[i, j]
            y[i, j] = k.select(j > 2, shifted.value, x[i, j])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", [0, 3])
def test_vectorized_range(target: str, first: int) -> None:
    run = dlc.jit(target=target)(
        lambda x: tuple(scaled_differences(x, vectorize=width, first=first) for width in (1, 4, 8, 32))
    )
    plain, *vectorized = map(np.asarray, run(X))
    columns, rows = np.arange(X.shape[1]), np.arange(X.shape[0])[:, None]
    values = np.where(columns > 2, X * X[:, :1] + columns + rows * X, X)
    np.testing.assert_allclose(plain, np.where(columns < first, 0, values), rtol=1e-5, atol=1e-5)
    for result in vectorized:
        np.testing.assert_array_equal(result, plain)


def test_vectorized_range_of_symbolic_size() -> None:
    function = dlc.jit(dynamic={"x": {0: "n", 1: "m"}})(lambda x: scaled_differences(x, vectorize=8, first=0))
    for x in (X, X[:3, :4]):
        np.testing.assert_array_equal(np.asarray(function(x)), np.asarray(scaled_differences(x, vectorize=1, first=0)))


def test_derivative_of_vectorized_range() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def square(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            for j in k.range(x.shape[1], vectorize=8):
                y[i, j] = x[i, j] * x[i, j]

    np.testing.assert_allclose(dlc.grad(lambda x: square(x).sum())(X), 2 * X, rtol=1e-6)


def _prefix_sums(x: Any, y: Any, total: Any, row: Any) -> None:
    for j in k.range(1, 19, vectorize=4):
        y[0, j] = y[0, j - 1] + x[0, j]


def _overwritten(x: Any, y: Any, total: Any, row: Any) -> None:
    for _ in k.range(19, vectorize=4):
        y[0, 0] = x[0, 3]


def _overlapping(x: Any, y: Any, total: Any, row: Any) -> None:
    for j in k.range(16, vectorize=4):
        for offset in k.range(3):
            row[j + offset] = x[0, j]


def _accumulated(x: Any, y: Any, total: Any, row: Any) -> None:
    for j in k.range(19, vectorize=4):
        total.value += x[0, j]


def _counted(x: Any, y: Any, total: Any, row: Any) -> None:
    for _ in k.range(19, vectorize=4):
        total.value += 1


def _read_elsewhere(x: Any, y: Any, total: Any, row: Any) -> None:
    for j in k.range(16, vectorize=4):
        y[0, j] = row[0]
        row[j] = x[0, j]


def _vector_loaded(x: Any, y: Any, total: Any, row: Any) -> None:
    for j in k.range(16, vectorize=4):
        y[0, j] = x.load(0, j, width=4)


def _nested(x: Any, y: Any, total: Any, row: Any) -> None:
    for _ in k.range(16, vectorize=4):
        for j in k.range(16, vectorize=4):
            y[0, j] = 0


def _strided_range(x: Any, y: Any, total: Any, row: Any) -> None:
    for j in k.range(0, 18, 2, vectorize=4):
        y[0, j] = 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_prefix_sums, r"k.range\(…, vectorize=4\) cannot be vectorized: an iteration may access an element of y"),
        (_overwritten, "an iteration may access an element of y that another one stores"),
        (_overlapping, "an iteration may access an element of the buffer that another one stores"),
        (_read_elsewhere, "an iteration may access an element of the buffer that another one stores"),
        (_accumulated, r"a variable of an enclosing loop is assigned in k.range\(…, vectorize=4\)"),
        (_counted, "a variable of an enclosing loop is assigned"),
        (_vector_loaded, r".load in k.range\(…, vectorize=4\), in which values are single elements"),
        (_nested, r"vectorize=4 in k.range\(…, vectorize=4\); vectorize one of them"),
        (_strided_range, "with bounds 0, 18 and step 2; expected integers or one size of an array as bounds, and a step of 1"),
    ],
)
def test_dependent_iterations(body: Callable[..., None], message: str) -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
    def kernel(x: Any, y: Any) -> None:
        for _ in k.grid(1):
            body(x, y, k.variable(0, x.dtype), k.buffer(19, x.dtype))

    with pytest.raises(dlc.DlcError, match=message):
        kernel(X)
