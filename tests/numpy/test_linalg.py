"""Matrix decompositions: results unique up to signs, singular matrices, sizes beyond a block, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.differences import wrong_derivative


def matrices(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def orthonormal(size: int, seed: int) -> np.ndarray:
    return np.linalg.qr(matrices(size, size, seed=seed))[0]


def with_values(s: np.ndarray, dtype: Any) -> np.ndarray:
    """Return a matrix with these singular values."""
    return (orthonormal(len(s), 1) * s @ orthonormal(len(s), 2)).astype(dtype)


def near(x: Any, y: Any, tolerance: float) -> None:
    np.testing.assert_allclose(x, y, atol=tolerance * max(1.0, float(np.max(np.abs(y), initial=0))), rtol=0)


# 21 columns: more than a block, and not a multiple of the vector width.
def test_decompositions_of_one_size() -> None:
    a, b = matrices(2, 21, 21), matrices(2, 21, 5, seed=3)
    p = a @ a.mT + np.eye(21)

    def f(m: Any, a: Any, b: Any, p: Any) -> Any:
        n = m.linalg
        return n.solve(a, b), n.inv(a), n.slogdet(a)[1], n.cholesky(p), *n.qr(b), n.eigvalsh(p), n.svdvals(b), n.pinv(b)

    for got, expected in zip(dlc.jit(lambda *x: f(dnp, *x))(a, b, p), f(np, a, b, p), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        near(got, expected, 1e-10)


@pytest.mark.parametrize("scale", [2.0**-1050, 2.0**1020])
def test_matrices_whose_reciprocals_overflow_or_are_subnormal(scale: float) -> None:
    """Scaling to elements near 1 is exact, and so are the results of subnormal numbers up to their spacing."""
    x = np.round(matrices(5, 5) * 64) / 64
    symmetric, tolerance = x + x.T, max(1e-13, 2.0**-1074 / scale * 8)
    a, s = x * scale, symmetric * scale

    @dlc.jit
    def f(a: Any, s: Any) -> Any:
        return dnp.linalg.qr(a)[1], dnp.linalg.eigvalsh(s), dnp.linalg.svdvals(a), dnp.linalg.eigvals(a)

    r, *values = f(a, s)
    near(np.abs(r) / scale, np.abs(np.linalg.qr(x)[1]), tolerance)
    for got, expected in zip(values, (np.linalg.eigvalsh(symmetric), np.linalg.svdvals(x), np.linalg.eigvals(x)), strict=True):
        near(np.sort_complex(np.asarray(got).real / scale), np.sort_complex(expected.real), tolerance)


def test_eigenvectors() -> None:
    x = matrices(2, 5, 5)
    symmetric = np.tril(x) + np.tril(x, -1).mT

    @dlc.jit
    def f(x: Any) -> Any:
        return dnp.linalg.eigh(x), dnp.linalg.eigh(x.mT, "U"), dnp.linalg.eigvalsh(x)

    lower, upper, values = f(x)
    near(values, np.linalg.eigvalsh(x), 1e-13)
    for w, v in (lower, upper):
        near(w, values, 1e-13)
        near(v * w[:, None] @ v.mT, symmetric, 1e-13)
        near(v @ v.mT, np.eye(5) + 0 * x, 1e-13)


@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 2)])
def test_singular_vectors(shape: tuple[int, ...]) -> None:
    x = matrices(*shape)
    u, s, vt = dlc.jit(dnp.linalg.svd)(x)
    near(s, np.linalg.svdvals(x), 1e-13)
    for q, size in ((u, shape[-2]), (vt, shape[-1])):
        near(q @ q.mT, np.broadcast_to(np.eye(size), (*shape[:-2], size, size)), 1e-13)
    k = s.shape[-1]
    near(u[..., :k] * s[..., None, :] @ vt[..., :k, :], x, 1e-13)


@pytest.mark.parametrize(
    "values",
    [np.r_[5.0, 3, np.zeros(32)], np.logspace(0, -12, 34), np.ones(34), np.zeros(34), 1e30 * np.linspace(1, 2, 34)],
    ids=["rank 2", "graded", "equal", "zero", "huge"],
)
def test_vectors_are_orthogonal_whatever_the_values(values: np.ndarray) -> None:
    """In float32, where squares of small values underflow."""
    x = with_values(values, np.float32)
    u, s, vt = reduced_svd(x)
    unit = max(float(values[0]), 1e-30)
    near(s / unit, np.sort(values)[::-1] / unit, 2e-6)
    near((u * (s / unit)) @ vt, x / unit, 2e-6)
    for q in (u, vt):
        near(q @ q.T, np.eye(34), 3e-5)


reduced_svd = dlc.jit(lambda x: dnp.linalg.svd(x, full_matrices=False))


def test_singular_matrices() -> None:
    singular, nan = np.ones((3, 3)), np.full((3, 3), np.nan)

    @dlc.jit
    def f(x: Any, nan: Any) -> Any:
        n = dnp.linalg
        return n.det(x), n.inv(x), n.cholesky(-x), n.eigvalsh(nan), n.svdvals(nan), n.slogdet(x)[1], n.pinv(x)

    det, inv, cholesky, eigenvalues, values, size, pinv = f(singular, nan)
    assert det == 0 and not np.isfinite(inv).any() and size == -np.inf
    assert np.isnan(np.diagonal(cholesky)).all() and np.isnan(eigenvalues).all() and np.isnan(values).all()
    near(pinv, singular / 9, 1e-14)


def test_no_rows() -> None:
    empty, b = np.zeros((2, 0, 0)), np.zeros((2, 0, 3))
    det, inv, solved, svd = dlc.jit(
        lambda x, b: (dnp.linalg.det(x), dnp.linalg.inv(x), dnp.linalg.solve(x, b), dnp.linalg.svd(b))
    )(empty, b)
    assert det.tolist() == [1, 1] and inv.shape == (2, 0, 0) and solved.shape == (2, 0, 3)
    assert [v.shape for v in svd] == [(2, 0, 0), (2, 0), (2, 3, 3)] and (svd[2] == np.eye(3)).all()


def test_calls_share_their_kernels() -> None:
    @dlc.jit
    def f(x: Any) -> Any:
        for _ in range(5):
            x = dnp.linalg.inv(x + 1)
        return x

    assert f.lower(matrices(4, 4)).as_text("fusion").count("dl.kernel @lu") == 1


SMOOTH: dict[str, Callable[..., Any]] = {
    "eigh": lambda x: dnp.linalg.eigh(x)[1] * dnp.sin(dnp.linalg.eigh(x)[0]),
    "svd_wide": lambda x: dnp.linalg.svd(x[:3], full_matrices=False),
    "svd_tall": lambda x: dnp.linalg.svd(x[:, :2], full_matrices=False),
    "qr": lambda x: dnp.linalg.qr(x[:, :3]),
    "lstsq": lambda x: dnp.linalg.lstsq(x[:, :2], x[:, 2:])[0],
    "least": lambda x: dnp.linalg.lstsq(x[:2], x[2:, :1])[0],
    "singular": lambda x: dnp.linalg.det(x * np.r_[1.0, 1, 1, 0]),
    "twice": lambda x: dlc.grad(dnp.linalg.det)(x[:3, :3]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives(name: str) -> None:
    def f(x: Any) -> list[Any]:
        found = SMOOTH[name](x)
        return list(found) if isinstance(found, tuple) else [found]

    assert not wrong_derivative(f, [matrices(4, 4, seed=5) + np.diag([1.0, 2, 3, 4])])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_derivative_of_the_determinant_of_a_singular_matrix(rank: int) -> None:
    """The derivative is the matrix of cofactors, each the determinant of a submatrix."""
    x = with_values(np.r_[np.arange(1.0, rank + 1), np.zeros(4 - rank)], np.float64)
    cofactors = [[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(4)] for i in range(4)]
    near(dlc.grad(dnp.linalg.det)(x), cofactors, 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_least_squares_of_subnormal_numbers(dtype: type) -> None:
    exact = np.array([[4.0, 1, 1], [2, 3, 2], [1, 5, 3]])
    tiny = (exact * (8 * np.finfo(dtype).smallest_subnormal)).astype(dtype)
    solve = dlc.jit(lambda x: dnp.linalg.lstsq(x[:, :2], x[:, 2])[0], target="reference")
    near(solve(tiny), np.linalg.lstsq(exact[:, :2], exact[:, 2])[0], 1e-6)
    small = exact[:, :2] * 2.0 ** (np.finfo(dtype).minexp + 10)
    near(dnp.linalg.pinv(small.astype(dtype)), np.linalg.pinv(small), 1e-5)
