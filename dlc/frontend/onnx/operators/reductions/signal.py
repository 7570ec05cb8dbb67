"""Fourier transforms, and the mel weight matrix, which is computed at import."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.tensors import dtype_of
from dlc.shapes.dims import are_equal

table = ConverterTable()


def _fourier_transform(
    node: OnnxNode, x: ImportedValue, axis: int, length: int, inverse: bool = False, onesided: bool = False
) -> ImportedValue:
    """Transform [..., components] along an axis; the last axis holds real and imaginary components."""
    emit, components = node.emit, _components(node, x)
    order = [a for a in range(x.rank) if a not in (axis, x.rank - 1)] + [x.rank - 1, axis]
    # The spectrum of complex input is not symmetric: compute all bins, then slice.
    is_half_spectrum = onesided and (components == 1 or inverse)
    rows = emit.transpose(x, order)
    y = emit(dl.DftOp, rows, length=length, inverse=inverse or None, onesided=is_half_spectrum or None)
    if onesided and not is_half_spectrum:
        y = emit.slice(y, y.rank - 1, 0, length // 2 + 1)
    return emit.transpose(y, [order.index(a) for a in range(x.rank)])


def _components(node: OnnxNode, x: ImportedValue) -> int:
    components = next((n for n in (1, 2) if x.rank > 1 and are_equal(x.shape[-1], n)), None)
    if components is None:
        raise ModelError(f"{node.description}: expected [..., 1] (real) or [..., 2] (complex), got {list(x.shape)}")
    return components


@table("DFT", since=17)
def dft(node: OnnxNode) -> ImportedValue:
    x, components = node[0], _components(node, node[0])
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    axis_input = node.constant_scalar(2, "axis") if node.get(2) is not None else -2
    axis = node.axis(node.integer("axis", 1) if node.opset < 20 else int(axis_input), x.rank)
    size, real_result = int(x.shape[axis]), onesided and inverse
    default = 2 * (size - 1) if real_result else size
    length = int(node.constant_scalar(1, "dft_length")) if node.get(1) is not None else default
    if length < 1 or axis == x.rank - 1 or (real_result and components == 1):
        raise ModelError(f"{node.description}: cannot transform length {length} along axis {axis} of shape {list(x.shape)}")
    high = [0] * x.rank
    high[axis] = (length // 2 + 1 if real_result else length) - size
    return _fourier_transform(node, node.emit.pad(x, [0] * x.rank, high), axis, length, inverse, onesided)


@table("STFT", since=17)
def stft(node: OnnxNode) -> ImportedValue:
    emit, x, step, window = node.emit, node[0], int(node.constant_scalar(1, "frame_step")), node.get(2)
    if x.rank == 2:
        x = emit.reshape(x, (*x.shape, 1))
    frame_length = node.get(3)
    length = int(node.constant_scalar(3, "frame_length")) if frame_length is not None else int(window.shape[0] if window else 0)
    total = int(x.shape[1])
    if x.rank != 3 or not 0 < length <= total or step < 1:
        raise ModelError(
            f"{node.description}: frames of length {length} with step {step} do not fit a signal of shape {list(x.shape)}"
        )
    frame_indices = np.arange(0, total - length + 1, step)[:, np.newaxis] + np.arange(length)
    frames = emit(dl.GatherOp, x, emit.constant(frame_indices, np.int64, f"{node.proto.output[0]}_frame_indices"), axis=1)
    if window is not None:
        frames = emit(dl.MulOp, frames, emit.reshape(window, (length, 1)))
    return _fourier_transform(node, frames, 2, length, onesided=node.flag("onesided", True))


@table("MelWeightMatrix", since=17)
def mel_weight_matrix(node: OnnxNode) -> ImportedValue:
    bands, length, rate = (
        int(node.constant_scalar(k, input_name)) for k, input_name in enumerate(("num_mel_bins", "dft_length", "sample_rate"))
    )
    low, high = (2595 * float(np.log10(1 + node.constant_scalar(k, "edges") / 700)) for k in (3, 4))
    # Band edges are equidistant in mel; each band rises from its first edge to its second and falls to its third.
    edges = 700 * (10 ** ((low + np.arange(bands + 2) * (high - low) / (bands + 2)) / 2595) - 1)
    edge_bins = ((length + 1) * edges // rate).astype(np.int64)
    first, middle, last = edge_bins[:-2], edge_bins[1:-1], edge_bins[2:]
    bins = np.arange(length // 2 + 1)[:, None]
    rising: Array
    falling: Array
    with np.errstate(all="ignore"):
        rising = np.where(middle > first, (bins - first) / (middle - first), bins >= middle)
        falling = np.where(last > middle, (last - bins) / (last - middle), bins <= middle)
    dtype = dtype_of(node.integer("output_datatype", TensorProto.FLOAT))
    return node.emit.constant(np.maximum(np.minimum(rising, falling), 0).astype(dtype), name=node.proto.output[0])
