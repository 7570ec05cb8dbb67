"""Convolution and pooling. Data is [N, H, W, C] as in `dl`; transposes of weights are folded at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.size_limits import require_axis_length
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.shapes.dims import Size, UndecidableError

table = TfliteConverterTable()

_SAME, _VALID = 0, 1
_CONV = "padding.i8 stride_w.i32 stride_h.i32 activation.i8 dilation_w.i32=1 dilation_h.i32=1"
_DEPTHWISE = "padding.i8 stride_w.i32 stride_h.i32 multiplier.i32 activation.i8 dilation_w.i32=1 dilation_h.i32=1"
_CONV_3D = "padding.i8 stride_d.i32 stride_w.i32 stride_h.i32 activation.i8 dilation_d.i32=1 dilation_w.i32=1 dilation_h.i32=1"
_POOL = "padding.i8 stride_w.i32 stride_h.i32 width.i32 height.i32 activation.i8"


def per_axis(node: TfliteNode, name: str, axes: str = "hw") -> tuple[int, ...]:
    """Return an option that exists for each spatial axis. Raises ModelError if it is not positive."""
    entries = tuple(node.integer(f"{name}_{axis}") for axis in axes)
    if min(entries) < 1:
        raise ModelError(f"{node.description}: {name} {list(entries)} must be positive")
    return entries


def _padding(
    node: TfliteNode, sizes: Sequence[Size], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis."""
    if node.integer("padding") == _VALID:
        return (0,) * len(kernel), (0,) * len(kernel)
    return same_padding(sizes, kernel, strides, dilations)


