"""Arithmetic rules of `simplify`; each has its equation above it.

Special values of floats are preserved: x + 0 is not an identity (-0.0 + 0.0 is 0.0), nor is x·0 (NaN, infinity).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.e8m0 import E8M0
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
from dlc.dialects.dl.arithmetic.storage_formats import STORAGE_ONLY_FLOATS
from dlc.dialects.dl.base import DlOp, element_type_of, flag, is_storage_only, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.shard_map import VaryOp
from dlc.dialects.dl.distributed.sharding import ShardOp
from dlc.dialects.dl.dtypes import is_bool, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.indexing import ScatterRowsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.dialects.dl.programs.identities import StopGradientOp
from dlc.ir import Attribute, SSAValue, f16
from dlc.passes.dl.rewriting import defining_op, splat
from dlc.shapes.dims import product

Values: TypeAlias = "Sequence[SSAValue] | None"
# Maximum integer exponent of a power that becomes products.
_MAX_POWER = 4


def _as_result(op: DlOp, value: SSAValue) -> Values:
    """Broadcast `value` to the shape of the op's result."""
    if value.type == op.results[0].type:
        return [value]
    return [DlBuilder(op)(BroadcastToOp, value, shape=shape_of(op.results[0]))]


def _constant(op: DlOp, value: int | float | bool) -> Values:
    """Return a constant of the op's result type."""
    return _as_result(op, DlBuilder(op).scalar(value, like=op.results[0]))


def _sides(op: DlOp) -> tuple[tuple[SSAValue, int | float | None], ...]:
    """Pair each operand of a commutative op with the constant value of the other one, None if it is not constant."""
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


# x + scatter_add(0, i, u) = scatter_add(x, i, u) for one update; the sign of zeros may change
def _add_scattered(op: AddOp) -> Values:
    for k, value in enumerate(op.operands):
        scatter = defining_op(value, ScatterRowsOp)
        if scatter is None or scatter.mode.data != "add" or not value.has_one_use() or product(shape_of(scatter.indices)) != 1:
            continue
        broadcast, other = defining_op(scatter.x, BroadcastToOp), op.operands[1 - k]
        if splat(scatter.x if broadcast is None else broadcast.x) == 0 and shape_of(other) == shape_of(scatter.x) == shape_of(
            op.result
        ):
            operands = other, scatter.indices, scatter.updates
            return [DlBuilder(op)(ScatterRowsOp, *operands, **scatter.properties)]
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
            return _as_result(op, DlBuilder(op)(NegOp, x))
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
    build = DlBuilder(op)
    return [build(MulOp, op.x, build.scalar(1 / c, like=op.x))] if op.x.type == op.result.type else None


# 1 / (1 + exp(-x)) = sigmoid(x), to rounding; 1 / y = reciprocal(y)
def _reciprocal(op: DivOp) -> Values:
    if splat(op.x) != 1 or not is_float(element_type_of(op.y)) or op.y.type != op.result.type:
        return None
    return [DlBuilder(op)(ReciprocalOp, op.y)]


def _logistic(op: ReciprocalOp) -> Values:
    total = defining_op(op.x, AddOp)
    for y, c in _sides(total) if total is not None else ():
        e = defining_op(y, ExpOp)
        negated = defining_op(e.x, NegOp) if e is not None else None
        if c == 1 and negated is not None and negated.x.type == op.result.type:
            return [DlBuilder(op)(SigmoidOp, negated.x)]
    return None


# x⁰ = 1;  x¹ = x;  xⁿ = x · x · … up to n = 4, to rounding;  x⁻¹ = 1 / x;  x^½ = √x
def _power(op: PowOp) -> Values:
    c, x, build = splat(op.y), op.x, DlBuilder(op)
    if c is None or x.type != op.result.type:
        return None
    if c == 0:
        return _constant(op, 1)
    if c in range(1, _MAX_POWER + 1):
        square = build(MulOp, x, x) if c > 1 else x
        return [{1: x, 2: square}.get(int(c)) or build(MulOp, square, square if c == 4 else x)]
    if not is_float(element_type_of(x)):
        return None
    if c == -1:
        return [build(ReciprocalOp, x)]
    # NumPy does the same for a scalar exponent; C's pow(-inf, 0.5) is inf, the square root NaN.
    return [build(SqrtOp, x)] if c == 0.5 else None


