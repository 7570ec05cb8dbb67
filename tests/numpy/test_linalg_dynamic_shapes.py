"""Matrix decompositions of symbolic sizes: one program for all sizes, except for the branches that they guard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.numpy.test_linalg import matrices, near
from tests.shapes.test_specializations import count_compilations

SIZES = (5, 0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 33, 40)


def square(xp: Any, x: Any, b: Any) -> tuple[Any, ...]:
    linalg, p = xp.linalg, x @ x.mT + xp.eye(x.shape[-1], dtype=x.dtype)
    values = linalg.eigvalsh(p)
    return linalg.inv(p), linalg.solve(p, b), linalg.det(x / 4), linalg.slogdet(x)[1], linalg.cholesky(p), values


def test_square_matrices_have_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"x": {1: "N", 2: "N"}, "b": {1: "N", 2: "M"}}, cache=False, num_threads=1)
    def f(x: Any, b: Any) -> Any:
        return square(dnp, x, b)

    for n in SIZES:
        x, b = matrices(2, n, n), matrices(2, n, n % 7, seed=3)
        for got, expected in zip(f(x, b), square(np, x, b), strict=True):
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            near(got, expected, 1e-9)
    assert len(compiled) == 1


def test_eigenvectors_of_symbolic_size(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"x": {0: "N", 1: "N"}}, cache=False, num_threads=1)
    def f(x: Any) -> Any:
        return dnp.linalg.eigh(x + x.mT), dnp.linalg.eigvals(x)

    for n in SIZES:
        x = matrices(n, n)
        (w, v), values = f(x)
        near(v * w @ v.T, x + x.T, 1e-10)
        near(v.T @ v, np.eye(n), 1e-10)
        near(np.sort_complex(values), np.sort_complex(np.linalg.eigvals(x)), 1e-9)
    assert len(compiled) == 1


def test_rectangular_matrices_have_a_program_for_each_orientation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"x": {0: "N", 1: "M"}}, cache=False, num_threads=1)
    def f(x: Any) -> Any:
        u, s, vt = dnp.linalg.svd(x, full_matrices=False)
        return dnp.linalg.qr(x), u * s @ vt, s

    for n, m in ((5, 3), (3, 5), (17, 16), (16, 19), (31, 7), (2, 2), (4, 1), (1, 4), (9, 9), (23, 30)):
        x = matrices(n, m)
        (q, r), product, values = f(x)
        near(q @ r, x, 1e-11)
        near(q.T @ q, np.eye(min(n, m)), 1e-11)
        near(product, x, 1e-11)
        near(values, np.linalg.svdvals(x), 1e-11)
    assert len(compiled) == 2


def test_gradients_of_symbolic_size(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"x": {0: "N", 1: "N"}}, cache=False, num_threads=1)
    def gradient(x: Any) -> Any:
        return dlc.grad(lambda x: dnp.linalg.slogdet(x)[1])(x)

    for n in (3, 1, 8, 20):
        x = matrices(n, n) + 3 * np.eye(n)
        near(gradient(x), np.linalg.inv(x).T, 1e-10)
    assert len(compiled) == 1


def test_a_matrix_product_of_three_symbolic_sizes_has_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    product = dlc.jit(dynamic={"x": {0: "N", 1: "M"}, "y": {0: "M", 1: "K"}}, cache=False, num_threads=1)(lambda x, y: x @ y)
    for n, m, k in ((5, 6, 7), (1, 2, 3), (16, 17, 31), (33, 8, 1), (64, 40, 50), (0, 3, 2), (3, 0, 2)):
        x, y = matrices(n, m).astype(np.float32), matrices(m, k, seed=1).astype(np.float32)
        near(product(x, y), x @ y, 1e-4)
    assert len(compiled) == 1


def test_frequencies_of_a_symbolic_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"x": {0: "N"}}, cache=False, num_threads=1)
    def frequencies(x: Any) -> Any:
        return dnp.fft.fftfreq(x.shape[0], 0.5), dnp.fft.rfftfreq(x.shape[0], 0.5)

    for n in (1, 2, 5, 8, 33):
        for got, expected in zip(frequencies(np.zeros(n)), (np.fft.fftfreq(n, 0.5), np.fft.rfftfreq(n, 0.5)), strict=True):
            near(got, expected, 1e-6)
    assert len(compiled) == 1


def test_matrices_of_a_difference_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel divides N - M by its block sizes, without a proof that it is not negative."""
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"x": {0: "N", 1: "N"}, "y": {0: "M"}}, cache=False, num_threads=1)
    def f(x: Any, y: Any) -> Any:
        rest = x[y.shape[0] :, y.shape[0] :]
        return dnp.linalg.cholesky(rest), dnp.linalg.inv(rest)

    for n, m in ((20, 3), (5, 5), (40, 1), (17, 16), (4, 0)):
        x = matrices(n, n)
        x = x @ x.T + np.eye(n)
        factor, inverse = f(x, np.zeros(m))
        near(factor, np.linalg.cholesky(x[m:, m:]), 1e-11)
        near(inverse, np.linalg.inv(x[m:, m:]), 1e-9)
    assert len(compiled) == 1
