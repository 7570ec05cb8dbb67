"""What is seen of a float where it becomes an integer, so that nothing is clamped twice, and rounded where it is converted."""

from __future__ import annotations

from typing import cast

from dlc.dialects.dl.scalar import limits
from dlc.emission.visit.constants import number_in
from dlc.ir import Attribute, IntegerAttr, Operation, SSAValue, VectorType, arith, math

# Places of predicates of arith.cmpf.
_GREATER, _LESS = 2, 4


def converts_within(op: Operation) -> bool:
    """Whether what a conversion to integers is given is seen to be within their limits."""
    result = op.results[0].type
    integers = cast("VectorType[Attribute]", result).element_type if isinstance(result, VectorType) else result
    return is_within(op.operands[0], integers)


def is_within(value: SSAValue, integers: Attribute) -> bool:
    """Whether a float is one of `x = x > low ? x : low;  x = x < high ? x : high`, with limits that are such integers."""
    lowest, highest = limits(integers)
    high = _limit(value, _LESS)
    if high is None or not high <= highest:
        return False
    assert isinstance(value.owner, arith.SelectOp)
    low = _limit(value.owner.lhs, _GREATER)
    return low is not None and lowest <= low


def rounding_of(value: SSAValue) -> math.RoundEvenOp | None:
    """What rounds a float that is converted, if that can be left to the conversion (`rounds_at_conversion`)."""
    while isinstance(value.owner, arith.SelectOp):
        value = value.owner.lhs
    op = value.owner
    return op if isinstance(op, math.RoundEvenOp) and rounds_at_conversion(op) else None


def rounds_at_conversion(op: math.RoundEvenOp) -> bool:
    """Whether a rounded float is brought between integers at most before it is converted, which rounds it as well."""
    value = op.result
    while True:
        users = {use.operation for use in value.uses}
        selects = [user for user in users if isinstance(user, arith.SelectOp)]
        if not selects:
            return bool(users) and all(isinstance(user, arith.FPToSIOp) and converts_within(user) for user in users)
        (select, *more), tests = selects, [user for user in users if isinstance(user, arith.CmpfOp)]
        limit = number_in(select.rhs)
        if more or select.lhs is not value or limit is None or not float(limit).is_integer() or len(users) != len(tests) + 1:
            return False
        if any(use.operation is not select for test in tests for use in test.result.uses):
            return False
        value = select.result


def _limit(value: SSAValue, predicate: int) -> float | None:
    """The number c of `x if x compares so with c, else c`."""
    select = value.owner
    if not isinstance(select, arith.SelectOp) or not isinstance(select.cond.owner, arith.CmpfOp):
        return None
    compare = select.cond.owner
    given = compare.properties["predicate"]
    if not isinstance(given, IntegerAttr) or given.value.data != predicate:
        return None
    if (compare.lhs, compare.rhs) != (select.lhs, select.rhs):
        return None
    return number_in(select.rhs)
