"""Fourier transforms, as in `numpy.fft`: of real and of complex numbers, of any length, along any axis.

A transform of n takes stages of small factors of n (`dl.dft`), or three transforms of about 2n where n has a prime factor
beyond 64. Errors are of the order of the last bit of the largest result, times the logarithm of n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import is_complex, of_parts, parts_of
from dlc.misuse import explain_misuse
from dlc.numpy.absent import raise_absent
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    apply,
    axes_of,
    axis_of,
    by_numpy,
    convert,
    operand,
    promote_to_float,
    refuse,
)
from dlc.numpy.functions.complex_numbers import AnyNumbers, conj
from dlc.numpy.functions.elementwise import multiply
from dlc.numpy.functions.joining import concat, pad
from dlc.numpy.functions.shaping import expand_dims, moveaxis, part, roll, squeeze
from dlc.numpy.namespace import check_device

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


_OTHER_WAY = {None: "forward", "backward": "forward", "forward": "backward"}


def __getattr__(name: str) -> Any:
    raise_absent("dlc.numpy.fft", name, {})


def fft(x: AnyNumbers, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`y[k] = Σⱼ x[j] · e^(-2πi·jk/n)` along an axis, of which n elements count, or 0 where it has fewer.

    `norm`: "backward" (also None) leaves sums as they are and divides the inverse by n, "forward" the other way round, "ortho"
    divides both by √n.
    """
    return _transform("fft", x, n, axis, norm)