# max(x, -inf) = x
def _maximum_of_lowest(op: MaximumOp) -> Values:
    return next((_as_result(op, x) for x, c in _sides(op) if c == -math.inf), None)


# min(x, inf) = x
def _minimum_of_highest(op: MinimumOp) -> Values:
    return next((_as_result(op, x) for x, c in _sides(op) if c == math.inf), None)


# -(-x) = x;  ¬¬x = x
def _involution(op: NegOp | NotOp) -> Values:
    inner = defining_op(op.x, type(op))
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


# cast(x, its own type) = x;  cast(cast(x, A), B) = cast(x, B) if A represents every value of x's type
def _cast(op: CastOp) -> Values:
    if op.x.type == op.result.type:
        return [op.x]
    inner = defining_op(op.x, CastOp)
    if inner is not None and _represents_all(element_type_of(inner.result), element_type_of(inner.x)):
        return [DlBuilder(op)(CastOp, inner.x, to=op.to, saturate=op.saturate)]
    return None


def _represents_all(wide: Attribute, narrow: Attribute) -> bool:
    """Return whether type `wide` represents every value of type `narrow`."""
    if is_bool(narrow) or wide == narrow:
        return True
    if is_storage_only(narrow):
        # Every float type represents the low-precision floats, except that f16 lacks the range of power-of-two scales; an
        # integer type represents the low-precision integers unless it lacks the sign.
        if narrow == E8M0 and wide == f16:
            return False
        integers = narrow not in STORAGE_ONLY_FLOATS and is_integer(wide)
        return is_float(wide) or (integers and (is_unsigned(narrow) or not is_unsigned(wide)))
    if is_bool(wide) or is_storage_only(wide) or (is_float(narrow) and not is_float(wide)):
        return False
    w, n = numpy_dtype(wide), numpy_dtype(narrow)
    if is_float(wide):
        # A float type represents integers that fit its significand, and floats with no more significand and exponent bits.
        limits = _float_limits(wide)
        if not is_float(narrow):
            return np.iinfo(n).bits - (np.iinfo(n).min < 0) <= limits.nmant + 1 and np.iinfo(n).max <= float(limits.max)
        other = _float_limits(narrow)
        return bool(other.nmant <= limits.nmant and other.maxexp <= limits.maxexp)
    return np.iinfo(w).min <= np.iinfo(n).min and np.iinfo(n).max <= np.iinfo(w).max


def _float_limits(element_type: Attribute) -> Any:
    return cast(Any, ml_dtypes).finfo(numpy_dtype(element_type))


# exp(x) with provably non-positive x, such as -x²/2, gets an attribute that selects a shorter formula
def _exponential(op: ExpOp) -> Values:
    if flag(op.at_most_zero) or flag(op.absolute_accuracy) or _sign(op.x) != -1:
        return None
    return [DlBuilder(op)(ExpOp, op.x, at_most_zero=True)]


def _sign(value: SSAValue) -> int:
    """Return 1 if no element is negative, -1 if none is positive, 0 if neither can be proved; elements may be NaN."""
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


# stop_gradient(x) = x and vary(x) = x, once all derivatives are expanded; shard(x) = x, once the program is partitioned
def _identity(op: StopGradientOp | ShardOp | VaryOp) -> Values:
    return [op.x]


ARITHMETIC: dict[type[DlOp], Sequence[Callable[..., Values]]] = {
    AddOp: (_add_zero, _add_scattered),
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
    ShardOp: (_identity,),
    VaryOp: (_identity,),
}
