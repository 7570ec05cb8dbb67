"""Resize of axes with symbolic sizes: the indices and weights of the taps are computed at run time, from the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.interpolation import sum_of_gathers
from dlc.frontend.onnx.operators.images.resize_positions import AxisGeometry, cubic_far, cubic_near
from dlc.ir import f32, i64
from dlc.shapes.dims import Size

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


def runtime_geometry(emit: Emitter, size: Size, result_size: Size, scale: float | None) -> AxisGeometry:
    """Return the sizes of an axis at run time; a scale of None is the ratio of the sizes."""

    def number(size: Size) -> Any:
        return _RuntimeFloat(emit, emit.cast(emit.size_scalar(size), f32))

    one, length, result_length = np.float32(1), number(size), number(result_size)
    ratio = result_length / np.maximum(length, one) if scale is None else np.float32(scale)
    indices = _RuntimeFloat(emit, emit.cast(emit.iota(result_size), f32))
    return AxisGeometry(indices, length, length - one, result_length, np.maximum(result_length - one, one), ratio)


def gather_taps(
    emit: Emitter, x: ImportedValue, axis: int, geometry: AxisGeometry, taps: Sequence[tuple[Any, Any]]
) -> ImportedValue:
    """Return the weighted sum of taps of an axis, given as positions and weights; a weight of None is 1."""

    def indices(tap: Any) -> ImportedValue:
        return emit.cast(np.maximum(np.minimum(tap, geometry.last), np.float32(0)).value, i64)

    values = [(indices(tap), None if w is None else emit.cast(w.value, x.element_type)) for tap, w in taps]
    return sum_of_gathers(emit, x, axis, values)


def interpolating_taps(positions: Any, cubic_a: float | None) -> Sequence[tuple[Any, Any]]:
    """Return the positions and weights of the taps of cubic interpolation, or of linear interpolation if `cubic_a` is None."""
    first, one = np.floor(positions), np.float32(1)
    d = positions - first
    if cubic_a is None:
        return [(first, one - d), (first + one, d)]
    far, near = partial(cubic_far, a=cubic_a), partial(cubic_near, a=cubic_a)
    weights = [far(d + one), near(d), near(one - d), far(np.float32(2) - d)]
    return [(first + np.float32(offset), weight) for offset, weight in zip(range(-1, 3), weights, strict=True)]
