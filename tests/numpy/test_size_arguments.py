"""Sizes of traced arrays as integer arguments: the results are NumPy's, or the error says what to write instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.shapes.dims import UndecidableError

X, ROWS = np.arange(6, dtype=np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)

FUNCTIONS: dict[str, Callable[[Any, Any, int], Any]] = {
    "repeat": lambda m, x, n: m.repeat(x, n, 1),
    "repeat elements": lambda m, x, n: m.repeat(x, [n, 0, n + 1], 0),
    "tile": lambda m, x, n: m.tile(x, (n, 2)),
    "pad": lambda m, x, n: m.pad(x, ((1, n), (n, 0))),
    "roll": lambda m, x, n: m.roll(x, n - 2, 1),
    "split at": lambda m, x, n: m.array_split(x, [1, n], 1),
    "diag of a vector": lambda m, x, n: m.diag(x[0], n),
    "diag of a constant": lambda m, x, n: m.diag(m.arange(3), n),
    "indices": lambda m, x, n: m.indices((n, 3)),
    "sparse indices": lambda m, x, n: list(m.indices((2, n), sparse=True)),
    "tril_indices": lambda m, x, n: m.tril_indices(n, 1, 3),
    "triu_indices": lambda m, x, n: m.triu_indices(3, 0, n),
    "logspace": lambda m, x, n: m.logspace(0, 2, n, dtype=m.float64),
    "geomspace": lambda m, x, n: m.geomspace(1.0, 8.0, n, dtype=m.float64),
    "bincount": lambda m, x, n: m.bincount(m.arange(3), minlength=n),
    "histogram": lambda m, x, n: m.histogram(x, n + 1)[0],
    "histogram of a constant": lambda m, x, n: m.histogram(X, n + 1),
    "percentile": lambda m, x, n: m.percentile(x, [n, 50]),
    "list": lambda m, x, n: m.asarray([n, 2, n * n]),
    "take": lambda m, x, n: m.take(x, [0, n % 3], 0),
    "power": lambda m, x, n: m.power(m.arange(4), n),
    "reshape a constant": lambda m, x, n: m.reshape(m.zeros((n, 2), m.float32), (2, n)),
    "broadcast_shapes": lambda m, x, n: m.zeros(m.broadcast_shapes((3, 1), n)),
}


def results(m: Any, x: Any, n: int) -> list[Any]:
    flat: list[Any] = []
    for function in FUNCTIONS.values():
        result = function(m, x, n)
        flat += result if isinstance(result, list | tuple) else [result]
    return flat


@pytest.mark.parametrize("is_symbolic", [True, False], ids=["symbolic", "data-dependent"])
def test_results_are_those_of_numpy(is_symbolic: bool) -> None:
    @dlc.jit(target="reference", dynamic={"v": {0: "N"}} if is_symbolic else None)
    def f(x: Any, v: Any) -> Any:
        return results(dnp, x, v.shape[0] if is_symbolic else v[v > 0].shape[0])

    for n in (2, 0, 1, 3, 5):
        v = np.ones(n) if is_symbolic else np.repeat([1.0, -1.0], [n, 6 - n])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = f(ROWS, v)
        for found, expected in zip(got, results(np, ROWS, n), strict=True):
            assert np.shape(found) == np.shape(expected), n
            np.testing.assert_allclose(found, expected, 1e-5, err_msg=str(n))


def test_sections_of_data_dependent_sizes() -> None:
    halves = dlc.jit(target="reference")(lambda x: (*dnp.split(x[x > 1], 2), sum(dnp.split(x[x > 1], 2))))
    parts = dlc.jit(target="reference")(lambda x: dnp.array_split(x[x > 1], 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(halves(X), [[2, 3], [4, 5], [6, 8]])
        for x in (X, X + 1, X - 9):
            for got, expected in zip(parts(x), np.array_split(x[x > 1], 2), strict=True):
                np.testing.assert_array_equal(got, expected)
        with pytest.raises(dlc.DlcError, match=r"test_size_arguments\.py:\d+: split.*count0 = 5"):
            halves(X + 1)


def test_symmetric_padding_of_symbolic_sizes() -> None:
    padded = dlc.jit(target="reference", dynamic={"x": {0: "N", 1: "M"}})(lambda x: dnp.pad(x, ((1, 2), (0, 2)), "symmetric"))
    for shape in ((3, 4), (2, 2), (5, 3), (1, 2)):
        x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        with warnings.catch_warnings():
            # One row is padded by more rows than it has.
            warnings.simplefilter("ignore" if shape[0] < 2 else "error")
            np.testing.assert_array_equal(padded(x), np.pad(x, ((1, 2), (0, 2)), "symmetric"))


def test_broadcasting_to_a_symbolic_size_is_a_guard() -> None:
    broadcast = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(lambda x: dnp.broadcast_to(X, (3, x.shape[0])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert broadcast(np.zeros(6)).shape == (3, 6)
        with pytest.raises(dlc.ShapeError, match="6 against 5"):
            broadcast(np.zeros(5))


def test_frequencies_of_no_samples_are_refused() -> None:
    frequencies = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(lambda x: dnp.fft.fftfreq(x.shape[0]))
    np.testing.assert_allclose(frequencies(np.ones(5)), np.fft.fftfreq(5), 1e-6)
    with pytest.raises(dlc.ShapeError, match="fftfreq"):
        frequencies(np.ones(0))


@pytest.mark.parametrize(
    "function", [lambda n: dnp.indices((n - 3, 2)), lambda n: dnp.bincount(dnp.arange(3), minlength=n - 3)]
)
def test_negative_sizes_are_refused(function: Callable[[int], Any]) -> None:
    with pytest.raises(dlc.DlcError, match=r"test_size_arguments\.py:\d+: .*(indices|iota|bincount)"):
        dlc.jit(target="reference", dynamic={"x": {0: "N"}})(lambda x: function(x.shape[0]))(np.ones(2))


ERRORS: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "sections": (lambda x, n: dnp.split(x, n), "the number of results must be known.*pass an integer"),
    "axis": (lambda x, n: dnp.sum(x, n), "pass an integer"),
    "axes": (lambda x, n: dnp.tensordot(x, x, n), "pass an integer"),
    "table": (lambda x, n: X[n], r"dlc\.numpy\.asarray\(table\)\[n\]"),
    "table rows": (lambda x, n: X[:n], r"dlc\.numpy\.asarray\(table\)\[n\]"),
    "branch": (lambda x, n: x if n > 3 else -x, r"is count0 > 3\? .*dlc\.lax\.cond"),
}


@pytest.mark.parametrize(("function", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_of_data_dependent_sizes(function: Callable[[Any, int], Any], message: str) -> None:
    with pytest.raises(UndecidableError, match=rf"test_size_arguments\.py:\d+: .*{message}"):
        dlc.jit(target="reference")(lambda x: function(x, x[x > 0].shape[0]))(X)


def test_integers_to_a_negative_size_are_refused() -> None:
    power = dlc.jit(target="reference", dynamic={"x": {0: "N"}})(lambda x: dnp.power(dnp.arange(4), x.shape[0] - 2))
    np.testing.assert_array_equal(power(np.ones(5)), [0, 1, 8, 27])
    with pytest.raises(dlc.DTypeError, match="negative integer power"):
        power(np.ones(1))
