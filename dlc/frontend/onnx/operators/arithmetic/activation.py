"""Activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import is_float
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import Converter, ConverterTable
from dlc.ir import f64
from dlc.shapes.dims import product

table = ConverterTable()


def _with_float_attributes(op: type[DlOp], **defaults: float) -> Converter:
    """Return a converter that passes float attributes on as properties of the same names."""

    def convert(node: OnnxNode) -> ImportedValue:
        return node.emit(op, node[0], **{name: node.real(name, default) for name, default in defaults.items()})

    return convert


table("HardSigmoid")(_with_float_attributes(dl.HardsigmoidOp, alpha=0.2, beta=0.5))
table("HardSwish")(_with_float_attributes(dl.HardswishOp))
table("LeakyRelu")(_with_float_attributes(dl.LeakyReluOp, alpha=0.01))
table("Elu")(_with_float_attributes(dl.EluOp, alpha=1.0))
table("Selu")(_with_float_attributes(dl.SeluOp, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875))
table("Celu")(_with_float_attributes(dl.CeluOp, alpha=1.0))
table("Softplus")(_with_float_attributes(dl.SoftplusOp))
table("Softsign")(_with_float_attributes(dl.SoftsignOp))
table("Mish")(_with_float_attributes(dl.MishOp))
table("ThresholdedRelu")(_with_float_attributes(dl.ThresholdedReluOp, alpha=1.0))


@table("Gelu", since=20)
def gelu(node: OnnxNode) -> ImportedValue:
    return node.emit(dl.GeluOp, node[0], approximate=node.choice("approximate", "none", ("none", "tanh")))


@table("PRelu")
def prelu(node: OnnxNode) -> ImportedValue:
    return node.emit(dl.PreluOp, node[0], node[1])


@table("Shrink")
def shrink(node: OnnxNode) -> ImportedValue:
    emit, operand = node.emit, node[0]
    # Integers are computed in f64 and truncated.
    x = emit.widen(operand) if is_float(operand.element_type) else emit.cast(operand, f64)
    bias, threshold = emit.scalar(node.real("bias", 0.0), x), node.real("lambd", 0.5)
    lower_or_zero = emit(
        dl.SelectOp, emit(dl.LessOp, x, emit.scalar(-threshold, x)), emit(dl.AddOp, x, bias), emit.scalar(0, x)
    )
    y = emit(dl.SelectOp, emit(dl.GreaterOp, x, emit.scalar(threshold, x)), emit(dl.SubOp, x, bias), lower_or_zero)
    return emit.cast(y, operand.element_type)


def _hardmax(node: OnnxNode, x: ImportedValue, axis: int) -> ImportedValue:
    """Return 1 at the first maximum of each row, 0 elsewhere."""
    if 0 in x.shape:
        return x
    emit = node.emit
    largest = emit(dl.ArgmaxOp, x, axis=axis, keepdims=True, select_last=False)
    indices = emit.reshape(emit.iota(x.shape[axis]), (x.shape[axis], *(1,) * (x.rank - 1 - axis)))
    return emit.cast(emit(dl.EqualOp, indices, largest), x.element_type)


def _with_flattened_rows(
    node: OnnxNode, convert_row: Callable[[OnnxNode, ImportedValue, int], ImportedValue], axis: int
) -> ImportedValue:
    """Apply `convert_row` to rows that span all axes from `axis` on, as defined up to opset 12."""
    x, emit = node[0], node.emit
    axis = node.axis(axis, x.rank)
    if axis == x.rank - 1:
        return convert_row(node, x, axis)
    rows = emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return emit.reshape(convert_row(node, rows, 1), x.shape)


def _register_rowwise(name: str, convert_row: Callable[[OnnxNode, ImportedValue, int], ImportedValue]) -> None:
    def with_flattened_rows(node: OnnxNode) -> ImportedValue:
        return _with_flattened_rows(node, convert_row, node.integer("axis", 1))

    def along_axis(node: OnnxNode) -> ImportedValue:
        return convert_row(node, node[0], node.axis(node.integer("axis", -1), node[0].rank))

    table(name, until=12)(with_flattened_rows)
    table(name, since=13)(along_axis)


_register_rowwise("Softmax", lambda node, x, axis: node.emit(dl.SoftmaxOp, x, axis=axis))
_register_rowwise("LogSoftmax", lambda node, x, axis: node.emit(dl.LogSoftmaxOp, x, axis=axis))
_register_rowwise("Hardmax", _hardmax)
