"""Pooling over sliding windows and over whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import sub

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.sliding_windows import (
    SlidingWindows,
    channels_first,
    channels_last,
    pad_windows,
    sliding_windows,
)
from dlc.frontend.onnx.operators.movement.slicing import pad_tensor
from dlc.frontend.onnx.registry import Converter, ConverterTable
from dlc.shapes.dims import is_static, product

table = ConverterTable()


def _windows(node: OnnxNode) -> SlidingWindows:
    if node[0].rank < 3:
        raise ModelError(f"{node.description}: expected [N, C, ...], got {list(node[0].shape)}")
    return sliding_windows(node, node.integers("kernel_shape"), node[0].shape[2:])


def _pool(node: OnnxNode, op: type[DlOp], x: ImportedValue, windows: SlidingWindows, fill: ImportedValue) -> ImportedValue:
    return node.emit(
        op, pad_windows(node, x, windows, fill), kernel=windows.kernel, strides=windows.strides, dilations=windows.dilations
    )


@table("MaxPool")
def max_pool(node: OnnxNode) -> list[ImportedValue]:
    x, w = node[0], _windows(node)
    dtype = numpy_dtype(x.element_type)
    lowest = node.emit.scalar(-np.inf if is_float(x.element_type) else int(np.iinfo(dtype).min), x)
    by_columns = node.flag("storage_order")
    y = channels_first(node, _pool(node, dl.MaxPoolOp, channels_last(node, x), w, lowest))
    return [y, _max_indices(node, y, w, lowest, by_columns)] if node.is_output_used(1) else [y]


def _max_indices(node: OnnxNode, y: ImportedValue, w: SlidingWindows, lowest: ImportedValue, by_columns: bool) -> ImportedValue:
    """Return the flat index into the operand of the maximum of each window."""
    emit, x, name = node.emit, node[0], node.proto.output[1]
    batch, channels, *spatial = (int(s) for s in x.shape)
    padded_sizes = [s + low + high for s, low, high in zip(spatial, w.low, w.high, strict=True)]
    # Padded indices of each window: [windows, kernel] per axis, [all windows, all kernel elements] for all axes.
    axes = [
        np.arange(0, size - extent + 1, stride)[:, np.newaxis] + np.arange(kernel) * dilation
        for size, extent, stride, kernel, dilation in zip(
            padded_sizes, w.extents, w.strides, w.kernel, w.dilations, strict=True
        )
    ]
    grids = np.meshgrid(*(a.reshape(-1) for a in axes), indexing="ij")
    order = [k for start in (0, 1) for k in range(start, 2 * len(axes), 2)]

    def by_window(flat_indices: Array) -> Array:
        split = flat_indices.reshape([n for a in axes for n in a.shape]).transpose(order)
        return split.reshape(-1, int(np.prod(w.kernel)))

    inside_indices = [np.clip(g - low, 0, s - 1) for g, low, s in zip(grids, w.low, spatial, strict=True)]
    strides = np.cumprod([1, *(spatial if by_columns else spatial[::-1])])[:-1]
    strides = strides if by_columns else strides[::-1]
    padded_indices = by_window(np.ravel_multi_index(grids, padded_sizes))
    flat_indices = by_window(np.sum([g * s for g, s in zip(inside_indices, strides, strict=True)], 0))
    padded = pad_tensor(node, x, [0, 0, *w.low], [0, 0, *w.high], lowest)
    rows = emit.reshape(padded, (batch, channels, int(np.prod(padded_sizes))))
    windows = emit(dl.GatherOp, rows, emit.constant(padded_indices, np.int64, f"{name}_padded_indices"), axis=2)
    first = emit(dl.ArgmaxOp, windows, axis=3, keepdims=False, select_last=False)
    position = emit(dl.AddOp, emit.iota(len(padded_indices), step=padded_indices.shape[1]), first)
    in_image = emit(dl.GatherOp, emit.constant(flat_indices.reshape(-1), np.int64, f"{name}_flat_indices"), position, axis=0)
    image = emit.reshape(emit.iota(batch * channels, step=int(np.prod(spatial))), (batch, channels, 1))
    return emit.reshape(emit(dl.AddOp, in_image, image), y.shape)


@table("MaxUnpool")
def max_unpool(node: OnnxNode) -> ImportedValue:
    """Scatter elements to the indices that MaxPool returned, with zeros elsewhere."""
    emit, x, indices = node.emit, node[0], node[1]
    rank = x.rank - 2
    kernel, strides = node.integers("kernel_shape"), node.integers("strides", (1,) * rank)
    pads = node.integers("pads", (0,) * (2 * rank))
    if rank < 1 or not len(kernel) == len(strides) == len(pads) // 2 == rank:
        raise ModelError(f"{node.description}: its attributes must have an entry for each of the {rank} spatial axes")
    spatial = [(size - 1) * strides[k] + kernel[k] - pads[k] - pads[k + rank] for k, size in enumerate(x.shape[2:])]
    shape, count = (*x.shape[:2], *spatial), product(x.shape)
    rows, updates = emit.reshape(indices, (count, 1)), emit.reshape(x, (count,))
    y = emit(dl.ScatterNdOp, emit.full(0, (product(shape),), x), rows, updates, mode="none", checked=True)
    y = emit.reshape(y, shape)
    if node.get(2) is None:
        return y
    output_shape = node.constant_integers(2, "output_shape")
    if len(output_shape) != x.rank or not is_static(shape):
        raise ModelError(f"{node.description}: an output_shape {list(output_shape)} for {list(shape)}")
    return pad_tensor(node, y, [0] * x.rank, [int(w) - int(s) for w, s in zip(output_shape, shape, strict=True)])


def _p_norm(node: OnnxNode, x: ImportedValue, total: Callable[[ImportedValue], ImportedValue]) -> ImportedValue:
    """Return `(Σ |x|^p)^(1/p)`."""
    emit, order = node.emit, node.integer("p", 2)
    if order < 1:
        raise ModelError(f"{node.description}: p must be positive, got {order}")
    magnitude = emit(dl.AbsOp, emit.widen(x))
    if order == 1:
        return emit.cast(total(magnitude), x.element_type)
    powers = total(emit(dl.PowOp, magnitude, emit.scalar(order, magnitude)))
    return emit.cast(emit(dl.PowOp, powers, emit.scalar(1 / order, magnitude)), x.element_type)


@table("LpPool")
def lp_pool(node: OnnxNode) -> ImportedValue:
    x, w = node[0], _windows(node)

    def total(value: ImportedValue) -> ImportedValue:
        return _pool(node, dl.SumPoolOp, value, w, node.emit.scalar(0.0, value))

    return channels_first(node, _p_norm(node, channels_last(node, x), total))


@table("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> ImportedValue:
    axes = tuple(range(2, node[0].rank))
    return _p_norm(node, node[0], lambda v: node.emit(dl.ReduceSumOp, v, axes=axes, keepdims=True))


@table("AveragePool")
def average_pool(node: OnnxNode) -> ImportedValue:
    emit, x, w = node.emit, node.emit.widen(node[0]), _windows(node)
    total = _pool(node, dl.SumPoolOp, channels_last(node, x), w, emit.scalar(0.0, x))
    factor = _reciprocal_counts(node, x, w, *_counted_padding(node, w))
    return emit.cast(channels_first(node, emit(dl.MulOp, total, factor)), node[0].element_type)


def _counted_padding(node: OnnxNode, windows: SlidingWindows) -> tuple[Sequence[int], Sequence[int]]:
    """Return the padding that is included in averages: explicit pads with count_include_pad, not those of ceil_mode."""
    rank, auto = len(windows.kernel), node.string("auto_pad", "NOTSET")
    if not node.flag("count_include_pad") or auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto != "NOTSET":
        return windows.low, windows.high
    pads = node.integers("pads", (0,) * (2 * rank))
    return pads[:rank], pads[rank:]


def _reciprocal_counts(
    node: OnnxNode, x: ImportedValue, w: SlidingWindows, low: Sequence[int], high: Sequence[int]
) -> ImportedValue:
    """Return 1 / the number of elements that each window averages; a scalar if it is equal for all windows.

    The elements along an axis of symbolic size are counted at run time.
    """
    emit, rank, name = node.emit, len(w.kernel), f"{node.proto.output[0]}_reciprocal"
    dtype = numpy_dtype(x.element_type)
    if (tuple(low), tuple(high)) == (w.low, w.high):
        return emit.constant(np.asarray(1.0 / np.prod(w.kernel)), dtype, name)
    counts, runtime_counts = np.ones(()), list[ImportedValue]()
    for axis, size in enumerate(x.shape[2:]):
        if isinstance(size, int):
            padded = size + w.low[axis] + w.high[axis]
            starts = np.arange(0, padded - w.extents[axis] + 1, w.strides[axis]) - w.low[axis]
            positions = starts[:, np.newaxis] + np.arange(w.kernel[axis]) * w.dilations[axis]
            is_inside = ((positions >= -low[axis]) & (positions < size + high[axis])).sum(1)
            counts = counts * is_inside.reshape(-1, *(1,) * (rank - axis))
        else:
            lengths = [low[axis] + size + high[axis] if a == axis else 1 for a in range(rank)]
            ones = emit.broadcast(emit.scalar(1.0, x), [1, *lengths, 1])
            uncounted = replace(w, low=tuple(map(sub, w.low, low)), high=tuple(map(sub, w.high, high)))
            runtime_counts.append(_pool(node, dl.SumPoolOp, ones, uncounted.along(axis), emit.scalar(0.0, x)))
    # A window that contains only padding has an average of 0.
    factor = emit.constant(1.0 / np.maximum(counts, 1), dtype, name)
    for count in runtime_counts:
        factor = emit(dl.DivOp, factor, emit(dl.MaximumOp, count, emit.scalar(1.0, x)))
    return factor


def _global(op: type[DlOp]) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        return node.emit(op, node[0], axes=tuple(range(2, node[0].rank)), keepdims=True)

    return convert


table("GlobalAveragePool")(_global(dl.ReduceMeanOp))
table("GlobalMaxPool")(_global(dl.ReduceMaxOp))
