"""Image resizing: separable interpolation, one axis after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.numpy.apply import convert, is_floating
from dlc.pytorch.rules.rule_table import RuleTable
from dlc.shapes.dims import is_static
from dlc.shapes.traced_dims import TracedSize, untraced

table = RuleTable()

# Symbolic sizes are scaled only by fractions with at most this denominator, for which float arithmetic is exact.
_MAX_SCALE_DENOMINATOR = 64
# For each filter tap, the input index for each output position along an axis, and the weights (None: 1).
Taps = Sequence[tuple[Any, Any]]


def _positions(count: Any, dtype: Any = np.int64) -> Any:
    return dnp.arange(count, dtype=dtype)


def _ratio(size: Any, count: Any) -> Any:
    """Return size / count; in float32 for symbolic sizes, as PyTorch computes it."""
    if is_static((size, count)):
        return size / count
    return dnp.divide(convert(dnp.asarray(size), np.float32), convert(dnp.asarray(count), np.float32))


def _step(size: TracedSize, count: TracedSize, scale: float | None) -> Any:
    return convert(1 / scale if scale else _ratio(size, count), np.float32)


def _source_coordinates(size: TracedSize, count: TracedSize, scale: float | None, aligned: bool) -> Any:
    """Return the input coordinate of each output pixel center; corners are aligned if `aligned`."""
    if aligned:
        intervals = max(count - 1, 1) if isinstance(count, int) else dnp.maximum(dnp.asarray(count - 1), 1)
        return dnp.multiply(_positions(count), _ratio(size - 1, intervals))
    half = np.float32(0.5)
    return dnp.subtract(dnp.multiply(dnp.add(_positions(count, np.float32), half), _step(size, count, scale)), half)


def _floor_index(coordinates: Any) -> Any:
    return convert(dnp.floor(coordinates), np.int64)


def _linear(size: TracedSize, count: TracedSize, scale: float | None, aligned: bool) -> Taps:
    coordinates = dnp.maximum(_source_coordinates(size, count, scale, aligned), 0)
    low = dnp.minimum(_floor_index(coordinates), size - 1)
    fraction = dnp.subtract(coordinates, low)
    return [(low, dnp.subtract(1, fraction)), (dnp.minimum(dnp.add(low, 1), size - 1), fraction)]


def cubic_weights(distance: Any, a: float = -0.75) -> Any:
    """Return Keys' cubic convolution kernel at distances from 0 to 2."""
    d = distance
    return dnp.where(dnp.less_equal(d, 1), ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a)


def _cubic(size: TracedSize, count: TracedSize, scale: float | None, aligned: bool) -> Taps:
    coordinates = _source_coordinates(size, count, scale, aligned)
    low = _floor_index(coordinates)
    neighbors = [dnp.add(low, k) for k in range(-1, 3)]
    return [(dnp.clip(n, 0, size - 1), cubic_weights(dnp.abs(dnp.subtract(coordinates, n)))) for n in neighbors]


def _antialiased_taps(
    kernel: Callable[[Array], Array], radius: int
) -> Callable[[TracedSize, TracedSize, float | None, bool], Taps]:
    """Return the taps of an antialiasing filter: the kernel is widened when downsampling. Sizes must be static."""

    def taps(size: TracedSize, count: TracedSize, scale: float | None, aligned: bool) -> Taps:
        size, count = int(size), int(count)
        step = (size - 1) / max(count - 1, 1) if aligned else 1 / scale if scale else size / count
        kernel_scale = max(step, 1.0)
        center = (np.arange(count) + 0.5) * step
        low: Array = np.maximum((center - radius * kernel_scale + 0.5).astype(np.int64), 0)
        high: Array = np.minimum((center + radius * kernel_scale + 0.5).astype(np.int64), size)
        indices: Array = low + np.arange(int((high - low).max()))[:, np.newaxis]
        weights: Array = np.where(indices < high, kernel(np.abs(indices - center + 0.5) / kernel_scale), 0)
        return list(zip(np.minimum(indices, size - 1), weights / weights.sum(0), strict=True))

    return taps


def _linear_kernel(distance: Array) -> Array:
    return np.maximum(1 - distance, 0)


def _cubic_kernel(distance: Array) -> Array:
    return np.where(distance < 2, cubic_weights(distance, -0.5), 0)


def _nearest(size: TracedSize, count: TracedSize, scale: float | None, offset: float) -> Taps:
    positions = dnp.add(_positions(count, np.float32), np.float32(offset))
    return [(dnp.minimum(_floor_index(dnp.multiply(positions, _step(size, count, scale))), size - 1), None)]


