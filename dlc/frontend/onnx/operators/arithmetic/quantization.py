"""Quantization, and the integer operators of quantized models."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.e8m0 import E8M0
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.images.convolution import convolve
from dlc.frontend.onnx.operators.images.sliding_windows import channels_first
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.ir import Attribute, f32, i32
from dlc.shapes.dims import UndecidableError, are_equal

table = ConverterTable()


def quantization_parameter(node: OnnxNode, value: ImportedValue) -> ImportedValue:
    """Return a per-tensor scale or zero point as rank 0, a per-axis one unchanged."""
    if value.rank > 1:
        raise NodeProblem("input", f"scales of shape {list(value.shape)} are not supported here")
    return node.emit.reshape(value, ()) if value.shape == (1,) else value


def zero_point(node: OnnxNode, k: int, default: Attribute) -> ImportedValue:
    """Return the zero point, as rank 0 if all entries are equal; 0 if there is none."""
    zero = node.get(k)
    if zero is None:
        return node.emit.scalar(0, default)
    if (
        zero.constant_value is not None
        and zero.constant_value.size
        and (zero.constant_value == zero.constant_value.flat[0]).all()
    ):
        return node.emit.scalar(zero.constant_value.flat[0], zero)
    return quantization_parameter(node, zero)


def _emit_scaled(node: OnnxNode, op: type[DlOp], x: ImportedValue, scale: ImportedValue, default: Attribute) -> ImportedValue:
    """Emit `op` with per-tensor, per-axis or blocked scales and zero points."""
    emit, block, axis = node.emit, node.integer("block_size", 0), node.integer("axis", 1)
    if not block:
        scale = quantization_parameter(node, scale)
        channel_axis = node.axis(axis, x.rank) if scale.rank else 0
        # Do not constant-fold, so that small weights stay quantized as well.
        return emit.unfolded(op, x, scale, zero_point(node, 2, default), axis=channel_axis)[0]
    axis, zero = node.axis(axis, x.rank), node.get(2)
    size = x.shape[axis]
    expected = [-(-size // block) if a == axis else s for a, s in enumerate(x.shape)]
    if scale.rank != x.rank or not all(map(are_equal, scale.shape, expected)):
        raise NodeProblem(
            "input", f"scales of shape {list(scale.shape)} for blocks of {block} in {list(x.shape)} are not supported"
        )
    if not are_equal(size % block, 0):
        # The last block is smaller than the others: use one scale per index.
        if not isinstance(size, int):
            raise UndecidableError(f"blocks of {block} along axis {axis} require a static size, got {size}")
        block_indices = emit.constant(np.arange(size) // block, np.int64, f"{node.proto.output[0]}_blocks")
        scale = emit(dl.GatherOp, scale, block_indices, axis=axis)
        zero = None if zero is None else emit(dl.GatherOp, zero, block_indices, axis=axis)
    return emit.unfolded(op, x, scale, emit.scalar(0, default) if zero is None else zero, axis=axis)[0]


@table("QuantizeLinear")
def quantize_linear(node: OnnxNode) -> ImportedValue:
    node.ignore_attributes("precision")
    if not node.flag("saturate", True):
        raise NodeProblem("attribute", "saturate = 0 is not supported: divide and Cast instead")
    x, scale, target = node[0], node[1], node.integer("output_dtype", 0)
    stored = element_type(dtype_of(target)) if target else element_type(np.uint8)
    if x.element_type != scale.element_type:
        x, scale = node.emit.cast(x, f32), node.emit.cast(scale, f32)
    return _emit_scaled(node, dl.QuantizeOp, x, scale, stored)


@table("DequantizeLinear")
def dequantize_linear(node: OnnxNode) -> ImportedValue:
    target, scale = node.integer("output_dtype", 0), node[1]
    to = element_type(dtype_of(target)) if target else scale.element_type
    # A power of two scales exactly in any float type.
    scale = node.emit.cast(scale, f32) if scale.element_type == E8M0 else scale
    return node.emit.cast(_emit_scaled(node, dl.DequantizeOp, node[0], scale, node[0].element_type), to)


@table("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: OnnxNode) -> tuple[ImportedValue, ...]:
    return node.emit.all_results(dl.DynamicQuantizeLinearOp, node[0])


def subtract_zero_point(node: OnnxNode, x: ImportedValue, zero: ImportedValue | None, axis: int = 0) -> ImportedValue:
    """Return quantized values as i32 minus their zero point, which has rank 0 or an entry per index of `axis`."""
    x_i32 = node.emit.cast(x, i32)
    if zero is None:
        return x_i32
    zero = quantization_parameter(node, zero)
    if zero.constant_value is not None and not zero.constant_value.any():
        return x_i32
    if zero.rank:
        zero = node.emit.reshape(zero, (*zero.shape, *(1,) * (x.rank - 1 - axis)))
    return node.emit(dl.SubOp, x_i32, node.emit.cast(zero, i32))


@table("MatMulInteger")
def matmul_integer(node: OnnxNode) -> ImportedValue:
    return integer_matmul(node, node[0], node[1], node.get(2), node.get(3))


def integer_matmul(
    node: OnnxNode, a: ImportedValue, b: ImportedValue, a_zero: ImportedValue | None, b_zero: ImportedValue | None
) -> ImportedValue:
    # One zero point per row of a, per column of b.
    rows = subtract_zero_point(node, a, a_zero, max(a.rank - 2, 0))
    return node.emit(dl.MatmulOp, rows, subtract_zero_point(node, b, b_zero, b.rank - 1))


@table("ConvInteger")
def conv_integer(node: OnnxNode) -> ImportedValue:
    # After the subtraction, padding with 0 is padding with the zero point.
    return channels_first(
        node, convolve(node, subtract_zero_point(node, node[0], node.get(2)), subtract_zero_point(node, node[1], node.get(3)))
    )


def requantize(
    node: OnnxNode, sum_: ImportedValue, factors: tuple[ImportedValue, ImportedValue], scale: ImportedValue, zero: ImportedValue
) -> ImportedValue:
    """Quantize an integer sum of products, scaled by the scales of both factors; the last axis is the channel axis."""
    emit = node.emit
    product = emit(dl.MulOp, *(quantization_parameter(node, f) for f in factors))
    real = emit(dl.MulOp, emit.cast(sum_, product.element_type), product)
    scale, zero = quantization_parameter(node, scale), quantization_parameter(node, zero)
    return emit(dl.QuantizeOp, real, emit.cast(scale, real.element_type), zero, axis=real.rank - 1)


@table("QLinearConv")
def qlinear_conv(node: OnnxNode) -> ImportedValue:
    y = convolve(node, subtract_zero_point(node, node[0], node[2]), subtract_zero_point(node, node[3], node[5]))
    bias = node.get(8)
    if bias is not None:
        y = node.emit(dl.AddOp, y, bias)
    return channels_first(node, requantize(node, y, (node[1], node[4]), node[6], node[7]))


@table("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> ImportedValue:
    for k in (1, 6):
        if node[k].rank > 1 or node[k].shape not in ((), (1,)):
            raise ModelError(f"{node.description}: input {k} must be a per-tensor scale, got shape {list(node[k].shape)}")
    y = integer_matmul(node, node[0], node[3], node[2], node[5])
    return requantize(node, y, (node[1], node[4]), node[6], node[7])
