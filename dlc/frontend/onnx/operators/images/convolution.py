"""Convolution and transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.sliding_windows import (
    channels_first,
    channels_last,
    col2im,
    sliding_windows,
)
from dlc.frontend.onnx.registry import ConverterTable
from dlc.shapes.dims import Size

table = ConverterTable()
table("Col2Im", since=18)(col2im)


@table("Conv")
def conv(node: OnnxNode) -> ImportedValue:
    y, bias = convolve(node, node[0], node[1]), node.get(2)
    # Added before the transpose to channels-first: a bias broadcasts along the last axis.
    return channels_first(node, y if bias is None else node.emit(dl.AddOp, y, bias))


def convolve(node: OnnxNode, x: ImportedValue, weights: ImportedValue) -> ImportedValue:
    """Emit the convolution that the attributes of the node describe, with a channels-last result."""
    _check_ranks(node, x, weights)
    kernel = _kernel(node, weights)
    windows = sliding_windows(node, kernel, x.shape[2:])
    return node.emit(
        dl.ConvOp,
        windows.pad(node.emit, channels_last(node, x)),
        node.emit.transpose(weights, (*range(2, weights.rank), 1, 0)),
        strides=windows.strides,
        dilations=windows.dilations,
        groups=node.integer("group", 1),
    )


def _check_ranks(node: OnnxNode, x: ImportedValue, weights: ImportedValue) -> None:
    if x.rank < 3 or x.rank != weights.rank:
        raise ModelError(
            f"{node.description}: expected x [N, C, ...] and w of the same rank, got {list(x.shape)} and {list(weights.shape)}"
        )


def _kernel(node: OnnxNode, weights: ImportedValue) -> tuple[int, ...]:
    sizes = tuple(map(int, weights.shape))[2:]  # a symbolic size raises UndecidableError, which names it
    kernel = node.integers("kernel_shape", sizes)
    if kernel != sizes:
        raise ModelError(f"{node.description}: kernel_shape {list(kernel)} does not match the weights {list(weights.shape)}")
    return kernel


@table("ConvTranspose")
def conv_transpose(node: OnnxNode) -> ImportedValue:
    emit, x, w, bias = node.emit, node[0], node[1], node.get(2)
    _check_ranks(node, x, w)
    kernel = _kernel(node, w)
    rank = len(kernel)
    strides, dilations = node.integers("strides", (1,) * rank), node.integers("dilations", (1,) * rank)
    y = emit(
        dl.ConvTransposeOp,
        channels_last(node, x),
        emit.transpose(w, (*range(2, w.rank), 0, 1)),
        strides=strides,
        dilations=dilations,
        groups=node.integer("group", 1),
    )
    y = _trim(node, y, strides)
    return channels_first(node, y if bias is None else emit(dl.AddOp, y, bias))


def _trim(node: OnnxNode, full: ImportedValue, strides: Sequence[int]) -> ImportedValue:
    """Trim or pad a full transposed convolution as pads, output_padding and output_shape specify."""
    rank, emit, input_sizes = full.rank - 2, node.emit, node[0].shape[2:]
    extra = node.integers("output_padding", (0,) * rank)
    auto = node.choice("auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    sizes: Sequence[Size] | None = node.integers("output_shape") if node.has_attribute("output_shape") else None
    if sizes is None and auto.startswith("SAME"):
        sizes = [s * stride for s, stride in zip(input_sizes, strides, strict=True)]
    pads = node.integers("pads", (0,) * (2 * rank)) if auto == "NOTSET" else (0,) * (2 * rank)
    node.ignore_attributes("pads")
    spatial = full.shape[1:-1]
    for lengths in (extra, strides, pads[:rank], sizes if sizes is not None else extra):
        if len(lengths) != rank:
            raise ModelError(f"{node.description}: its attributes must have one entry for each of the {rank} spatial axes")
    low, limits = list(pads[:rank]), list[Size]()
    for axis in range(rank):
        end = spatial[axis] + extra[axis]
        if sizes is None:
            limits.append(end - pads[axis + rank])
            continue
        total = end - sizes[axis]
        if not isinstance(total, int):
            total = int(total)
        # Padding is not negative: a result longer than the full one is extended at its end.
        padding = max(total, 0)
        low[axis] = padding // 2 if auto == "SAME_UPPER" else padding - padding // 2
        limits.append(low[axis] + sizes[axis])
    # Indices outside of the full result are zero.
    leading = [max(-p, 0) for p in low]
    trailing = [limit - size for limit, size in zip(limits, spatial, strict=True)]
    trailing = [max(a, 0) if isinstance(a, int) else 0 for a in trailing]
    if any(leading) or any(trailing):
        low, limits = [p + b for p, b in zip(low, leading, strict=True)], [s + b for s, b in zip(limits, leading, strict=True)]
        full = emit.pad(full, (0, *leading, 0), (0, *trailing, 0))
    for axis in range(rank):
        full = emit.slice(full, axis + 1, low[axis], limits[axis])
    return full
