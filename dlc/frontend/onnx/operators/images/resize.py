"""Resize: separable interpolation, one axis after the other.

A place of the result is a weighted sum of a few places of the operand, the same few for every row: `taps` computes them at
import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, normalized_axes
from dlc.dialects.dl.dtypes import is_float
from dlc.errors import ModelError
from dlc.frontend.addressable import require_countable
from dlc.frontend.emit import Value
from dlc.frontend.interpolation import interpolated
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.ir import f32

table = Table()


@dataclass(frozen=True)
class Axis:
    """One axis to resize: its number, both sizes, the scale, and the region of interest as fractions of the axis."""

    number: int
    size: int
    resized: int
    scale: float
    region: tuple[float, float]


@table("Upsample", until=9)
@table("Resize", until=10)
def upsample(node: Node) -> Value:
    """Resize before it had modes of coordinates: place k of the result lies at `k / scale`.

    The nearest element is that before it, or behind it along an axis that shrinks.
    """
    x = node[0]
    scales = node.reals("scales") if node.has("scales") else [float(s) for s in node.known(1, "scales").reshape(-1)]
    if len(scales) != x.rank or min(scales, default=1) <= 0:
        raise ModelError(f"{node.place}: {list(scales)} must be a positive scale for each of the {x.rank} axes")
    mode = node.choice("mode", "nearest", ("nearest", "linear"))
    sizes = [int(size) for size in x.shape]
    resized = [int(np.floor(size * np.float32(scale))) for size, scale in zip(sizes, scales, strict=True)]
    require_countable(node.place, max(resized, default=0))
    axes = [Axis(*a, (0.0, 1.0)) for a in zip(range(x.rank), sizes, resized, scales, strict=True)]
    y = x
    for axis in _in_order(axes):
        if axis.scale != 1:
            taps = _taps(mode, _ROUNDINGS["ceil" if axis.scale < 1 else "floor"])
            y = interpolated(node.emit, node.proto.output[0], y, axis.number, *taps(_TRANSFORMS["asymmetric"](axis), axis))
    return y


@table("Resize", since=11)
def resize(node: Node) -> Value:
    emit, x = node.emit, node[0]
    axes = _axes(node)
    transform = node.choice("coordinate_transformation_mode", "half_pixel", tuple(_TRANSFORMS))
    cropping = transform == "tf_crop_and_resize"
    mode = node.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    taps = _taps_for(node, mode)
    outside: Value | None = None
    y = x if is_float(x.element_type) or mode == "nearest" else emit.cast(x, f32)
    for axis in _in_order(axes):
        places = _TRANSFORMS[transform](axis)
        if axis.size == axis.resized and bool((places == np.arange(axis.size)).all()):
            continue
        y = interpolated(emit, node.proto.output[0], y, axis.number, *taps(places, axis))
        if cropping:
            beyond = emit.constant(((places < 0) | (places > axis.size - 1)).reshape(-1, *(1,) * (x.rank - 1 - axis.number)))
            outside = beyond if outside is None else emit(dl.OrOp, outside, beyond)
    extrapolation = node.real("extrapolation_value", 0.0)
    if outside is not None:
        y = emit(dl.SelectOp, outside, emit.scalar(extrapolation, y), y)
    # Of integers ONNX Runtime cuts off the fraction, but where a weight may be negative or the kernel is a wide one.
    rounded = mode == "cubic" or (mode == "linear" and node.flag("antialias"))
    return emit.cast(emit(dl.RoundOp, y) if rounded and not is_float(x.element_type) else y, x.element_type)


def _in_order(axes: list[Axis]) -> list[Axis]:
    """Axes that shrink come first; of those that grow the last one, whose elements are read one by one, the others' in rows."""
    return sorted(axes, key=lambda a: (a.resized > a.size, -a.number if a.resized > a.size else a.number))