def ifft(x: AnyNumbers, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`."""
    return _transform("ifft", x, n, axis, norm, inverse=True)


def rfft(x: AnyNumbers, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The first n // 2 + 1 bins of `fft` of real numbers, whose mirror images the others are."""
    if is_complex(x):
        refuse(UnsupportedError("rfft of complex numbers; use fft, or x.real"))
    return _transform("rfft", x, n, axis, norm, onesided=True)


def irfft(x: AnyNumbers, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The n real numbers whose `rfft` it is; n is even if it is not given: twice as many as there are bins, but two."""
    return _transform("irfft", x, n, axis, norm, inverse=True, onesided=True)


def hfft(x: AnyNumbers, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The n real bins of numbers whose mirror images are conjugates, of which the first n // 2 + 1 are given."""
    return irfft(conj(x), n, axis, _OTHER_WAY.get(norm, norm))


def ihfft(x: AnyNumbers, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`."""
    return conj(rfft(x, n, axis, _OTHER_WAY.get(norm, norm)))


def fftn(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """`fft` along several axes, all if none are given; `s` has their lengths."""
    return _along_axes("fftn", fft, x, s, axes, norm)


def ifftn(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`."""
    return _along_axes("ifftn", ifft, x, s, axes, norm)


def rfftn(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """`rfft` along the last of several axes, `fft` along the others."""
    return _along_axes("rfftn", fft, x, s, axes, norm, last=rfft)


def irfftn(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`."""
    return _along_axes("irfftn", ifft, x, s, axes, norm, last=irfft)


def fft2(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """`fftn` along the last two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `fft2`."""
    return ifftn(x, s, axes, norm)


def rfft2(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """`rfftn` along the last two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x: AnyNumbers, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `rfft2`."""
    return irfftn(x, s, axes, norm)


def fftfreq(n: int, /, d: float = 1.0, dtype: AnyDType = np.float32, *, device: str | None = None) -> Any:
    """The frequencies of the bins of `fft`, in cycles per unit of the distance d of two elements; float32 by default."""
    check_device(device)
    return by_numpy("fftfreq", np.fft.fftfreq, n, d).astype(dtype)


def rfftfreq(n: int, /, d: float = 1.0, dtype: AnyDType = np.float32, *, device: str | None = None) -> Any:
    """The frequencies of the bins of `rfft`; float32 by default."""
    check_device(device)
    return by_numpy("rfftfreq", np.fft.rfftfreq, n, d).astype(dtype)


def fftshift(x: AnyNumbers, /, axes: Axes = None) -> Any:
    """The bin of frequency 0 in the middle of each axis."""
    return _rolled("fftshift", x, axes, lambda size: size // 2)


def ifftshift(x: AnyNumbers, /, axes: Axes = None) -> Any:
    """The inverse of `fftshift`."""
    return _rolled("ifftshift", x, axes, lambda size: -(size // 2))


def _rolled(name: str, x: AnyNumbers, axes: Axes, shift: Callable[[int], int]) -> Any:
    if is_complex(x):
        return of_parts(*(_rolled(name, v, axes, shift) for v in parts_of(x)))
    rolled = operand(cast("ArrayLike", x))
    for axis in axes_of(name, rolled, axes):
        rolled = roll(rolled, shift(rolled.shape[axis]), axis)
    return rolled


def _along_axes(
    name: str, each: Callable[..., Any], x: Any, s: Sequence[int] | None, axes: Axes, norm: str | None, last: Any = None
) -> Any:
    like = operand(parts_of(x)[0] if is_complex(x) else x)
    chosen = axes_of(name, like, tuple(range(like.ndim - len(s), like.ndim)) if axes is None and s is not None else axes)
    lengths = [None] * len(chosen) if s is None else list(s)
    if len(lengths) != len(chosen) or not chosen:
        refuse(ShapeError(f"{name}: {len(lengths)} lengths for {len(chosen)} axes; give one for each of at least one axis"))
    steps = [(last or each, lengths[-1], chosen[-1]), *((each, n, a) for n, a in zip(lengths[:-1], chosen[:-1], strict=True))]
    # What makes complex numbers of real ones comes first, what makes real ones of them last.
    for transform, n, axis in reversed(steps) if last is irfft else steps:
        x = transform(x, n, axis, norm)
    return x


def _transform(
    name: str, x: Any, n: int | None, axis: int, norm: str | None, *, inverse: bool = False, onesided: bool = False
) -> Any:
    parts = [_float(v) for v in (promote_to_float(*parts_of(x)) if is_complex(x) else promote_to_float(x))]
    if onesided and inverse and len(parts) == 1:
        parts.append(multiply(parts[0], 0))
    axis = axis_of(name, parts[0], axis)
    given = parts[0].shape[axis]
    half = onesided and inverse
    length = n if n is not None else 2 * (given - 1) if half else given
    if length < 1:
        refuse(ShapeError(f"{name}: no transform of {length} elements of {parts[0].shape} along axis {axis}"))
    rows = concat(
        [expand_dims(moveaxis(_of_size(v, axis, length // 2 + 1 if half else length), axis, -1), -2) for v in parts], -2
    )
    y = apply(dl.DftOp, rows, length=length, inverse=inverse or None, onesided=onesided or None)
    factor = _factor(name, norm, length, inverse)
    y = y if factor == 1 else multiply(y, factor)
    made = [moveaxis(squeeze(part(y, y.ndim - 2, p, p + 1), -2), -1, axis) for p in range(y.shape[-2])]
    return of_parts(*made) if len(made) == 2 else made[0]


def _float(x: Operand) -> Operand:
    return convert(x, np.float32) if x.dtype.itemsize < 4 else x


def _of_size(x: Operand, axis: int, size: int) -> Any:
    """The first elements along an axis, and zeros behind where there are not so many."""
    given = x.shape[axis]
    if given > size:
        return part(x, axis, 0, size)
    return x if given == size else pad(x, [(0, size - given if a == axis else 0) for a in range(x.ndim)])


def _factor(name: str, norm: str | None, length: int, inverse: bool) -> float:
    """What a transform that divides by its length if it is an inverse is multiplied by."""
    factors = {None: 1.0, "backward": 1.0, "ortho": math.sqrt(length) if inverse else 1 / math.sqrt(length)}
    factors["forward"] = length if inverse else 1 / length
    if norm not in factors:
        refuse(UnsupportedError(f'{name}: norm {norm!r}; expected "backward", "ortho" or "forward"'))
    return factors[norm]


explain_misuse(globals())
