"""Quantisation, and the operators on integers that quantised models are made of."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.powers import POWERS
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type
from dlc.dims import UndecidableError
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.images.convolution import convolved
from dlc.frontend.onnx.operators.images.windows import channels_first
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem
from dlc.ir import Attribute, f32, i32

table = Table()


def parameter(node: Node, v: Value) -> Value:
    """A scale or zero point of one element as rank 0, else as it is: one entry per place of an axis."""
    if v.rank > 1:
        raise NodeProblem("input", f"scales of shape {list(v.shape)} are not supported here")
    return node.emit.reshape(v, ()) if v.shape == (1,) else v


def zero_point(node: Node, k: int, default: Attribute) -> Value:
    """The zero point, as one number where it is: 0 if there is none."""
    zero = node.get(k)
    if zero is None:
        return node.emit.scalar(0, default)
    if zero.known is not None and zero.known.size and (zero.known == zero.known.flat[0]).all():
        return node.emit.scalar(zero.known.flat[0], zero)
    return parameter(node, zero)


def _scaled(node: Node, op: type[DlOp], x: Value, scale: Value, default: Attribute) -> Value:
    """`op` with a scale and a zero point for all, for each place of an axis, or for each block of places."""
    emit, block, axis = node.emit, node.integer("block_size", 0), node.integer("axis", 1)
    if not block:
        scale = parameter(node, scale)
        along = node.axis(axis, x.rank) if scale.rank else 0
        # Weights stay integers, also few of them.
        return emit.unfolded(op, x, scale, zero_point(node, 2, default), axis=along)[0]
    axis, zero = node.axis(axis, x.rank), node.get(2)
    size = x.shape[axis]
    if scale.shape != tuple(-(-size // block) if a == axis else s for a, s in enumerate(x.shape)):
        raise NodeProblem(
            "input", f"scales of shape {list(scale.shape)} for blocks of {block} in {list(x.shape)} are not supported"
        )
    if size % block != 0:
        # The last block has fewer places than the others: one entry for each place.
        if not isinstance(size, int):
            raise UndecidableError(f"the blocks of {block} along axis {axis} depend on the size {size}")
        of_place = emit.constant(np.arange(size) // block, np.int64, f"{node.proto.output[0]}_blocks")
        scale = emit(dl.GatherOp, scale, of_place, axis=axis)
        zero = None if zero is None else emit(dl.GatherOp, zero, of_place, axis=axis)
    return emit.unfolded(op, x, scale, emit.scalar(0, default) if zero is None else zero, axis=axis)[0]


@table("QuantizeLinear")
def quantize_linear(node: Node) -> Value:
    node.ignore("precision")
    if not node.flag("saturate", True):
        raise NodeProblem("attribute", "saturate = 0 is not supported: divide and Cast instead")
    x, scale, target = node[0], node[1], node.integer("output_dtype", 0)
    stored = element_type(dtype_of(target)) if target else element_type(np.uint8)
    if x.element_type != scale.element_type:
        x, scale = node.emit.cast(x, f32), node.emit.cast(scale, f32)
    return _scaled(node, dl.QuantizeOp, x, scale, stored)


@table("DequantizeLinear")
def dequantize_linear(node: Node) -> Value:
    target, scale = node.integer("output_dtype", 0), node[1]
    to = element_type(dtype_of(target)) if target else scale.element_type
    # Powers of two scale exactly whatever they are multiplied as.
    scale = node.emit.cast(scale, f32) if scale.element_type == POWERS else scale
    return node.emit.cast(_scaled(node, dl.DequantizeOp, node[0], scale, node[0].element_type), to)


@table("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> tuple[Value, ...]:
    return node.emit.all(dl.DynamicQuantizeLinearOp, node[0])


def centred(node: Node, x: Value, zero: Value | None, axis: int = 0) -> Value:
    """Quantised numbers as i32 without their zero point, which has rank 0 or an entry per place of `axis`."""
    wide = node.emit.cast(x, i32)
    if zero is None:
        return wide
    zero = parameter(node, zero)
    if zero.known is not None and not zero.known.any():
        return wide
    if zero.rank:
        zero = node.emit.reshape(zero, (*zero.shape, *(1,) * (x.rank - 1 - axis)))
    return node.emit(dl.SubOp, wide, node.emit.cast(zero, i32))


@table("MatMulInteger")
def matmul_integer(node: Node) -> Value:
    return integer_product(node, node[0], node[1], node.get(2), node.get(3))


def integer_product(node: Node, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    # One zero point per row of a, per column of b.
    rows = centred(node, a, a_zero, max(a.rank - 2, 0))
    return node.emit(dl.MatmulOp, rows, centred(node, b, b_zero, b.rank - 1))


@table("ConvInteger")
def conv_integer(node: Node) -> Value:
    # Padding follows the subtraction, so that it is the zero point.
    return channels_first(node, convolved(node, centred(node, node[0], node.get(2)), centred(node, node[1], node.get(3))))


def requantized(node: Node, sum_: Value, factors: tuple[Value, Value], scale: Value, zero: Value) -> Value:
    """An integer sum of products with the factors' scales as quantised numbers; the last axis is the channels'."""
    emit = node.emit
    product = emit(dl.MulOp, *(parameter(node, f) for f in factors))
    real = emit(dl.MulOp, emit.cast(sum_, product.element_type), product)
    scale, zero = parameter(node, scale), parameter(node, zero)
    return emit(dl.QuantizeOp, real, emit.cast(scale, real.element_type), zero, axis=real.rank - 1)


@table("QLinearConv")
def qlinear_conv(node: Node) -> Value:
    y = convolved(node, centred(node, node[0], node[2]), centred(node, node[3], node[5]))
    bias = node.get(8)
    if bias is not None:
        y = node.emit(dl.AddOp, y, bias)
    return channels_first(node, requantized(node, y, (node[1], node[4]), node[6], node[7]))


@table("QLinearMatMul")
def qlinear_matmul(node: Node) -> Value:
    for k in (1, 6):
        if node[k].rank > 1 or node[k].shape not in ((), (1,)):
            raise ModelError(f"{node.place}: input {k} must be one scale, got shape {list(node[k].shape)}")
    y = integer_product(node, node[0], node[3], node[2], node[5])
    return requantized(node, y, (node[1], node[4]), node[6], node[7])
