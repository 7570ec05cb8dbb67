"""Images in other sizes: interpolation along one axis after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, refuse
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


def _cubic(size: int, count: int, scale: float | None, aligned: bool) -> Taps:
    """Keys' kernel with a = -0.75, as PyTorch has it."""
    places = _places(size, count, scale, aligned)
    low = np.floor(places).astype(np.int64)
    near = low + np.arange(-1, 3)[:, np.newaxis]
    d, a = np.abs(places - near), -0.75
    weights = np.where(d <= 1, ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a)
    return np.clip(near, 0, size - 1), weights


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
for _rank in (1, 2, 3):
    for _name, _offset in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5)):
        _by_factors, _scaled = _nearest_by(_offset, _rank)
        table(f"{_name}{_rank}d.vec")(_by_factors)
        table(f"{_name}{_rank}d")(_scaled)


@table("grid_sampler_2d")
def grid_sampler(x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """x [N, C, H, W] at places [N, h, w, 2] between -1 and 1, of which the first is along W."""
    if interpolation_mode > 1 or padding_mode > 1:
        refuse(UnsupportedError("grid_sample by cubes or with reflection; use bilinear or nearest, zeros or border"))
    axes: list[list[tuple[Any, Any]]] = []
    for size, coordinate in zip(x.shape[2:], (grid[..., 1], grid[..., 0]), strict=True):
        ends = (size - 1) / 2 if align_corners else size / 2
        place = dnp.subtract(dnp.multiply(dnp.add(coordinate, 1.0), ends), 0.0 if align_corners else 0.5)
        if padding_mode == 1:
            place = dnp.clip(place, 0.0, size - 1.0)
        if interpolation_mode == 1:
            axes.append([(dnp.round(place), None)])
            continue
        low = dnp.floor(place)
        part = dnp.subtract(place, low)
        axes.append([(low, dnp.subtract(1.0, part)), (dnp.add(low, 1.0), part)])
    total: Any = None
    images: Array = np.arange(int(x.shape[0])).reshape(-1, 1, 1)
    sizes, rows = x.shape[2:], dnp.moveaxis(x, 1, -1)
    for (row, row_weight), (column, column_weight) in product(*axes):
        places = list(zip((row, column), sizes, strict=True))
        part = rows[images, *(convert(dnp.clip(p, 0.0, n - 1.0), np.int64) for p, n in places)]
        inside = [dnp.logical_and(dnp.greater_equal(p, 0), dnp.less(p, n)) for p, n in places]
        weight = convert(dnp.logical_and(*inside), x.dtype)
        weight = weight if row_weight is None else dnp.multiply(weight, dnp.multiply(row_weight, column_weight))
        part = dnp.multiply(part, dnp.expand_dims(weight, -1))
        total = part if total is None else dnp.add(total, part)
    return dnp.moveaxis(total, -1, 1)
