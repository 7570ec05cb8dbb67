"""Images in other sizes: interpolation along one axis after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.dims import Size, is_static
from dlc.numpy.apply import convert
from dlc.pytorch.rules.table import Table

table = Table()

# Factors of open sizes are whole numbers of such parts of 1 that floats are exact.
_MOST_PARTS = 64
# For each tap the places along an axis of the operand, one for each place of the result, and their weights (None: 1).
Taps = Sequence[tuple[Any, Any]]


def _here(count: Any, dtype: Any = np.int64) -> Any:
    return dnp.arange(count, dtype=dtype)


def _ratio(size: Any, count: Any) -> Any:
    """size / count, of open sizes as PyTorch has it, in f32."""
    if is_static((size, count)):
        return size / count
    return dnp.divide(convert(dnp.asarray(size), np.float32), convert(dnp.asarray(count), np.float32))


def _step(size: Size, count: Size, scale: float | None) -> Any:
    return convert(1 / scale if scale else _ratio(size, count), np.float32)


def _places(size: Size, count: Size, scale: float | None, aligned: bool) -> Any:
    """Where the middle of each place of the result lies; ends lie on ends if `aligned`."""
    if aligned:
        intervals = max(count - 1, 1) if isinstance(count, int) else dnp.maximum(dnp.asarray(count - 1), 1)
        return dnp.multiply(_here(count), _ratio(size - 1, intervals))
    half = np.float32(0.5)
    return dnp.subtract(dnp.multiply(dnp.add(_here(count, np.float32), half), _step(size, count, scale)), half)


def _whole(places: Any) -> Any:
    return convert(dnp.floor(places), np.int64)


def _linear(size: Size, count: Size, scale: float | None, aligned: bool) -> Taps:
    places = dnp.maximum(_places(size, count, scale, aligned), 0)
    low = dnp.minimum(_whole(places), size - 1)
    part = dnp.subtract(places, low)
    return [(low, dnp.subtract(1, part)), (dnp.minimum(dnp.add(low, 1), size - 1), part)]


def cubic_weights(distance: Any, a: float = -0.75) -> Any:
    """Keys' kernel at distances from 0 to 2."""
    d = distance
    return dnp.where(dnp.less_equal(d, 1), ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a)


def _cubic(size: Size, count: Size, scale: float | None, aligned: bool) -> Taps:
    places = _places(size, count, scale, aligned)
    low = _whole(places)
    near = [dnp.add(low, k) for k in range(-1, 3)]
    return [(dnp.clip(n, 0, size - 1), cubic_weights(dnp.abs(dnp.subtract(places, n)))) for n in near]


def _smooth(kernel: Callable[[Array], Array], reach: int) -> Callable[[Size, Size, float | None, bool], Taps]:
    """Taps of a kernel that is stretched where an image becomes smaller, so that each of its elements counts; of known sizes,
    which say how many there are."""

    def taps(size: Size, count: Size, scale: float | None, aligned: bool) -> Taps:
        size, count = int(size), int(count)
        step = (size - 1) / max(count - 1, 1) if aligned else 1 / scale if scale else size / count
        stretch = max(step, 1.0)
        center = (np.arange(count) + 0.5) * step
        low: Array = np.maximum((center - reach * stretch + 0.5).astype(np.int64), 0)
        high: Array = np.minimum((center + reach * stretch + 0.5).astype(np.int64), size)
        places: Array = low + np.arange(int((high - low).max()))[:, np.newaxis]
        weights: Array = np.where(places < high, kernel(np.abs(places - center + 0.5) / stretch), 0)
        return list(zip(np.minimum(places, size - 1), weights / weights.sum(0), strict=True))

    return taps


def _hat(distance: Array) -> Array:
    return np.maximum(1 - distance, 0)


def _keys(distance: Array) -> Array:
    return np.where(distance < 2, cubic_weights(distance, -0.5), 0)


def _nearest(size: Size, count: Size, scale: float | None, offset: float) -> Taps:
    here = dnp.add(_here(count, np.float32), np.float32(offset))
    return [(dnp.minimum(_whole(dnp.multiply(here, _step(size, count, scale))), size - 1), None)]


def _resized(x: Any, axis: int, taps: Taps) -> Any:
    """The sum over taps of weights · x[places] along an axis."""
    shape, total = (-1, *(1,) * (x.ndim - 1 - axis)), None
    for places, weights in taps:
        part = dnp.take(x, places, axis=axis)
        if weights is not None:
            part = dnp.multiply(part, dnp.reshape(convert(weights, x.dtype), shape))
        total = part if total is None else dnp.add(total, part)
    return total


def _along_all(
    x: Any, output_size: Sequence[Size] | None, scales: Sequence[float | None], taps: Callable[[Size, Size, float | None], Taps]
) -> Any:
    for k, scale in enumerate(scales):
        axis = 2 + k
        size = x.shape[axis]
        count = output_size[k] if output_size else _times(size, scale or 1)
        if count != size:
            x = _resized(x, axis, taps(size, count, scale))
    return x


def _times(size: Size, scale: float) -> Size:
    """⌊size · scale⌋, of an open size where the product is exact."""
    exact = Fraction(scale)
    if not isinstance(size, int) and exact.denominator <= _MOST_PARTS:
        return size * exact.numerator // exact.denominator
    return int(np.floor(int(size) * scale))


def _scales(output_size: Any, factors: Any, rank: int) -> Sequence[float | None]:
    return list(factors) if factors else [None] * rank


def _interpolated(mode: Callable[..., Taps], rank: int) -> Any:
    def by_factors(x: Any, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
        scales = _scales(output_size, scale_factors, rank)
        return _along_all(x, output_size, scales, lambda n, m, s: mode(n, m, s, align_corners))

    return by_factors


def _by_scales(mode: Callable[..., Taps]) -> Any:
    def by_scales(x: Any, output_size: Any, align_corners: bool, *scales: float | None) -> Any:
        padded = [*scales, *[None] * (x.ndim - 2 - len(scales))]
        return _along_all(x, output_size, padded, lambda n, m, s: mode(n, m, s, align_corners))

    return by_scales


def _nearest_by(offset: float, rank: int) -> tuple[Any, Any]:
    def by_factors(x: Any, output_size: Any, scale_factors: Any = None) -> Any:
        scales = _scales(output_size, scale_factors, rank)
        return _along_all(x, output_size, scales, lambda n, m, s: _nearest(n, m, s, offset))

    def by_scales(x: Any, output_size: Any, *scales: float | None) -> Any:
        padded = [*scales, *[None] * (rank - len(scales))]
        return _along_all(x, output_size, padded, lambda n, m, s: _nearest(n, m, s, offset))

    return by_factors, by_scales


for _name, _mode, _rank in (
    ("linear1d", _linear, 1),
    ("bilinear2d", _linear, 2),
    ("trilinear3d", _linear, 3),
    ("bicubic2d", _cubic, 2),
):
    table(f"upsample_{_name}.vec")(_interpolated(_mode, _rank))
    table(f"upsample_{_name}")(_by_scales(_mode))
for _name, _mode in (("bilinear2d_aa", _smooth(_hat, 1)), ("bicubic2d_aa", _smooth(_keys, 2))):
    table(f"_upsample_{_name}.vec")(_interpolated(_mode, 2))
    table(f"_upsample_{_name}")(_by_scales(_mode))
for _rank in (1, 2, 3):
    for _name, _offset in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5)):
        _by_factors, _scaled = _nearest_by(_offset, _rank)
        table(f"{_name}{_rank}d.vec")(_by_factors)
        table(f"{_name}{_rank}d")(_scaled)
