"""Normalizations: batch, layer, group, instance and Lp norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.ir import f32
from dlc.shapes.dims import Size, are_equal, product

table = ConverterTable()


@table("BatchNormalization")
def batch_normalization(node: OnnxNode) -> Sequence[ImportedValue]:
    if node.opset < 9 and not node.flag("spatial", True):
        return _normalize_elements(node)
    x, element = node[0], node[0].element_type
    # From opset 15 on the statistics may have a wider type than the data.
    parameters = [node.emit.cast(node[k], element) for k in range(1, 5)]
    axis, momentum, running_statistics = min(1, x.rank - 1), node.real("momentum", 0.9), list[ImportedValue]()
    if any(v.rank != 1 or not are_equal(v.shape[0], x.shape[axis]) for v in parameters):
        shapes = ", ".join(str(list(v.shape)) for v in parameters)
        raise ModelError(
            f"{node.description}: statistics of shapes {shapes} do not match the size of axis {axis} of x {list(x.shape)}"
        )
    if node.flag("training_mode"):
        # Normalize by the statistics of the batch, and update the running statistics.
        axes = [a for a in range(x.rank) if a != axis]
        batch_statistics = [node.emit.reshape(v, (x.shape[axis],)) for v in _moments(node, node.emit.widen(x), axes)[1:]]
        running_statistics = [
            _interpolate(node, node[k], node.emit.cast(v, node[k].element_type), momentum)
            for k, v in zip((3, 4), batch_statistics, strict=True)
        ]
        parameters[2:] = [node.emit.cast(v, element) for v in batch_statistics]
    return [_normalize(node.emit, x, parameters, axis, node.real("epsilon", 1e-5)), *running_statistics]


def _normalize(
    emit: Emitter, x: ImportedValue, parameters: Sequence[ImportedValue], axis: int, epsilon: float
) -> ImportedValue:
    """Emit `dl.batch_norm`; if the statistics are constant, emit the scale and shift that it decomposes into."""
    constant_parameters = [v.constant_value for v in parameters if v.constant_value is not None]
    if len(constant_parameters) < len(parameters):
        return emit(dl.BatchNormOp, x, *parameters, axis=axis, epsilon=epsilon)
    x_wide = emit.widen(x)
    parameter_shape = (-1, *(1,) * (x.rank - 1 - axis))
    scale, bias, centre, variance = (
        v.astype(numpy_dtype(x_wide.element_type)).reshape(parameter_shape) for v in constant_parameters
    )
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + variance.dtype.type(epsilon))
        offset = bias - centre * factor
    scaled = emit(dl.MulOp, x_wide, emit.constant(factor, name=parameters[0].name))
    return emit.cast(emit(dl.AddOp, scaled, emit.constant(offset, name=parameters[1].name)), x.element_type)


def _normalize_elements(node: OnnxNode) -> Sequence[ImportedValue]:
    """Normalize with statistics per element instead of per channel (`spatial = 0`)."""
    emit, x, shape = node.emit, node[0], node[0].shape
    count = product(shape[1:])
    flat, *parameters = emit.reshape(x, (shape[0], count)), *(emit.reshape(node[k], (count,)) for k in range(1, 5))
    node.ignore_attributes("momentum")
    y = _normalize(emit, flat, parameters, 1, node.real("epsilon", 1e-5))
    return [emit.reshape(y, shape)]


def _interpolate(node: OnnxNode, x: ImportedValue, y: ImportedValue, fraction: float) -> ImportedValue:
    """Return `fraction·x + (1 - fraction)·y`."""
    emit = node.emit
    return emit(dl.AddOp, emit(dl.MulOp, x, emit.scalar(fraction, x)), emit(dl.MulOp, y, emit.scalar(1 - fraction, y)))


@table("LayerNormalization", since=17)
def layer_normalization(node: OnnxNode) -> list[ImportedValue]:
    node.ignore_attributes("stash_type")  # half precision is always computed in f32
    x, bias, epsilon = node[0], node.get(2), node.real("epsilon", 1e-5)
    axis = node.axis(node.integer("axis", -1), x.rank)
    operands = [x, _row(node, node[1], axis)] + ([_row(node, bias, axis)] if bias is not None else [])
    results = [node.emit(dl.LayerNormOp, *operands, axis=axis, epsilon=epsilon)]
    if node.is_output_used(1) or node.is_output_used(2):
        mean, variance = _moments(node, node.emit.cast(x, f32), range(axis, x.rank))[1:]
        results += [mean, node.emit(dl.RsqrtOp, node.emit(dl.AddOp, variance, node.emit.scalar(epsilon, variance)))]
    return results


@table("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode) -> ImportedValue:
    node.ignore_attributes("stash_type")
    axis = node.axis(node.integer("axis", -1), node[0].rank)
    scale = _row(node, node[1], axis)
    return node.emit(dl.RmsNormOp, node[0], scale, axis=axis, epsilon=node.real("epsilon", 1e-5))


def _row(node: OnnxNode, parameter: ImportedValue, axis: int) -> ImportedValue:
    """Broadcast a parameter to the normalized axes."""
    normalized_shape = node[0].shape[axis:]
    if parameter.rank > len(normalized_shape):
        got = f"a scale or bias of shape {list(parameter.shape)} for normalized shape {list(normalized_shape)}"
        raise NodeProblem("input", f"{got} is not supported")
    return node.emit.broadcast(parameter, normalized_shape)


@table("LRN")
def lrn(node: OnnxNode) -> ImportedValue:
    return node.emit(
        dl.LrnOp,
        node[0],
        axis=1,
        size=node.integer("size"),
        alpha=node.real("alpha", 1e-4),
        beta=node.real("beta", 0.75),
        bias=node.real("bias", 1.0),
    )


def _moments(node: OnnxNode, x: ImportedValue, axes: Sequence[int]) -> tuple[ImportedValue, ImportedValue, ImportedValue]:
    """Return `x - mean`, the mean and the variance along `axes`, which are kept with size 1."""
    emit = node.emit
    mean = emit(dl.ReduceMeanOp, x, axes=axes, keepdims=True)
    centered = emit(dl.SubOp, x, mean)
    return centered, mean, emit(dl.ReduceMeanOp, emit(dl.MulOp, centered, centered), axes=axes, keepdims=True)


def _standardize(node: OnnxNode, x: ImportedValue, axes: Sequence[int]) -> ImportedValue:
    """Return `(x - mean) / √(variance + epsilon)` along `axes`."""
    emit = node.emit
    centered, _, variance = _moments(node, x, axes)
    return emit(dl.MulOp, centered, emit(dl.RsqrtOp, emit(dl.AddOp, variance, emit.scalar(node.real("epsilon", 1e-5), x))))


def _scaled_channels(node: OnnxNode, x: ImportedValue, scale: ImportedValue, bias: ImportedValue) -> ImportedValue:
    def along_channels(value: ImportedValue) -> ImportedValue:
        return node.emit.widen(node.emit.reshape(value, (*value.shape, *(1,) * (x.rank - 2))))

    scaled = node.emit(dl.AddOp, node.emit(dl.MulOp, x, along_channels(scale)), along_channels(bias))
    return node.emit.cast(scaled, scale.element_type)


@table("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> ImportedValue:
    x = node.emit.widen(node[0])
    return _scaled_channels(node, _standardize(node, x, range(2, x.rank)), node[1], node[2])


@table("GroupNormalization", since=18)
def group_normalization(node: OnnxNode) -> ImportedValue:
    node.ignore_attributes("stash_type")
    emit, x, scale, bias, groups = node.emit, node.emit.widen(node[0]), node[1], node[2], node.integer("num_groups")
    if x.rank < 2 or groups < 1:
        raise ModelError(
            f"{node.description}: expected [N, C, ...] and a positive num_groups, got {list(x.shape)} and {groups}"
        )
    batch, channels, *spatial = x.shape
    if node.opset < 21:
        # One scale and bias per group, repeated for its channels.
        scale, bias = (
            emit.reshape(emit.broadcast(emit.reshape(v, (groups, 1)), (groups, channels // groups)), (channels,))
            for v in (scale, bias)
        )
    rows: tuple[Size, ...] = (batch, groups, channels // groups * product(spatial))
    normal = emit.reshape(_standardize(node, emit.reshape(x, rows), (2,)), x.shape)
    return _scaled_channels(node, normal, scale, bias)


@table("MeanVarianceNormalization", since=13)
def mean_variance_normalization(node: OnnxNode) -> ImportedValue:
    emit, x, axes = node.emit, node.emit.widen(node[0]), node.integers("axes", (0, 2, 3))
    centered, _, variance = _moments(node, x, axes)
    deviation = emit(dl.SqrtOp, variance)
    result = emit(dl.DivOp, centered, emit(dl.AddOp, deviation, emit.scalar(1e-9, x)))
    return emit.cast(result, node[0].element_type)


@table("LpNormalization")
def lp_normalization(node: OnnxNode) -> ImportedValue:
    emit, x, order = node.emit, node.emit.widen(node[0]), node.integer("p", 2)
    if order not in (1, 2):
        raise NodeProblem("attribute", f"p = {order}; supported: 1, 2")
    axis = node.axis(node.integer("axis", -1), x.rank)
    norm = emit(dl.ReduceL1Op if order == 1 else dl.ReduceL2Op, x, axes=(axis,), keepdims=True)
    # Zero vectors are unchanged.
    divisor = emit(dl.SelectOp, emit(dl.EqualOp, norm, emit.scalar(0.0, x)), emit.scalar(1.0, x), norm)
    return emit.cast(emit(dl.DivOp, x, divisor), node[0].element_type)
