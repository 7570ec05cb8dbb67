"""Interval analysis of index conditions, such as causal masks: whether a condition may hold for some element of a tile.

Index expressions are monotonic along each dimension, so their bounds in a tile are at its corners.
"""

from __future__ import annotations

from dlc.ir import IntegerAttr, SSAValue, arith, linalg
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile
from dlc.passes.tiling.loop_nests import NestOp

# For each arith.cmpi predicate: two intervals contain some x and y in this relation if all of these comparisons of their
# bounds hold, (relation, bound of x, bound of y).
_LOW, _HIGH = 0, 1
_RELATIONS = {
    0: (("sle", _LOW, _HIGH), ("sge", _HIGH, _LOW)),
    2: (("slt", _LOW, _HIGH),),
    3: (("sle", _LOW, _HIGH),),
    4: (("sgt", _HIGH, _LOW),),
    5: (("sge", _HIGH, _LOW),),
}


def may_hold_in_tile(builder: OpBuilder, nest_op: NestOp, condition: SSAValue, tile: Tile) -> SSAValue | None:
    """Emit an i1: whether an index condition may hold for some element of a tile; None if its bounds are unknown.

    x ≤ y holds for some x and y of two intervals if min x ≤ max y. Requires arithmetic that does not overflow.
    """
    match condition.owner:
        case arith.CmpiOp() as op:
            x, y = (_interval(builder, nest_op, v, tile) for v in op.operands)
            relations = _RELATIONS.get(op.predicate.value.data)
            if x is None or y is None or relations is None:
                return None
            conditions = [builder.compare(x[a], relation, y[b]) for relation, a, b in relations]
            return conditions[0] if len(conditions) == 1 else builder.op(arith.AndIOp(conditions[0], conditions[1]))
        case arith.AndIOp() | arith.OrIOp() as op:
            conditions = [x for v in op.operands if (x := may_hold_in_tile(builder, nest_op, v, tile)) is not None]
            if len(conditions) == 2:
                return builder.op(type(op)(conditions[0], conditions[1]))
            return conditions[0] if conditions and isinstance(op, arith.AndIOp) else None
        case _:
            return None


def _interval(builder: OpBuilder, nest_op: NestOp, value: SSAValue, tile: Tile) -> tuple[Index, Index] | None:
    """Return the bounds of an index expression in a tile; None if they cannot be computed."""
    op = value.owner
    match op:
        case arith.ConstantOp(value=IntegerAttr(value=number)):
            return number.data, number.data
        case linalg.IndexOp():
            d = nest_op.iterators[op.dim.value.data]
            r = IterationRange(0, 1) if d is None else tile[d]
            return r.offset, builder.add(r.offset, r.size - 1)
        case arith.IndexCastOp() | arith.TruncIOp() | arith.ExtSIOp():
            return _interval(builder, nest_op, op.operands[0], tile)
        case arith.AddiOp() | arith.SubiOp() | arith.MuliOp():
            x, y = (_interval(builder, nest_op, v, tile) for v in op.operands)
        case _:
            return None
    if x is None or y is None:
        return None
    match op, y:
        case arith.AddiOp(), _:
            return builder.add(x[0], y[0]), builder.add(x[1], y[1])
        case arith.SubiOp(), _:
            return builder.subtract(x[0], y[1]), builder.subtract(x[1], y[0])
        case _, (int(factor), int()) if y[0] == y[1]:
            first, last = x if factor >= 0 else (x[1], x[0])
            return builder.multiply(first, factor), builder.multiply(last, factor)
        case _:
            return None
