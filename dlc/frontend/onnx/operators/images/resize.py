"""Resize: separable interpolation, one axis at a time.

An element of the result is a weighted sum of a few elements of the operand. Their indices and weights are equal in every row.
For static sizes they are constants; for symbolic sizes they are computed at run time (`symbolic_resize.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, normalized_axes
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.interpolation import interpolate_axis
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.resize_positions import POSITIONS, ROUNDINGS, AxisGeometry, cubic_far, cubic_near
from dlc.frontend.onnx.operators.images.symbolic_resize import gather_taps, interpolating_taps, runtime_geometry
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.size_limits import require_axis_length
from dlc.ir import f32
from dlc.shapes.dims import Size, is_static
from dlc.shapes.polynomials import quotient

table = ConverterTable()

# The largest numerator of a scale n / 2^k, for which size · n is exact in f32.
_MAX_SCALE_NUMERATOR = 256


@dataclass(frozen=True)
class ResizeAxis:
    """One axis to resize: its index, both sizes, the scale, and the region of interest as fractions of the axis.

    A scale of None is the ratio of the sizes.
    """

    index: int
    size: Size
    result_size: Size
    scale: float | None
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def is_static(self) -> bool:
        return is_static((self.size, self.result_size))

    @property
    def geometry(self) -> AxisGeometry:
        """The static sizes from which positions are computed."""
        size, result_size = int(self.size), int(self.result_size)
        values = (size, size - 1, result_size, max(result_size - 1, 1), self.scale)
        return AxisGeometry(np.arange(result_size, dtype=np.float32), *map(np.float32, values))


@dataclass(frozen=True)
class _Sampling:
    """The settings that determine the taps of a position; `cubic_a` is the coefficient of the cubic kernel."""

    transform: str
    mode: str
    rounding: Callable[[Any], Any]
    cubic_a: float = -0.75
    antialias: bool = False
    excludes_outside: bool = False

    def taps(self, positions: Array, axis: ResizeAxis) -> tuple[Array, Array]:
        """Return the indices and weights of the taps of positions, both [taps, positions]."""
        last = int(axis.size) - 1
        if self.mode == "nearest":
            return np.clip(self.rounding(positions), 0, last).astype(np.int64)[np.newaxis], np.ones((1, len(positions)))
        # Antialiasing widens the kernel to the extent of one result element.
        stretch = min(axis.scale or 1.0, 1.0) if self.antialias else 1.0
        radius = int(np.ceil((2 if self.mode == "cubic" else 1) / stretch))
        indices = np.floor(positions).astype(np.int64) + np.arange(1 - radius, radius + 1)[:, np.newaxis]
        weights = self._kernel((indices - positions.astype(np.float64)) * stretch)
        if self.excludes_outside:
            weights = np.where((indices >= 0) & (indices <= last), weights, 0.0)
        if self.antialias or self.excludes_outside:
            weights = weights / np.where(weights.sum(0) == 0, 1.0, weights.sum(0))
        used = np.abs(weights).max(1, initial=0) > 0
        used[0] |= not used.any()
        return np.clip(indices[used], 0, last), weights[used]

    def _kernel(self, distance: Array) -> Array:
        d = np.abs(distance)
        if self.mode == "linear":
            return np.maximum(1 - d, 0.0)
        return np.where(d <= 1, cubic_near(d, self.cubic_a), np.where(d < 2, cubic_far(d, self.cubic_a), 0.0))

    def resize(self, node: OnnxNode, x: ImportedValue, axis: ResizeAxis) -> ImportedValue:
        """Return `x` with one axis resized."""
        if not axis.is_static:
            geometry = runtime_geometry(node.emit, axis.size, axis.result_size, axis.scale)
            positions = POSITIONS[self.transform](geometry)
            taps = (
                [(self.rounding(positions), None)]
                if self.mode == "nearest"
                else interpolating_taps(positions, self.cubic_a if self.mode == "cubic" else None)
            )
            return gather_taps(node.emit, x, axis.index, geometry, taps)
        positions = _TRANSFORMS[self.transform](axis)
        if axis.size == axis.result_size and bool((positions == axis.geometry.indices).all()):
            return x
        return interpolate_axis(node.emit, node.proto.output[0], x, axis.index, *self.taps(positions, axis))


@table("Upsample", until=9)
@table("Resize", until=10)
def upsample(node: OnnxNode) -> ImportedValue:
    """Resize without coordinate transformation modes: index k of the result samples position `k / scale`.

    The nearest element is rounded down, or up along an axis that shrinks.
    """
    x = node[0]
    scales = (
        node.reals("scales")
        if node.has_attribute("scales")
        else [float(s) for s in node.constant_input(1, "scales").reshape(-1)]
    )
    if len(scales) != x.rank or not np.isfinite(scales).all() or min(scales, default=1) <= 0:
        raise ModelError(f"{node.description}: {list(scales)} must be a positive scale for each of the {x.rank} axes")
    mode = node.choice("mode", "nearest", ("nearest", "linear"))
    sizes = zip(x.shape, scales, strict=True)
    axes = [ResizeAxis(a, size, _scaled(size, scale), scale) for a, (size, scale) in enumerate(sizes) if scale != 1]
    y = x if is_float(x.element_type) or mode == "nearest" else node.emit.cast(x, f32)
    for axis in _processing_order(node, axes):
        is_shrinking = axis.scale is not None and axis.scale < 1
        y = _Sampling("asymmetric", mode, ROUNDINGS["ceil" if is_shrinking else "floor"]).resize(node, y, axis)
    # ONNX Runtime truncates integers.
    return node.emit.cast(y, x.element_type)


@table("Resize", since=11)
def resize(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    axes = _axes(node)
    sampling = _Sampling(
        node.choice("coordinate_transformation_mode", "half_pixel", tuple(_TRANSFORMS)),
        node.choice("mode", "nearest", ("nearest", "linear", "cubic")),
        ROUNDINGS[node.choice("nearest_mode", "round_prefer_floor", tuple(ROUNDINGS))],
        node.real("cubic_coeff_a", -0.75),
        node.flag("antialias"),
        node.flag("exclude_outside"),
    )
    extrapolation, mode = node.real("extrapolation_value", 0.0), sampling.mode
    y = x if is_float(x.element_type) or mode == "nearest" else emit.cast(x, f32)
    for axis in _processing_order(node, axes):
        y = sampling.resize(node, y, axis)
    if sampling.transform == "tf_crop_and_resize":
        for axis in axes:
            positions = _TRANSFORMS[sampling.transform](axis).reshape(-1, *(1,) * (x.rank - 1 - axis.index))
            is_outside = (positions < 0) | (positions > axis.size - 1)
            if is_outside.any():
                fill = emit.cast(emit.scalar(extrapolation, f32), y.element_type)
                y = emit(dl.SelectOp, emit.constant(is_outside), fill, y)
    # ONNX Runtime truncates integers, except for cubic interpolation and antialiasing, where it rounds.
    should_round = mode == "cubic" or (mode == "linear" and sampling.antialias)
    return emit.cast(emit(dl.RoundOp, y) if should_round and not is_float(x.element_type) else y, x.element_type)


def _processing_order(node: OnnxNode, axes: list[ResizeAxis]) -> list[ResizeAxis]:
    """Sort static axes: first those that shrink; of those that grow the last axis first, so that later axes copy whole rows.

    Axes of symbolic size follow. Raises ModelError for an axis that is too long.
    """
    static = [axis for axis in axes if axis.is_static]
    require_axis_length(node.description, max((int(axis.result_size) for axis in static), default=0))
    grows = {axis.index: axis.result_size > axis.size for axis in static}
    static.sort(key=lambda a: (grows[a.index], -a.index if grows[a.index] else a.index))
    return [*static, *(axis for axis in axes if not axis.is_static)]


def _scaled(size: Size, scale: float) -> Size:
    """Return the size of a scaled axis; raise UndecidableError for a symbolic one times a scale with many significant bits."""
    if isinstance(size, int):
        return int(np.floor(size * np.float32(scale)))
    numerator, denominator = scale.as_integer_ratio()
    return size * numerator // denominator if numerator <= _MAX_SCALE_NUMERATOR else int(size)


def _ratio(result_size: Size, size: Size) -> float | None:
    """Return the ratio of two sizes; None if it depends on the symbols."""
    if isinstance(result_size, int) and isinstance(size, int):
        return result_size / max(size, 1)
    ratio = quotient(result_size, size)
    return float(ratio) if isinstance(ratio, int) else None


def _axes(node: OnnxNode) -> list[ResizeAxis]:
    """Return the axes to resize. Raises UndecidableError, which names it, for a symbolic size that is not supported."""
    x, rank = node[0], node[0].rank
    axis_indices = list(normalized_axes(None, node.integers("axes", range(rank)), rank))
    policy = node.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    transform = node.string("coordinate_transformation_mode", "half_pixel")
    is_cropping, is_stretched = transform == "tf_crop_and_resize", policy == "stretch"
    has_sizes_input = node.get(3) is not None
    entries = list(node.sizes(3, "sizes")) if has_sizes_input else node.constant_input(2, "scales").reshape(-1).tolist()
    if len(entries) != len(axis_indices):
        raise ModelError(f"{node.description}: {entries} for the axes {axis_indices}; expected one for each axis")
    sizes = [x.shape[a] for a in axis_indices]
    if is_stretched and not is_cropping:
        # Symbolic axes that do not change.
        pairs = zip(sizes, entries, strict=True)
        changed = [k for k, (s, entry) in enumerate(pairs) if isinstance(s, int) or entry != (s if has_sizes_input else 1)]
        axis_indices = [axis_indices[k] for k in changed]
        sizes, entries = ([values[k] for k in changed] for values in (sizes, entries))
    if not is_stretched or transform not in POSITIONS or node.flag("antialias") or node.flag("exclude_outside"):
        sizes = [int(size) for size in sizes]
        entries = [int(entry) for entry in entries] if has_sizes_input else entries
    if has_sizes_input:
        resized: list[Size] = entries
        scales = [_ratio(r, s) for r, s in zip(resized, sizes, strict=True)]
        if not is_stretched:
            scales = [(min if policy == "not_larger" else max)(cast("list[float]", scales))] * len(scales)
            resized = [int(np.floor(int(s) * scale + 0.5)) for s, scale in zip(sizes, scales, strict=True)]
        # An empty result needs no scale; avoid 0.
        scales = [1.0 if scale == 0 else scale for scale in scales]
    else:
        scales = [float(entry) for entry in entries]
        if not np.isfinite(scales).all():
            raise ModelError(f"{node.description}: its scales {scales} are not finite")
        resized = [_scaled(s, scale) for s, scale in zip(sizes, scales, strict=True)]
    if min((scale for scale in scales if scale is not None), default=1) <= 0:
        raise ModelError(f"{node.description}: {scales} must be a positive scale for each of the axes {axis_indices}")
    node.ignore_input(1)
    node.ignore_input(2)
    regions = [(0.0, 1.0)] * len(axis_indices)
    if is_cropping:
        roi = [float(v) for v in node.constant_input(1, "roi").reshape(-1)]
        if len(roi) != 2 * len(axis_indices):
            raise ModelError(f"{node.description}: {len(roi)} bounds in roi, expected two for each of the axes {axis_indices}")
        regions = list(zip(roi[: len(axis_indices)], roi[len(axis_indices) :], strict=True))
    return list(map(ResizeAxis, axis_indices, sizes, resized, scales, regions))


# Positions of result indices on the axis of the operand; computed in f32 like ONNX Runtime, so that ties round alike.


def _half_pixel_symmetric(axis: ResizeAxis) -> Array:
    # The fraction of a pixel lost by rounding the size is trimmed evenly at both ends.
    size, scale = int(axis.size), axis.scale or 1.0
    adjustment = np.float32(int(axis.result_size)) / np.float32(scale * size or 1)
    return np.float32(size / 2) * (1 - adjustment) + POSITIONS["half_pixel"](axis.geometry)


def _crop_and_resize(axis: ResizeAxis) -> Array:
    start, end, geometry = *map(np.float32, axis.region), axis.geometry
    if axis.result_size == 1:
        return np.array([np.float32(0.5) * (start + end) * geometry.last])
    return start * geometry.last + geometry.indices * (end - start) * geometry.last / geometry.result_last


def _positions_of(transform: Callable[[AxisGeometry], Any]) -> Callable[[ResizeAxis], Array]:
    return lambda axis: transform(axis.geometry)


_TRANSFORMS: dict[str, Callable[[ResizeAxis], Array]] = {
    **{name: _positions_of(transform) for name, transform in POSITIONS.items()},
    "half_pixel_symmetric": _half_pixel_symmetric,
    "tf_crop_and_resize": _crop_and_resize,
}
