"""Activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import is_float
from dlc.dims import product
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Converter, Table
from dlc.ir import f64

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
    emit, given = node.emit, node[0]
    # Of integers differences are floats, and then truncated.
    x = emit.wide(given) if is_float(given.element_type) else emit.cast(given, f64)
    bias, threshold = emit.scalar(node.real("bias", 0.0), x), node.real("lambd", 0.5)
    inside = emit(dl.SelectOp, emit(dl.LessOp, x, emit.scalar(-threshold, x)), emit(dl.AddOp, x, bias), emit.scalar(0, x))
    made = emit(dl.SelectOp, emit(dl.GreaterOp, x, emit.scalar(threshold, x)), emit(dl.SubOp, x, bias), inside)
    return emit.cast(made, given.element_type)


def _hardmax(node: Node, x: Value, axis: int) -> Value:
    """1 at the first largest element of a row, 0 elsewhere."""
    if 0 in x.shape:
        return x
    emit = node.emit
    largest = emit(dl.ArgmaxOp, x, axis=axis, keepdims=True, select_last=False)
    places = emit.reshape(emit.iota(x.shape[axis]), (x.shape[axis], *(1,) * (x.rank - 1 - axis)))
    return emit.cast(emit(dl.EqualOp, places, largest), x.element_type)


def _rows(node: Node, of_row: Callable[[Node, Value, int], Value], axis: int) -> Value:
    """Up to opset 12 a row spans all axes from `axis` on."""
    x, emit = node[0], node.emit
    axis = node.axis(axis, x.rank)
    if axis == x.rank - 1:
        return of_row(node, x, axis)
    rows = emit.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return emit.reshape(of_row(node, rows, 1), x.shape)


def _of_rows(name: str, of_row: Callable[[Node, Value, int], Value]) -> None:
    table(name, until=12)(lambda node: _rows(node, of_row, node.integer("axis", 1)))
    table(name, since=13)(lambda node: of_row(node, node[0], node.axis(node.integer("axis", -1), node[0].rank)))


_of_rows("Softmax", lambda node, x, axis: node.emit(dl.SoftmaxOp, x, axis=axis))
_of_rows("LogSoftmax", lambda node, x, axis: node.emit(dl.LogSoftmaxOp, x, axis=axis))
_of_rows("Hardmax", _hardmax)
