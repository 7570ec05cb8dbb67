"""Formulas for rare operands: a branch that is taken where any element of a vector needs it.

    %any = vector.reduction <or>, %large : vector<8xi1> into i1
    %y = scf.if %any -> (vector<8xf32>) { …the long way…; scf.yield %z } else { scf.yield %x }

Who comes by with common operands pays for a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar, cast

from dlc.ir import Block, DenseArrayBase, Region, SSAValue, VectorType, arith, i1, i64, scf, vector
from dlc.passes.loops.formula import NO_FASTMATH, Bits, Bool, Float, Place

Values = TypeVar("Values", bound="tuple[Bits | Float, ...]")


def where_any(condition: Bool, rarely: Callable[..., Values], operands: Sequence[Bits | Float], otherwise: Values) -> Values:
    """What `rarely` makes of the operands where some element holds the condition; else the values `otherwise`.

    `rarely` decides for each element: its results must not depend on what is beside it.
    """
    place = condition.place
    end = scf.YieldOp()
    end.location = place.anchor.location
    rare = Block([end])
    inside = Place(end, place.constants, fused=place.fused)
    results = rarely(*(type(x)(inside, x.format, x.value) for x in operands))
    rare.insert_op_before(scf.YieldOp(*(x.value for x in results)), end)
    end.detach()
    end.erase()
    common = Block([scf.YieldOp(*(x.value for x in otherwise))])
    op = scf.IfOp(_any(condition), [x.value.type for x in otherwise], Region(rare), Region(common))
    op.location = place.anchor.location
    place.block.insert_op_before(op, place.anchor)
    return cast(Values, tuple(type(x)(place, x.format, value) for x, value in zip(otherwise, op.output, strict=True)))


def _any(condition: Bool) -> SSAValue:
    """Whether an element holds the condition."""
    place, value = condition.place, condition.value
    if not isinstance(value.type, VectorType):
        return value
    *leading, size = value.type.get_shape()
    row_type = VectorType(i1, [size])
    rows = [value]
    if leading:
        rows = [_row(place, value, index) for index in product(*map(range, leading))]
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=False)
        rows = [place.insert(arith.OrIOp, pair, row_type) for pair in pairs] + rows[len(rows) & ~1 :]
    kind = vector.CombiningKindAttr(vector.CombiningKindFlag.OR)
    return place.insert(vector.ReductionOp, rows, i1, {"kind": kind, "fastmath": NO_FASTMATH})


def _row(place: Place, value: SSAValue, index: Sequence[int]) -> SSAValue:
    t = VectorType(i1, cast("VectorType", value.type).get_shape()[-1:])
    return place.insert(vector.ExtractOp, [value], t, {"static_position": DenseArrayBase.from_list(i64, index)})
