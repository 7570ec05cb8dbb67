"""Sliding windows for convolution and pooling: spatial axes, padding, and the transposes to channels-last and back.

ONNX is channels-first, `dl` channels-last. Each operator is transposed, computed and transposed back; the channels-last pass
cancels the transposes between adjacent ops. Transposes of weights are preprocessed at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.sliding_windows import SlidingWindows, ceil_mode_padding, same_padding
from dlc.shapes.dims import Size, are_equal, product


def sliding_windows(node: OnnxNode, kernel: Sequence[int], spatial: Sequence[Size]) -> SlidingWindows:
    """Return the windows that the attributes strides, dilations, pads, auto_pad and ceil_mode describe."""
    rank = len(spatial)
    strides = node.integers("strides", (1,) * rank)
    dilations = node.integers("dilations", (1,) * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or min(*kernel, *strides, *dilations) < 1:
        raise ModelError(
            f"{node.description}: kernel {list(kernel)}, strides {list(strides)} and dilations {list(dilations)} "
            f"must be positive, one for each of the {rank} spatial axes"
        )
    unpadded = SlidingWindows(tuple(kernel), strides, dilations, (0,) * rank, (0,) * rank)
    pads = [_axis_padding(node, unpadded, axis, size) for axis, size in enumerate(spatial)]
    return SlidingWindows(unpadded.kernel, strides, dilations, tuple(p[0] for p in pads), tuple(p[1] for p in pads))


def _axis_padding(node: OnnxNode, windows: SlidingWindows, axis: int, size: Size) -> tuple[int, int]:
    extent, stride, rank = windows.extents[axis], windows.strides[axis], len(windows.kernel)
    auto = node.choice("auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    low, high = 0, 0
    if auto == "NOTSET":
        pads = node.integers("pads", (0,) * (2 * rank))
        if len(pads) != 2 * rank or min(pads) < 0:
            raise ModelError(f"{node.description}: pads {list(pads)} must be {2 * rank} sizes, two for each spatial axis")
        low, high = pads[axis], pads[axis + rank]
    else:
        node.ignore_attributes("pads")
        if auto != "VALID":
            low, high = same_padding(size, extent, stride)
            low, high = (low, high) if auto == "SAME_UPPER" else (high, low)
    if node.flag("ceil_mode") and stride > 1:
        high = ceil_mode_padding(size, extent, stride, low, high)
    return low, high


def col2im(node: OnnxNode) -> ImportedValue:
    """Col2Im: [N, C·kernel, windows] → [N, C, *image], adding up overlapping windows.

    Each axis is one matrix product with the 0/1 matrix that maps element k of window o to its image index.
    """
    emit, x = node.emit, node[0]
    image, kernel = node.constant_integers(1, "image_shape"), node.constant_integers(2, "block_shape")
    w, rank = sliding_windows(node, kernel, image), len(image)
    indices = [w.indices(axis, size) for axis, size in enumerate(image)]
    counts = [len(windows) for windows in indices]
    if x.rank != 3 or not are_equal(x.shape[2], product(counts)):
        raise ModelError(
            f"{node.description}: columns of shape {list(x.shape)} do not match {counts} windows of {list(kernel)}"
        )
    channels = x.shape[1] // product(kernel)
    y = emit.reshape(x, (x.shape[0], channels, *kernel, *counts))
    for axis in range(rank):
        # [N, C, kernel axes…, window axes…, image axes…]; move the kernel and window axis of `axis` to the end.
        window_axis = 2 + rank - axis
        order = [a for a in range(y.rank) if a not in (2, window_axis)] + [2, window_axis]
        matrix = (indices[axis].T.reshape(-1, 1) == np.arange(image[axis])).astype(numpy_dtype(x.element_type))
        y = emit.transpose(y, order)
        y = emit.reshape(y, (*y.shape[:-2], kernel[axis] * counts[axis]))
        y = emit(dl.MatmulOp, y, emit.constant(matrix, name=f"{node.proto.output[0]}_window_matrix{axis}"))
    return y


def channels_last(node: OnnxNode, x: ImportedValue) -> ImportedValue:
    """Transpose [N, C, *S] to [N, *S, C]."""
    return node.emit.transpose(x, (0, *range(2, x.rank), 1))


def channels_first(node: OnnxNode, x: ImportedValue) -> ImportedValue:
    """Transpose [N, *S, C] to [N, C, *S]."""
    return node.emit.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))
