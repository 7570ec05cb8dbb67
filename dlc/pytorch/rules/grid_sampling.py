"""Grid sampling: interpolate images at coordinates computed at run time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.numpy.apply import convert
from dlc.pytorch.rules.backward_ops import apply_vjp, select_gradients
from dlc.pytorch.rules.interpolation import cubic_weights
from dlc.pytorch.rules.rule_table import RuleTable, widened

table = RuleTable()

BILINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def _reflect_coordinate(coordinate: Any, size: int, align_corners: bool) -> Any:
    """Reflect coordinates at the ends of an axis until they are inside."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return dnp.zeros_like(coordinate)
    distance = dnp.remainder(dnp.abs(dnp.subtract(coordinate, low)), 2 * span)
    return dnp.add(dnp.minimum(distance, dnp.subtract(2 * span, distance)), low)


def _pad_coordinate(coordinate: Any, size: int, padding_mode: int, align_corners: bool) -> Any:
    """Map coordinates outside of the image according to the padding mode."""
    if padding_mode == REFLECTION:
        coordinate = _reflect_coordinate(coordinate, size, align_corners)
    return coordinate if padding_mode == ZEROS else dnp.clip(coordinate, 0.0, size - 1.0)


def _taps(coordinate: Any, size: int, mode: int, padding_mode: int, align_corners: bool) -> list[tuple[Any, Any]]:
    """Return the pixel positions along an axis that a coordinate is interpolated from, and their weights."""
    if mode == CUBIC:
        low = dnp.floor(coordinate)
        fraction = dnp.subtract(coordinate, low)
        weights = [cubic_weights(dnp.abs(dnp.subtract(fraction, float(k)))) for k in range(-1, 3)]
        return [(_pad_coordinate(dnp.add(low, k - 1.0), size, padding_mode, align_corners), w) for k, w in enumerate(weights)]
    coordinate = _pad_coordinate(coordinate, size, padding_mode, align_corners)
    if mode == NEAREST:
        return [(dnp.round(coordinate), None)]
    low = dnp.floor(coordinate)
    fraction = dnp.subtract(coordinate, low)
    return [(low, dnp.subtract(1.0, fraction)), (dnp.add(low, 1.0), fraction)]


@table("grid_sampler_2d grid_sampler_3d")
def grid_sampler(x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Sample x [N, C, *S] at coordinates [N, *T, rank] in [-1, 1]; the first coordinate is along the last axis of S.

    Half precision is computed in float32, in which coordinates are exact enough.
    """
    dtype, x, grid = x.dtype, widened(x), widened(grid)
    sizes, rank = [int(s) for s in x.shape[2:]], x.ndim - 2
    axes: list[list[tuple[Any, Any]]] = []
    for axis, size in enumerate(sizes):
        half_extent = (size - 1) / 2 if align_corners else size / 2
        normalized = grid[..., rank - 1 - axis]
        coordinate = dnp.subtract(dnp.multiply(dnp.add(normalized, 1.0), half_extent), 0.0 if align_corners else 0.5)
        axes.append(_taps(coordinate, size, interpolation_mode, padding_mode, align_corners))
    total: Any = None
    images: Array = np.arange(int(x.shape[0])).reshape(-1, *(1,) * rank)
    rows = dnp.moveaxis(x, 1, -1)
    for corner in product(*axes):
        positions = [position for position, _ in corner]
        pixels = rows[images, *(convert(dnp.clip(p, 0.0, n - 1.0), np.int64) for p, n in zip(positions, sizes, strict=True))]
        weight: Any = np.ones((), x.dtype)
        for (position, factor), size in zip(corner, sizes, strict=True):
            is_in_bounds = convert(dnp.logical_and(dnp.greater_equal(position, 0), dnp.less(position, size)), x.dtype)
            weight = dnp.multiply(weight, is_in_bounds if factor is None else dnp.multiply(is_in_bounds, factor))
        term = dnp.multiply(pixels, dnp.expand_dims(weight, -1))
        total = term if total is None else dnp.add(total, term)
    return convert(dnp.moveaxis(total, -1, 1), dtype)


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

    return select_gradients(output_mask, apply_vjp(forward, g, x, grid))
