"""Eigenvalues and eigenvectors of general matrices, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp

random = np.random.default_rng(3)


def matrices() -> np.ndarray:
    """Return 5 × 5 matrices with real, complex, multiple, defective, tiny and huge eigenvalues."""
    general = random.standard_normal((5, 5))
    blocks = np.kron(np.eye(3), [[0, -1], [1, 0]])[:5, :5] + np.triu(general, 2)
    jordan = np.eye(5, k=1) + 2 * np.eye(5)
    cases = [general, general + general.T, np.triu(general), np.roll(np.eye(5), 1, 0), blocks, jordan, np.zeros((5, 5))]
    return np.stack([*cases, 1e200 * general, 1e-200 * general, np.where(np.eye(5) > 0, np.nan, general)])


def test_eigenvalues_are_those_of_numpy() -> None:
    x = matrices()
    (values, vectors), values_only = dlc.jit(lambda x: (dnp.linalg.eig(x), dnp.linalg.eigvals(x)))(x)
    np.testing.assert_array_equal(values, values_only)
    assert np.isnan(values[-1]).all() and np.isnan(vectors[-1]).all()
    for matrix, w, v in zip(x[:-1], values, vectors, strict=False):
        scale = max(float(np.abs(matrix).max()), 1e-300)
        assert np.abs(matrix @ v - v * w).max() < 1e-14 * scale
        np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1, rtol=1e-14)
        largest = np.take_along_axis(v, np.abs(v).argmax(0)[None], 0)
        assert (largest.imag == 0).all() and (largest.real > 0).all()
        if not np.allclose(matrix, np.eye(5, k=1) + 2 * np.eye(5)):
            np.testing.assert_allclose(w / scale, np.sort_complex(np.linalg.eigvals(matrix)) / scale, rtol=0, atol=1e-14)
    assert (values[1].imag == 0).all() and (vectors[1].imag == 0).all()


def test_eigenvalues_of_complex_matrices() -> None:
    """General, Hermitian, triangular, unitary, singular, graded, huge and tiny matrices, one of zeros, and one with NaN."""
    general = normal(6, 6)
    singular = normal(6, 3) @ normal(3, 6)
    cases = [general, general + general.conj().T, np.triu(general), np.linalg.qr(general)[0], singular]
    cases += [general * 10.0 ** (-6 * np.arange(6))[:, None], 0 * general, 1e200 * general, 1e-200 * general]
    x = np.stack([*cases, np.where(np.eye(6) > 0, np.nan, general)])
    (values, vectors), values_only = dlc.jit(lambda x: (dnp.linalg.eig(x), dnp.linalg.eigvals(x)))(x)
    np.testing.assert_array_equal(values, values_only)
    assert np.isnan(values[-1]).all() and np.isnan(vectors[-1]).all()
    for matrix, w, v in zip(cases, values, vectors, strict=False):
        scale = max(float(np.abs(matrix).max()), 1e-300)
        assert np.abs(matrix @ v - v * w).max() < 4e-14 * scale
        np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1, rtol=1e-14)
        largest = np.take_along_axis(v, np.abs(v).argmax(0)[None], 0)
        assert (largest.imag == 0).all() and (largest.real > 0).all()
        distances = np.abs(np.linalg.eigvals(matrix)[:, None] - w)
        assert max(distances.min(0).max(), distances.min(1).max()) < 4e-14 * scale


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape) + 1j * random.standard_normal(shape)


@pytest.mark.parametrize("is_complex", [False, True])
def test_derivatives_of_distinct_eigenvalues_and_their_eigenvectors(is_complex: bool) -> None:
    x, direction, weights = (normal(4, 4) if is_complex and k < 2 else random.standard_normal((4, 4)) for k in range(3))

    def parts(x: Any) -> Any:
        values, vectors = dnp.linalg.eig(x)
        return dnp.stack([values.real, values.imag]), vectors.real, vectors.imag, dnp.linalg.eigvals(x).imag

    def loss(x: Any) -> Any:
        return sum(dnp.sum(part * weights[: part.shape[0]]) for part in parts(x))

    step = 1e-6

    @dlc.jit
    def derivatives(x: Any, direction: Any) -> Any:
        return (
            parts(x + step * direction),
            parts(x - step * direction),
            dlc.jvp(parts, (x,), (direction,))[1],
            dlc.grad(loss)(x),
        )

    above, below, tangents, gradient = derivatives(x, direction)
    differences = [(a - b) / (2 * step) for a, b in zip(above, below, strict=True)]
    for got, expected in zip(tangents, differences, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-7)
    slope = sum(np.sum(d * weights[: d.shape[0]]) for d in differences)
    np.testing.assert_allclose(np.real(np.vdot(gradient, direction)), slope, atol=1e-6)


def test_roots_of_a_polynomial() -> None:
    for roots in ([2.0, -1, 3], [1 + 2j, 1 - 2j, 4], [0.5]):
        found = dlc.jit(dnp.roots, target="reference")(np.real(np.poly(roots)))
        np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(roots), atol=1e-12)