def same_padding(
    sizes: Sequence[Size], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis that gives ⌈size / stride⌉ windows."""
    total: list[int] = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        extent = (k - 1) * dilation + 1
        if stride != 1 and not isinstance(size, int):
            raise UndecidableError(f"the padding with stride {stride} depends on the symbolic size {size}")
        total.append(extent - 1 if not isinstance(size, int) else max((-(-size // stride) - 1) * stride + extent - size, 0))
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def pad_spatial(
    node: TfliteNode, x: ImportedValue, low: Sequence[int], high: Sequence[int], fill: float | None = None
) -> ImportedValue:
    if not any((*low, *high)):
        return x
    value = node.emit.scalar(0 if fill is None else fill, x)
    return node.emit(dl.PadOp, x, value, low=(0, *low, 0), high=(0, *high, 0), pad_mode="constant")


def require_rank(node: TfliteNode, rank: int, *inputs: int) -> None:
    for k in inputs:
        if node[k].rank != rank:
            raise ModelError(f"{node.description}: input {k} of shape {list(node[k].shape)}; expected rank {rank}")


def _with_bias(node: TfliteNode, y: ImportedValue, k: int) -> ImportedValue:
    return y if node.get(k) is None else node.emit(dl.AddOp, y, node.dequantized(k))


def _convolve(node: TfliteNode, weights: ImportedValue, groups: int, axes: str = "hw") -> ImportedValue:
    """Convolve the first input with weights [*K, C / groups, O]."""
    x, strides, dilations = node.dequantized(0), per_axis(node, "stride", axes), per_axis(node, "dilation", axes)
    kernel = tuple(int(s) for s in weights.shape[:-2])
    low, high = _padding(node, x.shape[1:-1], kernel, strides, dilations)
    y = node.emit(dl.ConvOp, pad_spatial(node, x, low, high), weights, strides=strides, dilations=dilations, groups=groups)
    return node.activate_and_quantize(_with_bias(node, y, 2))


@table("CONV_2D", options=_CONV)
def conv_2d(node: TfliteNode) -> ImportedValue:
    """Weights [O, H, W, C / groups]."""
    require_rank(node, 4, 0, 1)
    groups = int(node[0].shape[3]) // max(int(node[1].shape[3]), 1)
    return _convolve(node, node.emit.transpose(node.dequantized(1), (1, 2, 3, 0)), groups)


@table("CONV_3D", options=_CONV_3D)
def conv_3d(node: TfliteNode) -> ImportedValue:
    """Weights [D, H, W, C / groups, O]."""
    require_rank(node, 5, 0, 1)
    return _convolve(node, node.dequantized(1), int(node[0].shape[4]) // max(int(node[1].shape[3]), 1), "dhw")


@table("DEPTHWISE_CONV_2D", options=_DEPTHWISE)
def depthwise_conv_2d(node: TfliteNode) -> ImportedValue:
    """Weights [1, H, W, C · multiplier]: each input channel has `multiplier` adjacent output channels."""
    require_rank(node, 4, 0, 1)
    return _convolve(node, node.emit.transpose(node.dequantized(1), (1, 2, 0, 3)), int(node[0].shape[3]))


@table("TRANSPOSE_CONV", options="padding.i8 stride_w.i32 stride_h.i32 activation.i8")
def transpose_conv(node: TfliteNode) -> ImportedValue:
    """Inputs: the shape of the result, weights [O, H, W, C], the operand, and optionally a bias."""
    sizes = node.sizes(0, "shape")
    require_rank(node, 4, 1, 2)
    if len(sizes) != 4:
        raise ModelError(f"{node.description}: result shape {list(sizes)}; expected rank 4")
    full, strides, kernel = convolve_transposed(node, 2, 1)
    return node.activate_and_quantize(_with_bias(node, _trim(node, full, sizes[1:3], strides, kernel), 3))


def convolve_transposed(node: TfliteNode, x: int, weights: int) -> tuple[ImportedValue, tuple[int, ...], tuple[int, ...]]:
    """Return the full transposed convolution of two inputs, the strides, and the sizes of the kernel."""
    w, strides = node.emit.transpose(node.dequantized(weights), (1, 2, 3, 0)), per_axis(node, "stride")
    full = node.emit(dl.ConvTransposeOp, node.dequantized(x), w, strides=strides, dilations=(1, 1), groups=1)
    return full, strides, tuple(int(s) for s in w.shape[:2])


def _trim(
    node: TfliteNode, full: ImportedValue, sizes: Sequence[Size], strides: Sequence[int], kernel: Sequence[int]
) -> ImportedValue:
    """Slice a full transposed convolution to the given sizes."""
    low, _ = _padding(node, sizes, kernel, strides, (1, 1))
    missing_sizes = [first + size - total for first, size, total in zip(low, sizes, full.shape[1:3], strict=True)]
    high = [max(m, 0) if isinstance(m, int) else 0 for m in missing_sizes]
    full = pad_spatial(node, full, (0, 0), high)
    for axis in range(2):
        full = node.emit.slice(full, axis + 1, low[axis], low[axis] + sizes[axis])
    return full


def pooling_windows(node: TfliteNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes and strides of the windows."""
    require_rank(node, 4, 0)
    kernel, strides = (node.integer("height"), node.integer("width")), per_axis(node, "stride")
    if min(kernel) < 1:
        raise ModelError(f"{node.description}: window sizes {list(kernel)} must be positive")
    return kernel, strides


def _pooling(node: TfliteNode) -> tuple[dict[str, tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the properties of the windows, and the padding."""
    kernel, strides = pooling_windows(node)
    windows = {"kernel": kernel, "strides": strides, "dilations": (1, 1)}
    return windows, _padding(node, node[0].shape[1:3], kernel, strides, (1, 1))


@table("MAX_POOL_2D", options=_POOL)
def max_pool_2d(node: TfliteNode) -> ImportedValue:
    windows, (low, high) = _pooling(node)
    if node.integer("activation"):
        x = node.dequantized(0)
        return node.activate_and_quantize(node.emit(dl.MaxPoolOp, pad_spatial(node, x, low, high, -np.inf), **windows))
    x = node[0]
    lowest = -np.inf if is_float(x.element_type) else int(np.iinfo(numpy_dtype(x.element_type)).min)
    return node.emit(dl.MaxPoolOp, pad_spatial(node, x, low, high, lowest), **windows)


def _average_pool(node: TfliteNode, x: ImportedValue) -> ImportedValue:
    """Average each window without its padding."""
    windows, (low, high) = _pooling(node)
    total = node.emit(dl.SumPoolOp, pad_spatial(node, x, low, high), **windows)
    counts = node.emit.scalar(1, x)
    for axis, size in enumerate(x.shape[1:3]):
        kernel, stride = windows["kernel"][axis], windows["strides"][axis]
        if not (low[axis] or high[axis]):
            counts = node.emit(dl.MulOp, counts, node.emit.scalar(kernel, x))
            continue
        if not isinstance(size, int):
            raise UndecidableError(f"the number of elements in an average at the boundary requires a static size, got {size}")
        length = size + low[axis] + high[axis] - kernel + 1
        require_axis_length(node.description, length)
        starts = np.arange(0, length, stride) - low[axis]
        counts_on_axis = np.minimum(starts + kernel, size) - np.maximum(starts, 0)
        axis_counts = np.maximum(counts_on_axis, 1).reshape((-1, 1, 1) if axis == 0 else (-1, 1))
        counts = node.emit(dl.MulOp, counts, node.emit.constant(axis_counts, numpy_dtype(x.element_type)))
    return node.emit(dl.MulOp, total, node.emit(dl.DivOp, node.emit.scalar(1, x), counts))


@table("AVERAGE_POOL_2D", options=_POOL)
def average_pool_2d(node: TfliteNode) -> ImportedValue:
    return node.activate_and_quantize(_average_pool(node, node.dequantized(0)))


@table("L2_POOL_2D", options=_POOL)
def l2_pool_2d(node: TfliteNode) -> ImportedValue:
    x = node.dequantized(0)
    return node.activate_and_quantize(node.emit(dl.SqrtOp, _average_pool(node, node.emit(dl.MulOp, x, x))))
