"""Operators that read an image in regions, or at places of its own for each output of a convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product

import numpy as np

from dlc.dialects import dl
from dlc.dims import Size
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.images.sampling import Places, sampled
from dlc.frontend.onnx.operators.images.windows import channels_first, channels_last
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem
from dlc.frontend.symbolic import equal
from dlc.ir import i64

table = Table()


@dataclass(frozen=True)
class _Samples:
    """Where the samples of each region lie along one axis of the image: two elements, their weights, and whether they count.

    All are [regions, samples].
    """

    taps: tuple[tuple[Value, Value], tuple[Value, Value]]
    inside: Value


@dataclass(frozen=True)
class _Span:
    """Where each region begins along an axis of the image of `size` elements, and how long it is there: [regions, 1]."""

    start: Value
    extent: Value
    size: int

    def samples(self, emit: Emitter, parts: Value) -> _Samples:
        """Samples at parts of each region's extent, [regions or 1, samples]."""
        place = emit(dl.AddOp, self.start, emit(dl.MulOp, self.extent, parts))
        last, zero = emit.scalar(self.size - 1, place), emit.scalar(0, place)
        inside = emit(
            dl.AndOp,
            emit(dl.GreaterEqualOp, place, emit.scalar(-1, place)),
            emit(dl.LessEqualOp, place, emit.scalar(self.size, place)),
        )
        place = emit(dl.MinimumOp, emit(dl.MaximumOp, place, zero), last)
        low = emit(dl.FloorOp, place)
        part = emit(dl.SubOp, place, low)
        high = emit(dl.MinimumOp, emit(dl.AddOp, low, emit.scalar(1, place)), last)
        return _Samples(((low, emit(dl.SubOp, emit.scalar(1, place), part)), (high, part)), inside)


@table("RoiAlign", since=10)
def roi_align(node: Node) -> Value:
    emit, x, rois = node.emit, node[0], node[1]
    if x.rank != 4 or rois.rank != 2 or not equal(rois.shape[1], 4):
        raise ModelError(f"{node.place}: expected x [N, C, H, W] and rois [n, 4], got {list(x.shape)} and {list(rois.shape)}")
    count, bins = node.integer("sampling_ratio", 0), [node.integer(f"output_{a}", 1) for a in ("height", "width")]
    regions, channels = rois.shape[0], x.shape[1]
    image, own = channels_last(node, x), emit.reshape(node[2], (regions, 1, 1, 1))
    spans = [_span(node, int(x.shape[2 + k]), k) for k in range(2)]
    largest = node.choice("mode", "avg", ("avg", "max")) == "max"
    if count <= 0:
        return channels_first(node, _adaptive(emit, image, own, spans, bins, largest))
    parts = [emit.iota(n * count, rois.element_type, 0.5 / (n * count), 1 / (n * count)) for n in bins]
    taken = _taken(emit, image, own, [span.samples(emit, part) for span, part in zip(spans, parts, strict=True)], largest)
    split = emit.reshape(taken, (regions, bins[0], count, bins[1], count, channels))
    return channels_first(node, emit(dl.ReduceMaxOp if largest else dl.ReduceMeanOp, split, axes=(2, 4), keepdims=False))


def _adaptive(emit: Emitter, image: Value, own: Value, spans: Sequence[_Span], bins: Sequence[int], largest: bool) -> Value:
    """As many samples in each bin of a region as it has elements, rounded up: one of each bin after the other."""
    rows, columns = counts = [
        emit(dl.CeilOp, emit(dl.DivOp, span.extent, emit.scalar(n, span.extent))) for span, n in zip(spans, bins, strict=True)
    ]
    most_rows, most_columns = (emit(dl.ReduceMaxOp, count, axes=(0, 1), keepdims=False) for count in counts)
    zero = emit.scalar(0, rows)
    shape = (own.shape[0], *bins, image.shape[3])
    first = emit.full(-np.inf if largest else 0, shape, image)

    def step(inner: Emitter, states: Sequence[Value]) -> Sequence[Value]:
        row, column, total = states
        places = [
            span.samples(inner, _part(inner, n, k, count))
            for span, n, k, count in zip(spans, bins, (row, column), counts, strict=True)
        ]
        new = inner(dl.MaximumOp if largest else dl.AddOp, total, _taken(inner, image, own, places, largest))
        active = inner(dl.AndOp, inner(dl.LessOp, row, rows), inner(dl.LessOp, column, columns))
        total = inner(dl.SelectOp, inner.reshape(active, own.shape), new, total)
        column = inner(dl.AddOp, column, inner.scalar(1, column))
        ends = inner(dl.GreaterEqualOp, column, most_columns)
        row = inner(dl.SelectOp, ends, inner(dl.AddOp, row, inner.scalar(1, row)), row)
        return inner(dl.LessOp, row, most_rows), row, inner(dl.SelectOp, ends, zero, column), total

    going = emit(dl.AndOp, emit(dl.LessOp, zero, most_rows), emit(dl.LessOp, zero, most_columns))
    *_, total = emit.while_(going, [zero, zero, first], step)
    count = emit.reshape(emit(dl.MulOp, *(emit(dl.MaximumOp, count, zero) for count in counts)), own.shape)
    has_any = emit(dl.GreaterOp, count, zero)
    made = total if largest else emit(dl.DivOp, total, emit.cast(count, total.element_type))
    return emit(dl.SelectOp, has_any, made, emit.scalar(0, made))


