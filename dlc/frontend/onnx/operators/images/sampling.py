"""Sampling of images at positions computed at run time: sampling grids, and interpolation between elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.sliding_windows import channels_first, channels_last
from dlc.frontend.onnx.registry import ConverterTable
from dlc.ir import i64
from dlc.shapes.dims import are_equal

table = ConverterTable()

_CUBIC_A = -0.75


@table("AffineGrid", since=20)
def affine_grid(node: OnnxNode) -> ImportedValue:
    emit, theta, size = node.emit, node[0], node.constant_integers(1, "size")
    spatial, rank = size[2:], len(size) - 2
    if theta.rank != 3 or not all(map(are_equal, theta.shape[1:], (rank, rank + 1))):
        raise ModelError(f"{node.description}: theta of shape {list(theta.shape)} for a size of {list(size)}")
    dtype, aligned = numpy_dtype(theta.element_type), node.flag("align_corners")
    ranges = [np.linspace(-1, 1, n) if aligned else (2 * np.arange(n) + 1) / n - 1 for n in spatial]
    # Coordinates store x, the last axis, first.
    columns = [c.reshape(-1) for c in np.meshgrid(*ranges, indexing="ij")][::-1]
    points = np.stack([*columns, np.ones(len(columns[0]))], 1)
    grid = emit(dl.MatmulOp, emit.constant(points, dtype, f"{node.proto.output[0]}_points"), emit.transpose(theta, (0, 2, 1)))
    return emit.reshape(grid, (theta.shape[0], *spatial, rank))


@dataclass(frozen=True)
class SamplePositions:
    """The samples along one axis of `size`, and the interval outside of which padding applies."""

    node: OnnxNode
    size: int
    low: float
    high: float
    padding: str

    def reflect(self, x: ImportedValue) -> ImportedValue:
        """Reflect positions at both ends: ``low + |((x - low) mod 2·span)|``, mirrored at span."""
        emit, span = self.node.emit, self.high - self.low
        if span == 0:
            return emit(dl.MulOp, x, emit.scalar(0, x))
        distance = emit(dl.AbsOp, emit(dl.SubOp, x, emit.scalar(self.low, x)))
        phase = emit(dl.ModOp, distance, emit.scalar(2 * span, x), fmod=True)
        folded = emit(dl.MinimumOp, phase, emit(dl.SubOp, emit.scalar(2 * span, x), phase))
        return emit(dl.AddOp, folded, emit.scalar(self.low, x))

    def clamp(self, x: ImportedValue) -> ImportedValue:
        emit = self.node.emit
        return emit(dl.MinimumOp, emit(dl.MaximumOp, x, emit.scalar(0, x)), emit.scalar(self.size - 1, x))

    def apply_padding(self, x: ImportedValue) -> ImportedValue:
        """Map positions outside of the interval into it; unchanged for zero padding."""
        if self.padding == "zeros":
            return x
        emit = self.node.emit
        is_outside = emit(
            dl.OrOp, emit(dl.LessOp, x, emit.scalar(self.low, x)), emit(dl.GreaterOp, x, emit.scalar(self.high, x))
        )
        return emit(dl.SelectOp, is_outside, self.reflect(x) if self.padding == "reflection" else self.clamp(x), x)

    def taps(self, x: ImportedValue, mode: str) -> list[tuple[ImportedValue, ImportedValue | None]]:
        """Return the elements around a position, as integers in the dtype of x, and their weights (None for 1)."""
        emit = self.node.emit
        if mode == "nearest":
            return [(self.apply_padding(emit(dl.RoundOp, x)), None)]
        # Cubic interpolation pads each tap by itself, so the position is not clamped first.
        x = self.apply_padding(x) if mode == "linear" else x
        base = emit(dl.FloorOp, x)
        fraction = emit(dl.SubOp, x, base)
        offsets, weight = ((0, 1), self.linear) if mode == "linear" else ((-1, 0, 1, 2), self.cubic)
        return [(emit(dl.AddOp, base, emit.scalar(k, x)), weight(fraction, k)) for k in offsets]

    def linear(self, fraction: ImportedValue, offset: int) -> ImportedValue:
        return fraction if offset else self.node.emit(dl.SubOp, self.node.emit.scalar(1, fraction), fraction)

    def cubic(self, fraction: ImportedValue, offset: int) -> ImportedValue:
        """Return Keys' kernel at the distance ``|fraction - offset|``, by Horner's rule."""
        emit, a = self.node.emit, _CUBIC_A
        d = (
            emit(dl.SubOp, fraction, emit.scalar(offset, fraction))
            if offset < 1
            else emit(dl.SubOp, emit.scalar(offset, fraction), fraction)
        )
        is_near = offset in (0, 1)
        first, *lower_coefficients = (a + 2, -(a + 3), 0.0, 1.0) if is_near else (a, -5 * a, 8 * a, -4 * a)
        total = emit.scalar(first, fraction)
        for coefficient in lower_coefficients:
            total = emit(dl.AddOp, emit(dl.MulOp, total, d), emit.scalar(coefficient, fraction))
        return total

    def inside(self, tap: ImportedValue) -> ImportedValue:
        emit = self.node.emit
        return emit(
            dl.AndOp,
            emit(dl.GreaterEqualOp, tap, emit.scalar(0, tap)),
            emit(dl.LessOp, tap, emit.scalar(self.size, tap)),
        )


@table("GridSample", since=16)
def grid_sample(node: OnnxNode) -> ImportedValue:
    emit, x, grid = node.emit, node[0], node[1]
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank or not are_equal(grid.shape[-1], rank):
        raise ModelError(
            f"{node.description}: the grid of shape {list(grid.shape)} does not match an operand of shape {list(x.shape)}"
        )
    mode_attribute = node.choice("mode", "linear", ("linear", "nearest", "cubic", "bilinear", "bicubic"))
    mode, aligned = mode_attribute.removeprefix("bi"), node.flag("align_corners")
    padding = node.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    axes: list[SamplePositions] = []
    taps: list[list[tuple[ImportedValue, ImportedValue | None]]] = []
    for k in range(rank):
        size = int(x.shape[2 + k])
        bounds = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        axes.append(SamplePositions(node, size, *bounds, padding))
        # Coordinates store x, the last axis, first; -1 and 1 are the ends.
        coordinate = emit.slice(grid, rank + 1, rank - 1 - k, rank - k)
        scaled = emit(
            dl.MulOp,
            emit(dl.AddOp, coordinate, emit.scalar(1, coordinate)),
            emit.scalar((bounds[1] - bounds[0]) / 2, coordinate),
        )
        taps.append(axes[k].taps(emit(dl.AddOp, scaled, emit.scalar(bounds[0], scaled)), mode))
    source = channels_last(node, x)
    return channels_first(node, _reduce(node, dl.AddOp, [sample(node, source, axes, c) for c in product(*taps)]))


def sample(
    node: OnnxNode,
    source: ImportedValue,
    axes: Sequence[SamplePositions],
    taps: Sequence[tuple[ImportedValue, ImportedValue | None]],
) -> ImportedValue:
    """Gather the elements of a channels-last operand at one tap of every axis, times the weights of the taps."""
    emit = node.emit
    padding = axes[0].padding
    reflected = [axis.reflect(tap) if padding == "reflection" else tap for axis, (tap, _) in zip(axes, taps, strict=True)]
    clamped = [axis.clamp(tap) for axis, tap in zip(axes, reflected, strict=True)]
    indices = emit.cast(emit(dl.ConcatOp, *clamped, axis=clamped[0].rank - 1) if len(clamped) > 1 else clamped[0], i64)
    y = emit(dl.GatherNdOp, source, indices, batch_dims=1)
    weights = [w for _, w in taps if w is not None]
    if weights:
        y = emit(dl.MulOp, y, emit.cast(_reduce(node, dl.MulOp, weights), y.element_type))
    if padding == "zeros":
        is_inside = _reduce(node, dl.AndOp, [axis.inside(tap) for axis, (tap, _) in zip(axes, taps, strict=True)])
        y = emit(dl.SelectOp, is_inside, y, emit.scalar(0, y))
    return y


def _reduce(node: OnnxNode, op: type[DlOp], values: Sequence[ImportedValue]) -> ImportedValue:
    result = values[0]
    for value in values[1:]:
        result = node.emit(op, result, value)
    return result
