"""Activation functions and softmax."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dims import product
from dlc.frontend.onnx.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Converter, Table

table = Table()


def _with(op: type[DlOp], **defaults: float) -> Converter:
    """A converter whose real attributes are the op's properties of the same names."""

    def convert(node: Node) -> Value:
        return node.emit(op, node[0], **{name: node.real(name, default) for name, default in defaults.items()})

    return convert


table("HardSigmoid")(_with(dl.HardsigmoidOp, alpha=0.2, beta=0.5))
table("HardSwish")(_with(dl.HardswishOp))
table("LeakyRelu")(_with(dl.LeakyReluOp, alpha=0.01))
table("Elu")(_with(dl.EluOp, alpha=1.0))
table("Selu")(_with(dl.SeluOp, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875))
table("Celu")(_with(dl.CeluOp, alpha=1.0))
table("Softplus")(_with(dl.SoftplusOp))
table("Softsign")(_with(dl.SoftsignOp))
table("Mish")(_with(dl.MishOp))
table("ThresholdedRelu")(_with(dl.ThresholdedReluOp, alpha=1.0))


@table("Gelu", since=20)
def gelu(node: Node) -> Value:
    return node.emit(dl.GeluOp, node[0], approximate=node.choice("approximate", "none", ("none", "tanh")))


@table("PRelu")
def prelu(node: Node) -> Value:
    return node.emit(dl.PreluOp, node[0], node[1])


@table("Shrink")
def shrink(node: Node) -> Value:
    emit, x = node.emit, node[0]
    bias, threshold = emit.scalar(node.real("bias", 0.0), x), node.real("lambd", 0.5)
    inside = emit(dl.SelectOp, emit(dl.LessOp, x, emit.scalar(-threshold, x)), emit(dl.AddOp, x, bias), emit.scalar(0, x))
    return emit(dl.SelectOp, emit(dl.GreaterOp, x, emit.scalar(threshold, x)), emit(dl.SubOp, x, bias), inside)


def _rows(node: Node, op: type[DlOp], axis: int) -> Value:
    """Up to opset 12 a row spans all axes from `axis` on."""
    x, emit = node[0], node.emit
    axis = node.axis(axis, x.rank)
    if axis == x.rank - 1:
        return emit(op, x, axis=axis)
    rows = emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return emit.reshape(emit(op, rows, axis=1), x.shape)


for _name, _op in {"Softmax": dl.SoftmaxOp, "LogSoftmax": dl.LogSoftmaxOp}.items():
    table(_name, until=12)(lambda node, op=_op: _rows(node, op, node.integer("axis", 1)))
    table(_name, since=13)(lambda node, op=_op: node.emit(op, node[0], axis=node.axis(node.integer("axis", -1), node[0].rank)))
