"""Images at places that are data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.numpy.apply import convert
from dlc.pytorch.rules.adjoints import chosen, pulled
from dlc.pytorch.rules.resizing import cubic_weights
from dlc.pytorch.rules.table import Table

table = Table()

BILINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def _reflected(place: Any, size: int, align_corners: bool) -> Any:
    """Places folded at the ends of an axis until they lie within."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return dnp.zeros_like(place)
    distance = dnp.remainder(dnp.abs(dnp.subtract(place, low)), 2 * span)
    return dnp.add(dnp.minimum(distance, dnp.subtract(2 * span, distance)), low)


def _padded(place: Any, size: int, padding_mode: int, align_corners: bool) -> Any:
    """Where a place is read that may lie outside."""
    if padding_mode == REFLECTION:
        place = _reflected(place, size, align_corners)
    return place if padding_mode == ZEROS else dnp.clip(place, 0.0, size - 1.0)


def _taps(place: Any, size: int, mode: int, padding_mode: int, align_corners: bool) -> list[tuple[Any, Any]]:
    """The places along an axis that a place between them is made of, and their weights."""
    if mode == CUBIC:
        low = dnp.floor(place)
        part = dnp.subtract(place, low)
        weights = [cubic_weights(dnp.abs(dnp.subtract(part, float(k)))) for k in range(-1, 3)]
        return [(_padded(dnp.add(low, k - 1.0), size, padding_mode, align_corners), w) for k, w in enumerate(weights)]
    place = _padded(place, size, padding_mode, align_corners)
    if mode == NEAREST:
        return [(dnp.round(place), None)]
    low = dnp.floor(place)
    part = dnp.subtract(place, low)
    return [(low, dnp.subtract(1.0, part)), (dnp.add(low, 1.0), part)]


@table("grid_sampler_2d grid_sampler_3d")
def grid_sampler(x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """x [N, C, *S] at places [N, *T, rank] between -1 and 1, of which the first is along the last axis of S."""
    sizes, rank = [int(s) for s in x.shape[2:]], x.ndim - 2
    axes: list[list[tuple[Any, Any]]] = []
    for axis, size in enumerate(sizes):
        ends = (size - 1) / 2 if align_corners else size / 2
        coordinate = grid[..., rank - 1 - axis]
        place = dnp.subtract(dnp.multiply(dnp.add(coordinate, 1.0), ends), 0.0 if align_corners else 0.5)
        axes.append(_taps(place, size, interpolation_mode, padding_mode, align_corners))
    total: Any = None
    images: Array = np.arange(int(x.shape[0])).reshape(-1, *(1,) * rank)
    rows = dnp.moveaxis(x, 1, -1)
    for corner in product(*axes):
        places = [place for place, _ in corner]
        part = rows[images, *(convert(dnp.clip(p, 0.0, n - 1.0), np.int64) for p, n in zip(places, sizes, strict=True))]
        weight: Any = np.ones((), x.dtype)
        for (place, factor), size in zip(corner, sizes, strict=True):
            inside = convert(dnp.logical_and(dnp.greater_equal(place, 0), dnp.less(place, size)), x.dtype)
            weight = dnp.multiply(weight, inside if factor is None else dnp.multiply(inside, factor))
        part = dnp.multiply(part, dnp.expand_dims(weight, -1))
        total = part if total is None else dnp.add(total, part)
    return dnp.moveaxis(total, -1, 1)


@table("grid_sampler_2d_backward grid_sampler_3d_backward")
def grid_sampler_backward(
    g: Any,
    x: Any,
    grid: Any,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool] = (True, True),
) -> Any:
    def forward(x: Any, grid: Any) -> Any:
        return grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners)

    return chosen(output_mask, pulled(forward, g, x, grid))
