"""`arith` and `math`: the same NumPy function for scalars and, elementwise, for vectors and tensors.

Integers wrap, division by zero gives 0, conversions from float saturate. Float functions without an exactly rounded result
(`exp`, `sin`, …) are computed in f64 and rounded once, in every precision.
"""

from __future__ import annotations

import math as libm
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.backends.reference.evaluation_context import Frame, elementwise, rule
from dlc.backends.reference.values import Array, Value, bit_width, dtype_of, expand, is_bool, rank
from dlc.dialects.dl.dtypes import array_of
from dlc.dialects.ldexp import MathLdexpOp, ldexp
from dlc.dialects.remainder import RemFOp
from dlc.ir import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, arith, math


def signed(x: Array) -> Array:
    """Interpret a signless integer as signed; the i1 value 1 is −1."""
    return -x.astype(np.int8) if is_bool(x) else x


def unsigned(x: Array) -> Array:
    """Interpret a signless integer as unsigned."""
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def wrapping(function: Callable[[Array, Array], Array], for_bool: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Return integer arithmetic modulo 2ⁿ; `for_bool` replaces NumPy's arithmetic on bools."""

    def wrap(a: Array, b: Array) -> Array:
        return for_bool(a, b) if is_bool(a) else function(a, b)

    return wrap


def on_unsigned(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Return an operation on unsigned interpretations of the operands; its result is signless."""

    def apply(a: Array, b: Array) -> Array:
        return function(unsigned(a), unsigned(b)).astype(a.dtype)

    return apply


def on_signed(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Return an operation on signed interpretations of the operands; its result is signless."""

    def apply(a: Array, b: Array) -> Array:
        return function(signed(a), signed(b)).astype(a.dtype)

    return apply


def quotient(a: Array, b: Array) -> Array:
    """Divide and truncate toward zero; 0 for a zero divisor."""
    return np.where(b == 0, 0, (a - np.fmod(a, b)) // np.where(b == 0, 1, b)).astype(a.dtype)


def floor_quotient(a: Array, b: Array) -> Array:
    """Divide and round down; 0 for a zero divisor."""
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b)).astype(a.dtype)


def shift(function: Callable[[Array, Array], Array], fill: Callable[[Array], Any]) -> Callable[..., Array]:
    """Return a shift; an amount of the width or more shifts out all bits."""

    def shifted(a: Array, b: Array) -> Array:
        width, amount = a.dtype.itemsize * 8, unsigned(b)
        return np.where(amount < width, function(a, np.minimum(amount, width - 1).astype(a.dtype)), fill(a)).astype(a.dtype)

    return shifted


elementwise({
    arith.AddfOp: np.add, arith.SubfOp: np.subtract, arith.MulfOp: np.multiply, arith.DivfOp: np.divide,
    arith.NegfOp: np.negative, RemFOp: np.fmod,
    arith.MaximumfOp: np.maximum, arith.MinimumfOp: np.minimum, arith.MaxnumfOp: np.fmax, arith.MinnumfOp: np.fmin,
    arith.AddiOp: wrapping(np.add, np.logical_xor), arith.SubiOp: wrapping(np.subtract, np.logical_xor),
    arith.MuliOp: wrapping(np.multiply, np.logical_and),
    arith.DivSIOp: on_signed(quotient), arith.DivUIOp: on_unsigned(floor_quotient),
    arith.RemUIOp: on_unsigned(np.fmod),
    arith.MaxSIOp: on_signed(np.maximum), arith.MinSIOp: on_signed(np.minimum),
    arith.MaxUIOp: on_unsigned(np.maximum), arith.MinUIOp: on_unsigned(np.minimum),
    arith.AndIOp: np.bitwise_and, arith.OrIOp: np.bitwise_or, arith.XOrIOp: np.bitwise_xor,
    arith.ShLIOp: shift(np.left_shift, lambda a: 0),
    arith.ShRUIOp: shift(lambda a, b: np.right_shift(unsigned(a), unsigned(b)).view(a.dtype), lambda a: 0),
    arith.ShRSIOp: shift(np.right_shift, lambda a: np.where(a < 0, -1, 0)),
})  # fmt: skip


_SIGNED = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal]


@rule(arith.CmpiOp)
def compare_integers(op: arith.CmpiOp, frame: Frame) -> Sequence[Value]:
    a, b = frame.array(op.lhs), frame.array(op.rhs)
    predicate = int(op.predicate.value.data)
    # eq, ne, four signed predicates, the same four unsigned.
    return (_SIGNED[predicate](signed(a), signed(b)) if predicate < 6 else _SIGNED[predicate - 4](unsigned(a), unsigned(b)),)


# eq, gt, ge, lt, le, ne: ordered as predicates 1..6, unordered as 8..13.
_ORDERED = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]


@rule(arith.CmpfOp)
def compare_floats(op: arith.CmpfOp, frame: Frame) -> Sequence[Value]:
    a, b = frame.array(op.lhs), frame.array(op.rhs)
    unordered = np.isnan(a) | np.isnan(b)
    match int(op.predicate.value.data):
        case 0:
            return (np.zeros_like(unordered),)
        case 7:
            return (~unordered,)
        case 14:
            return (unordered,)
        case 15:
            return (np.ones_like(unordered),)
        case predicate if predicate < 7:
            return (_ORDERED[predicate - 1](a, b) & ~unordered,)
        case predicate:
            return (_ORDERED[predicate - 8](a, b) | unordered,)


@rule(arith.SelectOp)
def select(op: arith.SelectOp, frame: Frame) -> Sequence[Value]:
    condition = frame.array(op.cond)
    # A scalar condition per point must be broadcast along the axes of the vector.
    condition = expand(condition, rank(op.result.type) - rank(op.cond.type))
    return (np.where(condition, frame.array(op.lhs), frame.array(op.rhs)),)


