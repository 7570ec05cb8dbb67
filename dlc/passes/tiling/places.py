"""What a choice by places shows of a tile, seen from its corners: numbers made of places grow or fall along each dimension."""

from __future__ import annotations

from dlc.ir import IntegerAttr, SSAValue, arith, linalg
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.nests import Stage
from dlc.passes.tiling.ranges import Range, Tile

# Whether x and y may be in a relation that lie between the ends of two intervals: (relation, end of x, end of y).
_LOW, _HIGH = 0, 1
_RELATIONS = {
    0: (("sle", _LOW, _HIGH), ("sge", _HIGH, _LOW)),
    2: (("slt", _LOW, _HIGH),),
    3: (("sle", _LOW, _HIGH),),
    4: (("sgt", _HIGH, _LOW),),
    5: (("sge", _HIGH, _LOW),),
}


def may_hold(place: Place, stage: Stage, condition: SSAValue, tile: Tile) -> SSAValue | None:
    """Whether a condition by places holds somewhere in a tile; None where it may, for all that is known.

    x ≤ y holds for some x and y of two intervals where the least x ≤ the most y. Requires arithmetic that does not wrap around.
    """
    match condition.owner:
        case arith.CmpiOp() as op:
            x, y = (_interval(place, stage, v, tile) for v in op.operands)
            relations = _RELATIONS.get(op.predicate.value.data)
            if x is None or y is None or relations is None:
                return None
            found = [_compared(place, x[a], relation, y[b]) for relation, a, b in relations]
            return found[0] if len(found) == 1 else place.op(arith.AndIOp(found[0], found[1]))
        case arith.AndIOp() | arith.OrIOp() as op:
            found = [x for v in op.operands if (x := may_hold(place, stage, v, tile)) is not None]
            if len(found) == 2:
                return place.op(type(op)(found[0], found[1]))
            return found[0] if found and isinstance(op, arith.AndIOp) else None
        case _:
            return None


def _compared(place: Place, x: Index, relation: str, y: Index) -> SSAValue:
    return place.op(arith.CmpiOp(place.value(x), place.value(y), relation))


def _interval(place: Place, stage: Stage, value: SSAValue, tile: Tile) -> tuple[Index, Index] | None:
    """The least and the most that a number made of places may be in a tile; None where it is not known."""
    op = value.owner
    match op:
        case arith.ConstantOp(value=IntegerAttr(value=number)):
            return number.data, number.data
        case linalg.IndexOp():
            at = tile.get(stage.dims[op.dim.value.data], Range(0, 1))
            return at.offset, place.add(at.offset, at.size - 1)
        case arith.IndexCastOp() | arith.TruncIOp() | arith.ExtSIOp():
            return _interval(place, stage, op.operands[0], tile)
        case arith.AddiOp() | arith.SubiOp() | arith.MuliOp():
            x, y = (_interval(place, stage, v, tile) for v in op.operands)
        case _:
            return None
    if x is None or y is None:
        return None
    match op, y:
        case arith.AddiOp(), _:
            return place.add(x[0], y[0]), place.add(x[1], y[1])
        case arith.SubiOp(), _:
            return place.subtract(x[0], y[1]), place.subtract(x[1], y[0])
        case _, (int(factor), int()) if y[0] == y[1]:
            first, last = x if factor >= 0 else (x[1], x[0])
            return place.multiply(first, factor), place.multiply(last, factor)
        case _:
            return None
