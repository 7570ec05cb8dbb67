"""Operators that are computed element by element, or along a row of them; and what makes integers of numbers and back."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import is_bool
from dlc.frontend.emit import Value
from dlc.frontend.tflite.node import Node, Table
from dlc.ir import f32

table = Table()

_OF_ONE: dict[str, type[DlOp]] = {
    "ABS": dl.AbsOp, "NEG": dl.NegOp, "SIGN": dl.SignOp, "FLOOR": dl.FloorOp, "CEIL": dl.CeilOp, "ROUND": dl.RoundOp,
    "EXP": dl.ExpOp, "LOG": dl.LogOp, "SQRT": dl.SqrtOp, "RSQRT": dl.RsqrtOp, "SIN": dl.SinOp, "COS": dl.CosOp,
    "TANH": dl.TanhOp, "LOGISTIC": dl.SigmoidOp, "RELU": dl.ReluOp, "HARD_SWISH": dl.HardswishOp, "LOGICAL_NOT": dl.NotOp,
}  # fmt: skip
_OF_TWO: dict[str, type[DlOp]] = {
    "PRELU": dl.PreluOp, "POW": dl.PowOp, "MAXIMUM": dl.MaximumOp, "MINIMUM": dl.MinimumOp,
    "FLOOR_DIV": dl.FloordivOp, "FLOOR_MOD": dl.ModOp,
    "LESS": dl.LessOp, "LESS_EQUAL": dl.LessEqualOp, "GREATER": dl.GreaterOp, "GREATER_EQUAL": dl.GreaterEqualOp,
    "EQUAL": dl.EqualOp, "NOT_EQUAL": dl.NotEqualOp, "LOGICAL_AND": dl.AndOp, "LOGICAL_OR": dl.OrOp,
}  # fmt: skip
# These may have an activation in them.
_ARITHMETIC: dict[str, type[DlOp]] = {"ADD": dl.AddOp, "SUB": dl.SubOp, "MUL": dl.MulOp, "DIV": dl.DivOp}
_CLAMPS = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}


def _applied(op: type[DlOp], inputs: int) -> Callable[[Node], Value]:
    return lambda node: node.applied(op, *range(inputs))


def _clamp(low: float, high: float) -> Callable[[Node], Value]:
    return lambda node: node.finished(node.clamped(node.real(0), low, high))


for _kind, _op in _OF_ONE.items():
    table(_kind)(_applied(_op, 1))
for _kind, _op in _OF_TWO.items():
    table(_kind)(_applied(_op, 2))
for _kind, _op in _ARITHMETIC.items():
    table(_kind, options="activation.i8")(_applied(_op, 2))
for _kind, _bounds in _CLAMPS.items():
    table(_kind)(_clamp(*_bounds))


@table("SQUARE")
def square(node: Node) -> Value:
    x = node.real(0)
    return node.finished(node.emit(dl.MulOp, x, x))


@table("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> Value:
    difference = node.emit(dl.SubOp, node.real(0), node.real(1))
    return node.finished(node.emit(dl.MulOp, difference, difference))


@table("ADD_N")
def add_n(node: Node) -> Value:
    total = node.real(0)
    for k in range(1, len(node.inputs)):
        total = node.emit(dl.AddOp, total, node.real(k))
    return node.finished(total)


@table("LEAKY_RELU", options="alpha.f32")
def leaky_relu(node: Node) -> Value:
    return node.finished(node.emit(dl.LeakyReluOp, node.real(0), alpha=node.real_option("alpha")))


@table("ELU")
def elu(node: Node) -> Value:
    return node.finished(node.emit(dl.EluOp, node.real(0), alpha=1.0))


@table("GELU", options="approximate.bool")
def gelu(node: Node) -> Value:
    return node.finished(node.emit(dl.GeluOp, node.real(0), approximate="tanh" if node.flag("approximate") else "none"))


@table("SOFTMAX", options="beta.f32")
def softmax(node: Node) -> Value:
    x, beta = node.real(0), node.real_option("beta")
    x = x if beta == 1 else node.emit(dl.MulOp, x, node.emit.scalar(beta, x))
    return node.finished(node.emit(dl.SoftmaxOp, x, axis=x.rank - 1))


@table("LOG_SOFTMAX")
def log_softmax(node: Node) -> Value:
    x = node.real(0)
    return node.finished(node.emit(dl.LogSoftmaxOp, x, axis=x.rank - 1))


@table("LOCAL_RESPONSE_NORMALIZATION", options="radius.i32 bias.f32 alpha.f32 beta.f32")
def local_response_normalization(node: Node) -> Value:
    """`x / (bias + alpha · Σ x²)^beta`, the sum over the channels so near."""
    emit, x, radius = node.emit, node.real(0), max(node.integer("radius"), 0)
    rows = emit.reshape(emit(dl.MulOp, x, x), (x.shape[0], x.shape[1] * x.shape[2], x.shape[3], 1))
    wide = emit(dl.PadOp, rows, emit.scalar(0, x), low=(0, 0, radius, 0), high=(0, 0, radius, 0), pad_mode="constant")
    near = emit(dl.SumPoolOp, wide, kernel=(1, 2 * radius + 1), strides=(1, 1), dilations=(1, 1))
    bias, alpha, beta = (emit.scalar(node.real_option(name), x) for name in ("bias", "alpha", "beta"))
    scale = emit(dl.PowOp, emit(dl.AddOp, emit(dl.MulOp, emit.reshape(near, x.shape), alpha), bias), beta)
    return node.finished(emit(dl.DivOp, x, scale))


@table("SELECT", "SELECT_V2")
def select(node: Node) -> Value:
    condition, x, y = node[0], node[1], node[2]
    if node.operator.kind == "SELECT" and condition.rank == 1 < x.rank:
        # One condition for each entry of the first axis.
        condition = node.emit.reshape(condition, (*condition.shape, *(1,) * (x.rank - 1)))
    return node.emit(dl.SelectOp, condition, x, y)


@table("CAST")
def cast(node: Node) -> Value:
    return node.emit.cast(node[0], node.element())


@table("QUANTIZE")
def quantize(node: Node) -> Value:
    """Of floats or of integers with another scale."""
    return node.as_result(0)


@table("DEQUANTIZE")
def dequantize(node: Node) -> Value:
    return node.emit.cast(node.real(0), f32)


@table("ZEROS_LIKE")
def zeros_like(node: Node) -> Value:
    x = node[0]
    return node.emit.full(False if is_bool(x.element_type) else 0, x.shape, x)
