"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dims import Size, UndecidableError
from dlc.errors import ModelError
from dlc.frontend.onnx.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Converter, Table
from dlc.frontend.onnx.windows import Windows, channels_first, channels_last, padded_windows, windows

table = Table()


def _windows(node: Node) -> Windows:
    if node[0].rank < 3:
        raise ModelError(f"{node.place}: expected [N, C, ...], got {list(node[0].shape)}")
    return windows(node, node.integers("kernel_shape"), node[0].shape[2:])


def _pooled(node: Node, op: type[DlOp], x: Value, w: Windows, fill: Value) -> Value:
    return node.emit(op, padded_windows(node, x, w, fill), kernel=w.kernel, strides=w.strides, dilations=w.dilations)


@table("MaxPool")
def max_pool(node: Node) -> Value:
    node.ignore("storage_order")  # of the indices, the second output
    x, w = node[0], _windows(node)
    dtype = numpy_dtype(x.element_type)
    lowest = -np.inf if is_float(x.element_type) else int(np.iinfo(dtype).min)
    y = _pooled(node, dl.MaxPoolOp, channels_last(node, x), w, node.emit.scalar(lowest, x))
    return channels_first(node, y)


@table("AveragePool")
def average_pool(node: Node) -> Value:
    emit, x, w = node.emit, node[0], _windows(node)
    counts = _counts(x.shape[2:], w, *_counted(node, w))
    total = _pooled(node, dl.SumPoolOp, channels_last(node, x), w, emit.scalar(0.0, x))
    factors = 1.0 / (counts[..., np.newaxis] if counts.ndim else counts)
    factor = emit.constant(factors, numpy_dtype(x.element_type), f"{node.proto.output[0]}_reciprocal")
    return channels_first(node, emit(dl.MulOp, total, factor))


def _counted(node: Node, w: Windows) -> tuple[Sequence[int], Sequence[int]]:
    """The padding that counts as elements: all that pads asks for, but not what ceil_mode adds; or none."""
    rank = len(w.kernel)
    if not node.flag("count_include_pad"):
        return (0,) * rank, (0,) * rank
    if node.text("auto_pad", "NOTSET") != "NOTSET":
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