def _part(emit: Emitter, bins: int, k: Value, count: Value) -> Value:
    """Where sample `k` of so many lies in each bin, as parts of a region: [regions, bins]."""
    within = emit(dl.DivOp, emit(dl.AddOp, k, emit.scalar(0.5, k)), count)
    return emit(dl.DivOp, emit(dl.AddOp, emit.iota(bins, k.element_type), within), emit.scalar(bins, k))


def _taken(emit: Emitter, image: Value, own: Value, axes: Sequence[_Samples], largest: bool) -> Value:
    """The image `own` of each region at its samples, [regions, rows, columns, channels]; 0 outside."""
    rows, columns = axes
    grid: tuple[Size, ...] = (own.shape[0], rows.inside.shape[1], columns.inside.shape[1])

    def along(v: Value, axis: int) -> Value:
        """A value per region and sample of one axis, as it lies in the grid."""
        return emit.reshape(v, (grid[0], *(grid[1 + a] if a == axis else 1 for a in range(2)), 1))

    def placed(v: Value) -> Value:
        return emit.broadcast(emit.cast(v, i64), (*grid, 1))

    inside = emit(dl.AndOp, along(rows.inside, 0), along(columns.inside, 1))
    parts: list[Value] = []
    for (y, wy), (x, wx) in product(rows.taps, columns.taps):
        places = emit(dl.ConcatOp, placed(own), placed(along(y, 0)), placed(along(x, 1)), axis=3)
        weighted = emit(dl.MulOp, emit(dl.GatherNdOp, image, places), emit(dl.MulOp, along(wy, 0), along(wx, 1)))
        parts.append(emit(dl.SelectOp, inside, weighted, emit.scalar(0, weighted)))
    # The largest is that of the weighted elements, not of their sums.
    return reduce(partial(emit, dl.MaximumOp if largest else dl.AddOp), parts)


def _span(node: Node, size: int, axis: int) -> _Span:
    """The regions along the image's height (axis 0) or width."""
    emit, rois = node.emit, node[1]
    half_pixel = node.opset >= 16 and _is_half_pixel(node)
    scale = node.real("spatial_scale", 1.0)

    def end(k: int) -> Value:
        scaled = emit(dl.MulOp, emit.slice(rois, 1, k, k + 1), emit.scalar(scale, rois))
        return emit(dl.SubOp, scaled, emit.scalar(0.5, rois)) if half_pixel else scaled

    # Corners are x first.
    start = end(1 - axis)
    extent = emit(dl.SubOp, end(3 - axis), start)
    return _Span(start, extent if half_pixel else emit(dl.MaximumOp, extent, emit.scalar(1, rois)), size)


@table("MaxRoiPool")
def max_roi_pool(node: Node) -> Value:
    """The largest element in each bin of a region, first of rows, then of columns; 0 where there is none."""
    emit, x, rois = node.emit, node[0], node[1]
    if x.rank != 4 or rois.rank != 2 or not equal(rois.shape[1], 5):
        raise ModelError(f"{node.place}: expected x [N, C, H, W] and rois [n, 5], got {list(x.shape)} and {list(rois.shape)}")
    bins, regions = node.integers("pooled_shape"), rois.shape[0]
    own = emit.reshape(emit.cast(emit.slice(rois, 1, 0, 1), i64), (regions,))
    total = emit(dl.GatherOp, channels_last(node, x), own, axis=0)
    lowest = emit.scalar(-np.inf, total)
    for k in range(2):
        within = _within(node, k, bins[k], x.shape[2 + k])
        shape = (*total.shape[: 1 + k], 1, *total.shape[1 + k :])
        mask = emit.reshape(within, (regions, *(1,) * k, bins[k], x.shape[2 + k], *(1,) * (2 - k)))
        chosen = emit(dl.SelectOp, mask, emit.reshape(total, shape), lowest)
        total = emit(dl.ReduceMaxOp, chosen, axes=(2 + k,), keepdims=False)
    none = emit(dl.EqualOp, total, lowest)
    return channels_first(node, emit(dl.SelectOp, none, emit.scalar(0, total), total))


