"""Pooling over sliding windows and over whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.sliding_windows import (
    channels_first,
    channels_last,
    sliding_windows,
)
from dlc.frontend.onnx.registry import Converter, ConverterTable
from dlc.frontend.sliding_windows import SlidingWindows, lowest
from dlc.shapes.dims import is_static, product

table = ConverterTable()


def _windows(node: OnnxNode) -> SlidingWindows:
    if node[0].rank < 3:
        raise ModelError(f"{node.description}: expected [N, C, ...], got {list(node[0].shape)}")
    return sliding_windows(node, node.integers("kernel_shape"), node[0].shape[2:])


@table("MaxPool")
def max_pool(node: OnnxNode) -> list[ImportedValue]:
    w, by_columns = _windows(node), node.flag("storage_order")
    y = channels_first(node, w.max_pool(node.emit, channels_last(node, node[0])))
    return [y, _max_indices(node, y, w, by_columns)] if node.is_output_used(1) else [y]


def _max_indices(node: OnnxNode, y: ImportedValue, w: SlidingWindows, by_columns: bool) -> ImportedValue:
    """Return the flat index into the operand of the maximum of each window."""
    emit, x, name = node.emit, node[0], node.proto.output[1]
    batch, channels, *spatial = (int(s) for s in x.shape)
    padded_sizes = [s + low + high for s, low, high in zip(spatial, w.low, w.high, strict=True)]
    # Indices of each window: [windows, kernel] per axis, [all windows, all kernel elements] for all axes.
    axes = [w.indices(axis, size) for axis, size in enumerate(spatial)]
    grids = np.meshgrid(*(a.reshape(-1) for a in axes), indexing="ij")
    order = [k for start in (0, 1) for k in range(start, 2 * len(axes), 2)]

    def by_window(flat_indices: Array) -> Array:
        split = flat_indices.reshape([n for a in axes for n in a.shape]).transpose(order)
        return split.reshape(-1, int(np.prod(w.kernel)))

    inside_indices = [np.clip(g, 0, s - 1) for g, s in zip(grids, spatial, strict=True)]
    strides = np.cumprod([1, *(spatial if by_columns else spatial[::-1])])[:-1]
    strides = strides if by_columns else strides[::-1]
    padded_indices = by_window(np.ravel_multi_index([g + low for g, low in zip(grids, w.low, strict=True)], padded_sizes))
    flat_indices = by_window(np.sum([g * s for g, s in zip(inside_indices, strides, strict=True)], 0))
    padded = emit.pad(x, [0, 0, *w.low], [0, 0, *w.high], emit.scalar(lowest(x), x))
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
    return emit.pad(y, [0] * x.rank, [int(w) - int(s) for w, s in zip(output_shape, shape, strict=True)])


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
    w = _windows(node)
    return channels_first(node, _p_norm(node, channels_last(node, node[0]), lambda v: w.sum_pool(node.emit, v)))


@table("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> ImportedValue:
    axes = tuple(range(2, node[0].rank))
    return _p_norm(node, node[0], lambda v: node.emit(dl.ReduceSumOp, v, axes=axes, keepdims=True))


@table("AveragePool")
def average_pool(node: OnnxNode) -> ImportedValue:
    emit, w = node.emit, _windows(node)
    y = w.average_pool(emit, channels_last(node, emit.widen(node[0])), node.description, *_counted_padding(node, w))
    return emit.cast(channels_first(node, y), node[0].element_type)


def _counted_padding(node: OnnxNode, windows: SlidingWindows) -> tuple[Sequence[int], Sequence[int]]:
    """Return the padding that is included in averages: explicit pads with count_include_pad, not those of ceil_mode."""
    rank, auto = len(windows.kernel), node.string("auto_pad", "NOTSET")
    if not node.flag("count_include_pad") or auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto != "NOTSET":
        return windows.low, windows.high
    pads = node.integers("pads", (0,) * (2 * rank))
    return pads[:rank], pads[rank:]


def _global(op: type[DlOp]) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        return node.emit(op, node[0], axes=tuple(range(2, node[0].rank)), keepdims=True)

    return convert


table("GlobalAveragePool")(_global(dl.ReduceMeanOp))
table("GlobalMaxPool")(_global(dl.ReduceMaxOp))
