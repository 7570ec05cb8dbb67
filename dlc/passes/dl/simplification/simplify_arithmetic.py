"""Arithmetic rules of `simplify`: its equation above each.

Floats keep their special values: x + 0 is no identity (-0.0 + 0.0 is 0.0), x·0 is none either (NaN, infinity).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import (
    AbsOp,
    AddOp,
    DivOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    NegOp,
    PowOp,
    ReluOp,
    SelectOp,
    SubOp,
)
from dlc.dialects.dl.arithmetic.functions import ExpOp, ReciprocalOp, SigmoidOp, SqrtOp
from dlc.dialects.dl.arithmetic.logic import AndOp, NotOp, OrOp
from dlc.dialects.dl.arithmetic.narrow import FLOATS
from dlc.dialects.dl.arithmetic.powers import POWERS
from dlc.dialects.dl.base import DlOp, element_type_of, flag, is_narrow, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import is_bool, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.dialects.dl.programs.identities import StopGradientOp
from dlc.ir import Attribute, SSAValue, f16
from dlc.passes.dl.rewriting import defining, splat

Values: TypeAlias = "Sequence[SSAValue] | None"
# Exponents up to here become products.
_MAX_POWER = 4


def _as_result(op: DlOp, value: SSAValue) -> Values:
    """`value` in the shape of the op's result."""
    if value.type == op.results[0].type:
        return [value]
    return [Build(op)(BroadcastToOp, value, shape=shape_of(op.results[0]))]


def _constant(op: DlOp, value: int | float | bool) -> Values:
    """The op's result, all of one number."""
    return _as_result(op, Build(op).scalar(value, like=op.results[0]))


def _sides(op: DlOp) -> tuple[tuple[SSAValue, int | float | None], ...]:
    """Each operand of a commutative op with the number that the other one is."""
    x, y = op.operands
    return (x, splat(y)), (y, splat(x))


def _is_negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) < 0


# x + 0 = x for integers, x + (-0.0) = x for floats
def _add_zero(op: AddOp) -> Values:
    for x, c in _sides(op):
        if c == 0 and (not is_float(element_type_of(x)) or _is_negative_zero(c)):
            return _as_result(op, x)
    return None


# x - 0 = x, for floats x - (+0.0) = x
def _subtract_zero(op: SubOp) -> Values:
    c = splat(op.y)
    return _as_result(op, op.x) if c == 0 and not _is_negative_zero(c) else None


# x · 1 = x;  x · (-1) = -x;  x · 0 = 0 for integers
def _multiply_unit(op: MulOp) -> Values:
    for x, c in _sides(op):
        if c == 1:
            return _as_result(op, x)
        if c == -1:
            return _as_result(op, Build(op)(NegOp, x))
        if c == 0 and not is_float(element_type_of(x)):
            return _constant(op, 0)
    return None


# x / 1 = x;  x / c = x · (1/c) for floats when c is a power of two, whose inverse is exact
def _divide_by_constant(op: DivOp) -> Values:
    c = splat(op.y)
    if c is None:
        return None
    if c == 1:
        return _as_result(op, op.x)
    if not is_float(element_type_of(op.x)) or not math.isfinite(c) or abs(math.frexp(c)[0]) != 0.5:
        return None
    # The inverse may overflow, and a denormal one may be flushed.
    limits = _float_limits(element_type_of(op.x))
    if not float(limits.smallest_normal) <= 1 / abs(c) <= float(limits.max):
        return None
    b = Build(op)
    return [b(MulOp, op.x, b.scalar(1 / c, like=op.x))] if op.x.type == op.result.type else None


# 1 / (1 + exp(-x)) = sigmoid(x), to rounding; 1 / y = reciprocal(y)
def _reciprocal(op: DivOp) -> Values:
    if splat(op.x) != 1 or not is_float(element_type_of(op.y)) or op.y.type != op.result.type:
        return None
    return [Build(op)(ReciprocalOp, op.y)]


def _logistic(op: ReciprocalOp) -> Values:
    total = defining(op.x, AddOp)
    for y, c in _sides(total) if total is not None else ():
        e = defining(y, ExpOp)
        negated = defining(e.x, NegOp) if e is not None else None
        if c == 1 and negated is not None and negated.x.type == op.result.type:
            return [Build(op)(SigmoidOp, negated.x)]
    return None


# x⁰ = 1;  x¹ = x;  xⁿ = x · x · … up to n = 4, to rounding;  x⁻¹ = 1 / x;  x^½ = √x
def _power(op: PowOp) -> Values:
    c, x, b = splat(op.y), op.x, Build(op)
    if c is None or x.type != op.result.type:
        return None
    if c == 0:
        return _constant(op, 1)
    if c in range(1, _MAX_POWER + 1):
        square = b(MulOp, x, x) if c > 1 else x
        return [{1: x, 2: square}.get(int(c)) or b(MulOp, square, square if c == 4 else x)]
    if not is_float(element_type_of(x)):
        return None
    if c == -1:
        return [b(ReciprocalOp, x)]
    # As NumPy has it for one exponent; C's power of -inf is inf, its square root NaN.
    return [b(SqrtOp, x)] if c == 0.5 else None


