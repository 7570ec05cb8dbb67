"""Sliding windows for convolution and pooling: spatial axes, padding, and the transposes to channels-last and back.

ONNX is channels-first, `dl` channels-last. Each operator is transposed, computed and transposed back; the channels-last pass
cancels the transposes between adjacent ops. Transposes of weights are preprocessed at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.movement.slicing import pad_tensor
from dlc.shapes.dims import Size, are_equal, product


@dataclass(frozen=True)
class SlidingWindows:
    """Sliding windows over the spatial axes; `low` and `high` are the padding."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the dilated windows."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def along(self, axis: int) -> SlidingWindows:
        """Return the windows that slide along one axis only, over images with one element along the others."""

        def only(values: Sequence[int], other: int) -> tuple[int, ...]:
            return tuple(value if a == axis else other for a, value in enumerate(values))

        kernel, strides, dilations = (only(values, 1) for values in (self.kernel, self.strides, self.dilations))
        return SlidingWindows(kernel, strides, dilations, only(self.low, 0), only(self.high, 0))


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
            # ⌈size / stride⌉ windows.
            total = max(extent - (_remainder(size, stride) or stride), 0)
            low, high = (total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2)
    if node.flag("ceil_mode") and stride > 1:
        # Round the number of windows up; the last one must start inside the operand or its leading padding.
        remainder = _remainder(size, stride)
        high = max(high, min(high + (extent - low - high - remainder) % stride, extent - 1 - (remainder + low - 1) % stride))
    return low, high


def _remainder(size: Size, divisor: int) -> int:
    """Return `size % divisor`. Raises UndecidableError if that depends on the values of symbols."""
    return next(r for r in range(divisor) if are_equal(size % divisor, r))


def col2im(node: OnnxNode) -> ImportedValue:
    """Col2Im: [N, C·kernel, windows] → [N, C, *image], adding up overlapping windows.

    Each axis is one matrix product with the 0/1 matrix that maps element k of window o to its image index.
    """
    emit, x, image, kernel = (
        node.emit,
        node[0],
        node.constant_integers(1, "image_shape"),
        node.constant_integers(2, "block_shape"),
    )
    w, rank = sliding_windows(node, kernel, image), len(image)
    counts = [
        (s + low + high - e) // stride + 1
        for s, low, high, e, stride in zip(image, w.low, w.high, w.extents, w.strides, strict=True)
    ]
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
        indices = np.arange(kernel[axis])[:, None] * w.dilations[axis] + np.arange(counts[axis]) * w.strides[axis] - w.low[axis]
        matrix = indices.reshape(-1, 1) == np.arange(image[axis])
        y = emit.transpose(y, order)
        y = emit.reshape(y, (*y.shape[:-2], kernel[axis] * counts[axis]))
        y = emit(
            dl.MatmulOp, y, emit.constant(matrix, numpy_dtype(x.element_type), f"{node.proto.output[0]}_window_matrix{axis}")
        )
    return y


def channels_last(node: OnnxNode, x: ImportedValue) -> ImportedValue:
    """Transpose [N, C, *S] to [N, *S, C]."""
    return node.emit.transpose(x, (0, *range(2, x.rank), 1))


def channels_first(node: OnnxNode, x: ImportedValue) -> ImportedValue:
    """Transpose [N, *S, C] to [N, C, *S]."""
    return node.emit.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def pad_windows(node: OnnxNode, x: ImportedValue, windows: SlidingWindows, fill: ImportedValue | None = None) -> ImportedValue:
    """Apply the padding of windows to a channels-last tensor."""
    return pad_tensor(node, x, [0, *windows.low, 0], [0, *windows.high, 0], fill)
