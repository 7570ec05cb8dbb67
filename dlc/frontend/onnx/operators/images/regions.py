"""Operators on regions of interest, and convolutions with deformed kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product

import numpy as np

from dlc.dialects import dl
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.sampling import SamplePositions, sample
from dlc.frontend.onnx.operators.images.sliding_windows import channels_first, channels_last
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.ir import i64
from dlc.shapes.dims import Size, are_equal

table = ConverterTable()


@dataclass(frozen=True)
class _Samples:
    """The samples of each region along one image axis: two taps with weights each, and whether the sample is inside the image.

    All are [regions, samples].
    """

    taps: tuple[tuple[ImportedValue, ImportedValue], tuple[ImportedValue, ImportedValue]]
    inside: ImportedValue


@dataclass(frozen=True)
class _Span:
    """The start and extent of each region along an image axis of `size` elements: [regions, 1]."""

    start: ImportedValue
    extent: ImportedValue
    size: int

    def samples(self, emit: Emitter, fractions: ImportedValue) -> _Samples:
        """Return the samples at fractions of the extent of each region, [regions or 1, samples]."""
        position = emit(dl.AddOp, self.start, emit(dl.MulOp, self.extent, fractions))
        last, zero = emit.scalar(self.size - 1, position), emit.scalar(0, position)
        is_inside = emit(
            dl.AndOp,
            emit(dl.GreaterEqualOp, position, emit.scalar(-1, position)),
            emit(dl.LessEqualOp, position, emit.scalar(self.size, position)),
        )
        position = emit(dl.MinimumOp, emit(dl.MaximumOp, position, zero), last)
        low = emit(dl.FloorOp, position)
        fraction = emit(dl.SubOp, position, low)
        high = emit(dl.MinimumOp, emit(dl.AddOp, low, emit.scalar(1, position)), last)
        return _Samples(((low, emit(dl.SubOp, emit.scalar(1, position), fraction)), (high, fraction)), is_inside)


@table("RoiAlign", since=10)
def roi_align(node: OnnxNode) -> ImportedValue:
    emit, x, rois = node.emit, node[0], node[1]
    if x.rank != 4 or rois.rank != 2 or not are_equal(rois.shape[1], 4):
        raise ModelError(
            f"{node.description}: expected x [N, C, H, W] and rois [n, 4], got {list(x.shape)} and {list(rois.shape)}"
        )
    samples_per_bin, bins = node.integer("sampling_ratio", 0), [node.integer(f"output_{a}", 1) for a in ("height", "width")]
    regions, channels = rois.shape[0], x.shape[1]
    image, image_index = channels_last(node, x), emit.reshape(node[2], (regions, 1, 1, 1))
    spans = [_span(node, int(x.shape[2 + k]), k) for k in range(2)]
    use_max = node.choice("mode", "avg", ("avg", "max")) == "max"
    if samples_per_bin <= 0:
        return channels_first(node, _adaptive(emit, image, image_index, spans, bins, use_max))
    fractions = [
        emit.iota(n * samples_per_bin, rois.element_type, 0.5 / (n * samples_per_bin), 1 / (n * samples_per_bin)) for n in bins
    ]
    samples = _sample_regions(
        emit,
        image,
        image_index,
        [span.samples(emit, fraction) for span, fraction in zip(spans, fractions, strict=True)],
        use_max,
    )
    split = emit.reshape(samples, (regions, bins[0], samples_per_bin, bins[1], samples_per_bin, channels))
    return channels_first(node, emit(dl.ReduceMaxOp if use_max else dl.ReduceMeanOp, split, axes=(2, 4), keepdims=False))


def _adaptive(
    emit: Emitter, image: ImportedValue, image_index: ImportedValue, spans: Sequence[_Span], bins: Sequence[int], use_max: bool
) -> ImportedValue:
    """Average or maximize ⌈elements of the region / bins⌉ samples per bin and axis, one sample per iteration."""
    rows, columns = counts = [
        emit(dl.CeilOp, emit(dl.DivOp, span.extent, emit.scalar(n, span.extent))) for span, n in zip(spans, bins, strict=True)
    ]
    max_rows, max_columns = (emit(dl.ReduceMaxOp, count, axes=(0, 1), keepdims=False) for count in counts)
    zero = emit.scalar(0, rows)
    shape = (image_index.shape[0], *bins, image.shape[3])
    first = emit.full(-np.inf if use_max else 0, shape, image)

    def step(inner: Emitter, states: Sequence[ImportedValue]) -> Sequence[ImportedValue]:
        row, column, total = states
        positions = [
            span.samples(inner, _bin_fractions(inner, n, k, count))
            for span, n, k, count in zip(spans, bins, (row, column), counts, strict=True)
        ]
        new = inner(
            dl.MaximumOp if use_max else dl.AddOp, total, _sample_regions(inner, image, image_index, positions, use_max)
        )
        active = inner(dl.AndOp, inner(dl.LessOp, row, rows), inner(dl.LessOp, column, columns))
        total = inner(dl.SelectOp, inner.reshape(active, image_index.shape), new, total)
        column = inner(dl.AddOp, column, inner.scalar(1, column))
        ends = inner(dl.GreaterEqualOp, column, max_columns)
        row = inner(dl.SelectOp, ends, inner(dl.AddOp, row, inner.scalar(1, row)), row)
        return inner(dl.LessOp, row, max_rows), row, inner(dl.SelectOp, ends, zero, column), total

    cond = emit(dl.AndOp, emit(dl.LessOp, zero, max_rows), emit(dl.LessOp, zero, max_columns))
    *_, total = emit.while_(cond, [zero, zero, first], step)
    count = emit.reshape(emit(dl.MulOp, *(emit(dl.MaximumOp, count, zero) for count in counts)), image_index.shape)
    has_any = emit(dl.GreaterOp, count, zero)
    result = total if use_max else emit(dl.DivOp, total, emit.cast(count, total.element_type))
    return emit(dl.SelectOp, has_any, result, emit.scalar(0, result))


def _bin_fractions(emit: Emitter, bins: int, k: ImportedValue, count: ImportedValue) -> ImportedValue:
    """Return the position of sample `k` of `count` in each bin as a fraction of the region: [regions, bins]."""
    bin_fraction = emit(dl.DivOp, emit(dl.AddOp, k, emit.scalar(0.5, k)), count)
    return emit(dl.DivOp, emit(dl.AddOp, emit.iota(bins, k.element_type), bin_fraction), emit.scalar(bins, k))


def _sample_regions(
    emit: Emitter, image: ImportedValue, image_index: ImportedValue, axes: Sequence[_Samples], use_max: bool
) -> ImportedValue:
    """Sample the image of each region, [regions, rows, columns, channels]; 0 outside."""
    rows, columns = axes
    grid: tuple[Size, ...] = (image_index.shape[0], rows.inside.shape[1], columns.inside.shape[1])

    def along(value: ImportedValue, axis: int) -> ImportedValue:
        """Reshape a value per region and sample of one axis to broadcast over the grid."""
        return emit.reshape(value, (grid[0], *(grid[1 + a] if a == axis else 1 for a in range(2)), 1))

    def to_index(value: ImportedValue) -> ImportedValue:
        return emit.broadcast(emit.cast(value, i64), (*grid, 1))

    is_inside = emit(dl.AndOp, along(rows.inside, 0), along(columns.inside, 1))
    weighted_taps: list[ImportedValue] = []
    for (y, wy), (x, wx) in product(rows.taps, columns.taps):
        positions = emit(dl.ConcatOp, to_index(image_index), to_index(along(y, 0)), to_index(along(x, 1)), axis=3)
        weighted = emit(dl.MulOp, emit(dl.GatherNdOp, image, positions), emit(dl.MulOp, along(wy, 0), along(wx, 1)))
        weighted_taps.append(emit(dl.SelectOp, is_inside, weighted, emit.scalar(0, weighted)))
    # The maximum is over weighted taps, not over interpolated samples.
    return reduce(partial(emit, dl.MaximumOp if use_max else dl.AddOp), weighted_taps)


def _span(node: OnnxNode, size: int, axis: int) -> _Span:
    """Return the extents of the regions along the height (axis 0) or the width of the image."""
    emit, rois = node.emit, node[1]
    half_pixel = node.opset >= 16 and _is_half_pixel(node)
    scale = node.real("spatial_scale", 1.0)

    def edge(k: int) -> ImportedValue:
        scaled = emit(dl.MulOp, emit.slice(rois, 1, k, k + 1), emit.scalar(scale, rois))
        return emit(dl.SubOp, scaled, emit.scalar(0.5, rois)) if half_pixel else scaled

    # Regions store x before y.
    start = edge(1 - axis)
    extent = emit(dl.SubOp, edge(3 - axis), start)
    return _Span(start, extent if half_pixel else emit(dl.MaximumOp, extent, emit.scalar(1, rois)), size)


@table("MaxRoiPool")
def max_roi_pool(node: OnnxNode) -> ImportedValue:
    """Return the maximum of each bin of a region, reducing rows, then columns; 0 for an empty bin."""
    emit, x, rois = node.emit, node[0], node[1]
    if x.rank != 4 or rois.rank != 2 or not are_equal(rois.shape[1], 5):
        raise ModelError(
            f"{node.description}: expected x [N, C, H, W] and rois [n, 5], got {list(x.shape)} and {list(rois.shape)}"
        )
    bins, regions = node.integers("pooled_shape"), rois.shape[0]
    image_index = emit.reshape(emit.cast(emit.slice(rois, 1, 0, 1), i64), (regions,))
    total = emit(dl.GatherOp, channels_last(node, x), image_index, axis=0)
    lowest = emit.scalar(-np.inf, total)
    for k in range(2):
        in_bin = _bin_mask(node, k, bins[k], x.shape[2 + k])
        shape = (*total.shape[: 1 + k], 1, *total.shape[1 + k :])
        mask = emit.reshape(in_bin, (regions, *(1,) * k, bins[k], x.shape[2 + k], *(1,) * (2 - k)))
        selected = emit(dl.SelectOp, mask, emit.reshape(total, shape), lowest)
        total = emit(dl.ReduceMaxOp, selected, axes=(2 + k,), keepdims=False)
    is_empty = emit(dl.EqualOp, total, lowest)
    return channels_first(node, emit(dl.SelectOp, is_empty, emit.scalar(0, total), total))


def _bin_mask(node: OnnxNode, axis: int, bins: int, size: Size) -> ImportedValue:
    """Return whether each element of an image axis belongs to each bin of each region: [regions, bins, elements]."""
    emit, rois = node.emit, node[1]

    def corner(k: int) -> ImportedValue:
        """Return the element of a corner, rounded half away from zero."""
        scaled = emit(dl.MulOp, emit.slice(rois, 1, k, k + 1), emit.scalar(node.real("spatial_scale", 1.0), rois))
        rounded = emit(dl.FloorOp, emit(dl.AddOp, emit(dl.AbsOp, scaled), emit.scalar(0.5, rois)))
        return emit(dl.MulOp, emit(dl.SignOp, scaled), rounded)

    # Regions store the image index, then inclusive corners, x before y.
    one, start = emit.scalar(1, rois), corner(2 - axis)
    extent = emit(dl.MaximumOp, emit(dl.AddOp, emit(dl.SubOp, corner(4 - axis), start), one), one)
    step = emit(dl.DivOp, extent, emit.scalar(bins, rois))
    first_edge, next_edge = (emit(dl.MulOp, emit.iota(bins, rois.element_type, k), step) for k in range(2))
    starts = emit.reshape(emit(dl.AddOp, emit(dl.FloorOp, first_edge), start), (rois.shape[0], bins, 1))
    ends = emit.reshape(emit(dl.AddOp, emit(dl.CeilOp, next_edge), start), (rois.shape[0], bins, 1))
    positions = emit.iota(size, rois.element_type)
    return emit(dl.AndOp, emit(dl.GreaterEqualOp, positions, starts), emit(dl.LessOp, positions, ends))


def _is_half_pixel(node: OnnxNode) -> bool:
    modes = ("half_pixel", "output_half_pixel")
    return node.choice("coordinate_transformation_mode", "half_pixel", modes) == "half_pixel"


@table("DeformConv", since=19)
def deform_conv(node: OnnxNode) -> ImportedValue:
    emit, x, w, bias = node.emit, node[0], node[1], node.get(3)
    kernel = tuple(int(s) for s in w.shape[2:])
    rank, offset_groups, groups = len(kernel), node.integer("offset_group", 1), node.integer("group", 1)
    if rank != 2 or x.rank != 4:
        raise NodeProblem("input", f"deformable convolutions with {rank} spatial axes are not supported; expected 2")
    if node.integers("kernel_shape", kernel) != kernel:
        raise ModelError(f"{node.description}: kernel_shape does not match the weights {list(w.shape)}")
    batch, channels, *spatial = x.shape
    out_sizes, taps = node[2].shape[2:], kernel[0] * kernel[1]
    leading_shape = (batch, offset_groups, taps)

    def taps_last(value: ImportedValue, *trailing: int) -> ImportedValue:
        """Move the axis of the taps after the image axes, and the axes `trailing` last."""
        value = emit.reshape(value, (*leading_shape, *trailing, *out_sizes))
        outer = emit.transpose(value, (0, 1, value.rank - 2, value.rank - 1, *range(2, value.rank - 2)))
        return emit.reshape(outer, (batch * offset_groups, *out_sizes, taps, *(trailing or (1,))))

    offsets, mask = taps_last(node[2], rank), node.get(4)
    axes = [SamplePositions(node, int(size), -0.5, int(size) - 0.5, "zeros") for size in spatial]
    positions = [
        emit(dl.AddOp, emit.slice(offsets, 4, k, k + 1), _undeformed_positions(node, k, kernel, out_sizes[k]))
        for k in range(rank)
    ]
    # Each group of channels with common offsets is treated as a separate image.
    group_channels = channels // offset_groups
    image = emit.transpose(emit.reshape(x, (batch, offset_groups, group_channels, *spatial)), (0, 1, 3, 4, 2))
    image = emit.reshape(image, (batch * offset_groups, *spatial, group_channels))
    pairs = list(product(*(axis.taps(position, "linear") for axis, position in zip(axes, positions, strict=True))))
    columns = sample(node, image, axes, pairs[0])
    for pair in pairs[1:]:
        columns = emit(dl.AddOp, columns, sample(node, image, axes, pair))
    if mask is not None:
        columns = emit(dl.MulOp, columns, taps_last(mask))
    # [batch, *out, channels, taps], then the convolution has a 1x1 kernel.
    columns = emit.reshape(columns, (batch, offset_groups, *out_sizes, taps, group_channels))
    columns = emit.transpose(columns, (0, 2, 3, 1, 5, 4))
    y = emit(
        dl.ConvOp,
        emit.reshape(columns, (batch, *out_sizes, channels * taps)),
        emit.transpose(emit.reshape(w, (w.shape[0], w.shape[1] * taps, 1, 1)), (2, 3, 1, 0)),
        strides=(1, 1),
        dilations=(1, 1),
        groups=groups,
    )
    return channels_first(node, y if bias is None else emit(dl.AddOp, y, bias))


def _undeformed_positions(node: OnnxNode, axis: int, kernel: Sequence[int], size: Size) -> ImportedValue:
    """Return the positions of the taps of an ordinary convolution along one axis: [out height, out width, taps, 1]."""
    emit, element_type, rank = node.emit, node[2].element_type, len(kernel)
    stride, dilation = (node.integers(name, (1,) * rank)[axis] for name in ("strides", "dilations"))
    pad = node.integers("pads", (0,) * 2 * rank)[axis]
    starts = emit.iota(size, element_type, -pad, stride)
    starts = emit.reshape(starts, (*(size if a == axis else 1 for a in range(rank)), 1, 1))
    steps = emit.iota(kernel[axis], element_type, 0, dilation)
    steps = emit.reshape(steps, tuple(kernel[axis] if a == axis else 1 for a in range(rank)))
    steps = emit.reshape(emit.broadcast(steps, kernel), (kernel[0] * kernel[1], 1))
    return emit(dl.AddOp, starts, steps)