def _resize_axis(x: Any, axis: int, taps: Taps) -> Any:
    """Return the sum over taps of weights · x[indices] along an axis."""
    shape, total = (-1, *(1,) * (x.ndim - 1 - axis)), None
    for indices, weights in taps:
        term = dnp.take(x, indices, axis=axis)
        if weights is not None:
            term = dnp.multiply(term, dnp.reshape(convert(weights, x.dtype), shape))
        total = term if total is None else dnp.add(total, term)
    return total


def _resize_all_axes(
    x: Any,
    output_size: Sequence[TracedSize] | None,
    scales: Sequence[float | None],
    taps: Callable[[TracedSize, TracedSize, float | None], Taps],
    rounded: Callable[[Any], Any] | None = None,
) -> Any:
    """Resize the axes one after the other; with rounding after each, the last one first as in PyTorch."""
    axes = list(enumerate(scales))
    for k, scale in axes if rounded is None else reversed(axes):
        axis = 2 + k
        size = x.shape[axis]
        count = output_size[k] if output_size else _scaled_size(size, scale or 1)
        if untraced(count) != untraced(size):
            x = _resize_axis(x, axis, taps(size, count, scale))
            x = x if rounded is None else rounded(x)
    return x


def _scaled_size(size: TracedSize, scale: float) -> TracedSize:
    """Return ⌊size · scale⌋; symbolic for a symbolic size if the product is exact."""
    exact = Fraction(scale)
    if not isinstance(size, int) and exact.denominator <= _MAX_SCALE_DENOMINATOR:
        return size * exact.numerator // exact.denominator
    return int(np.floor(int(size) * scale))


def _scales(output_size: Any, factors: Any, rank: int) -> Sequence[float | None]:
    return list(factors) if factors else [None] * rank


def _interpolated(
    x: Any,
    output_size: Any,
    scales: Sequence[float | None],
    taps: Callable[[TracedSize, TracedSize, float | None], Taps],
) -> Any:
    """Resize in float32 or wider; after each axis, integers are rounded to the nearest one within their range."""
    dtype = x.dtype

    def rounded(y: Any) -> Any:
        return dnp.clip(dnp.rint(y), np.iinfo(dtype).min, np.iinfo(dtype).max)

    wide = convert(x, np.promote_types(dtype, np.float32))
    return convert(_resize_all_axes(wide, output_size, scales, taps, None if is_floating(dtype) else rounded), dtype)


def _interpolation_rule(mode: Callable[..., Taps], rank: int) -> Any:
    def by_factors(x: Any, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
        scales = _scales(output_size, scale_factors, rank)
        return _interpolated(x, output_size, scales, lambda n, m, s: mode(n, m, s, align_corners))

    return by_factors


def _by_scales(mode: Callable[..., Taps]) -> Any:
    def by_scales(x: Any, output_size: Any, align_corners: bool, *scales: float | None) -> Any:
        padded = [*scales, *[None] * (x.ndim - 2 - len(scales))]
        return _interpolated(x, output_size, padded, lambda n, m, s: mode(n, m, s, align_corners))

    return by_scales


def _nearest_rules(offset: float, rank: int) -> tuple[Any, Any]:
    def by_factors(x: Any, output_size: Any, scale_factors: Any = None) -> Any:
        scales = _scales(output_size, scale_factors, rank)
        return _resize_all_axes(x, output_size, scales, lambda n, m, s: _nearest(n, m, s, offset))

    def by_scales(x: Any, output_size: Any, *scales: float | None) -> Any:
        padded = [*scales, *[None] * (rank - len(scales))]
        return _resize_all_axes(x, output_size, padded, lambda n, m, s: _nearest(n, m, s, offset))

    return by_factors, by_scales


for _name, _mode, _rank in (
    ("linear1d", _linear, 1),
    ("bilinear2d", _linear, 2),
    ("trilinear3d", _linear, 3),
    ("bicubic2d", _cubic, 2),
):
    table(f"upsample_{_name}.vec")(_interpolation_rule(_mode, _rank))
    table(f"upsample_{_name}")(_by_scales(_mode))
for _name, _mode in (
    ("bilinear2d_aa", _antialiased_taps(_linear_kernel, 1)),
    ("bicubic2d_aa", _antialiased_taps(_cubic_kernel, 2)),
):
    table(f"_upsample_{_name}.vec")(_interpolation_rule(_mode, 2))
    table(f"_upsample_{_name}")(_by_scales(_mode))
for _rank in (1, 2, 3):
    for _name, _offset in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5)):
        _by_factors, _scaled = _nearest_rules(_offset, _rank)
        table(f"{_name}{_rank}d.vec")(_by_factors)
        table(f"{_name}{_rank}d")(_scaled)
