"""Formulas for rare operands: a branch that is taken where any element of a vector needs it.

    %any = vector.reduction <or>, %large : vector<8xi1> into i1
    %y = scf.if %any -> (vector<8xf32>) { …the long way…; scf.yield %z } else { scf.yield %x }

Who comes by with common operands pays for a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar, cast

from dlc.ir import Attribute, Block, DenseArrayBase, IndexType, Operation, Region, SSAValue, VectorType, arith, i64, scf, vector
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
    _end(rare, rarely(*(type(x)(inside, x.format, x.value) for x in operands)))
    common = Block([scf.YieldOp(*(x.value for x in otherwise))])
    is_there = _reduced(place, condition.value, arith.OrIOp, vector.CombiningKindFlag.OR)
    return _insert(place, scf.IfOp(is_there, [x.value.type for x in otherwise], Region(rare), Region(common)), otherwise)


def repeat(amount: Bits, by: int, step: Callable[..., Values], start: Values) -> Values:
    """`step` of what it gave before, as often as the greatest element of `amount` divided by `by`, rounded up."""
    place = amount.place
    greatest = _reduced(place, amount.value, arith.MaxSIOp, vector.CombiningKindFlag.MAXSI)
    high = place.insert(arith.IndexCastOp, [greatest], IndexType())
    low, stride = (place.constants.get(k, IndexType()) for k in (0, by))
    end = scf.YieldOp()
    end.location = place.anchor.location
    body = Block([end], arg_types=[IndexType(), *(x.value.type for x in start)])
    inside = Place(end, place.constants, fused=place.fused)
    results = step(*(type(x)(inside, x.format, value) for x, value in zip(start, body.args[1:], strict=True)))
    _end(body, results)
    op = scf.ForOp(low, high, stride, [x.value for x in start], body)
    return _insert(place, op, start)


def _end(block: Block, results: Sequence[Bits | Float]) -> None:
    """Puts results in the place of none."""
    last = block.last_op
    assert last is not None
    block.insert_op_before(scf.YieldOp(*(x.value for x in results)), last)
    last.detach()
    last.erase()


def _insert(place: Place, op: scf.ForOp | scf.IfOp, like: Values) -> Values:
    """Inserts an op; its results, as what they are `like`."""
    op.location = place.anchor.location
    place.block.insert_op_before(op, place.anchor)
    return cast(Values, tuple(type(x)(place, x.format, value) for x, value in zip(like, op.results, strict=True)))


def _reduced(place: Place, value: SSAValue, combine: type[Operation], kind: vector.CombiningKindFlag) -> SSAValue:
    """All elements of a vector combined; a scalar as it is."""
    if not isinstance(value.type, VectorType):
        return value
    whole = cast("VectorType[Attribute]", value.type)
    *leading, size = whole.get_shape()
    t = VectorType(whole.element_type, [size])
    rows = [value]
    if leading:
        positions = (DenseArrayBase.from_list(i64, index) for index in product(*map(range, leading)))
        rows = [place.insert(vector.ExtractOp, [value], t, {"static_position": p}) for p in positions]
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=False)
        rows = [place.insert(combine, pair, t) for pair in pairs] + rows[len(rows) & ~1 :]
    return place.insert(
        vector.ReductionOp, rows, whole.element_type, {"kind": vector.CombiningKindAttr(kind), "fastmath": NO_FASTMATH}
    )
