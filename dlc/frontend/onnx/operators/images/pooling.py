"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dims import Size, UndecidableError, is_static, product
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.images.windows import Windows, channels_first, channels_last, padded_windows, windows
from dlc.frontend.onnx.operators.movement.joining import padded
from dlc.frontend.onnx.registry import Converter, Table

table = Table()


def _windows(node: Node) -> Windows:
    if node[0].rank < 3:
        raise ModelError(f"{node.place}: expected [N, C, ...], got {list(node[0].shape)}")
    return windows(node, node.integers("kernel_shape"), node[0].shape[2:])


def _pooled(node: Node, op: type[DlOp], x: Value, w: Windows, fill: Value) -> Value:
    return node.emit(op, padded_windows(node, x, w, fill), kernel=w.kernel, strides=w.strides, dilations=w.dilations)


@table("MaxPool")
def max_pool(node: Node) -> list[Value]:
    x, w = node[0], _windows(node)
    dtype = numpy_dtype(x.element_type)
    lowest = node.emit.scalar(-np.inf if is_float(x.element_type) else int(np.iinfo(dtype).min), x)
    by_columns = node.flag("storage_order")
    y = channels_first(node, _pooled(node, dl.MaxPoolOp, channels_last(node, x), w, lowest))
    return [y, _largest_places(node, y, w, lowest, by_columns)] if node.wants(1) else [y]


def _largest_places(node: Node, y: Value, w: Windows, lowest: Value, by_columns: bool) -> Value:
    """Where the largest element of each window stands in the operand, as a number of all its elements."""
    emit, x, name = node.emit, node[0], node.proto.output[1]
    batch, channels, *spatial = (int(s) for s in x.shape)
    padded_sizes = [s + low + high for s, low, high in zip(spatial, w.low, w.high, strict=True)]
    # The places of each window along every axis: [windows, kernel], of all axes together: [all windows, all of the kernel].
    axes = [
        np.arange(0, size - extent + 1, stride)[:, np.newaxis] + np.arange(kernel) * dilation
        for size, extent, stride, kernel, dilation in zip(
            padded_sizes, w.extents, w.strides, w.kernel, w.dilations, strict=True
        )
    ]
    grids = np.meshgrid(*(a.reshape(-1) for a in axes), indexing="ij")
    order = [k for start in (0, 1) for k in range(start, 2 * len(axes), 2)]

    def by_window(numbers: Array) -> Array:
        split = numbers.reshape([n for a in axes for n in a.shape]).transpose(order)
        return split.reshape(-1, int(np.prod(w.kernel)))

    inner = [np.clip(g - low, 0, s - 1) for g, low, s in zip(grids, w.low, spatial, strict=True)]
    strides = np.cumprod([1, *(spatial if by_columns else spatial[::-1])])[:-1]
    strides = strides if by_columns else strides[::-1]
    places = by_window(np.ravel_multi_index(grids, padded_sizes))
    numbers = by_window(np.sum([g * s for g, s in zip(inner, strides, strict=True)], 0))
    wide = padded(node, x, [0, 0, *w.low], [0, 0, *w.high], lowest)
    rows = emit.reshape(wide, (batch, channels, int(np.prod(padded_sizes))))
    windows = emit(dl.GatherOp, rows, emit.constant(places, np.int64, f"{name}_places"), axis=2)
    first = emit(dl.ArgmaxOp, windows, axis=3, keepdims=False, select_last=False)
    position = emit(dl.AddOp, emit.iota(len(places), step=places.shape[1]), first)
    found = emit(dl.GatherOp, emit.constant(numbers.reshape(-1), np.int64, f"{name}_numbers"), position, axis=0)
    image = emit.reshape(emit.iota(batch * channels, step=int(np.prod(spatial))), (batch, channels, 1))
    return emit.reshape(emit(dl.AddOp, found, image), y.shape)


