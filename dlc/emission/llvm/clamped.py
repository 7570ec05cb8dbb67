"""What is seen of a float's range where it becomes an integer, so that nothing is clamped twice."""

from __future__ import annotations

from dlc.dialects.dl.scalar import limits
from dlc.emission.visit.constants import number_in
from dlc.ir import Attribute, IntegerAttr, SSAValue, arith

# Places of predicates of arith.cmpf.
_GREATER, _LESS = 2, 4


def is_within(value: SSAValue, integers: Attribute) -> bool:
    """Whether a float is one of `x = x > low ? x : low;  x = x < high ? x : high`, with limits that are such integers."""
    lowest, highest = limits(integers)
    high = _limit(value, _LESS)
    if high is None or not high <= highest:
        return False
    assert isinstance(value.owner, arith.SelectOp)
    low = _limit(value.owner.lhs, _GREATER)
    return low is not None and lowest <= low


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
