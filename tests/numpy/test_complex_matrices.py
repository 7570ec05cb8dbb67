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
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "inv": [(SQUARE,), (BATCH,)],
    "solve": [(SQUARE, VECTOR[:4]), (SQUARE, normal(4, 2)), (SQUARE.real, VECTOR[:4]), (SQUARE, VECTOR[:4].real)],
    "pinv": [(TALL,)],
    "lstsq": [(TALL, VECTOR), (TALL, normal(5, 2))],
    "cholesky": [(HERMITIAN,)],
    "eigvalsh": [(HERMITIAN,), (HERMITIAN, "U")],
    "svdvals": [(TALL,)],
    "matrix_rank": [(TALL,), (VECTOR,)],
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


def test_the_gradient_of_an_inverse() -> None:
    def loss(x: Any) -> Any:
        return dnp.sum(dnp.abs(dnp.linalg.inv(x)))

    x, step = BATCH[0], 1e-6
    gradient = dlc.jit(dlc.grad(loss), target="reference")(x)
    for direction, part in ((1, gradient.real), (1j, gradient.imag)):
        change = np.zeros_like(x)
        change[1, 2] = direction * step
        np.testing.assert_allclose(part[1, 2], (loss(x + change) - loss(x - change)) / (2 * step), rtol=1e-6)


def test_spectral_norms_without_elements() -> None:
    for shape in ((0, 3), (3, 0)):
        for order in (2, "nuc"):
            assert dnp.linalg.norm(np.zeros(shape), order) == 0
