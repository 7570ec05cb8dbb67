"""Between which numbers integers are that a program computes, as far as that is seen from where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, ModOp, MulOp, SelectOp, SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, number, shape_of, sizes
from dlc.dialects.dl.creation import ConstantOp, IotaOp
from dlc.dialects.dl.dtypes import array_of, is_float
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.indexing import Taking
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp
from dlc.dialects.dl.procedures.sorting import ArgsortOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.identities import AfterOp, StopGradientOp
from dlc.dialects.dl.reductions.extreme_places import ArgExtremum
from dlc.dialects.dl.reductions.window import MaxPoolOp
from dlc.dialects.dl.scalar import limits
from dlc.ir import BlockArgument, SSAValue

# The smallest and the largest of integers.
Interval: TypeAlias = "tuple[int, int]"
# How far back it is looked: as far as from an index to what bounds it, and a program of any length takes no longer.
_STEPS = 8


def interval_of(value: SSAValue, steps: int = _STEPS) -> Interval:
    """An interval that all of a value's integers are in: that of its element type, if no more is known."""
    low, high = (int(end) for end in limits(element_type_of(value)))
    found = _found(value, steps) if steps else None
    # What is beyond the limits wraps around, and may be anything.
    return found if found is not None and low <= found[0] <= found[1] <= high else (low, high)


def _found(value: SSAValue, steps: int) -> Interval | None:
    def of(operand: SSAValue) -> Interval:
        return interval_of(operand, steps - 1)

    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        # The elements of a sequence, one in each step.
        return of(loop.arguments[value.index]) if isinstance(loop, ScanOp) and value.index >= loop.state_count else None
    op = value.owner
    rule = next((_RULES[c] for c in type(op).__mro__ if c in _RULES), None)
    return rule(op, of) if rule is not None else None


_Of: TypeAlias = "Callable[[SSAValue], Interval]"


def _first(op: DlOp, of: _Of) -> Interval:
    return of(op.operands[0])


def _constant(op: ConstantOp, of: _Of) -> Interval | None:
    values = array_of(op.value)
    return (int(values.min()), int(values.max())) if values.size else None


# start, start + step, …
def _iota(op: IotaOp, of: _Of) -> Interval | None:
    (count,), first, step = sizes(op.size), number(op.start), number(op.step)
    if not isinstance(count, int) or count == 0:
        return None
    last = first + step * (count - 1)
    return min(first, last), max(first, last)


# A place on an axis
def _place(op: ArgExtremum | ArgsortOp, of: _Of) -> Interval | None:
    x = op.operands[0]
    size = shape_of(x)[op.reduction_axis if isinstance(op, ArgExtremum) else op.sorted_axis]
    return (0, size - 1) if isinstance(size, int) and size > 0 else None


def _cast(op: CastOp, of: _Of) -> Interval | None:
    return None if is_float(element_type_of(op.x)) else of(op.x)


def _add(op: AddOp, of: _Of) -> Interval:
    (a, b), (c, d) = map(of, op.operands)
    return a + c, b + d


def _sub(op: SubOp, of: _Of) -> Interval:
    (a, b), (c, d) = map(of, op.operands)
    return a - d, b - c


def _mul(op: MulOp, of: _Of) -> Interval:
    x, y = map(of, op.operands)
    products = [a * b for a in x for b in y]
    return min(products), max(products)


# x mod y has the sign of y, or with fmod that of x, and is 0 for y = 0
def _mod(op: ModOp, of: _Of) -> Interval:
    x, (low, high) = map(of, op.operands)
    most = max(abs(low), abs(high), 1) - 1
    signed = x if op.truncates else (low, high)
    return -most if signed[0] < 0 else 0, most if signed[1] > 0 else 0


def _maximum(op: MaximumOp, of: _Of) -> Interval:
    (a, b), (c, d) = map(of, op.operands)
    return max(a, c), max(b, d)


def _minimum(op: MinimumOp, of: _Of) -> Interval:
    (a, b), (c, d) = map(of, op.operands)
    return min(a, c), min(b, d)


def _any_of(op: DlOp, of: _Of) -> Interval:
    ends = [of(v) for v in (op.operands[1:] if isinstance(op, SelectOp) else op.operands)]
    return min(low for low, _ in ends), max(high for _, high in ends)


_RULES: Mapping[type, Callable[[Any, _Of], Interval | None]] = {
    ConstantOp: _constant,
    IotaOp: _iota,
    ArgExtremum: _place,
    ArgsortOp: _place,
    CastOp: _cast,
    AddOp: _add,
    SubOp: _sub,
    MulOp: _mul,
    ModOp: _mod,
    MaximumOp: _maximum,
    MinimumOp: _minimum,
    SelectOp: _any_of,
    ConcatOp: _any_of,
    PadOp: _any_of,
    Movement: _first,
    ReshapeOp: _first,
    MaxPoolOp: _first,
    Taking: _first,
    AfterOp: _first,
    StopGradientOp: _first,
}