@table("MaxUnpool")
def max_unpool(node: Node) -> Value:
    """Elements written back to where MaxPool found them, zeros between."""
    emit, x, places = node.emit, node[0], node[1]
    rank = x.rank - 2
    kernel, strides = node.integers("kernel_shape"), node.integers("strides", (1,) * rank)
    pads = node.integers("pads", (0,) * (2 * rank))
    if rank < 1 or not len(kernel) == len(strides) == len(pads) // 2 == rank:
        raise ModelError(f"{node.place}: its attributes must have an entry for each of the {rank} spatial axes")
    spatial = [(size - 1) * strides[k] + kernel[k] - pads[k] - pads[k + rank] for k, size in enumerate(x.shape[2:])]
    shape, count = (*x.shape[:2], *spatial), product(x.shape)
    rows, updates = emit.reshape(places, (count, 1)), emit.reshape(x, (count,))
    y = emit(dl.ScatterNdOp, emit.full(0, (product(shape),), x), rows, updates, mode="none", checked=True)
    y = emit.reshape(y, shape)
    if node.get(2) is None:
        return y
    wanted = node.integers_of(2, "output_shape")
    if len(wanted) != x.rank or not is_static(shape):
        raise ModelError(f"{node.place}: an output_shape {list(wanted)} for {list(shape)}")
    return padded(node, y, [0] * x.rank, [int(w) - int(s) for w, s in zip(wanted, shape, strict=True)])


def _powered_sum(node: Node, x: Value, total: Callable[[Value], Value]) -> Value:
    """`(Σ |x|^p)^(1/p)`"""
    emit, order = node.emit, node.integer("p", 2)
    if order < 1:
        raise ModelError(f"{node.place}: p must be positive, got {order}")
    size = emit(dl.AbsOp, emit.wide(x))
    if order == 1:
        return emit.cast(total(size), x.element_type)
    powers = total(emit(dl.PowOp, size, emit.scalar(order, size)))
    return emit.cast(emit(dl.PowOp, powers, emit.scalar(1 / order, size)), x.element_type)


@table("LpPool")
def lp_pool(node: Node) -> Value:
    x, w = node[0], _windows(node)

    def total(v: Value) -> Value:
        return _pooled(node, dl.SumPoolOp, v, w, node.emit.scalar(0.0, v))

    return channels_first(node, _powered_sum(node, channels_last(node, x), total))


@table("GlobalLpPool")
def global_lp_pool(node: Node) -> Value:
    axes = tuple(range(2, node[0].rank))
    return _powered_sum(node, node[0], lambda v: node.emit(dl.ReduceSumOp, v, axes=axes, keepdims=True))


@table("AveragePool")
def average_pool(node: Node) -> Value:
    emit, x, w = node.emit, node.emit.wide(node[0]), _windows(node)
    counts = _counts(x.shape[2:], w, *_counted(node, w))
    total = _pooled(node, dl.SumPoolOp, channels_last(node, x), w, emit.scalar(0.0, x))
    factors = 1.0 / (counts[..., np.newaxis] if counts.ndim else counts)
    factor = emit.constant(factors, numpy_dtype(x.element_type), f"{node.proto.output[0]}_reciprocal")
    return emit.cast(channels_first(node, emit(dl.MulOp, total, factor)), node[0].element_type)


def _counted(node: Node, w: Windows) -> tuple[Sequence[int], Sequence[int]]:
    """The padding that counts as elements: all that pads asks for, but not what ceil_mode adds; or none."""
    rank, auto = len(w.kernel), node.text("auto_pad", "NOTSET")
    if not node.flag("count_include_pad") or auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto != "NOTSET":
        return w.low, w.high
    pads = node.integers("pads", (0,) * (2 * rank))
    return pads[:rank], pads[rank:]


def _counts(spatial: Sequence[Size], w: Windows, low: Sequence[int], high: Sequence[int]) -> Array:
    """How many elements each window averages; one number when all windows have equally many."""
    if (tuple(low), tuple(high)) == (w.low, w.high):
        return np.asarray(float(np.prod(w.kernel)))
    counts = np.ones(())
    for axis, size in enumerate(spatial):
        if not isinstance(size, int):
            raise UndecidableError(f"how many elements an average at the border has depends on the size {size}")
        padded = size + w.low[axis] + w.high[axis]
        starts = np.arange(0, padded - w.extents[axis] + 1, w.strides[axis]) - w.low[axis]
        places = starts[:, np.newaxis] + np.arange(w.kernel[axis]) * w.dilations[axis]
        inside = ((places >= -low[axis]) & (places < size + high[axis])).sum(1)
        counts = np.multiply.outer(counts, inside)
    # A window of nothing but padding averages nothing.
    return np.maximum(counts, 1)


def _global(op: type[DlOp]) -> Converter:
    def convert(node: Node) -> Value:
        return node.emit(op, node[0], axes=tuple(range(2, node[0].rank)), keepdims=True)

    return convert


table("GlobalAveragePool")(_global(dl.ReduceMeanOp))
table("GlobalMaxPool")(_global(dl.ReduceMaxOp))
