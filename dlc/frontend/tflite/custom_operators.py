"""Custom operators of MediaPipe's models. Their options are C structs of TFLite's runtime, and all tensors are float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.convolution_pooling import (
    convolve_transposed,
    require_rank,
    sliding_windows,
    window_sizes,
)
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.ir import i32

table = TfliteConverterTable()

_POOL = "padding.i32 stride_w.i32 stride_h.i32 width.i32 height.i32 activation.i32"
# Codes of the runtime's structs, which differ from those of the file format.
_SAME, _VALID = 1, 2


@table("CUSTOM Convolution2DTransposeBias", options="padding.i32 stride_w.i32 stride_h.i32")
def transpose_conv_with_bias(node: TfliteNode) -> ImportedValue:
    """Inputs: the operand, weights [O, H, W, C] and a bias."""
    require_rank(node, 4, 0, 1)
    y, strides, kernel = convolve_transposed(node, 0, 1)
    windows = sliding_windows(node[0].shape[1:3], kernel, strides, (1, 1), node.integer("padding") == _SAME)
    for axis, (low, high) in enumerate(zip(windows.low, windows.high, strict=True), 1):
        y = node.emit.slice(y, axis, low, y.shape[axis] - high)
    return node.emit(dl.AddOp, y, node[2])


@table("CUSTOM MaxPoolingWithArgmax2D", options=_POOL)
def max_pool_with_argmax(node: TfliteNode) -> Sequence[ImportedValue]:
    """Results: the maxima, and their indices in each window as floats, with 0.1 added."""
    emit, (kernel, strides) = node.emit, window_sizes(node)
    windows = sliding_windows(node[0].shape[1:3], kernel, strides, (1, 1), node.integer("padding") == _SAME)
    x = windows.pad(emit, node[0], -np.inf)
    y = emit(dl.MaxPoolOp, x, **windows.properties)
    elements: list[ImportedValue] = []
    for offsets in np.ndindex(*kernel):
        starts, strides_of_all = (0, *offsets, 0), (1, *strides, 1)
        spans = [(size - 1) * stride + 1 for size, stride in zip(y.shape[1:3], strides, strict=True)]
        limits = (x.shape[0], *(offset + span for offset, span in zip(offsets, spans, strict=True)), x.shape[3])
        element = emit(dl.SliceOp, x, starts=starts, limits=limits, strides=strides_of_all)
        elements.append(emit.reshape(element, (*y.shape, 1)))
    first = emit(dl.ArgmaxOp, emit(dl.ConcatOp, *elements, axis=4), axis=4, keepdims=False, select_last=False)
    indices = emit.cast(first, y.element_type)
    return node.activate(y), emit(dl.AddOp, indices, emit.scalar(0.1, y))


@table("CUSTOM MaxUnpooling2D", options=_POOL)
def max_unpool(node: TfliteNode) -> ImportedValue:
    """Inputs: maxima, and their indices in windows. Elements of a window other than its maximum are 0."""
    require_rank(node, 4, 0, 1)
    emit, (kernel, strides) = node.emit, window_sizes(node)
    if kernel != strides:
        raise NodeProblem("attribute", f"overlapping windows {list(kernel)} with strides {list(strides)} are not supported")
    batch, height, width, channels = node[0].shape
    split = (batch, height, 1, width, 1, channels)
    positions = np.arange(kernel[0] * kernel[1], dtype=np.int32).reshape(kernel[0], 1, kernel[1], 1)
    is_maximum = emit(dl.EqualOp, emit.reshape(emit.cast(node[1], i32), split), emit.constant(positions))
    y = emit(dl.SelectOp, is_maximum, emit.reshape(node[0], split), emit.scalar(0, node[0]))
    return emit.reshape(y, (batch, height * kernel[0], width * kernel[1], channels))
