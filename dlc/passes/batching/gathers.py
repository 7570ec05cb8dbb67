"""Reads from places that are data, for all lanes at once."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import rank_of, shape_of
from dlc.dialects.dl.indexing import GatherElementsOp, GatherNdOp, GatherOp
from dlc.ir import SSAValue
from dlc.passes.batching.lanes import Lanes
from dlc.passes.batching.rules import Rule, beside_axes


def gather(lanes: Lanes, op: GatherOp) -> Sequence[SSAValue]:
    """From one array the places of all lanes are more places; from arrays of their own each lane reads its own."""
    axis, x, indices = op.taken_axis, op.x, op.indices
    if not lanes.differs(indices):
        return lanes.again(op, lanes.read(x), lanes.read(indices), axis=axis + 1)
    if not lanes.differs(x):
        (y,) = lanes.again(op, lanes.read(x), lanes.read(indices), axis=axis)
        return [lanes.moved(y, axis, 0)]
    # [L, taken, before…, after…] at [L, i…] → [L, i…, before…, after…]
    rows = lanes.moved(lanes.read(x), axis + 1, 1)
    places = lanes.reshaped(lanes.read(indices), lanes.size, *shape_of(indices), 1)
    y = lanes.build(GatherNdOp, rows, places, batch_dims=1)
    named = rank_of(indices)
    before = range(1 + named, 1 + named + axis)
    after = range(1 + named + axis, rank_of(y))
    return [lanes.transposed(y, (0, *before, *range(1, 1 + named), *after))]


def gather_nd(lanes: Lanes, op: GatherNdOp) -> Sequence[SSAValue]:
    """Lanes are a batch axis; places of all lanes in one array are more places."""
    if lanes.differs(op.x):
        return lanes.again(op, lanes.read(op.x), lanes.all(op.indices), batch_dims=op.batch + 1)
    (y,) = lanes.again(op, lanes.read(op.x), lanes.moved(lanes.read(op.indices), 0, op.batch))
    return [lanes.moved(y, op.batch, 0)]


def gather_elements(lanes: Lanes, op: GatherElementsOp) -> Sequence[SSAValue]:
    """Places of all lanes in one array are more places along its axis."""
    if lanes.differs(op.x):
        return beside_axes(lanes, op)
    axis, shape = op.taken_axis, shape_of(op.indices)
    before, count, after = shape[:axis], shape[axis], shape[axis + 1 :]
    places = lanes.reshaped(lanes.moved(lanes.read(op.indices), 0, axis), *before, lanes.size * count, *after)
    (y,) = lanes.again(op, lanes.read(op.x), places)
    return [lanes.moved(lanes.reshaped(y, *before, lanes.size, count, *after), axis, 0)]


RULES: dict[type, Rule] = {GatherOp: gather, GatherNdOp: gather_nd, GatherElementsOp: gather_elements}
