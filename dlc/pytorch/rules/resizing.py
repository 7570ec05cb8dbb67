"""Images in other sizes: interpolation along one axis after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.pytorch.rules.table import Table

table = Table()

# Places along an axis of the operand for each place of the result, and their weights: [taps, places] both.
Taps = tuple[Array, Array]


def _places(size: int, count: int, scale: float | None, aligned: bool) -> Array:
    """Where the middle of each place of the result lies; ends lie on ends if `aligned`."""
    if aligned:
        return np.arange(count) * ((size - 1) / max(count - 1, 1))
    step = np.float32(1 / scale if scale else size / count)
    return (np.arange(count, dtype=np.float32) + np.float32(0.5)) * step - np.float32(0.5)


def _linear(size: int, count: int, scale: float | None, aligned: bool) -> Taps:
    places = np.maximum(_places(size, count, scale, aligned), 0)
    low = np.minimum(np.floor(places).astype(np.int64), size - 1)
    part = places - low
    return np.stack([low, np.minimum(low + 1, size - 1)]), np.stack([1 - part, part])


def cubic_weights(distance: Any, a: float = -0.75) -> Any:
    """Keys' kernel at distances from 0 to 2."""
    d = distance
    return dnp.where(dnp.less_equal(d, 1), ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a)


def _cubic(size: int, count: int, scale: float | None, aligned: bool) -> Taps:
    places = _places(size, count, scale, aligned)
    low = np.floor(places).astype(np.int64)
    near = low + np.arange(-1, 3)[:, np.newaxis]
    return np.clip(near, 0, size - 1), cubic_weights(np.abs(places - near))


def _smooth(kernel: Callable[[Array], Array], reach: int) -> Callable[[int, int, float | None, bool], Taps]:
    """Taps of a kernel that is stretched where an image becomes smaller, so that each of its elements counts."""

    def taps(size: int, count: int, scale: float | None, aligned: bool) -> Taps:
        step = (size - 1) / max(count - 1, 1) if aligned else 1 / scale if scale else size / count
        stretch = max(step, 1.0)
        center = (np.arange(count) + 0.5) * step
        low: Array = np.maximum((center - reach * stretch + 0.5).astype(np.int64), 0)
        high: Array = np.minimum((center + reach * stretch + 0.5).astype(np.int64), size)
        places: Array = low + np.arange(int((high - low).max()))[:, np.newaxis]
        weights: Array = np.where(places < high, kernel(np.abs(places - center + 0.5) / stretch), 0)
        return np.minimum(places, size - 1), weights / weights.sum(0)

    return taps


def _hat(distance: Array) -> Array:
    return np.maximum(1 - distance, 0)


def _keys(distance: Array) -> Array:
    return np.where(distance < 2, cubic_weights(distance, -0.5), 0)


def _nearest(size: int, count: int, scale: float | None, offset: float) -> Taps:
    step = np.float32(1 / scale if scale else size / count)
    places = np.floor((np.arange(count, dtype=np.float32) + np.float32(offset)) * step).astype(np.int64)
    return np.minimum(places, size - 1)[np.newaxis], np.ones((1, count))


def _resized(x: Any, axis: int, taps: Taps) -> Any:
    """The sum over taps t of weights[t] · x[places[t]] along an axis."""
    shape, total = (-1, *(1,) * (x.ndim - 1 - axis)), None
    for places, weights in zip(*taps, strict=True):
        part = dnp.take(x, places, axis=axis)
        if not (weights == 1).all():
            part = dnp.multiply(part, weights.astype(x.dtype).reshape(shape))
        total = part if total is None else dnp.add(total, part)
    return total


def _along_all(
    x: Any, output_size: Sequence[int] | None, scales: Sequence[float | None], taps: Callable[[int, int, float | None], Taps]
) -> Any:
    for k, scale in enumerate(scales):
        axis = 2 + k
        size = int(x.shape[axis])
        count = int(output_size[k]) if output_size else int(np.floor(size * (scale or 1)))
        if count != size:
            x = _resized(x, axis, taps(size, count, scale))
    return x


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
