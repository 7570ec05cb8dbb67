"""Resize: separable interpolation, one axis at a time.

An element of the result is a weighted sum of a few elements of the operand. Their indices and weights are equal in every row,
and computed at import by `taps`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, normalized_axes
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.interpolation import interpolate_axis
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.resize_positions import POSITIONS, ROUNDINGS, AxisGeometry, cubic_far, cubic_near
from dlc.frontend.onnx.operators.images.symbolic_resize import resize_symbolic
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.size_limits import require_axis_length
from dlc.ir import f32

table = ConverterTable()


@dataclass(frozen=True)
class ResizeAxis:
    """One axis to resize: its index, both sizes, the scale, and the region of interest as fractions of the axis."""

    index: int
    size: int
    result_size: int
    scale: float
    region: tuple[float, float]

    @property
    def geometry(self) -> AxisGeometry:
        """The sizes from which positions are computed."""
        size, result_size = self.size, self.result_size
        values = (size, size - 1, result_size, max(result_size - 1, 1), self.scale)
        return AxisGeometry(np.arange(result_size, dtype=np.float32), *map(np.float32, values))


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
    if len(scales) != x.rank or min(scales, default=1) <= 0:
        raise ModelError(f"{node.description}: {list(scales)} must be a positive scale for each of the {x.rank} axes")
    mode = node.choice("mode", "nearest", ("nearest", "linear"))
    # A symbolic size of an axis that changes raises UndecidableError, which names it.
    changes = [(a, int(size), scale) for a, (size, scale) in enumerate(zip(x.shape, scales, strict=True)) if scale != 1]
    axes = [ResizeAxis(a, size, int(np.floor(size * np.float32(scale))), scale, (0.0, 1.0)) for a, size, scale in changes]
    require_axis_length(node.description, max((axis.result_size for axis in axes), default=0))
    y = x if is_float(x.element_type) or mode == "nearest" else node.emit.cast(x, f32)
    for axis in _processing_order(axes):
        taps = _taps(mode, ROUNDINGS["ceil" if axis.scale < 1 else "floor"])
        y = interpolate_axis(node.emit, node.proto.output[0], y, axis.index, *taps(_TRANSFORMS["asymmetric"](axis), axis))
    # ONNX Runtime truncates integers.
    return node.emit.cast(y, x.element_type)


@table("Resize", since=11)
def resize(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    if (resized := resize_symbolic(node)) is not None:
        return resized
    axes = _axes(node)
    transform = node.choice("coordinate_transformation_mode", "half_pixel", tuple(_TRANSFORMS))
    is_cropping = transform == "tf_crop_and_resize"
    mode = node.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    taps = _taps_for(node, mode)
    is_outside: ImportedValue | None = None
    y = x if is_float(x.element_type) or mode == "nearest" else emit.cast(x, f32)
    for axis in _processing_order(axes):
        positions = _TRANSFORMS[transform](axis)
        if axis.size == axis.result_size and bool((positions == np.arange(axis.size)).all()):
            continue
        y = interpolate_axis(emit, node.proto.output[0], y, axis.index, *taps(positions, axis))
        if is_cropping:
            is_outside_axis = emit.constant(
                ((positions < 0) | (positions > axis.size - 1)).reshape(-1, *(1,) * (x.rank - 1 - axis.index))
            )
            is_outside = is_outside_axis if is_outside is None else emit(dl.OrOp, is_outside, is_outside_axis)
    extrapolation = node.real("extrapolation_value", 0.0)
    if is_outside is not None:
        y = emit(dl.SelectOp, is_outside, emit.cast(emit.scalar(extrapolation, f32), y.element_type), y)
    # ONNX Runtime truncates integers, except for cubic interpolation and antialiasing, where it rounds.
    should_round = mode == "cubic" or (mode == "linear" and node.flag("antialias"))
    return emit.cast(emit(dl.RoundOp, y) if should_round and not is_float(x.element_type) else y, x.element_type)


def _processing_order(axes: list[ResizeAxis]) -> list[ResizeAxis]:
    """Sort axes: first those that shrink; of those that grow the last axis first, so that later axes copy whole rows."""
    return sorted(axes, key=lambda a: (a.result_size > a.size, -a.index if a.result_size > a.size else a.index))


def _axes(node: OnnxNode) -> list[ResizeAxis]:
    x, rank = node[0], node[0].rank
    axis_indices = list(normalized_axes(None, node.integers("axes", range(rank)), rank))
    policy = node.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    is_cropping = node.string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    has_sizes_input = node.get(3) is not None
    entries = list(node.sizes(3, "sizes")) if has_sizes_input else node.constant_input(2, "scales").reshape(-1).tolist()
    if len(entries) != len(axis_indices):
        raise ModelError(f"{node.description}: {entries} for the axes {axis_indices}; expected one for each axis")
    if policy == "stretch" and not is_cropping:
        # Symbolic axes that do not change.
        unchanged = {a for a, e in zip(axis_indices, entries, strict=True) if e == (x.shape[a] if has_sizes_input else 1)}
        unchanged -= {a for a in unchanged if isinstance(x.shape[a], int)}
        entries = [e for a, e in zip(axis_indices, entries, strict=True) if a not in unchanged]
        axis_indices = [a for a in axis_indices if a not in unchanged]
    sizes = [int(x.shape[a]) for a in axis_indices]  # a symbolic size raises UndecidableError, which names it
    if has_sizes_input:
        resized = [int(entry) for entry in entries]
        scales = [r / max(s, 1) for r, s in zip(resized, sizes, strict=True)]
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
            resized = [int(np.floor(s * scale + 0.5)) for s, scale in zip(sizes, scales, strict=True)]
        # An empty result needs no scale; avoid 0.
        scales = [scale or 1.0 for scale in scales]
    else:
        scales = [float(entry) for entry in entries]
        if not np.isfinite(scales).all():
            raise ModelError(f"{node.description}: its scales {scales} are not finite")
        resized = [int(np.floor(s * np.float32(scale))) for s, scale in zip(sizes, scales, strict=True)]
    if min(scales, default=1) <= 0:
        raise ModelError(f"{node.description}: {scales} must be a positive scale for each of the axes {axis_indices}")
    node.ignore_input(1)
    node.ignore_input(2)
    require_axis_length(node.description, max(resized, default=0))
    regions = [(0.0, 1.0)] * len(axis_indices)
    if is_cropping:
        roi = [float(v) for v in node.constant_input(1, "roi").reshape(-1)]
        if len(roi) != 2 * len(axis_indices):
            raise ModelError(f"{node.description}: {len(roi)} bounds in roi, expected two for each of the axes {axis_indices}")
        regions = list(zip(roi[: len(axis_indices)], roi[len(axis_indices) :], strict=True))
    return [ResizeAxis(*a) for a in zip(axis_indices, sizes, resized, scales, regions, strict=True)]


# Positions of result indices on the axis of the operand; computed in f32 like ONNX Runtime, so that ties round alike.


def _half_pixel_symmetric(axis: ResizeAxis) -> Array:
    # The fraction of a pixel lost by rounding the size is trimmed evenly at both ends.
    adjustment = np.float32(axis.result_size) / np.float32(axis.scale * axis.size or 1)
    return np.float32(axis.size / 2) * (1 - adjustment) + POSITIONS["half_pixel"](axis.geometry)


def _crop_and_resize(axis: ResizeAxis) -> Array:
    start, end, last = map(np.float32, (*axis.region, axis.size - 1))
    if axis.result_size == 1:
        return np.array([np.float32(0.5) * (start + end) * last])
    return start * last + axis.geometry.indices * (end - start) * last / np.float32(axis.result_size - 1)


def _positions_of(transform: Callable[[AxisGeometry], Any]) -> Callable[[ResizeAxis], Array]:
    return lambda axis: transform(axis.geometry)


_TRANSFORMS: dict[str, Callable[[ResizeAxis], Array]] = {
    **{name: _positions_of(transform) for name, transform in POSITIONS.items()},
    "half_pixel_symmetric": _half_pixel_symmetric,
    "tf_crop_and_resize": _crop_and_resize,
}


def _taps_for(node: OnnxNode, mode: str) -> Callable[[Array, ResizeAxis], tuple[Array, Array]]:
    """Return the function from positions to the indices and weights of their taps, both [taps, positions]."""
    rounding = ROUNDINGS[node.choice("nearest_mode", "round_prefer_floor", tuple(ROUNDINGS))]
    return _taps(mode, rounding, node.real("cubic_coeff_a", -0.75), node.flag("antialias"), node.flag("exclude_outside"))


def _taps(
    mode: str, rounding: Callable[[Array], Array], a: float = -0.75, antialias: bool = False, exclude: bool = False
) -> Callable[[Array, ResizeAxis], tuple[Array, Array]]:
    radius = 2 if mode == "cubic" else 1

    def kernel(distance: Array) -> Array:
        return _cubic(distance, a) if mode == "cubic" else np.maximum(1 - np.abs(distance), 0.0)

    def taps(positions: Array, axis: ResizeAxis) -> tuple[Array, Array]:
        if mode == "nearest":
            return np.clip(rounding(positions), 0, axis.size - 1).astype(np.int64)[np.newaxis], np.ones((1, len(positions)))
        # Antialiasing widens the kernel to the extent of one result element.
        stretch = min(axis.scale, 1.0) if antialias else 1.0
        radius_in_elements = int(np.ceil(radius / stretch))
        indices = (
            np.floor(positions).astype(np.int64) + np.arange(1 - radius_in_elements, radius_in_elements + 1)[:, np.newaxis]
        )
        weights = kernel((indices - positions.astype(np.float64)) * stretch)
        if exclude:
            weights = np.where((indices >= 0) & (indices < axis.size), weights, 0.0)
        if antialias or exclude:
            weights = weights / np.where(weights.sum(0) == 0, 1.0, weights.sum(0))
        used = np.abs(weights).max(1, initial=0) > 0
        used[0] |= not used.any()
        return np.clip(indices[used], 0, axis.size - 1), weights[used]

    return taps


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    return np.where(d <= 1, cubic_near(d, a), np.where(d < 2, cubic_far(d, a), 0.0))
