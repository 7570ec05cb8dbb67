"""Fourier transforms: as in `numpy.fft`, of real and complex arrays, of any length, along any axis.

A transform of length n is computed in stages of small factors of n (`dl.dft`), or by three transforms of length about 2n if n
has a prime factor above 64. The length must be static: a symbolic axis is specialized per size. Errors are of the order of the
last bit of the largest result, times log n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.argument_validation.validate import validate_arguments
from dlc.dialects import dl
from dlc.errors import ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import from_parts, is_complex, real_and_imaginary
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    apply,
    call_numpy,
    convert,
    iota,
    is_less,
    normalize_axes,
    normalize_axis,
    operand,
    promote_to_float,
    refuse,
)
from dlc.numpy.calling_convention import numpy_converters
from dlc.numpy.functions.comparison import less
from dlc.numpy.functions.complex_numbers import ComplexArrayLike, conj
from dlc.numpy.functions.elementwise import divide, multiply, subtract, where
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.padding import pad
from dlc.numpy.functions.shape_manipulation import expand_dims, moveaxis, roll, slice_axis, squeeze
from dlc.numpy.namespace import check_device
from dlc.numpy.unsupported_names import raise_unsupported_name
from dlc.shapes.dims import UndecidableError
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


# The normalization of a transform whose direction is reversed.
_REVERSED_NORM = {None: "forward", "backward": "forward", "forward": "backward"}


def __getattr__(name: str) -> Any:
    raise_unsupported_name("dlc.numpy.fft", name, {})


def fft(x: ComplexArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the discrete Fourier transform `y[k] = Σⱼ x[j] · e^(-2πi·jk/n)` along an axis, trimmed or zero-padded to length n.

    `norm`: "backward" (also None) scales the inverse by 1/n, "forward" scales the transform by 1/n, "ortho" scales both by
    1/√n.
    """
    return _transform("fft", x, n, axis, norm)


