"""Convolution and pooling. Data is [N, H, W, C] as in `dl`; transposes of weights are folded at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc.dialects import dl
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.sliding_windows import SlidingWindows, same_padding
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.shapes.dims import Size

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


def sliding_windows(
    sizes: Sequence[Size], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], is_same: bool
) -> SlidingWindows:
    """Return windows over axes of these sizes: ⌈size / stride⌉ along each if `is_same`, else without padding."""
    no_padding = (0,) * len(kernel)
    windows = SlidingWindows(tuple(kernel), tuple(strides), tuple(dilations), no_padding, no_padding)
    if not is_same:
        return windows
    pads = [same_padding(*axis) for axis in zip(sizes, windows.extents, strides, strict=True)]
    return replace(windows, low=tuple(low for low, _ in pads), high=tuple(high for _, high in pads))


def _is_same(node: TfliteNode) -> bool:
    return node.integer("padding") != _VALID


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
    padded = sliding_windows(x.shape[1:-1], kernel, strides, dilations, _is_same(node)).pad(node.emit, x)
    y = node.emit(dl.ConvOp, padded, weights, strides=strides, dilations=dilations, groups=groups)
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
    low = sliding_windows(sizes, kernel, strides, (1, 1), _is_same(node)).low
    missing_sizes = [first + size - total for first, size, total in zip(low, sizes, full.shape[1:3], strict=True)]
    high = [max(m, 0) if isinstance(m, int) else 0 for m in missing_sizes]
    full = node.emit.pad(full, (0, 0, 0, 0), (0, *high, 0))
    for axis in range(2):
        full = node.emit.slice(full, axis + 1, low[axis], low[axis] + sizes[axis])
    return full


def window_sizes(node: TfliteNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes and strides of the windows of pooling."""
    require_rank(node, 4, 0)
    kernel, strides = (node.integer("height"), node.integer("width")), per_axis(node, "stride")
    if min(kernel) < 1:
        raise ModelError(f"{node.description}: window sizes {list(kernel)} must be positive")
    return kernel, strides


def _pooling_windows(node: TfliteNode) -> SlidingWindows:
    return sliding_windows(node[0].shape[1:3], *window_sizes(node), (1, 1), _is_same(node))


@table("MAX_POOL_2D", options=_POOL)
def max_pool_2d(node: TfliteNode) -> ImportedValue:
    windows = _pooling_windows(node)
    if node.integer("activation"):
        return node.activate_and_quantize(windows.max_pool(node.emit, node.dequantized(0)))
    return windows.max_pool(node.emit, node[0])


@table("AVERAGE_POOL_2D", options=_POOL)
def average_pool_2d(node: TfliteNode) -> ImportedValue:
    return node.activate_and_quantize(_pooling_windows(node).average_pool(node.emit, node.dequantized(0), node.description))


@table("L2_POOL_2D", options=_POOL)
def l2_pool_2d(node: TfliteNode) -> ImportedValue:
    x = node.dequantized(0)
    y = _pooling_windows(node).average_pool(node.emit, node.emit(dl.MulOp, x, x), node.description)
    return node.activate_and_quantize(node.emit(dl.SqrtOp, y))
