"""Resize of axes with symbolic sizes: the indices and weights of the taps are computed at run time, from the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, normalized_axes
from dlc.dialects.dl.dtypes import is_float
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.interpolation import sum_of_gathers
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.resize_positions import POSITIONS, ROUNDINGS, AxisGeometry, cubic_far, cubic_near
from dlc.ir import f32, i64
from dlc.shapes.dims import Size, is_static
from dlc.shapes.polynomials import quotient

# The largest numerator of a scale n / 2^k, for which size · n is exact in f32.
_MAX_SCALE_NUMERATOR = 256
_OPS: Mapping[Any, type[DlOp]] = {
    np.add: dl.AddOp, np.subtract: dl.SubOp, np.multiply: dl.MulOp, np.divide: dl.DivOp, np.floor: dl.FloorOp,
    np.ceil: dl.CeilOp, np.minimum: dl.MinimumOp, np.maximum: dl.MaximumOp,
}  # fmt: skip


@dataclass(frozen=True)
class _RuntimeFloat(np.lib.mixins.NDArrayOperatorsMixin):
    """An f32 value that is computed at run time; ufuncs of it emit ops."""

    emit: Emitter
    value: ImportedValue

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **settings: Any) -> _RuntimeFloat:
        values = [x.value if isinstance(x, _RuntimeFloat) else self.emit.scalar(float(x), f32) for x in operands]
        return _RuntimeFloat(self.emit, self.emit(_OPS[ufunc], *values))


@dataclass(frozen=True)
class _SymbolicAxis:
    """An axis to resize; a scale of None is the ratio of the sizes."""

    index: int
    size: Size
    result_size: Size
    scale: float | None

    def geometry(self, emit: Emitter) -> AxisGeometry:
        def number(size: Size) -> Any:
            return _RuntimeFloat(emit, emit.cast(emit.size_scalar(size), f32))

        one = np.float32(1)
        size, result_size = number(self.size), number(self.result_size)
        scale = result_size / np.maximum(size, one) if self.scale is None else np.float32(self.scale)
        indices = _RuntimeFloat(emit, emit.cast(emit.iota(self.result_size), f32))
        return AxisGeometry(indices, size, size - one, result_size, np.maximum(result_size - one, one), scale)


def resize_symbolic(node: OnnxNode) -> ImportedValue | None:
    """Return the resized operand if a resized axis has a symbolic size and the settings are supported for it; else None.

    These are constant scales with few significant bits, or sizes, without regions, antialiasing and the exclusion of outside
    elements.
    """
    emit, x = node.emit, node[0]
    transform = node.choice(
        "coordinate_transformation_mode", "half_pixel", (*POSITIONS, "half_pixel_symmetric", "tf_crop_and_resize")
    )
    is_general = transform not in POSITIONS or node.flag("antialias") or node.flag("exclude_outside")
    if is_static(x.shape) or is_general or node.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = _symbolic_axes(node)
    if axes is None:
        return None
    mode = node.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    rounding = ROUNDINGS[node.choice("nearest_mode", "round_prefer_floor", tuple(ROUNDINGS))]
    a = node.real("cubic_coeff_a", -0.75)
    for k in (1, 2):
        node.ignore_input(k)
    y = x if is_float(x.element_type) or mode == "nearest" else emit.cast(x, f32)
    for axis in axes:
        geometry = axis.geometry(emit)
        positions = POSITIONS[transform](geometry)
        taps = [(rounding(positions), None)] if mode == "nearest" else _interpolating_taps(mode, positions, a)

        def indices(tap: Any, geometry: AxisGeometry = geometry) -> ImportedValue:
            return emit.cast(np.maximum(np.minimum(tap, geometry.last), np.float32(0)).value, i64)

        values = [(indices(tap), None if w is None else emit.cast(w.value, y.element_type)) for tap, w in taps]
        y = sum_of_gathers(emit, y, axis.index, values)
    # As with static sizes: ONNX Runtime truncates integers, except for cubic interpolation, where it rounds.
    return emit.cast(emit(dl.RoundOp, y) if mode == "cubic" and not is_float(x.element_type) else y, x.element_type)


def _interpolating_taps(mode: str, positions: Any, a: float) -> Sequence[tuple[Any, Any]]:
    """Return the positions and weights of the taps of linear or cubic interpolation."""
    first = np.floor(positions)
    d = positions - first
    one = np.float32(1)
    if mode == "linear":
        return [(first, one - d), (first + one, d)]
    weights = [cubic_far(d + one, a), cubic_near(d, a), cubic_near(one - d, a), cubic_far(np.float32(2) - d, a)]
    return [(first + np.float32(offset), weight) for offset, weight in zip(range(-1, 3), weights, strict=True)]


def _symbolic_axes(node: OnnxNode) -> list[_SymbolicAxis] | None:
    """Return the axes that change; None if their sizes or scales are not supported."""
    x = node[0]
    indices = normalized_axes(None, node.integers("axes", range(x.rank)), x.rank)
    sizes = [x.shape[a] for a in indices]
    scales: list[float | None]
    if node.get(3) is not None:
        results = list(node.sizes(3, "sizes"))
        scales = [
            r / s if isinstance(r, int) and isinstance(s, int) and r and s else _ratio(r, s)
            for r, s in zip(results, sizes, strict=False)
        ]
    else:
        scales = [float(s) for s in node.constant_input(2, "scales").reshape(-1)]
        fractions = [float(s).as_integer_ratio() for s in scales if s is not None and np.isfinite(s) and s > 0]
        if len(fractions) != len(scales) or any(n > _MAX_SCALE_NUMERATOR for n, _ in fractions):
            return None
        results = [size * n // d for size, (n, d) in zip(sizes, fractions, strict=False)]
    if len(results) != len(indices) or any(isinstance(r, int) and r <= 0 for r in results):
        return None
    axes = zip(indices, sizes, results, scales, strict=True)
    return [_SymbolicAxis(*axis) for axis in axes if axis[3] != 1]


def _ratio(result_size: Size, size: Size) -> float | None:
    """Return the ratio of two sizes; None if it depends on the symbols."""
    ratio = quotient(result_size, size)
    return float(ratio) if isinstance(ratio, int) else None
