"""Sampling at places that are data: grids of places, and values between elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.images.windows import channels_first, channels_last
from dlc.frontend.onnx.registry import Table
from dlc.frontend.symbolic import equal
from dlc.ir import i64

table = Table()

_CUBIC_A = -0.75


@table("AffineGrid", since=20)
def affine_grid(node: Node) -> Value:
    emit, theta, size = node.emit, node[0], node.integers_of(1, "size")
    spatial, rank = size[2:], len(size) - 2
    if theta.rank != 3 or not all(map(equal, theta.shape[1:], (rank, rank + 1))):
        raise ModelError(f"{node.place}: theta of shape {list(theta.shape)} for a size of {list(size)}")
    dtype, aligned = numpy_dtype(theta.element_type), node.flag("align_corners")
    ranges = [np.linspace(-1, 1, n) if aligned else (2 * np.arange(n) + 1) / n - 1 for n in spatial]
    # Coordinates are x first: the last axis.
    columns = [c.reshape(-1) for c in np.meshgrid(*ranges, indexing="ij")][::-1]
    places = np.stack([*columns, np.ones(len(columns[0]))], 1)
    grid = emit(dl.MatmulOp, emit.constant(places, dtype, f"{node.proto.output[0]}_places"), emit.transpose(theta, (0, 2, 1)))
    return emit.reshape(grid, (theta.shape[0], *spatial, rank))


@dataclass(frozen=True)
class Places:
    """Where samples lie along one axis of `size`, and the interval outside of which padding is meant."""

    node: Node
    size: int
    low: float
    high: float
    padding: str

    def reflected(self, x: Value) -> Value:
        """A triangle wave between the ends: ``low + |((x - low) mod 2·span)|`` folded at span."""
        emit, span = self.node.emit, self.high - self.low
        if span == 0:
            return emit(dl.MulOp, x, emit.scalar(0, x))
        distance = emit(dl.AbsOp, emit(dl.SubOp, x, emit.scalar(self.low, x)))
        phase = emit(dl.ModOp, distance, emit.scalar(2 * span, x), fmod=True)
        folded = emit(dl.MinimumOp, phase, emit(dl.SubOp, emit.scalar(2 * span, x), phase))
        return emit(dl.AddOp, folded, emit.scalar(self.low, x))

    def clamped(self, x: Value) -> Value:
        emit = self.node.emit
        return emit(dl.MinimumOp, emit(dl.MaximumOp, x, emit.scalar(0, x)), emit.scalar(self.size - 1, x))

    def moved(self, x: Value) -> Value:
        """Places outside of the interval moved inside; with padding of zeros they stay."""
        if self.padding == "zeros":
            return x
        emit = self.node.emit
        outside = emit(dl.OrOp, emit(dl.LessOp, x, emit.scalar(self.low, x)), emit(dl.GreaterOp, x, emit.scalar(self.high, x)))
        return emit(dl.SelectOp, outside, self.reflected(x) if self.padding == "reflection" else self.clamped(x), x)

    def taps(self, x: Value, mode: str) -> list[tuple[Value, Value | None]]:
        """The elements around a place, as whole numbers of x's type, and their weights (1 where there is none)."""
        emit = self.node.emit
        if mode == "nearest":
            return [(self.moved(emit(dl.RoundOp, x)), None)]
        # The elements around a place beyond the border are padding each, and a cubic has others there than at the border.
        x = self.moved(x) if mode == "linear" else x
        base = emit(dl.FloorOp, x)
        part = emit(dl.SubOp, x, base)
        offsets, weight = ((0, 1), self.linear) if mode == "linear" else ((-1, 0, 1, 2), self.cubic)
        return [(emit(dl.AddOp, base, emit.scalar(k, x)), weight(part, k)) for k in offsets]

    def linear(self, part: Value, offset: int) -> Value:
        return part if offset else self.node.emit(dl.SubOp, self.node.emit.scalar(1, part), part)

    def cubic(self, part: Value, offset: int) -> Value:
        """Keys' kernel at the distance ``|part - offset|``, by Horner's rule."""
        emit, a = self.node.emit, _CUBIC_A
        d = emit(dl.SubOp, part, emit.scalar(offset, part)) if offset < 1 else emit(dl.SubOp, emit.scalar(offset, part), part)
        near = offset in (0, 1)
        first, *rest = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
        total = emit.scalar(first, part)
        for coefficient in rest:
            total = emit(dl.AddOp, emit(dl.MulOp, total, d), emit.scalar(coefficient, part))
        return total

    def inside(self, tap: Value) -> Value:
        emit = self.node.emit
        return emit(
            dl.AndOp,
            emit(dl.GreaterEqualOp, tap, emit.scalar(0, tap)),
            emit(dl.LessOp, tap, emit.scalar(self.size, tap)),
        )


@table("GridSample", since=16)
def grid_sample(node: Node) -> Value:
    emit, x, grid = node.emit, node[0], node[1]
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank or not equal(grid.shape[-1], rank):
        raise ModelError(f"{node.place}: a grid of shape {list(grid.shape)} for an operand of shape {list(x.shape)}")
    named = node.choice("mode", "linear", ("linear", "nearest", "cubic", "bilinear", "bicubic"))
    mode, aligned = named.removeprefix("bi"), node.flag("align_corners")
    padding = node.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    axes: list[Places] = []
    taps: list[list[tuple[Value, Value | None]]] = []
    for k in range(rank):
        size = int(x.shape[2 + k])
        ends = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        axes.append(Places(node, size, *ends, padding))
        # Coordinates are x first: the last axis. -1 and 1 are the ends.
        place = emit.slice(grid, rank + 1, rank - 1 - k, rank - k)
        half = emit(dl.MulOp, emit(dl.AddOp, place, emit.scalar(1, place)), emit.scalar((ends[1] - ends[0]) / 2, place))
        taps.append(axes[k].taps(emit(dl.AddOp, half, emit.scalar(ends[0], half)), mode))
    source = channels_last(node, x)
    return channels_first(node, _folded(node, dl.AddOp, [sampled(node, source, axes, c) for c in product(*taps)]))


def sampled(node: Node, source: Value, axes: Sequence[Places], taps: Sequence[tuple[Value, Value | None]]) -> Value:
    """The elements of a channels-last operand at one tap of every axis, times the taps' weights."""
    emit = node.emit
    padding = axes[0].padding
    found = [axis.reflected(tap) if padding == "reflection" else tap for axis, (tap, _) in zip(axes, taps, strict=True)]
    clamped = [axis.clamped(tap) for axis, tap in zip(axes, found, strict=True)]
    places = emit.cast(emit(dl.ConcatOp, *clamped, axis=clamped[0].rank - 1) if len(clamped) > 1 else clamped[0], i64)
    y = emit(dl.GatherNdOp, source, places, batch_dims=1)
    weights = [w for _, w in taps if w is not None]
    if weights:
        y = emit(dl.MulOp, y, emit.cast(_folded(node, dl.MulOp, weights), y.element_type))
    if padding == "zeros":
        inside = _folded(node, dl.AndOp, [axis.inside(tap) for axis, (tap, _) in zip(axes, taps, strict=True)])
        y = emit(dl.SelectOp, inside, y, emit.scalar(0, y))
    return y


def _folded(node: Node, op: type[DlOp], values: Sequence[Value]) -> Value:
    result = values[0]
    for value in values[1:]:
        result = node.emit(op, result, value)
    return result