# max(x, -inf) = x
def _maximum_of_lowest(op: MaximumOp) -> Values:
    return next((_as_result(op, x) for x, c in _sides(op) if c == -math.inf), None)


# min(x, inf) = x
def _minimum_of_highest(op: MinimumOp) -> Values:
    return next((_as_result(op, x) for x, c in _sides(op) if c == math.inf), None)


# -(-x) = x;  ¬¬x = x
def _involution(op: NegOp | NotOp) -> Values:
    inner = defining(op.x, type(op))
    return [inner.x] if inner is not None else None


# f(f(x)) = f(x)
def _idempotent(op: AbsOp | ReluOp) -> Values:
    return [op.x] if isinstance(op.x.owner, type(op)) else None


# true ∧ x = x;  false ∧ x = false
def _and(op: AndOp) -> Values:
    for x, c in _sides(op):
        if c is not None:
            return _as_result(op, x) if c else _constant(op, False)
    return None


# false ∨ x = x;  true ∨ x = true
def _or(op: OrOp) -> Values:
    for x, c in _sides(op):
        if c is not None:
            return _constant(op, True) if c else _as_result(op, x)
    return None


# select(true, x, y) = x;  select(false, x, y) = y;  select(c, x, x) = x
def _select(op: SelectOp) -> Values:
    c = splat(op.condition)
    if c is not None:
        return _as_result(op, op.x if c else op.y)
    return _as_result(op, op.x) if op.x is op.y else None


# cast(x, its own type) = x;  cast(cast(x, A), B) = cast(x, B) when A holds every value of x
def _cast(op: CastOp) -> Values:
    if op.x.type == op.result.type:
        return [op.x]
    inner = defining(op.x, CastOp)
    if inner is not None and _holds(element_type_of(inner.result), element_type_of(inner.x)):
        return [Build(op)(CastOp, inner.x, to=op.to, saturate=op.saturate)]
    return None


def _holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether every value of the element type `narrow` is one of `wide`."""
    if is_bool(narrow) or wide == narrow:
        return True
    if is_narrow(narrow):
        # Narrow floats are in every float, powers of two if it reaches that far; integers in every number that has the sign.
        if narrow == POWERS and wide == f16:
            return False
        integers = narrow not in FLOATS and is_integer(wide)
        return is_float(wide) or (integers and (is_unsigned(narrow) or not is_unsigned(wide)))
    if is_bool(wide) or is_narrow(wide) or (is_float(narrow) and not is_float(wide)):
        return False
    w, n = numpy_dtype(wide), numpy_dtype(narrow)
    if is_float(wide):
        # A float holds integers of no more bits than its significand, and floats of no more significand and exponent.
        limits = _float_limits(wide)
        if not is_float(narrow):
            return np.iinfo(n).bits - (np.iinfo(n).min < 0) <= limits.nmant + 1 and np.iinfo(n).max <= float(limits.max)
        other = _float_limits(narrow)
        return bool(other.nmant <= limits.nmant and other.maxexp <= limits.maxexp)
    return np.iinfo(w).min <= np.iinfo(n).min and np.iinfo(n).max <= np.iinfo(w).max


def _float_limits(element_type: Attribute) -> Any:
    return cast(Any, ml_dtypes).finfo(numpy_dtype(element_type))


# exp(x) says that no x is above 0 where that is seen, as of -x²/2: its formula is shorter
def _exponential(op: ExpOp) -> Values:
    if flag(op.at_most_zero) or flag(op.beside_one) or _sign(op.x) != -1:
        return None
    return [Build(op)(ExpOp, op.x, at_most_zero=True)]


def _sign(value: SSAValue) -> int:
    """1 where no element is below 0, -1 where none is above, 0 where neither is seen; there may be NaN among them."""
    sign = 1
    while (c := splat(value)) is None:
        match value.owner:
            case AbsOp() | ExpOp() | ReluOp() | SqrtOp():
                return sign
            case NegOp() as op:
                value, sign = op.x, -sign
            case MulOp() as op if op.x is op.y:
                return sign
            case MulOp() as op:
                scaled = next(((x, c) for x, c in _sides(op) if c is not None), None)
                if scaled is None:
                    return 0
                value, sign = scaled[0], sign if scaled[1] >= 0 else -sign
            case _:
                return 0
    return sign if c >= 0 else -sign


# stop_gradient(x) = x: nobody differentiates any more
def _identity(op: StopGradientOp) -> Values:
    return [op.x]


ARITHMETIC: dict[type[DlOp], Sequence[Callable[..., Values]]] = {
    AddOp: (_add_zero,),
    SubOp: (_subtract_zero,),
    MulOp: (_multiply_unit,),
    DivOp: (_divide_by_constant, _reciprocal),
    ReciprocalOp: (_logistic,),
    ExpOp: (_exponential,),
    PowOp: (_power,),
    MaximumOp: (_maximum_of_lowest,),
    MinimumOp: (_minimum_of_highest,),
    NegOp: (_involution,),
    NotOp: (_involution,),
    AbsOp: (_idempotent,),
    ReluOp: (_idempotent,),
    AndOp: (_and,),
    OrOp: (_or,),
    SelectOp: (_select,),
    CastOp: (_cast,),
    StopGradientOp: (_identity,),
}