def ifft(x: ComplexArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `fft`."""
    return _transform("ifft", x, n, axis, norm, inverse=True)


def rfft(x: ComplexArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the first n // 2 + 1 bins of `fft` of a real array; the others are their complex conjugates."""
    if is_complex(x):
        refuse(UnsupportedError("rfft of a complex array; use fft, or x.real"))
    return _transform("rfft", x, n, axis, norm, onesided=True)


def irfft(x: ComplexArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `rfft`: n real elements; without `n`, 2 · (bins - 1)."""
    return _transform("irfft", x, n, axis, norm, inverse=True, onesided=True)


def hfft(x: ComplexArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the n real bins of an array with Hermitian symmetry, given by its first n // 2 + 1 elements."""
    return irfft(conj(x), n, axis, _REVERSED_NORM.get(norm, norm))


def ihfft(x: ComplexArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `hfft`."""
    return conj(rfft(x, n, axis, _REVERSED_NORM.get(norm, norm)))


def fftn(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """Return `fft` along several axes, by default all; `s` are their lengths."""
    return _transform_axes("fftn", fft, x, s, axes, norm)


def ifftn(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """Return the inverse of `fftn`."""
    return _transform_axes("ifftn", ifft, x, s, axes, norm)


def rfftn(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """Return `rfft` along the last of several axes and `fft` along the others."""
    return _transform_axes("rfftn", fft, x, s, axes, norm, last=rfft)


def irfftn(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Any:
    """Return the inverse of `rfftn`."""
    return _transform_axes("irfftn", ifft, x, s, axes, norm, last=irfft)


def fft2(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """Return `fftn` along the last two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """Return the inverse of `fft2`."""
    return ifftn(x, s, axes, norm)


def rfft2(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """Return `rfftn` along the last two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x: ComplexArrayLike, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: str | None = None) -> Any:
    """Return the inverse of `rfft2`."""
    return irfftn(x, s, axes, norm)


def fftfreq(n: int, /, d: float = 1.0, dtype: AnyDType = np.float32, *, device: str | None = None) -> Any:
    """Return the frequencies of the bins of `fft` for a sample spacing of d; float32 by default."""
    check_device(device)
    if isinstance(n, TracedDim):
        bins = iota(n)
        _require_samples("fftfreq", n)
        return convert(divide(where(less(bins, (n + 1) // 2), bins, subtract(bins, n)), n * d), dtype)
    return call_numpy("fftfreq", np.fft.fftfreq, n, d).astype(dtype)


def rfftfreq(n: int, /, d: float = 1.0, dtype: AnyDType = np.float32, *, device: str | None = None) -> Any:
    """Return the frequencies of the bins of `rfft` for a sample spacing of d; float32 by default."""
    check_device(device)
    if isinstance(n, TracedDim):
        bins = iota(n // 2 + 1)
        _require_samples("rfftfreq", n)
        return convert(divide(bins, n * d), dtype)
    return call_numpy("rfftfreq", np.fft.rfftfreq, n, d).astype(dtype)


def _require_samples(name: str, n: TracedDim) -> None:
    """Require that a symbolic number of samples is not 0, by which the frequencies are divided."""
    if is_less(operand(cast(Any, n)), untraced(n), 1, name, "no samples"):
        refuse(ShapeError(f"{name}: {n} samples; expected at least 1"))


def fftshift(x: ComplexArrayLike, /, axes: Axes = None) -> Any:
    """Shift the bin of frequency 0 to the middle of each axis."""
    return _roll_axes("fftshift", x, axes, lambda size: size // 2)


def ifftshift(x: ComplexArrayLike, /, axes: Axes = None) -> Any:
    """Return the inverse of `fftshift`."""
    return _roll_axes("ifftshift", x, axes, lambda size: -(size // 2))


def _roll_axes(name: str, x: ComplexArrayLike, axes: Axes, shift: Callable[[int], int]) -> Any:
    if is_complex(x):
        return from_parts(*(_roll_axes(name, v, axes, shift) for v in real_and_imaginary(x)))
    rolled = operand(cast("ArrayLike", x))
    for axis in normalize_axes(name, rolled, axes):
        rolled = roll(rolled, shift(rolled.shape[axis]), axis)
    return rolled


def _transform_axes(
    name: str,
    transform_axis: Callable[..., Any],
    x: Any,
    s: Sequence[int] | None,
    axes: Axes,
    norm: str | None,
    last: Any = None,
) -> Any:
    real_operand = operand(real_and_imaginary(x)[0] if is_complex(x) else x)
    transform_axes = normalize_axes(
        name,
        real_operand,
        tuple(range(real_operand.ndim - len(s), real_operand.ndim)) if axes is None and s is not None else axes,
    )
    lengths = [None] * len(transform_axes) if s is None else list(s)
    if len(lengths) != len(transform_axes) or not transform_axes:
        refuse(
            ShapeError(
                f"{name}: {len(lengths)} lengths for {len(transform_axes)} axes; expected one for each, and at least one axis"
            )
        )
    steps = [
        (last or transform_axis, lengths[-1], transform_axes[-1]),
        *((transform_axis, n, a) for n, a in zip(lengths[:-1], transform_axes[:-1], strict=True)),
    ]
    # rfft, which takes a real array, runs first; irfft, which returns one, runs last.
    for transform, n, axis in reversed(steps) if last is irfft else steps:
        x = transform(x, n, axis, norm)
    return x


def _transform(
    name: str, x: Any, n: int | None, axis: int, norm: str | None, *, inverse: bool = False, onesided: bool = False
) -> Any:
    components = [_float(v) for v in (promote_to_float(*real_and_imaginary(x)) if is_complex(x) else promote_to_float(x))]
    if onesided and inverse and len(components) == 1:
        components.append(multiply(components[0], 0))
    axis = normalize_axis(name, components[0], axis)
    input_length = components[0].shape[axis]
    is_half_spectrum = onesided and inverse
    length = n if n is not None else 2 * (input_length - 1) if is_half_spectrum else input_length
    if not isinstance(length, int):
        # The stages depend on the factors of the length.
        refuse(UndecidableError(f"{name}: a transform of length {length} along axis {axis}; the length must be static"))
    if length < 1:
        refuse(
            ShapeError(
                f"{name}: transform length {length} along axis {axis} of shape {components[0].shape}; expected at least 1"
            )
        )
    rows = concat(
        [
            expand_dims(moveaxis(_resize_axis(v, axis, length // 2 + 1 if is_half_spectrum else length), axis, -1), -2)
            for v in components
        ],
        -2,
    )
    y = apply(dl.DftOp, rows, length=length, inverse=inverse or None, onesided=onesided or None)
    factor = _norm_factor(name, norm, length, inverse)
    y = y if factor == 1 else multiply(y, factor)
    output_components = [moveaxis(squeeze(slice_axis(y, y.ndim - 2, p, p + 1), -2), -1, axis) for p in range(y.shape[-2])]
    return from_parts(*output_components) if len(output_components) == 2 else output_components[0]


def _float(x: Operand) -> Operand:
    return convert(x, np.float32) if x.dtype.itemsize < 4 else x


def _resize_axis(x: Operand, axis: int, size: int) -> Any:
    """Trim or zero-pad an axis to the given size."""
    old_size = x.shape[axis]
    if old_size > size:
        return slice_axis(x, axis, 0, size)
    return x if old_size == size else pad(x, [(0, size - old_size if a == axis else 0) for a in range(x.ndim)])


def _norm_factor(name: str, norm: str | None, length: int, inverse: bool) -> float:
    """Return the scale of a transform whose op divides the inverse by its length."""
    factors = {None: 1.0, "backward": 1.0, "ortho": math.sqrt(length) if inverse else 1 / math.sqrt(length)}
    factors["forward"] = length if inverse else 1 / length
    if norm not in factors:
        refuse(UnsupportedError(f'{name}: norm {norm!r}; expected "backward", "ortho" or "forward"'))
    return factors[norm]


validate_arguments(globals(), converters=numpy_converters(np.fft, __all__))