def _within(node: Node, axis: int, bins: int, size: Size) -> Value:
    """Which elements of an axis of the image belong to which bin of which region: [regions, bins, elements]."""
    emit, rois = node.emit, node[1]

    def corner(k: int) -> Value:
        """A corner's element; halves go away from 0."""
        scaled = emit(dl.MulOp, emit.slice(rois, 1, k, k + 1), emit.scalar(node.real("spatial_scale", 1.0), rois))
        rounded = emit(dl.FloorOp, emit(dl.AddOp, emit(dl.AbsOp, scaled), emit.scalar(0.5, rois)))
        return emit(dl.MulOp, emit(dl.SignOp, scaled), rounded)

    # Corners are x first, behind the number of the image, and belong to the region.
    one, start = emit.scalar(1, rois), corner(2 - axis)
    extent = emit(dl.MaximumOp, emit(dl.AddOp, emit(dl.SubOp, corner(4 - axis), start), one), one)
    step = emit(dl.DivOp, extent, emit.scalar(bins, rois))
    first, behind = (emit(dl.MulOp, emit.iota(bins, rois.element_type, k), step) for k in range(2))
    begins = emit.reshape(emit(dl.AddOp, emit(dl.FloorOp, first), start), (rois.shape[0], bins, 1))
    ends = emit.reshape(emit(dl.AddOp, emit(dl.CeilOp, behind), start), (rois.shape[0], bins, 1))
    places = emit.iota(size, rois.element_type)
    return emit(dl.AndOp, emit(dl.GreaterEqualOp, places, begins), emit(dl.LessOp, places, ends))


def _is_half_pixel(node: Node) -> bool:
    modes = ("half_pixel", "output_half_pixel")
    return node.choice("coordinate_transformation_mode", "half_pixel", modes) == "half_pixel"


@table("DeformConv", since=19)
def deform_conv(node: Node) -> Value:
    emit, x, w, bias = node.emit, node[0], node[1], node.get(3)
    kernel = tuple(int(s) for s in w.shape[2:])
    rank, offset_groups, groups = len(kernel), node.integer("offset_group", 1), node.integer("group", 1)
    if rank != 2 or x.rank != 4:
        raise NodeProblem("input", f"deformable convolutions of {rank} dimensions are not supported, only of 2")
    if node.integers("kernel_shape", kernel) != kernel:
        raise ModelError(f"{node.place}: kernel_shape does not fit the weights {list(w.shape)}")
    batch, channels, *spatial = x.shape
    out, taps = node[2].shape[2:], kernel[0] * kernel[1]
    split = (batch, offset_groups, taps)

    def last(v: Value, *own: int) -> Value:
        """What is given for each tap, with the taps behind the image's axes and its own axes last."""
        v = emit.reshape(v, (*split, *own, *out))
        outer = emit.transpose(v, (0, 1, v.rank - 2, v.rank - 1, *range(2, v.rank - 2)))
        return emit.reshape(outer, (batch * offset_groups, *out, taps, *(own or (1,))))

    offsets, mask = last(node[2], rank), node.get(4)
    axes = [Places(node, int(size), -0.5, int(size) - 0.5, "zeros") for size in spatial]
    places = [emit(dl.AddOp, emit.slice(offsets, 4, k, k + 1), _regular(node, k, kernel, out[k])) for k in range(rank)]
    # A group of channels that share their offsets is an image of its own.
    members = channels // offset_groups
    image = emit.transpose(emit.reshape(x, (batch, offset_groups, members, *spatial)), (0, 1, 3, 4, 2))
    image = emit.reshape(image, (batch * offset_groups, *spatial, members))
    pairs = list(product(*(axis.taps(place, "linear") for axis, place in zip(axes, places, strict=True))))
    columns = sampled(node, image, axes, pairs[0])
    for pair in pairs[1:]:
        columns = emit(dl.AddOp, columns, sampled(node, image, axes, pair))
    if mask is not None:
        columns = emit(dl.MulOp, columns, last(mask))
    # [batch, *out, channels, taps], then the convolution is one of a single place.
    columns = emit.reshape(columns, (batch, offset_groups, *out, taps, members))
    columns = emit.transpose(columns, (0, 2, 3, 1, 5, 4))
    y = emit(
        dl.ConvOp,
        emit.reshape(columns, (batch, *out, channels * taps)),
        emit.transpose(emit.reshape(w, (w.shape[0], w.shape[1] * taps, 1, 1)), (2, 3, 1, 0)),
        strides=(1, 1),
        dilations=(1, 1),
        groups=groups,
    )
    return channels_first(node, y if bias is None else emit(dl.AddOp, y, bias))


def _regular(node: Node, axis: int, kernel: Sequence[int], size: Size) -> Value:
    """Where the taps of an ordinary convolution lie along one axis: [out height, out width, taps, 1]."""
    emit, element_type, rank = node.emit, node[2].element_type, len(kernel)
    stride, dilation = (node.integers(name, (1,) * rank)[axis] for name in ("strides", "dilations"))
    pad = node.integers("pads", (0,) * 2 * rank)[axis]
    starts = emit.iota(size, element_type, -pad, stride)
    starts = emit.reshape(starts, (*(size if a == axis else 1 for a in range(rank)), 1, 1))
    steps = emit.iota(kernel[axis], element_type, 0, dilation)
    steps = emit.reshape(steps, tuple(kernel[axis] if a == axis else 1 for a in range(rank)))
    steps = emit.reshape(emit.broadcast(steps, kernel), (kernel[0] * kernel[1], 1))
    return emit(dl.AddOp, starts, steps)
