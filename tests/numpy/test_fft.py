"""Complex arrays and Fourier transforms against NumPy's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError

DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((3, 10), np.float32)
Z = (X + 1j * DRAW.standard_normal((3, 10), np.float32)).astype(np.complex64)
W = DRAW.standard_normal((10, 2)) + 1j * DRAW.standard_normal((10, 2))
Function = Callable[..., Any]

# Computations of NumPy and dlc.numpy (m) on real and complex arrays.
TRANSFORMS: dict[str, Function] = {
    "of real ones": lambda m, x, z: (m.fft.fft(x), m.fft.rfft(x, axis=0), m.fft.rfft2(x), m.fft.ifft(x), m.fft.ihfft(x)),
    "of complex ones": lambda m, x, z: (m.fft.fft(z), m.fft.ifft(z), m.fft.fftn(z), m.fft.ifft2(z)),
    "to real ones": lambda m, x, z: (m.fft.irfft(z), m.fft.irfft(z, 17), m.fft.irfft2(z), m.fft.hfft(z)),
    "of other lengths": lambda m, x, z: (m.fft.fft(z, 12), m.fft.rfft(x, 7), m.fft.fft(x, 4, 0), m.fft.fftn(z, (4, 5), (0, 1))),
    "scaled": lambda m, x, z: (m.fft.fft(z, norm="ortho"), m.fft.irfft(z, norm="forward"), m.fft.ifft(x, norm="ortho")),
    "shifted": lambda m, x, z: (m.fft.fftshift(z), m.fft.ifftshift(x, axes=1), m.fft.fftshift(m.fft.fftfreq(5, 0.5))),
}  # fmt: skip
ARITHMETIC: dict[str, Function] = {
    "with real ones": lambda m, x, z: (z + x, x - z, 2 - z, x * z, z / x, 3 / z, z + 1j, 1j * x, x / (2 + 1j)),
    "with complex ones": lambda m, x, z: (z + z[0], z - z[:1], z * z[1], z / z[2], z / (1e30 + 1e30j), -z, +z, z**3, z**-2, z**0),
    "products": lambda m, x, z: (z @ z.T, x @ z.T, z @ x.T),
    "comparison": lambda m, x, z: (z == z[0], z != x),
    "functions": lambda m, x, z: (m.abs(z), abs(z), m.angle(z), m.angle(x), m.conj(z), m.real(z), m.imag(z), m.imag(x), m.exp(z)),
    "methods": lambda m, x, z: (z[1:, ::2], z.reshape(-1)[3], z.sum(0), z.mean(), z.T, z.transpose(1, 0), z.real, z.conj()),
    "joined": lambda m, x, z: (
        m.where(x > 0, z, x), m.where(x > 0, 1j, z), m.concatenate([z, x], 1), m.stack([x, z]), m.vstack([z, z]), m.append(z, x[0]),
        m.pad(z, 2), m.pad(z, ((0, 1), (2, 0)), constant_values=1 - 2j), m.pad(z, 1, "reflect"), m.hstack([x, 1j * x]),
        m.select([x > 1, x > 0], [z, x], 2j), *m.split(z, 2, 1),
    ),
    "moved": lambda m, x, z: (
        m.flip(z, 0), m.roll(z, 3, 1), m.tile(z, (2, 1)), m.moveaxis(z, 0, 1), z.swapaxes(0, 1), m.take(z, x.argsort(1)[0], 1),
        m.diag(z[0]), m.tril(z), z.repeat(2, 0), z[:, 1].squeeze(), m.expand_dims(z, 0), m.rot90(z), m.atleast_2d(z[0]),
    ),
    "added up": lambda m, x, z: (m.cumsum(z, 1), m.diff(z), m.trace(z), z.sum(1, initial=1j), m.mean(z, axis=1, where=x > -9)),
}  # fmt: skip


def test_values() -> None:
    """Natively compiled code is tested by the samples of `dl.dft` and the tests below."""

    def all_of(module: Any, x: Any, z: Any) -> dict[str, Any]:
        return {name: f(module, x, z) for name, f in (TRANSFORMS | ARITHMETIC).items()}

    got, expected = dlc.jit(target="reference")(lambda x, z: all_of(dnp, x, z))(X, Z), all_of(np, X, Z)
    for name, values in expected.items():
        for k, (y, value) in enumerate(zip(got[name], values, strict=True)):
            assert (np.asarray(y).shape, y.dtype.kind) == (value.shape, value.dtype.kind), (name, k)
            assert y.dtype == value.dtype or name not in ARITHMETIC, (name, k)
            np.testing.assert_allclose(np.asarray(y), value, rtol=2e-5, atol=2e-6 * np.abs(value).max(), err_msg=f"{name} {k}")


def test_plain_arrays_are_computed_at_once() -> None:
    for f in TRANSFORMS.values():
        for y, expected in zip(f(dnp, X, Z), f(np, X, Z), strict=True):
            assert isinstance(y, np.ndarray)
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_complex_arguments_of_any_kind() -> None:
    got = dlc.jit(lambda a, b, w: {"sum": a * w + b, "by numpy": np.fft.fft(np.abs(w)) + np.conj(w)})(
        2 - 1j, np.complex64(1j), W
    )
    np.testing.assert_allclose(got["sum"], (2 - 1j) * W + 1j, rtol=1e-15)
    np.testing.assert_allclose(got["by numpy"], np.fft.fft(np.abs(W)) + np.conj(W), rtol=1e-15)
    assert got["sum"].dtype == np.complex128
    assert dlc.jit(lambda w: w**0, target="reference")(W).dtype == np.complex128


def test_derivatives_are_componentwise() -> None:
    """Σ |F z|² = n · Σ |z|²."""
    by_z, by_x = dlc.jit(lambda z, x: tuple(dlc.grad(lambda v: (dnp.abs(dnp.fft.fft(v)) ** 2).sum())(v) for v in (z, x)))(Z, X)
    np.testing.assert_allclose(by_z, 20 * Z, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_x, 20 * X, rtol=1e-5, atol=1e-5)


def test_vmap_and_loops() -> None:
    def step(state: Any, z: Any) -> Any:
        return state * z, dnp.fft.ifft(state)

    last, each = dlc.jit(lambda z: dlc.lax.scan(step, z[0], dlc.vmap(dnp.fft.fft)(z)))(Z)
    f = np.fft.fft(Z)
    np.testing.assert_allclose(last, Z[0] * f[0] * f[1] * f[2], rtol=2e-5)
    np.testing.assert_allclose(each, np.fft.ifft([Z[0], Z[0] * f[0], Z[0] * f[0] * f[1]]), rtol=2e-4)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda z: z % z, DTypeError, "remainder of complex arrays; apply it to .real and .imag"),
        (lambda z: dnp.cbrt(z), DTypeError, "does not support complex arrays; apply it to .real and .imag"),
        (lambda z: dnp.fft.rfft(z), UnsupportedError, "rfft of a complex array; use fft, or x.real"),
        (lambda z: dnp.fft.fft(z, 0), ShapeError, "fft: transform length 0 along axis 1"),
        (lambda z: dnp.fft.fft(z, norm="half"), UnsupportedError, "norm 'half'; expected \"backward\""),
        (lambda z: dnp.fft.fftn(z, (2, 3), axes=(0,)), ShapeError, "fftn: 2 lengths for 1 axes"),
    ],
)
def test_errors_name_the_line(function: Function, error: type[DlcError], message: str) -> None:
    with pytest.raises(error, match=r"test_fft\.py:\d+: .*" + re.escape(message)):
        dlc.jit(function)(Z)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("n", [8, 33, 64, 90, 300, 1024, 1536])
def test_real_values_have_no_imaginary_part(n: int, target: str) -> None:
    """A rounding error as imaginary part would give the phase π an arbitrary sign."""
    x = np.random.default_rng(1).standard_normal((4, n), np.float32)
    y = dlc.jit(lambda x: dnp.fft.rfft(x).imag, target=target)(x)
    ends = np.asarray(y)[:, [0] if n % 2 else [0, -1]]
    assert not ends.any() and not np.signbit(ends).any()
