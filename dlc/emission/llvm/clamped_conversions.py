"""Recognize float-to-integer conversions whose operand is already clamped, and rounding that the conversion can perform."""

from __future__ import annotations

from typing import cast

from dlc.dialects.dl.scalar import limits
from dlc.emission.common.constants import splat_constant
from dlc.ir import Attribute, IntegerAttr, Operation, SSAValue, VectorType, arith, math

# Predicate numbers of `arith.cmpf ogt` and `arith.cmpf olt`.
_OGT, _OLT = 2, 4


def is_clamped_conversion(op: Operation) -> bool:
    """Return whether the operand of a conversion to integers is provably in the range of the result type."""
    result = op.results[0].type
    integer_type = cast("VectorType[Attribute]", result).element_type if isinstance(result, VectorType) else result
    return is_clamped(op.operands[0], integer_type)


def is_clamped(value: SSAValue, integer_type: Attribute) -> bool:
    """Return whether a float is clamped to limits of the integer type."""
    bounds, (lowest, highest) = clamp_bounds(value), limits(integer_type)
    return bounds is not None and lowest <= bounds[0] and bounds[1] <= highest


def clamp_bounds(value: SSAValue) -> tuple[float, float] | None:
    """Return the bounds of a clamped float, `x = x > low ? x : low;  x = x < high ? x : high`; None for other values."""
    high = _clamp_bound(value, _OLT)
    if high is None:
        return None
    assert isinstance(value.owner, arith.SelectOp)
    low = _clamp_bound(value.owner.lhs, _OGT)
    return None if low is None else (low, high)


def deferrable_rounding(value: SSAValue) -> math.RoundEvenOp | None:
    """Return the rounding op of a converted float if the conversion can round instead (`is_rounded_by_conversion`)."""
    while isinstance(value.owner, arith.SelectOp):
        value = value.owner.lhs
    op = value.owner
    return op if isinstance(op, math.RoundEvenOp) and is_rounded_by_conversion(op) else None


def is_rounded_by_conversion(op: math.RoundEvenOp) -> bool:
    """Return whether a rounded float is only clamped and converted to an integer, so that the conversion can round it."""
    value = op.result
    while True:
        users = {use.operation for use in value.uses}
        selects = [user for user in users if isinstance(user, arith.SelectOp)]
        if not selects:
            return bool(users) and all(isinstance(user, arith.FPToSIOp) and is_clamped_conversion(user) for user in users)
        (select, *other_selects), comparisons = selects, [user for user in users if isinstance(user, arith.CmpfOp)]
        limit = splat_constant(select.rhs)
        if (
            other_selects
            or select.lhs is not value
            or limit is None
            or not float(limit).is_integer()
            or len(users) != len(comparisons) + 1
        ):
            return False
        if any(use.operation is not select for comparison in comparisons for use in comparison.result.uses):
            return False
        value = select.result


def _clamp_bound(value: SSAValue, predicate: int) -> float | None:
    """Return the constant c of `x if x <predicate> c else c`, or None."""
    select = value.owner
    if not isinstance(select, arith.SelectOp) or not isinstance(select.cond.owner, arith.CmpfOp):
        return None
    compare = select.cond.owner
    predicate_attribute = compare.properties["predicate"]
    if not isinstance(predicate_attribute, IntegerAttr) or predicate_attribute.value.data != predicate:
        return None
    if (compare.lhs, compare.rhs) != (select.lhs, select.rhs):
        return None
    return splat_constant(select.rhs)
