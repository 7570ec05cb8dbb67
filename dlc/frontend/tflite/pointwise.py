"""Elementwise operators, softmax, and quantization."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import is_bool
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.ir import f32

table = TfliteConverterTable()

_UNARY: dict[str, type[DlOp]] = {
    "ABS": dl.AbsOp, "NEG": dl.NegOp, "SIGN": dl.SignOp, "FLOOR": dl.FloorOp, "CEIL": dl.CeilOp, "ROUND": dl.RoundOp,
    "EXP": dl.ExpOp, "LOG": dl.LogOp, "SQRT": dl.SqrtOp, "RSQRT": dl.RsqrtOp, "SIN": dl.SinOp, "COS": dl.CosOp,
    "TANH": dl.TanhOp, "LOGISTIC": dl.SigmoidOp, "RELU": dl.ReluOp, "HARD_SWISH": dl.HardswishOp, "LOGICAL_NOT": dl.NotOp,
}  # fmt: skip
_BINARY: dict[str, type[DlOp]] = {
    "PRELU": dl.PreluOp, "POW": dl.PowOp, "MAXIMUM": dl.MaximumOp, "MINIMUM": dl.MinimumOp,
    "FLOOR_DIV": dl.FloordivOp, "FLOOR_MOD": dl.ModOp,
    "LESS": dl.LessOp, "LESS_EQUAL": dl.LessEqualOp, "GREATER": dl.GreaterOp, "GREATER_EQUAL": dl.GreaterEqualOp,
    "EQUAL": dl.EqualOp, "NOT_EQUAL": dl.NotEqualOp, "LOGICAL_AND": dl.AndOp, "LOGICAL_OR": dl.OrOp,
}  # fmt: skip
# These may have a fused activation.
_ARITHMETIC: dict[str, type[DlOp]] = {"ADD": dl.AddOp, "SUB": dl.SubOp, "MUL": dl.MulOp, "DIV": dl.DivOp}
_CLAMPS = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}


def _applied(op: type[DlOp], inputs: int) -> Callable[[TfliteNode], ImportedValue]:
    return lambda node: node.apply(op, *range(inputs))


def _clamp(low: float, high: float) -> Callable[[TfliteNode], ImportedValue]:
    return lambda node: node.activate_and_quantize(node.clamp(node.dequantized(0), low, high))


for _kind, _op in _UNARY.items():
    table(_kind)(_applied(_op, 1))
for _kind, _op in _BINARY.items():
    table(_kind)(_applied(_op, 2))
for _kind, _op in _ARITHMETIC.items():
    table(_kind, options="activation.i8")(_applied(_op, 2))
for _kind, _bounds in _CLAMPS.items():
    table(_kind)(_clamp(*_bounds))


@table("SQUARE")
def square(node: TfliteNode) -> ImportedValue:
    x = node.dequantized(0)
    return node.activate_and_quantize(node.emit(dl.MulOp, x, x))


@table("SQUARED_DIFFERENCE")
def squared_difference(node: TfliteNode) -> ImportedValue:
    difference = node.emit(dl.SubOp, node.dequantized(0), node.dequantized(1))
    return node.activate_and_quantize(node.emit(dl.MulOp, difference, difference))


@table("ADD_N")
def add_n(node: TfliteNode) -> ImportedValue:
    total = node.dequantized(0)
    for k in range(1, len(node.inputs)):
        total = node.emit(dl.AddOp, total, node.dequantized(k))
    return node.activate_and_quantize(total)


@table("LEAKY_RELU", options="alpha.f32")
def leaky_relu(node: TfliteNode) -> ImportedValue:
    return node.activate_and_quantize(node.emit(dl.LeakyReluOp, node.dequantized(0), alpha=node.float_option("alpha")))


@table("ELU")
def elu(node: TfliteNode) -> ImportedValue:
    return node.activate_and_quantize(node.emit(dl.EluOp, node.dequantized(0), alpha=1.0))


@table("GELU", options="approximate.bool")
def gelu(node: TfliteNode) -> ImportedValue:
    return node.activate_and_quantize(
        node.emit(dl.GeluOp, node.dequantized(0), approximate="tanh" if node.flag("approximate") else "none")
    )


@table("SOFTMAX", options="beta.f32")
def softmax(node: TfliteNode) -> ImportedValue:
    x, beta = node.dequantized(0), node.float_option("beta")
    x = x if beta == 1 else node.emit(dl.MulOp, x, node.emit.scalar(beta, x))
    return node.activate_and_quantize(node.emit(dl.SoftmaxOp, x, axis=x.rank - 1))


@table("LOG_SOFTMAX")
def log_softmax(node: TfliteNode) -> ImportedValue:
    x = node.dequantized(0)
    return node.activate_and_quantize(node.emit(dl.LogSoftmaxOp, x, axis=x.rank - 1))


@table("LOCAL_RESPONSE_NORMALIZATION", options="radius.i32 bias.f32 alpha.f32 beta.f32")
def local_response_normalization(node: TfliteNode) -> ImportedValue:
    """`x / (bias + alpha · Σ x²)^beta`, with the sum over channels within `radius`."""
    emit, x, radius = node.emit, node.dequantized(0), max(node.integer("radius"), 0)
    rows = emit.reshape(emit(dl.MulOp, x, x), (x.shape[0], x.shape[1] * x.shape[2], x.shape[3], 1))
    padded = emit.pad(rows, (0, 0, radius, 0), (0, 0, radius, 0))
    window_sum = emit(dl.SumPoolOp, padded, kernel=(1, 2 * radius + 1), strides=(1, 1), dilations=(1, 1))
    bias, alpha, beta = (emit.scalar(node.float_option(name), x) for name in ("bias", "alpha", "beta"))
    scale = emit(dl.PowOp, emit(dl.AddOp, emit(dl.MulOp, emit.reshape(window_sum, x.shape), alpha), bias), beta)
    return node.activate_and_quantize(emit(dl.DivOp, x, scale))


@table("SELECT", "SELECT_V2")
def select(node: TfliteNode) -> ImportedValue:
    condition, x, y = node[0], node[1], node[2]
    if node.operator.kind == "SELECT" and condition.rank == 1 < x.rank:
        # A vector condition selects along the first axis.
        condition = node.emit.reshape(condition, (*condition.shape, *(1,) * (x.rank - 1)))
    return node.emit(dl.SelectOp, condition, x, y)


@table("CAST")
def cast(node: TfliteNode) -> ImportedValue:
    return node.emit.cast(node[0], node.element_type())


@table("QUANTIZE")
def quantize(node: TfliteNode) -> ImportedValue:
    """Quantize floats, or requantize integers."""
    return node.requantize_to_output(0)


@table("DEQUANTIZE")
def dequantize(node: TfliteNode) -> ImportedValue:
    return node.emit.cast(node.dequantized(0), f32)


@table("ZEROS_LIKE")
def zeros_like(node: TfliteNode) -> ImportedValue:
    x = node[0]
    return node.emit.full(False if is_bool(x.element_type) else 0, x.shape, x)
