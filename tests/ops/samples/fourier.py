"""Samples of Fourier transforms, against sums over all elements."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import F16, F32, F64, Sample, exactly, values

_TOLERANCE = {F32: 1e-6, F64: 2e-14, F16: 1e-3}


def _sum(x: np.ndarray, n: int, inverse: bool, onesided: bool) -> np.ndarray:
    real, *imaginary = np.moveaxis(x, -2, 0)
    z = real + 1j * (imaginary[0] if imaginary else 0 * real)
    if onesided and inverse:
        # An inner bin counts twice, for its complex conjugate as well.
        counted = [1 if k in (0, n / 2) else 2 for k in range(z.shape[-1])]
        z = np.where([k in (0, n / 2) for k in range(z.shape[-1])], z.real, z) * counted
    j, k = np.arange(z.shape[-1]), np.arange(n // 2 + 1 if onesided and not inverse else n)
    turns = (np.outer(j, k) % n).astype(z.real.dtype) / n
    angle = (2 if inverse else -2) * np.arctan2(z.real.dtype.type(0), z.real.dtype.type(-1)) * turns
    y = z @ (np.cos(angle) + 1j * np.sin(angle)) / (n if inverse else 1)
    return y.real[..., np.newaxis, :] if onesided and inverse else np.stack([y.real, y.imag], -2)


def _dft(dtype: np.dtype, n: int, parts: int = 2, *lead: int, inverse: bool = False, onesided: bool = False) -> Sample:
    shape = (*lead, parts, n // 2 + 1 if onesided and inverse else n)
    properties = {"length": n} | {name: True for name, on in (("inverse", inverse), ("onesided", onesided)) if on}
    label = f"{n}_of_{parts}" + "_inverse" * inverse + "_onesided" * onesided
    formula = exactly(lambda x: _sum(x, n, inverse, onesided))
    return Sample(dl.DftOp, (values(dtype, *shape),), formula, properties, _TOLERANCE[dtype], label)


SAMPLES = [
    _dft(F32, 1, 1, 2),
    _dft(F64, 9, 2, 2, inverse=True),
    _dft(F16, 8, 1, 3, onesided=True),
    # Several stages, of which the last is truncated or has only real components.
    _dft(F32, 90, 2, 3),
    _dft(F32, 96, 1, 2, onesided=True),
    _dft(F32, 96, 2, 2, inverse=True, onesided=True),
    # With a large prime factor.
    _dft(F64, 67, 2, 2),
    _dft(F32, 71, 1, 2, onesided=True),
]
