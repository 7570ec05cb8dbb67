"""Elementwise operators: arithmetic, comparison, logic, selection, conversion."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.e8m0 import E8M0
from dlc.dialects.dl.arithmetic.storage_formats import FLOAT_FORMATS
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type, is_bool, is_float
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators import strings
from dlc.frontend.onnx.registry import Converter, ConverterTable
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.onnx.values import StringTensor
from dlc.ir import Attribute, f32, f64, i8, i32

table = ConverterTable()


def _direct(op: type[DlOp], operands: int) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        return node.emit(op, *(node[k] for k in range(operands)))

    return convert


for _name, _op in {
    "Abs": dl.AbsOp, "Neg": dl.NegOp, "Sign": dl.SignOp, "Sqrt": dl.SqrtOp, "Reciprocal": dl.ReciprocalOp,
    "Exp": dl.ExpOp, "Log": dl.LogOp, "Sin": dl.SinOp, "Cos": dl.CosOp, "Tan": dl.TanOp, "Asin": dl.AsinOp,
    "Acos": dl.AcosOp, "Atan": dl.AtanOp, "Sinh": dl.SinhOp, "Cosh": dl.CoshOp, "Tanh": dl.TanhOp, "Asinh": dl.AsinhOp,
    "Acosh": dl.AcoshOp, "Atanh": dl.AtanhOp, "Floor": dl.FloorOp, "Ceil": dl.CeilOp,
    "Round": dl.RoundOp, "Relu": dl.ReluOp, "Sigmoid": dl.SigmoidOp, "Not": dl.NotOp, "IsNaN": dl.IsnanOp,
    "BitwiseNot": dl.BitwiseNotOp,
}.items():  # fmt: skip
    table(_name)(_direct(_op, 1))

for _name, _op in {
    "Add": dl.AddOp, "Sub": dl.SubOp, "Mul": dl.MulOp, "Div": dl.DivOp, "And": dl.AndOp, "Or": dl.OrOp, "Xor": dl.XorOp,
    "Equal": dl.EqualOp, "Less": dl.LessOp, "LessOrEqual": dl.LessEqualOp, "Greater": dl.GreaterOp,
    "GreaterOrEqual": dl.GreaterEqualOp, "BitwiseAnd": dl.BitwiseAndOp, "BitwiseOr": dl.BitwiseOrOp,
    "BitwiseXor": dl.BitwiseXorOp,
}.items():  # fmt: skip
    table(_name)(_direct(_op, 2))

table("Where")(_direct(dl.SelectOp, 3))


@table("Erf")
def error_function(node: OnnxNode) -> ImportedValue:
    """Convert Erf; integers are computed in f64 and truncated."""
    emit, x = node.emit, node[0]
    return emit.cast(emit(dl.ErfOp, x if is_float(x.element_type) else emit.cast(x, f64)), x.element_type)


@table("Identity")
def identity(node: OnnxNode) -> ImportedValue:
    return node[0]


@table("Pow")
def power(node: OnnxNode) -> ImportedValue:
    emit, x, exponent = node.emit, node[0], node[1]
    if x.element_type == exponent.element_type:
        return emit(dl.PowOp, x, exponent)
    # The result has the base's type; an integer base with a fractional exponent is computed in the exponent's.
    common = x.element_type if is_float(x.element_type) else exponent.element_type
    return emit.cast(emit(dl.PowOp, emit.cast(x, common), emit.cast(exponent, common)), x.element_type)


@table("Mod")
def modulo(node: OnnxNode) -> ImportedValue:
    return node.emit(dl.ModOp, node[0], node[1], fmod=node.flag("fmod"))


@table("BitShift")
def bit_shift(node: OnnxNode) -> ImportedValue:
    left = node.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    return node.emit(dl.ShiftLeftOp if left else dl.ShiftRightOp, node[0], node[1])


def _variadic(op: type[DlOp]) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        result = node[0]
        for k in range(1, len(node.inputs)):
            result = node.emit(op, result, node[k])
        return result

    return convert


for _name, _op in {"Max": dl.MaximumOp, "Min": dl.MinimumOp, "Sum": dl.AddOp}.items():
    table(_name)(_variadic(_op))


@table("Mean")
def mean(node: OnnxNode) -> ImportedValue:
    emit = node.emit
    total = emit.widen(node[0])
    for k in range(1, len(node.inputs)):
        total = emit(dl.AddOp, total, emit.widen(node[k]))
    return emit.cast(emit(dl.MulOp, total, emit.scalar(1 / len(node.inputs), total)), node[0].element_type)


@table("Clip", until=10)
def clip_10(node: OnnxNode) -> ImportedValue:
    # The default bounds are finite, so infinities are clipped.
    x, largest = node[0], float(np.finfo(np.float32).max)
    for name, op, default in (("min", dl.MaximumOp, -largest), ("max", dl.MinimumOp, largest)):
        x = node.emit(op, x, node.emit.scalar(node.real(name, default), x))
    return x


@table("Clip", since=11)
def clip(node: OnnxNode) -> ImportedValue:
    x = node[0]
    for k, op in ((1, dl.MaximumOp), (2, dl.MinimumOp)):
        bound = node.get(k)
        if bound is not None:
            x = node.emit(op, x, node.emit.reshape(bound, ()))
    return x


@table("Cast")
def cast(node: OnnxNode) -> ImportedValue:
    to = node.integer("to")
    return _cast(node, None if to == TensorProto.STRING else element_type(dtype_of(to)))


@table("CastLike")
def cast_like(node: OnnxNode) -> ImportedValue:
    return _cast(node, None if isinstance(node[1], StringTensor) else node[1].element_type)


def _cast(node: OnnxNode, to: Attribute | None) -> ImportedValue:
    """Convert `Cast`; to strings if `to` is None."""
    if to != E8M0:
        node.ignore_attributes("round_mode")
    if to is None or isinstance(node[0], StringTensor):
        node.ignore_attributes("saturate")
        return strings.cast_string(node, node[0], to)
    if to == E8M0:
        return _cast_to_e8m0(node)
    saturate = node.flag("saturate", True) and to in FLOAT_FORMATS
    return node.emit(dl.CastOp, node[0], to=to, saturate=True) if saturate else node.emit.cast(node[0], to)


def _cast_to_e8m0(node: OnnxNode) -> ImportedValue:
    """Cast to float8e8m0, whose values are the powers of two of f32: round up, down, or to nearest."""
    emit, saturate, mode = node.emit, node.flag("saturate", True), node.string("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        raise ModelError(f"{node.description}: round_mode {mode!r}; expected up, down or nearest")
    x = emit(dl.AbsOp, emit.cast(node[0], f32))
    if mode != "nearest":
        fraction = (1 << 23) - 1
        bits = emit(dl.BitcastOp, x, to=i32)
        bits = emit(dl.AddOp, bits, emit.scalar(fraction if mode == "up" else 0, bits))
        power = emit(dl.BitcastOp, emit(dl.BitwiseAndOp, bits, emit.scalar(~fraction, bits)), to=f32)
        # Infinity and NaN are unchanged; with `saturate`, values above the largest power become that power.
        highest = emit(dl.MinimumOp, power, emit.scalar(2.0**127, power)) if saturate else power
        x = emit(dl.SelectOp, emit(dl.LessOp, x, emit.scalar(float("inf"), x)), highest, x)
    return emit(dl.CastOp, x, to=E8M0, saturate=saturate)


@table("BitCast", since=26)
def bit_cast(node: OnnxNode) -> ImportedValue:
    emit, x, to = node.emit, node[0], element_type(dtype_of(node.integer("to")))
    if is_bool(x.element_type) or is_bool(to):
        # Booleans are stored as bytes 0 and 1.
        if not all(is_bool(t) or t in (i8, element_type(np.uint8)) for t in (x.element_type, to)):
            raise ModelError(f"{node.description}: cannot bitcast {x.element_type} to {to}")
        return emit.cast(x, to)
    return x if x.element_type == to else emit(dl.BitcastOp, x, to=to)


@table("IsInf")
def is_inf(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    is_infinite = emit(dl.IsinfOp, x)
    for attribute, excluded in (("detect_negative", dl.LessOp), ("detect_positive", dl.GreaterOp)):
        if not node.flag(attribute, True):
            is_infinite = emit(dl.AndOp, is_infinite, emit(dl.NotOp, emit(excluded, x, emit.scalar(0.0, x))))
    return is_infinite
