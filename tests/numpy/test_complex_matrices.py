"""Linear algebra of complex matrices against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape) + 1j * draw.standard_normal(shape)


SQUARE, BATCH, TALL, VECTOR = normal(4, 4), normal(2, 3, 3), normal(5, 3), normal(5)
HERMITIAN = SQUARE @ SQUARE.conj().T + np.eye(4)
DEFICIENT = np.concatenate([TALL, TALL[:, :2]], axis=1)
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "det": [(SQUARE,), (BATCH,)],
    "slogdet": [(SQUARE,), (BATCH,)],
    "matrix_power": [(SQUARE, 3), (BATCH, -2), (SQUARE, 0)],
    "multi_dot": [([SQUARE, SQUARE, VECTOR[:4]],)],
    "matmul": [(TALL, BATCH)],
    "outer": [(VECTOR, VECTOR)],
    "trace": [(BATCH,)],
    "inv": [(SQUARE,), (BATCH,)],
    "solve": [(SQUARE, VECTOR[:4]), (SQUARE, normal(4, 2)), (SQUARE.real, VECTOR[:4]), (SQUARE, VECTOR[:4].real)],
    "pinv": [(TALL,), (DEFICIENT,)],
    "lstsq": [(TALL, VECTOR), (TALL, normal(5, 2))],
    "cholesky": [(HERMITIAN,)],
    "eigvalsh": [(HERMITIAN,), (HERMITIAN, "U")],
    "svdvals": [(TALL,)],
    "matrix_rank": [(TALL,), (VECTOR,), (DEFICIENT,)],
    "cond": [(SQUARE,), (SQUARE, 1)],
    "norm": [(TALL,), (TALL, 2), (TALL, "nuc"), (TALL, -2), (TALL, 1), (VECTOR, 3), (TALL, None, 1)],
    "matrix_norm": [(BATCH,)],
    "vector_norm": [(TALL,)],
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 2e-4), (np.complex128, 1e-11)])
def test_functions_of_complex_matrices(dtype: Any, tolerance: float) -> None:
    for name, calls in CALLS.items():
        for arguments in calls:
            real = np.zeros(0, dtype).real.dtype
            arguments = tuple(
                x if not isinstance(x, np.ndarray) else x.astype(dtype if x.dtype.kind == "c" else real) for x in arguments
            )
            expected = getattr(np.linalg, name)(*arguments)
            arrays = [x for x in arguments if isinstance(x, np.ndarray)]
            others = arguments[len(arrays) :]
            function = getattr(dnp.linalg, name)
            results = (
                function(*arguments),
                dlc.jit(lambda arrays, f=function, others=others: f(*arrays, *others), target="reference")(arrays),
            )
            for result in results:
                pairs = zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]
                for got, want in pairs:
                    got = np.asarray(got)
                    assert got.shape == np.shape(want) and got.dtype.kind == np.asarray(want).dtype.kind, name
                    np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance, err_msg=name)


def adjoint(x: Any) -> Any:
    return dnp.conj(dnp.matrix_transpose(x))


def _scaled(matrix: np.ndarray) -> list[np.ndarray]:
    rows = np.arange(matrix.shape[-2])[:, None]
    return [matrix, matrix * 1e-160, matrix * 1e150, matrix * 10.0 ** (-8 * rows), 0 * matrix]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_factors(target: str) -> None:
    """Factors are orthogonal and have the given product, also of singular, graded, tiny and huge matrices."""

    def factors(x: Any) -> Any:
        results = [*dnp.linalg.qr(x), *dnp.linalg.svd(x, full_matrices=False)]
        if x.shape[-1] == x.shape[-2]:
            results += [*dnp.linalg.eigh(x), *dnp.linalg.eigh(x, "U")]
        return results

    compiled = dlc.jit(factors, target=target)
    large = normal(40, 40)
    for matrices in (
        _scaled(SQUARE),
        [BATCH],
        _scaled(TALL),
        [DEFICIENT, TALL.T],
        [large, 1e-3 * large @ large[:, :20] @ large[:20]],
    ):
        for x in matrices:
            size = np.abs(x).max()
            q, r, u, s, vh, *eigen = compiled(x)

            def near(y: np.ndarray, expected: np.ndarray, size: float = size) -> None:
                np.testing.assert_allclose(y, expected, rtol=0, atol=2e-13 * size * expected.shape[-1])

            for unitary in (q, u, np.conj(vh.mT)):
                near(
                    np.conj(unitary.mT) @ unitary,
                    np.broadcast_to(np.eye(unitary.shape[-1]), unitary.mT.shape[:-1] + unitary.shape[-1:]),
                    1,
                )
            near(q @ r, x)
            assert not np.tril(r, -1).any() and s.dtype == np.float64
            near((u * s[..., None, :]) @ vh, x)
            near(s, np.linalg.svd(x, compute_uv=False))
            for k, triangle in enumerate("LU" if eigen else ""):
                w, v = eigen[2 * k : 2 * k + 2]
                near(w, np.linalg.eigvalsh(x, triangle), 8 * size)
                near(np.conj(v.mT) @ v, np.broadcast_to(np.eye(v.shape[-1]), v.shape), 1)
                half = np.tril(x, -1) if triangle == "L" else np.triu(x, 1)
                hermitian = half + np.conj(half.mT) + x.real * np.eye(x.shape[-1])
                near(v * w[..., None, :] @ np.conj(v.mT), hermitian, 8 * size)


def _weighted(y: Any) -> Any:
    weights = WEIGHTS[tuple(slice(n) for n in y.shape)]
    return dnp.sum(dnp.real(y * weights)) + dnp.sum(dnp.abs(y) ** 2)


WEIGHTS = normal(4, 4)
LOSSES: dict[str, Any] = {
    "det": lambda x: _weighted(dnp.linalg.det(x)[None, None]),
    "det of a singular matrix": lambda x: _weighted(dnp.linalg.det(dnp.concat([x[:, :3], x[:, :1]], axis=1))[None, None] + 1j),
    "slogdet": lambda x: dnp.real(dnp.linalg.slogdet(x)[0] * (1 + 2j)) + dnp.linalg.slogdet(x)[1],
    "inv": lambda x: _weighted(dnp.linalg.inv(x)),
    "solve": lambda x: _weighted(dnp.linalg.solve(x, x[:, :2] * x[:, 1:3])),
    "cholesky": lambda x: _weighted(dnp.linalg.cholesky(x @ adjoint(x) + np.eye(4))),
    "upper cholesky": lambda x: _weighted(dnp.linalg.cholesky(x @ adjoint(x) + np.eye(4), upper=True)),
    "q": lambda x: _weighted(dnp.linalg.qr(x[:, :3])[0]),
    "r": lambda x: _weighted(dnp.linalg.qr(x[:3])[1]),
    "eigvalsh": lambda x: dnp.sum(dnp.linalg.eigvalsh(x + adjoint(x)) * np.arange(4.0)),
    "eigh": lambda x: (lambda w, v: _weighted(v[:, :2] * w[:2] ** 2 @ adjoint(v[:, :2])))(*dnp.linalg.eigh(x + adjoint(x))),
    "svdvals": lambda x: dnp.sum(dnp.linalg.svdvals(x) * np.arange(4.0)),
    "svd": lambda x: (lambda u, s, vh: _weighted(u * s**2 @ vh))(*dnp.linalg.svd(x[:, :3], full_matrices=False)),
    "pinv": lambda x: _weighted(dnp.linalg.pinv(x[:, :2])),
    "lstsq": lambda x: _weighted(dnp.linalg.lstsq(x[:, :2], x[:, 2:])[0]),
    "norm": lambda x: dnp.linalg.norm(x, 2) + dnp.linalg.norm(x, "nuc") + dnp.linalg.cond(x),
}


def test_derivatives() -> None:
    """Both modes match finite differences along a complex direction."""
    direction, step = normal(4, 4), 1e-6

    def derivatives(x: Any) -> Any:
        return {
            name: (
                dlc.grad(loss)(x),
                dlc.jvp(loss, (x,), (direction,))[1],
                loss(x + step * direction),
                loss(x - step * direction),
            )
            for name, loss in LOSSES.items()
        }

    for name, (gradient, tangent, after, before) in dlc.jit(derivatives, target="reference")(SQUARE).items():
        expected = (after - before) / (2 * step)
        reverse = (gradient.real * direction.real + gradient.imag * direction.imag).sum()
        np.testing.assert_allclose([reverse, tangent], expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_vmap_and_symbolic_sizes() -> None:
    def f(x: Any) -> Any:
        return dnp.linalg.slogdet(x)[0], dnp.linalg.svdvals(x), dnp.abs(dnp.linalg.eigh(x)[1]), dnp.linalg.inv(x)

    mapped = dlc.jit(dlc.vmap(f), target="reference")(BATCH)
    for k, x in enumerate(BATCH):
        for got, want in zip(mapped, f(x), strict=True):
            np.testing.assert_allclose(got[k], want, rtol=1e-12, atol=1e-12)
    dynamic = dlc.jit(f, dynamic={f"x.{part}": {0: "N", 1: "N"} for part in ("real", "imag")}, cache=False)
    for n in (1, 3, 18):
        x = normal(n, n)
        for got, want in zip(dynamic(x), f(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_spectral_norms_without_elements() -> None:
    for shape in ((0, 3), (3, 0)):
        for order in (2, "nuc"):
            assert dnp.linalg.norm(np.zeros(shape), order) == 0
