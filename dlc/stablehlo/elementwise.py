"""Elementwise ops."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.ir import Attribute, SSAValue, bf16, f16, f32, f64
from dlc.stablehlo.bits import total_order_key
from dlc.stablehlo.body_numbering import read_comparison
from dlc.stablehlo.floor_division import match_floor_division
from dlc.stablehlo.node import Converter, StableHloNode, flatten_complex, sizes_of

_DIRECT: dict[str, type[DlOp]] = {
    "subtract": dl.SubOp, "divide": dl.DivOp, "power": dl.PowOp,
    "abs": dl.AbsOp, "negate": dl.NegOp, "floor": dl.FloorOp, "ceil": dl.CeilOp,
    "round_nearest_even": dl.RoundOp, "sqrt": dl.SqrtOp, "rsqrt": dl.RsqrtOp, "cbrt": dl.CbrtOp, "atan2": dl.Atan2Op,
    "exponential": dl.ExpOp, "exponential_minus_one": dl.Expm1Op, "log": dl.LogOp, "log_plus_one": dl.Log1pOp,
    "tanh": dl.TanhOp, "sine": dl.SinOp, "cosine": dl.CosOp, "tan": dl.TanOp, "logistic": dl.SigmoidOp,
    "shift_left": dl.ShiftLeftOp,
}  # fmt: skip
_CHLO: dict[str, type[DlOp]] = {
    "erf": dl.ErfOp, "erf_inv": dl.ErfinvOp, "asin": dl.AsinOp, "acos": dl.AcosOp, "atan": dl.AtanOp, "sinh": dl.SinhOp,
    "cosh": dl.CoshOp, "asinh": dl.AsinhOp, "acosh": dl.AcoshOp, "atanh": dl.AtanhOp, "tan": dl.TanOp, "is_inf": dl.IsinfOp,
}  # fmt: skip
# (op on booleans, op on other element types)
_LOGIC: dict[str, tuple[type[DlOp], type[DlOp]]] = {
    "and": (dl.AndOp, dl.BitwiseAndOp), "or": (dl.OrOp, dl.BitwiseOrOp), "xor": (dl.XorOp, dl.BitwiseXorOp),
    "add": (dl.OrOp, dl.AddOp), "multiply": (dl.AndOp, dl.MulOp),
    "not": (dl.NotOp, dl.BitwiseNotOp), "maximum": (dl.OrOp, dl.MaximumOp), "minimum": (dl.AndOp, dl.MinimumOp),
}  # fmt: skip
_COMPARISONS: dict[str, type[DlOp]] = {
    "EQ": dl.EqualOp, "NE": dl.NotEqualOp, "LT": dl.LessOp, "LE": dl.LessEqualOp, "GT": dl.GreaterOp, "GE": dl.GreaterEqualOp,
}  # fmt: skip
# Element types by (exponent bits, mantissa bits).
_FLOATS: dict[tuple[int, int], Attribute] = {(5, 10): f16, (8, 7): bf16, (8, 23): f32, (11, 52): f64}


def _direct(op: type[DlOp]) -> Converter:
    return lambda node: node.build(op, *node.operands)


def _logic(bool_op: type[DlOp], other_op: type[DlOp]) -> Converter:
    return lambda node: node.build(bool_op if node.is_bool else other_op, *node.operands)


def compare(node: StableHloNode) -> SSAValue:
    direction, is_total = read_comparison(node.op)
    if direction not in _COMPARISONS:
        raise node.unsupported(f"expected one of {', '.join(_COMPARISONS)}")
    is_total = is_total and is_float(element_type_of(node[0]))
    return node.build(
        _COMPARISONS[direction], *((total_order_key(node, x) for x in node.operands) if is_total else node.operands)
    )


def select(node: StableHloNode) -> SSAValue:
    return match_floor_division(node) or node.build(dl.SelectOp, *node.operands)


def clamp(node: StableHloNode) -> SSAValue:
    low, x, high = node.operands
    return node.build(dl.MinimumOp, node.build(dl.MaximumOp, x, low), high)


def convert(node: StableHloNode) -> SSAValue:
    return node[0] if element_type_of(node[0]) == node.element else node.build(dl.CastOp, node[0], to=node.element)


def remainder(node: StableHloNode) -> SSAValue:
    return node.build(dl.ModOp, *node.operands, fmod=True)


def is_finite(node: StableHloNode) -> SSAValue:
    x = node[0]
    return node.build(dl.NotOp, node.build(dl.OrOp, node.build(dl.IsnanOp, x), node.build(dl.IsinfOp, x)))


def sign(node: StableHloNode) -> SSAValue:
    """Return the sign, which keeps the sign of a floating-point zero."""
    result = node.build(dl.SignOp, node[0])
    if not is_float(node.element):
        return result
    return node.build(dl.SelectOp, node.build(dl.EqualOp, node[0], node.scalar(0, node[0])), node[0], result)


def square(node: StableHloNode) -> SSAValue:
    return node.build(dl.MulOp, node[0], node[0])


def round_away(node: StableHloNode) -> SSAValue:
    """Round to nearest, half away from 0."""
    magnitude = node.build(dl.AbsOp, node[0])
    floor = node.build(dl.FloorOp, magnitude)
    rounds_up = node.build(dl.GreaterEqualOp, node.build(dl.SubOp, magnitude, floor), node.scalar(0.5, magnitude))
    rounded = node.build(dl.AddOp, floor, node.build(dl.CastOp, rounds_up, to=node.element))
    return node.build(dl.MulOp, sign(node), rounded)


def shift_right(node: StableHloNode) -> SSAValue:
    """`dl` shifts signed integers arithmetically and unsigned ones logically; cast for the other combinations."""
    signed, logical = str(node.element).startswith("i"), node.op.name.endswith("logical")
    if signed != logical:
        return node.build(dl.ShiftRightOp, *node.operands)
    bits = str(node.element).removeprefix("u").removeprefix("i")
    other_type = element_type(np.dtype(f"uint{bits}" if signed else f"int{bits}"))
    shifted = node.build(dl.ShiftRightOp, *(node.build(dl.CastOp, x, to=other_type) for x in node.operands))
    return node.build(dl.CastOp, shifted, to=node.element)


def reduce_precision(node: StableHloNode) -> SSAValue:
    """Round to a narrower float type and back."""
    bit_counts = re.findall(r"\d+", str(node.op.attributes.get("format", ""))) or [
        node.get("exponent_bits"),
        node.get("mantissa_bits"),
    ]
    exponent, mantissa = map(int, bit_counts)
    if (exponent, mantissa) not in _FLOATS:
        raise node.unsupported(f"no element type has {exponent} exponent bits and {mantissa} mantissa bits")
    return node.build(dl.CastOp, node.build(dl.CastOp, node[0], to=_FLOATS[exponent, mantissa]), to=node.element)


def constant_like(node: StableHloNode) -> SSAValue:
    return node.broadcast(node.scalar(node.get("value"), node[0]), node.shape)


def imaginary_part(node: StableHloNode) -> SSAValue:
    """Return the zeros that are the imaginary part of a real operand."""
    return node.broadcast(node.scalar(0, node[0]), sizes_of(node[0]))


def map_elements(node: StableHloNode) -> Sequence[SSAValue]:
    """Apply the body to the elements of the operands."""
    results = flatten_complex(node.inline(node.op.regions[0], node.operands))
    return [node.broadcast(y, sizes_of(node[0])) for y in results]


def identity(node: StableHloNode) -> Sequence[SSAValue]:
    return node.operands


OPERATORS: dict[str, Converter] = {
    **{f"stablehlo.{name}": _direct(op) for name, op in _DIRECT.items()},
    **{f"chlo.{name}": _direct(op) for name, op in _CHLO.items()},
    **{f"stablehlo.{name}": _logic(*ops) for name, ops in _LOGIC.items()},
    "stablehlo.compare": compare,
    "stablehlo.select": select,
    "stablehlo.clamp": clamp,
    "stablehlo.convert": convert,
    "stablehlo.remainder": remainder,
    "stablehlo.sign": sign,
    "stablehlo.is_finite": is_finite,
    "stablehlo.round_nearest_afz": round_away,
    "stablehlo.shift_right_arithmetic": shift_right,
    "stablehlo.shift_right_logical": shift_right,
    "stablehlo.map": map_elements,
    "stablehlo.optimization_barrier": identity,
    "stablehlo.real": identity,
    "stablehlo.imag": imaginary_part,
    "stablehlo.reduce_precision": reduce_precision,
    "chlo.square": square,
    "chlo.constant_like": constant_like,
}
