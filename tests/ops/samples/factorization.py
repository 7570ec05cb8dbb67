"""Samples of matrix factorizations, against their definitions and NumPy's LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import F32, F64, Sample, values


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.promote_types(x.dtype, np.float64))


def of_complex(function: Callable[..., Any], *real_results: int) -> Callable[..., Any]:
    """Return the function of one problem with complex operands on their parts; results are parts, unless they are real."""

    def of_parts(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
        results = function(*(x[0] + 1j * x[1] for x in operands))
        results = results if isinstance(results, tuple) else (results,)
        return tuple(r if k in real_results else np.stack([np.real(r), np.imag(r)]) for k, r in enumerate(results))

    return of_parts


def pivoted(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Eliminate one matrix, element by element."""
    if x.ndim > 2:
        parts = [pivoted(m) for m in x]
        return tuple(np.stack(p) for p in zip(*parts, strict=True))
    factors, order, sign, pivots = wide(x), list(range(len(x))), 1, list[int]()
    for k in range(len(x)):
        pivot = max(range(k, len(x)), key=lambda i: abs(factors[i, k].real) + abs(factors[i, k].imag))
        pivots.append(pivot)
        if pivot != k:
            factors[[k, pivot]], sign = factors[[pivot, k]], -sign
            order[k], order[pivot] = order[pivot], order[k]
        for i in range(k + 1, len(x)):
            factors[i, k] /= factors[k, k] or 1
            for j in range(k + 1, len(x)):
                factors[i, j] -= factors[i, k] * factors[k, j]
    return factors, np.array(order), np.array(sign), np.array(pivots)


