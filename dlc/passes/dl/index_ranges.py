"""Interval analysis of integer values, from the ops that compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, ModOp, MulOp, SelectOp, SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, ints, number, shape_of, sizes
from dlc.dialects.dl.creation import ConstantOp, IotaOp, WeightOp
from dlc.dialects.dl.dtypes import array_of, is_float
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.library_kernels.sorting import ArgsortOp
from dlc.dialects.dl.movement.indexing import IndexedRead
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.identities import AddDependencyOp, StopGradientOp
from dlc.dialects.dl.reductions.arg_extrema import ArgReduction
from dlc.dialects.dl.reductions.window import MaxPoolOp
from dlc.dialects.dl.scalar import limits
from dlc.ir import BlockArgument, SSAValue

# The minimum and the maximum of all elements.
Interval: TypeAlias = "tuple[int, int]"
# Depth limit of the analysis: enough to reach from an index to the op that bounds it, and compile time stays linear.
_MAX_PRODUCER_DEPTH = 8


def compute_interval(value: SSAValue, depth: int = _MAX_PRODUCER_DEPTH) -> Interval:
    """Return an interval that contains all elements of an integer value: at worst that of its element type."""
    low, high = (int(end) for end in limits(element_type_of(value)))
    interval = _infer(value, depth) if depth else None
    # A value beyond the type's limits wraps around to an arbitrary one.
    return interval if interval is not None and low <= interval[0] <= interval[1] <= high else (low, high)


def _infer(value: SSAValue, depth: int) -> Interval | None:
    def operand_interval(operand: SSAValue) -> Interval:
        return compute_interval(operand, depth - 1)

    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        # A scan's body gets one element of the sequence in each step.
        return (
            operand_interval(loop.arguments[value.index])
            if isinstance(loop, ScanOp) and value.index >= loop.state_count
            else None
        )
    op = value.owner
    rule = next((_RULES[c] for c in type(op).__mro__ if c in _RULES), None)
    return rule(op, operand_interval) if rule is not None else None


_IntervalOf: TypeAlias = "Callable[[SSAValue], Interval]"


def _first_operand(op: DlOp, get_interval: _IntervalOf) -> Interval:
    return get_interval(op.operands[0])


def _constant(op: ConstantOp, get_interval: _IntervalOf) -> Interval | None:
    values = array_of(op.value)
    return (int(values.min()), int(values.max())) if values.size else None


def _weight(op: WeightOp, get_interval: _IntervalOf) -> Interval | None:
    if op.interval is None:
        return None
    low, high = ints(op.interval)
    return low, high


# start, start + step, …
def _iota(op: IotaOp, get_interval: _IntervalOf) -> Interval | None:
    (count,), start, step = sizes(op.size), number(op.start), number(op.step)
    if not isinstance(count, int) or count == 0:
        return None
    last = start + step * (count - 1)
    return min(start, last), max(start, last)


# An index into an axis
def _axis_index(op: ArgReduction | ArgsortOp, get_interval: _IntervalOf) -> Interval | None:
    x = op.operands[0]
    size = shape_of(x)[op.reduction_axis if isinstance(op, ArgReduction) else op.sorted_axis]
    return (0, size - 1) if isinstance(size, int) and size > 0 else None


def _cast(op: CastOp, get_interval: _IntervalOf) -> Interval | None:
    return None if is_float(element_type_of(op.x)) else get_interval(op.x)


def _add(op: AddOp, get_interval: _IntervalOf) -> Interval:
    (a, b), (c, d) = map(get_interval, op.operands)
    return a + c, b + d


def _sub(op: SubOp, get_interval: _IntervalOf) -> Interval:
    (a, b), (c, d) = map(get_interval, op.operands)
    return a - d, b - c


def _mul(op: MulOp, get_interval: _IntervalOf) -> Interval:
    x, y = map(get_interval, op.operands)
    products = [a * b for a in x for b in y]
    return min(products), max(products)


# x mod y has the sign of y, or with fmod that of x, and is 0 for y = 0
def _mod(op: ModOp, get_interval: _IntervalOf) -> Interval:
    x, (low, high) = map(get_interval, op.operands)
    max_magnitude = max(abs(low), abs(high), 1) - 1
    signed = x if op.truncates else (low, high)
    return -max_magnitude if signed[0] < 0 else 0, max_magnitude if signed[1] > 0 else 0


def _maximum(op: MaximumOp, get_interval: _IntervalOf) -> Interval:
    (a, b), (c, d) = map(get_interval, op.operands)
    return max(a, c), max(b, d)


def _minimum(op: MinimumOp, get_interval: _IntervalOf) -> Interval:
    (a, b), (c, d) = map(get_interval, op.operands)
    return min(a, c), min(b, d)


def _union(op: DlOp, get_interval: _IntervalOf) -> Interval:
    intervals = [get_interval(v) for v in (op.operands[1:] if isinstance(op, SelectOp) else op.operands)]
    return min(low for low, _ in intervals), max(high for _, high in intervals)


_RULES: Mapping[type, Callable[[Any, _IntervalOf], Interval | None]] = {
    ConstantOp: _constant,
    WeightOp: _weight,
    IotaOp: _iota,
    ArgReduction: _axis_index,
    ArgsortOp: _axis_index,
    CastOp: _cast,
    AddOp: _add,
    SubOp: _sub,
    MulOp: _mul,
    ModOp: _mod,
    MaximumOp: _maximum,
    MinimumOp: _minimum,
    SelectOp: _union,
    ConcatOp: _union,
    PadOp: _union,
    DataMovement: _first_operand,
    ReshapeOp: _first_operand,
    MaxPoolOp: _first_operand,
    IndexedRead: _first_operand,
    AddDependencyOp: _first_operand,
    StopGradientOp: _first_operand,
}