def _axes(node: Node) -> list[Axis]:
    x, rank = node[0], node[0].rank
    numbers = normalized_axes(None, node.integers("axes", range(rank)), rank)
    sizes = [int(x.shape[a]) for a in numbers]  # a symbolic size raises UndecidableError, which names it
    policy = node.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    by_sizes = node.get(3) is not None
    if by_sizes:
        resized = list(node.integers_of(3, "sizes"))
        scales = [r / max(s, 1) for r, s in zip(resized, sizes, strict=False)]
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
            resized = [int(np.floor(s * scale + 0.5)) for s, scale in zip(sizes, scales, strict=True)]
        # Of nothing no element asks where it lies.
        scales = [scale or 1.0 for scale in scales]
    else:
        scales = [float(s) for s in node.known(2, "scales").reshape(-1)]
        if not np.isfinite(scales).all():
            raise ModelError(f"{node.place}: its scales {scales} are not finite")
        resized = [int(np.floor(s * np.float32(scale))) for s, scale in zip(sizes, scales, strict=False)]
    if len(scales) != len(numbers) or min(scales, default=1) <= 0:
        raise ModelError(f"{node.place}: {scales} must be a positive scale for each of the axes {list(numbers)}")
    node.ignore_input(1)
    node.ignore_input(2)
    require_countable(node.place, max(resized, default=0))
    regions = [(0.0, 1.0)] * len(numbers)
    if node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        roi = [float(v) for v in node.known(1, "roi").reshape(-1)]
        if len(roi) != 2 * len(numbers):
            raise ModelError(f"{node.place}: {len(roi)} bounds in roi, expected two for each of the axes {list(numbers)}")
        regions = list(zip(roi[: len(numbers)], roi[len(numbers) :], strict=True))
    return [Axis(*a) for a in zip(numbers, sizes, resized, scales, regions, strict=True)]


# Where a place of the result lies on the axis of the operand, in f32 as ONNX Runtime computes it: ties hang on it.


def _range(axis: Axis) -> Array:
    return np.arange(axis.resized, dtype=np.float32)


def _half_pixel(axis: Axis) -> Array:
    return (_range(axis) + np.float32(0.5)) / np.float32(axis.scale) - np.float32(0.5)


def _half_pixel_symmetric(axis: Axis) -> Array:
    # The part of a pixel by which the size was rounded is left out evenly at both ends.
    adjustment = np.float32(axis.resized) / np.float32(axis.scale * axis.size or 1)
    return np.float32(axis.size / 2) * (1 - adjustment) + _half_pixel(axis)


def _align_corners(axis: Axis) -> Array:
    return _range(axis) * np.float32(axis.size - 1) / np.float32(max(axis.resized - 1, 1))


def _crop(axis: Axis) -> Array:
    start, end, last = map(np.float32, (*axis.region, axis.size - 1))
    if axis.resized == 1:
        return np.array([np.float32(0.5) * (start + end) * last])
    return start * last + _range(axis) * (end - start) * last / np.float32(axis.resized - 1)


_TRANSFORMS: dict[str, Callable[[Axis], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda axis: _half_pixel(axis) if axis.resized > 1 else np.zeros(axis.resized, np.float32),
    "align_corners": _align_corners,
    "asymmetric": lambda axis: _range(axis) / np.float32(axis.scale),
    "tf_half_pixel_for_nn": lambda axis: (_range(axis) + np.float32(0.5)) / np.float32(axis.scale),
    "tf_crop_and_resize": _crop,
}

_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda p: np.ceil(p - np.float32(0.5)),
    "round_prefer_ceil": lambda p: np.floor(p + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _taps_for(node: Node, mode: str) -> Callable[[Array, Axis], tuple[Array, Array]]:
    """The function from places to the indices and weights of their taps, [taps, places] both."""
    rounding = _ROUNDINGS[node.choice("nearest_mode", "round_prefer_floor", tuple(_ROUNDINGS))]
    return _taps(mode, rounding, node.real("cubic_coeff_a", -0.75), node.flag("antialias"), node.flag("exclude_outside"))


def _taps(
    mode: str, rounding: Callable[[Array], Array], a: float = -0.75, antialias: bool = False, exclude: bool = False
) -> Callable[[Array, Axis], tuple[Array, Array]]:
    reach = 2 if mode == "cubic" else 1

    def kernel(distance: Array) -> Array:
        return _cubic(distance, a) if mode == "cubic" else np.maximum(1 - np.abs(distance), 0.0)

    def taps(places: Array, axis: Axis) -> tuple[Array, Array]:
        if mode == "nearest":
            return np.clip(rounding(places), 0, axis.size - 1).astype(np.int64)[np.newaxis], np.ones((1, len(places)))
        # Antialiasing widens the kernel to what a place of the result covers.
        stretch = min(axis.scale, 1.0) if antialias else 1.0
        span = int(np.ceil(reach / stretch))
        indices = np.floor(places).astype(np.int64) + np.arange(1 - span, span + 1)[:, np.newaxis]
        weights = kernel((indices - places.astype(np.float64)) * stretch)
        if exclude:
            weights = np.where((indices >= 0) & (indices < axis.size), weights, 0.0)
        if antialias or exclude:
            weights = weights / np.where(weights.sum(0) == 0, 1.0, weights.sum(0))
        used = np.abs(weights).max(1, initial=0) > 0
        used[0] |= not used.any()
        return np.clip(indices[used], 0, axis.size - 1), weights[used]

    return taps


def _cubic(distance: Array, a: float) -> Array:
    """Keys' kernel ("Cubic convolution interpolation for digital image processing", 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