@rule(arith.ConstantOp)
def constant(op: arith.ConstantOp, frame: Frame) -> Sequence[Value]:
    return (frame.context.memoize(op, constant_value),)


def constant_value(op: arith.ConstantOp) -> Array:
    """Return the array that a constant denotes."""
    match op.value:
        case DenseIntOrFPElementsAttr() as dense:
            return array_of(dense)
        case IntegerAttr() | FloatAttr() as attribute:
            value: Any = attribute.value.data
            dtype = dtype_of(op.result.type)
            # An i8 literal may be written as 255.
            unsigned_value = value % 2**64 if dtype.kind == "i" else value
            return np.asarray(unsigned_value, np.uint64).astype(dtype) if dtype.kind == "i" else np.asarray(value).astype(dtype)
        case other:
            raise TypeError(f"arith.constant of {other}")


@rule(
    arith.ExtFOp,
    arith.TruncFOp,
    arith.ExtUIOp,
    arith.IndexCastOp,
    arith.ExtSIOp,
    arith.TruncIOp,
    arith.SIToFPOp,
    arith.UIToFPOp,
)
def convert(op: Any, frame: Frame) -> Sequence[Value]:
    x = frame.array(op.input)
    dtype = dtype_of(op.result.type)
    if isinstance(op, arith.ExtUIOp | arith.UIToFPOp):
        return (unsigned(x).astype(dtype),)
    if isinstance(op, arith.TruncIOp) and dtype.kind == "b":
        return ((x & 1).astype(dtype),)
    return (signed(x).astype(dtype),)


@rule(arith.FPToSIOp, arith.FPToUIOp)
def float_to_integer(op: Any, frame: Frame) -> Sequence[Value]:
    x = np.trunc(frame.array(op.input).astype(np.float64))
    width, is_signed = bit_width(op.result.type), isinstance(op, arith.FPToSIOp)
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if is_signed else (0, 2**width - 1)
    wide = np.dtype(np.int64 if is_signed else np.uint64)
    # The largest 64-bit integers are not representable in f64: compare before converting.
    in_range = (x >= float(low)) & (x < float(high + 1))
    limit = np.where(np.isnan(x), 0, np.where(x < 0, np.array(low, wide), np.array(high, wide))).astype(wide)
    truncated = np.where(in_range, np.where(in_range, x, 0).astype(wide), limit)
    return (truncated.astype(dtype_of(op.result.type)),)


@rule(arith.BitcastOp)
def bitcast(op: arith.BitcastOp, frame: Frame) -> Sequence[Value]:
    return (np.array(frame.array(op.input)).view(dtype_of(op.result.type)),)


def rounded_once(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return a function computed in f64 and rounded to the operands' type."""
    return lambda *x: np.asarray(function(*(v.astype(np.float64) for v in x))).astype(x[0].dtype)


_erf = np.frompyfunc(libm.erf, 1, 1)


def reciprocal_root(x: Array) -> Array:
    """Return 1/√x."""
    return 1 / np.sqrt(x)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return p and e with p + e = a·b exactly, by Veltkamp splitting into halves of 26 bits."""
    p = a * b
    ta, tb = 134217729.0 * a, 134217729.0 * b
    ha, hb = ta - (ta - a), tb - (tb - b)
    la, lb = a - ha, b - hb
    return p, ((ha * hb - p) + ha * lb + la * hb) + la * lb


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a·b + c rounded once (up to a double rounding in the last place)."""
    if a.dtype != np.float64:
        # The product of two f32 is exact in f64.
        return np.add(np.multiply(a, b, dtype=np.float64), c, dtype=np.float64).astype(a.dtype)
    p, e = _two_product(a, b)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    compensated = s + (error + e)
    # The splitting overflows, and cancels infinities, where the plain formula does not; the plain one overflows if c is
    # infinite.
    uncompensated = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c)
    return np.where(np.isfinite(compensated), compensated, uncompensated)


elementwise({
    math.AbsFOp: np.abs, math.SqrtOp: np.sqrt, math.CopySignOp: np.copysign,
    math.FloorOp: np.floor, math.CeilOp: np.ceil, math.TruncOp: np.trunc, math.RoundEvenOp: np.rint,
    math.FmaOp: fma, MathLdexpOp: ldexp,
    math.ExpOp: rounded_once(np.exp), math.Exp2Op: rounded_once(np.exp2), math.ExpM1Op: rounded_once(np.expm1),
    math.LogOp: rounded_once(np.log), math.Log2Op: rounded_once(np.log2), math.Log10Op: rounded_once(np.log10),
    math.Log1pOp: rounded_once(np.log1p), math.PowFOp: rounded_once(np.power), math.CbrtOp: rounded_once(np.cbrt),
    math.RsqrtOp: rounded_once(reciprocal_root), math.ErfOp: rounded_once(_erf),
    math.SinOp: rounded_once(np.sin), math.CosOp: rounded_once(np.cos), math.TanOp: rounded_once(np.tan),
    math.AsinOp: rounded_once(np.arcsin), math.AcosOp: rounded_once(np.arccos), math.AtanOp: rounded_once(np.arctan),
    math.Atan2Op: rounded_once(np.arctan2),
    math.SinhOp: rounded_once(np.sinh), math.CoshOp: rounded_once(np.cosh), math.TanhOp: rounded_once(np.tanh),
    math.AsinhOp: rounded_once(np.arcsinh), math.AcoshOp: rounded_once(np.arccosh), math.AtanhOp: rounded_once(np.arctanh),
})  # fmt: skip