def triangle(a: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    t = np.tril(a) if lower else np.triu(a)
    n = a.shape[-1]
    return t * (1 - np.eye(n)) + np.eye(n) if unit else t


def householder(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the factors of LAPACK, by NumPy."""
    h, scales = np.linalg.qr(wide(x).mT, mode="raw")
    k = scales.shape[-1]
    vectors = np.triu(h[..., :k, :], 1)
    vectors[..., range(k), range(k)] = 1
    return np.tril(h), vectors, scales


def reflected(vectors: np.ndarray, scales: np.ndarray, count: int) -> np.ndarray:
    q = np.eye(vectors.shape[-1])
    for v, t in zip(np.moveaxis(vectors, -2, 0), np.moveaxis(scales, -1, 0), strict=True):
        q = q @ (np.eye(len(v.T)) - t[..., None, None] * v[..., :, None] * np.conj(v[..., None, :]))
    return q.mT[..., :count, :]


def oriented(rows: np.ndarray) -> np.ndarray:
    total = (rows / np.arange(1, rows.shape[-1] + 1)).sum(-1)[..., None]
    return np.conj(total) / np.abs(total)


def symmetric(x: np.ndarray) -> np.ndarray:
    return (x + x.mT) / 2


def eigen(x: np.ndarray) -> tuple[np.ndarray, ...]:
    w, v = np.linalg.eigh(wide(x))
    rows = np.conj(v.mT)
    return w, rows * oriented(rows), np.zeros((*x.shape[:-2], 4, x.shape[-1]))


def general_eigen(x: np.ndarray) -> tuple[np.ndarray, ...]:
    w, v = np.linalg.eig(wide(x))
    order = np.lexsort((w.imag, w.real))
    w, v = np.take_along_axis(w, order, -1), np.take_along_axis(v, order[..., None, :], -1)
    largest = np.take_along_axis(v, np.argmax(np.abs(v), -2, keepdims=True), -2)
    rows = (v * np.conj(largest) / np.abs(largest)).mT
    work = [np.zeros((*x.shape[:-2], *sizes, x.shape[-1])) for sizes in ((2, x.shape[-1]), (3,))]
    return w.real, w.imag, rows.real, rows.imag, *work


def turned(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    u, s, vh = np.linalg.svd(wide(x), full_matrices=False)
    rotations = np.conj(u.mT)
    return s, s[..., None] * vh * oriented(rotations), rotations * oriented(rotations)


def positive(x: np.ndarray) -> np.ndarray:
    """Return positive definite matrices whose lower triangle must not be read."""
    p = x @ x.mT + np.eye(x.shape[-1], dtype=x.dtype)
    return np.where(np.tri(x.shape[-1], k=-1, dtype=bool), np.nan, p).astype(x.dtype)


def upper_root(x: np.ndarray) -> np.ndarray:
    p = np.triu(x) + np.where(np.tri(x.shape[-1], k=-1, dtype=bool), x.mT, 0)
    return np.linalg.cholesky(p.astype(np.float64)).mT


def _solve(dtype: np.dtype, lower: bool, unit: bool, *shapes: tuple[int, ...], label: str) -> Sample:
    a, b = values(dtype, *shapes[0], seed=1, scale=0.5), values(dtype, *shapes[1], seed=2)
    a = a + (0 if unit else 3) * np.eye(a.shape[-1], dtype=dtype)
    flags = {name: True for name, given in (("lower", lower), ("unit", unit)) if given}
    return Sample(
        dl.TriangularSolveOp,
        (a, b),
        lambda a, b: np.linalg.solve(triangle(a.astype(float), lower, unit), b),
        flags,
        2e-5,
        label,
    )


def hermitian(x: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Return the parts of x + xᴴ, or of a positive definite matrix if `shift` is positive."""
    z = x[0] + 1j * x[1]
    h = z @ z.conj().T + shift * np.eye(len(z)) if shift else z + z.conj().T
    return np.stack([h.real, h.imag])


def complex_upper_root(x: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(x).conj().T


_COMPLEX = {"complex": True}
_ROW_OF_ZEROS = np.array([[0, 2, 1], [0, 4, -1], [0, 1, 5]], F32)
_REFLECTIONS = householder(values(F64, 2, 3, 5, seed=7))[1:]
_COMPLEX_REFLECTIONS = of_complex(householder)(values(F64, 2, 3, 5, seed=8))[1:]
_COMPLEX_TRIANGLE = values(F64, 2, 6, 6, seed=1) + 3 * np.eye(6)

SAMPLES: list[Sample] = [
    # 19 rows exceed a block of columns; 8 fill a vector register, 11 partially fill a second one.
    Sample(dl.LuOp, (values(F32, 3, 4, 4),), pivoted, tolerance=1e-5),
    Sample(dl.LuOp, (values(F64, 19, 19),), pivoted, tolerance=1e-12),
    Sample(dl.LuOp, (_ROW_OF_ZEROS,), pivoted, tolerance=1e-6, label="singular"),
    Sample(dl.LuOp, (values(F32, 2, 0, 0),), lambda x: (x, np.zeros((2, 0)), np.ones(2), np.zeros((2, 0))), label="empty"),
    _solve(F32, False, False, (2, 6, 6), (2, 6, 3), label="upper"),
    _solve(F64, True, True, (5, 5), (5, 11), label="unit"),
    _solve(F32, True, False, (4, 4), (4, 17), label="lower"),
    Sample(dl.CholeskyOp, (positive(values(F32, 2, 5, 5)),), upper_root, tolerance=1e-5),
    Sample(dl.CholeskyOp, (positive(values(F64, 19, 19)),), upper_root, tolerance=1e-12),
    Sample(dl.HouseholderOp, (values(F32, 2, 3, 7),), householder, tolerance=1e-5),
    Sample(dl.HouseholderOp, (values(F64, 6, 3),), householder, tolerance=1e-12, label="wide"),
    Sample(dl.OrthogonalOp, _REFLECTIONS, lambda v, t: reflected(v, t, 4), {"count": (4,)}, 1e-12),
    Sample(dl.EighOp, (symmetric(values(F32, 2, 5, 5)),), eigen, {"vectors": True}, 1e-5),
    Sample(dl.EighOp, (symmetric(values(F64, 9, 9)),), eigen, {"vectors": True}, 1e-12),
    Sample(dl.EigOp, (values(F32, 2, 3, 3),), general_eigen, {"vectors": True}, 1e-5),
    Sample(dl.EigOp, (values(F64, 6, 6),), general_eigen, {"vectors": True}, 1e-12),
    Sample(dl.SvdOp, (values(F32, 2, 3, 5),), turned, tolerance=1e-5),
    Sample(dl.SvdOp, (values(F64, 9, 9),), turned, tolerance=1e-12),
    Sample(dl.LuOp, (values(F64, 2, 19, 19),), of_complex(pivoted, 1, 2, 3), _COMPLEX, 1e-12, "complex"),
    Sample(
        dl.TriangularSolveOp,
        (_COMPLEX_TRIANGLE, values(F64, 2, 6, 3, seed=2)),
        of_complex(lambda a, b: np.linalg.solve(np.tril(a), b)),
        {"lower": True, **_COMPLEX},
        1e-12,
        "complex",
    ),
    Sample(
        dl.CholeskyOp, (hermitian(values(F64, 2, 19, 19), 1.0),), of_complex(complex_upper_root), _COMPLEX, 1e-12, "complex"
    ),
    Sample(dl.HouseholderOp, (values(F64, 2, 3, 7),), of_complex(householder), _COMPLEX, 1e-12, "complex"),
    Sample(
        dl.OrthogonalOp,
        _COMPLEX_REFLECTIONS,
        of_complex(lambda v, t: reflected(v, t, 4)),
        {"count": (4,), **_COMPLEX},
        1e-12,
        "complex",
    ),
    Sample(
        dl.EighOp, (hermitian(values(F64, 2, 9, 9)),), of_complex(eigen, 0), {"vectors": True, **_COMPLEX}, 1e-12, "complex"
    ),
    Sample(
        dl.EigOp,
        (values(F64, 2, 6, 6),),
        of_complex(general_eigen, 0, 1, 2, 3),
        {"vectors": True, **_COMPLEX},
        1e-12,
        "complex",
    ),
    Sample(dl.SvdOp, (values(F64, 2, 9, 12),), of_complex(turned, 0), _COMPLEX, 1e-12, "complex"),
]
