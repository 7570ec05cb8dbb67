"""Formulas for rare operands: a branch that is taken where any element of a vector needs it, for those elements or for all.

    %any = vector.reduction <or>, %large : vector<8xi1> into i1
    %y = scf.if %any -> (vector<8xf32>) {
      …operands and results in local arrays…
      scf.for %i = 0 to 8 { scf.if …an element is large… { …the long way, of scalars… } }
      …
    } else { scf.yield %x }

Who comes by with common operands pays for a comparison; long formulas are compiled for one element, not for a whole tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar, cast

from dlc.ir import (
    AffineMap,
    Attribute,
    Block,
    DenseArrayBase,
    IndexType,
    Operation,
    Region,
    SSAValue,
    VectorType,
    arith,
    i64,
    memref,
    scf,
    vector,
)
from dlc.passes import structured
from dlc.passes.loops.formula import NO_FASTMATH, Bits, Bool, Float, Place, element_of, format_of

Values = TypeVar("Values", bound="tuple[Bits | Float, ...]")


def where_any(
    condition: Callable[..., Bool], rarely: Callable[..., Values], operands: Sequence[Bits | Float], otherwise: Values
) -> Values:
    """What `rarely` makes of operands that hold the condition, element by element; else the values `otherwise`."""
    holds = condition(*operands)
    place = holds.place
    if isinstance(holds.value.type, VectorType):
        is_there = _any(place, holds.value)
        return _branch(place, is_there, lambda inside: _each(inside, condition, rarely, operands, otherwise), otherwise)
    return _branch(place, holds.value, lambda inside: rarely(*(_at(inside, x, x.value) for x in operands)), otherwise)


def where_any_whole(
    condition: Callable[..., Bool], rarely: Callable[..., Values], operands: Sequence[Bits | Float], otherwise: Values
) -> Values:
    """What `rarely` makes of all elements where any of them holds the condition; else the values `otherwise`."""
    holds = condition(*operands)
    place = holds.place
    is_there = _any(place, holds.value) if isinstance(holds.value.type, VectorType) else holds.value
    return _branch(place, is_there, lambda inside: rarely(*(_at(inside, x, x.value) for x in operands)), otherwise)


def repeat(amount: Bits, by: int, step: Callable[..., Values], start: Values) -> Values:
    """`step` of what it gave before, as often as `amount`, a scalar, divided by `by`, rounded up."""
    place = amount.place
    high = place.insert(arith.IndexCastOp, [amount.value], IndexType())
    low, stride = (place.constants.get(k, IndexType()) for k in (0, by))
    end = scf.YieldOp()
    body = Block([end], arg_types=[IndexType(), *(x.value.type for x in start)])
    inside = _before(end, place)
    results = step(*(_at(inside, x, value) for x, value in zip(start, body.args[1:], strict=True)))
    _end(body, results)
    op = scf.ForOp(low, high, stride, [x.value for x in start], body)
    return _insert(place, op, start)


def _branch(place: Place, condition: SSAValue, rarely: Callable[[Place], Values], otherwise: Values) -> Values:
    """What `rarely` writes and gives where a condition holds, else the values `otherwise`."""
    end = scf.YieldOp()
    rare = Block([end])
    _end(rare, rarely(_before(end, place)))
    common = Block([scf.YieldOp(*(x.value for x in otherwise))])
    return _insert(place, scf.IfOp(condition, [x.value.type for x in otherwise], Region(rare), Region(common)), otherwise)


def _each(
    place: Place,
    condition: Callable[..., Bool],
    rarely: Callable[..., Values],
    operands: Sequence[Bits | Float],
    otherwise: Values,
) -> Values:
    """The vectors `otherwise`, but for elements that hold the condition: loops over local arrays."""
    constants = structured.Constants(place.constants.function)
    code = structured.Place(constants, place.block, place.anchor.location, place.anchor)
    shape = cast("VectorType[Attribute]", otherwise[0].value.type).get_shape()
    whole, origin = AffineMap.identity(len(shape)), [0] * len(shape)
    given, results = ([code.alloca(element_of(x.value.type), shape) for x in xs] for xs in (operands, otherwise))
    for x, array in zip((*operands, *otherwise), (*given, *results), strict=True):
        code.transfer_write(x.value, array, origin, whole)
    inner, index = code, list[SSAValue]()
    for size in shape:
        loop = inner.loop(0, size, 1)
        end = scf.YieldOp()
        loop.body.block.add_op(end)
        inner = structured.Place(constants, loop.body.block, place.anchor.location, end)
        index.append(loop.body.block.args[0])

    def element(x: Bits | Float, array: SSAValue) -> Bits | Float:
        assert inner.anchor is not None
        value = inner.op(memref.LoadOp.create(operands=[array, *index], result_types=[element_of(x.value.type)]))
        return _at(_before(inner.anchor, place), x, value)

    scalars = [element(x, array) for x, array in zip(operands, given, strict=True)]
    taken = inner.branch(condition(*scalars).value)
    assert taken.anchor is not None
    inside = _before(taken.anchor, place)
    for x, array in zip(rarely(*(_at(inside, x, x.value) for x in scalars)), results, strict=True):
        taken.insert(memref.StoreOp.create(operands=[x.value, array, *index]))
    read = (code.transfer_read(array, origin, tuple(shape), whole) for array in results)
    return cast(Values, tuple(_at(place, x, value) for x, value in zip(otherwise, read, strict=True)))


def _at(place: Place, like: Bits | Float, value: SSAValue) -> Bits | Float:
    """A value at a place: bits or a float, of its own shape."""
    wide = format_of(like.format.float_type)
    t = wide.float_type if value.type == like.value.type else element_of(wide.float_type)
    return type(like)(place, format_of(t), value)


def _before(end: Operation, place: Place) -> Place:
    """Where a formula goes on, before the end of another block of the kernel."""
    end.location = place.anchor.location
    return Place(end, place.constants, fused=place.fused)


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


def _any(place: Place, value: SSAValue) -> SSAValue:
    """Whether any element of a vector of conditions holds."""
    whole = cast("VectorType[Attribute]", value.type)
    *leading, size = whole.get_shape()
    t = VectorType(whole.element_type, [size])
    rows = [value]
    if leading:
        positions = (DenseArrayBase.from_list(i64, index) for index in product(*map(range, leading)))
        rows = [place.insert(vector.ExtractOp, [value], t, {"static_position": p}) for p in positions]
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=False)
        rows = [place.insert(arith.OrIOp, pair, t) for pair in pairs] + rows[len(rows) & ~1 :]
    kind = vector.CombiningKindAttr(vector.CombiningKindFlag.OR)
    return place.insert(vector.ReductionOp, rows, whole.element_type, {"kind": kind, "fastmath": NO_FASTMATH})
