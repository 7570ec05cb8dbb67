"""Reads from places that are data, and writes to them, for all lanes at once."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.arithmetic.activation import casted
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, SelectOp
from dlc.dialects.dl.arithmetic.logic import AndOp, GreaterEqualOp, LessOp
from dlc.dialects.dl.base import element_type_of, flag, rank_of, shape_of
from dlc.dialects.dl.contractions.contraction import static
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.indexed import Indexed, fail_outside
from dlc.dialects.dl.movement.indexing import GatherElementsOp, GatherNdOp, GatherOp, ScatterRowsOp
from dlc.dialects.dl.movement.scatter import ScatterElementsOp, ScatterNdOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp
from dlc.dialects.dl.scalar import bits, limits
from dlc.ir import SSAValue, i64
from dlc.passes.batching.lanes import Lanes
from dlc.passes.batching.rules import Rule


def gather(lanes: Lanes, op: GatherOp) -> Sequence[SSAValue]:
    """From one array the places of all lanes are more places; from arrays of their own each lane reads its own."""
    axis, x, indices = op.indexed_axis, op.x, op.indices
    if not lanes.differs(indices):
        return lanes.again(op, lanes.read(x), lanes.read(indices), axis=axis + 1, said_axes=said_axes(op))
    if not lanes.differs(x):
        (y,) = lanes.again(op, lanes.read(x), lanes.read(indices), axis=axis)
        return [lanes.moved(y, axis, 0)]
    # [L, taken, before…, after…] at [L, i…] → [L, i…, before…, after…]
    rows = lanes.moved(lanes.read(x), axis + 1, 1)
    places = lanes.reshaped(lanes.read(indices), lanes.size, *shape_of(indices), 1)
    y = lanes.build(GatherNdOp, rows, places, batch_dims=1, checked=op.checked, said_axes=said_axes(op))
    named = rank_of(indices)
    before = range(1 + named, 1 + named + axis)
    after = range(1 + named + axis, rank_of(y))
    return [lanes.transposed(y, (0, *before, *range(1, 1 + named), *after))]


def gather_nd(lanes: Lanes, op: GatherNdOp) -> Sequence[SSAValue]:
    """Lanes are a batch axis; places of all lanes in one array are more places."""
    if lanes.differs(op.x):
        return lanes.again(op, lanes.read(op.x), lanes.all(op.indices), batch_dims=op.batch + 1, said_axes=said_axes(op))
    (y,) = lanes.again(op, lanes.read(op.x), lanes.moved(lanes.read(op.indices), 0, op.batch))
    return [lanes.moved(y, op.batch, 0)]


def said_axes(op: Indexed) -> tuple[int, ...] | None:
    """How errors of an op for all lanes count its named axes: as those of one lane do."""
    return tuple(op.said_axis(k) for k in range(len(op.named_axes))) if op.is_checked else None


def gather_elements(lanes: Lanes, op: GatherElementsOp) -> Sequence[SSAValue]:
    """Places of all lanes in one array are more places along its axis."""
    if lanes.differs(op.x):
        return elements(lanes, op)
    axis, shape = op.indexed_axis, shape_of(op.indices)
    before, count, after = shape[:axis], shape[axis], shape[axis + 1 :]
    places = lanes.reshaped(lanes.moved(lanes.read(op.indices), 0, axis), *before, lanes.size * count, *after)
    (y,) = lanes.again(op, lanes.read(op.x), places)
    return [lanes.moved(lanes.reshaped(y, *before, lanes.size, count, *after), axis, 0)]


def elements(lanes: Lanes, op: GatherElementsOp | ScatterElementsOp) -> Sequence[SSAValue]:
    """Lanes are one more axis of all operands."""
    return lanes.again(op, *map(lanes.all, op.operands), axis=op.named_axes[0] + 1, said_axes=said_axes(op))


def scatter_rows(lanes: Lanes, op: ScatterRowsOp) -> Sequence[SSAValue]:
    """Places that are the same in all lanes are rows with all lanes in them; else the rows of lanes follow one another."""
    if not lanes.differs(op.indices):
        x, updates = lanes.moved(lanes.all(op.x), 0, 1), lanes.moved(lanes.all(op.updates), 0, rank_of(op.indices))
        (y,) = lanes.again(op, x, lanes.read(op.indices), updates)
        return [lanes.moved(y, 1, 0)]
    if op.is_checked:
        fail_outside(lanes.build, op, lanes.read(op.indices), 0)
    ((count, *row),) = static(op, op.x)
    x = lanes.reshaped(lanes.all(op.x), lanes.size * count, *row)
    (y,) = lanes.again(op, x, _rows_of_lanes(lanes, op, count), lanes.all(op.updates), checked=None)
    return [lanes.reshaped(y, lanes.size, count, *row)]


def scatter_nd(lanes: Lanes, op: ScatterNdOp) -> Sequence[SSAValue]:
    """The number of the lane is one more integer of each place."""
    b, indices = lanes.build, lanes.all(op.indices)
    element = element_type_of(indices)
    if bits(element) < 64:
        indices = casted(b, indices, i64)
    *rows, _ = shape_of(op.indices)
    lane = b(IotaOp, size=(lanes.size,), to=element_type_of(indices), start=0, step=1)
    lane = b(BroadcastToOp, lanes.reshaped(lane, lanes.size, *(1 for _ in rows), 1), shape=(lanes.size, *rows, 1))
    named = b(ConcatOp, lane, indices, axis=len(rows) + 1)
    # The number of a lane is inside.
    said = said_axes(op)
    return lanes.again(op, lanes.all(op.x), named, lanes.all(op.updates), said_axes=(0, *said) if said else None)


def _rows_of_lanes(lanes: Lanes, op: ScatterRowsOp, count: int) -> SSAValue:
    """The places of each lane among the rows of all, which are `count` for each; those outside are so of all of them."""
    b, indices = lanes.build, lanes.read(op.indices)
    element = element_type_of(indices)
    if is_unsigned(element):
        # No wider than what follows can hold.
        indices = b(MinimumOp, indices, b.scalar(min(count, int(limits(element)[1])), like=indices))
    place = casted(b, indices, i64)
    zero, end = (b.scalar(n, like=place) for n in (0, count))
    place = b(SelectOp, b(LessOp, place, zero), b(AddOp, place, end), place)
    if flag(op.clamped):
        place = b(MinimumOp, b(MaximumOp, place, zero), b.scalar(count - 1, like=place))
    first = b(IotaOp, size=(lanes.size,), to=i64, start=0, step=count)
    number = b(AddOp, place, lanes.reshaped(first, lanes.size, *(1 for _ in shape_of(op.indices))))
    if flag(op.clamped):
        return number
    inside = b(AndOp, b(GreaterEqualOp, place, zero), b(LessOp, place, end))
    return b(SelectOp, inside, number, b.scalar(lanes.size * count, like=number))


def of_those_that_take_part(lanes: Lanes, indices: SSAValue, differs: bool) -> SSAValue:
    """Indices, of all lanes where these differ, with 0 for those that take no part: see Note [Lanes that take no part].

    Of an op that is the same in all lanes they are 0 if none of them takes part.
    """
    takes_part = lanes.and_takes_part()
    if not differs:
        takes_part = lanes.build(ReduceAnyOp, takes_part, axes=(0,))
    else:
        takes_part = lanes.reshaped(takes_part, lanes.size, *(1 for _ in shape_of(indices)))
    own = lanes.all(indices) if differs else lanes.read(indices)
    return lanes.build(SelectOp, takes_part, own, lanes.build.scalar(0, like=indices))


RULES: dict[type, Rule] = {
    GatherOp: gather,
    GatherNdOp: gather_nd,
    GatherElementsOp: gather_elements,
    ScatterElementsOp: elements,
    ScatterRowsOp: scatter_rows,
    ScatterNdOp: scatter_nd,
}
