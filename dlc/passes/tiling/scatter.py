"""Scattering: structured ops that change one row of what they accumulate, which row being data.

    linalg.generic (r, i, s): (i), (i, s) → (r, s)  ins(%indices, %updates) outs(%y) {
      %hit = arith.cmpi eq, (linalg.index 0), %row(indices)
      linalg.yield (arith.select %hit, (%y + %update), %y) }
  →
    scf.for %i { %row = …;  linalg.generic (s): (s) → (s)  ins(%updates[%i]) outs(%y[%row]) { %y + %update } }

Of all r, only the row that is named makes a difference: code runs for that one, instead of looking for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dlc.ir import Block, IteratorTypeAttr, Region, SSAValue, arith, linalg
from dlc.passes.structured import Place

# arith.cmpi eq
_EQUAL = 0


@dataclass(frozen=True)
class Scatter:
    """Where a structured op scatters: `iterator` counts the rows, `row` is the one that changes, `element` what it becomes."""

    iterator: int
    row: SSAValue
    element: SSAValue


def scatter_of(op: linalg.GenericOp | linalg.FillOp) -> Scatter | None:
    """How an op scatters, if it does."""
    if not isinstance(op, linalg.GenericOp):
        return None
    body = op.body.block
    accumulated, last = body.args[-1], body.last_op
    chosen = last.operands[0].owner if last is not None and last.operands else None
    if not isinstance(chosen, arith.SelectOp) or chosen.rhs is not accumulated:
        return None
    hit = chosen.cond.owner
    if not isinstance(hit, arith.CmpiOp) or hit.predicate.value.data != _EQUAL or not isinstance(hit.lhs.owner, linalg.IndexOp):
        return None
    iterator = hit.lhs.owner.dim.value.data
    of_rows = op.iterator_types.data[iterator] == IteratorTypeAttr.parallel()
    return Scatter(iterator, hit.rhs, chosen.lhs) if of_rows and _is_uniform(op, hit.rhs) else None


def _is_uniform(op: linalg.GenericOp, value: SSAValue) -> bool:
    """Whether a value of the body is the same wherever the op writes in one step of what it reduces."""
    if isinstance(value.owner, Block):
        if value.owner is not op.body.block or value is op.body.block.args[-1]:
            return value.owner is not op.body.block
        used = op.indexing_maps.data[op.body.block.args.index(value)].data.used_dims()
        return all(op.iterator_types.data[d] == IteratorTypeAttr.reduction() for d in used)
    if value.owner.parent is not op.body.block:
        return True
    return not isinstance(value.owner, linalg.IndexOp) and all(_is_uniform(op, v) for v in value.owner.operands)


def split(op: linalg.GenericOp, scatter: Scatter, place: Place, load: Callable[[int], SSAValue]) -> tuple[SSAValue, Region]:
    """The row that one step of a scatter changes, computed at a place, and a body for the rest: what its elements become.

    `load` gives the element of an operand, by its position, that the step reads.
    """
    region = op.body.clone()
    body = region.block
    inner = dict(zip((*op.body.block.args, *_results(op.body.block)), (*body.args, *_results(body)), strict=True))
    outer: dict[SSAValue, SSAValue] = {}

    def computed(value: SSAValue) -> SSAValue:
        if value not in inner:
            return value
        if value not in outer:
            if isinstance(value.owner, Block):
                outer[value] = load(op.body.block.args.index(value))
            else:
                operands = {v: computed(v) for v in value.owner.operands}
                outer[value] = place.op(value.owner.clone(operands), value.name_hint)
        return outer[value]

    row = computed(scatter.row)
    last = body.last_op
    assert last is not None
    # A number that is written everywhere stands outside of the body.
    last.operands = [inner.get(scatter.element, scatter.element)]
    for value, copy in inner.items():
        if copy.first_use and not isinstance(value.owner, linalg.IndexOp) and _is_uniform(op, value):
            copy.replace_all_uses_with(computed(value))
    for dead in reversed(list(body.ops)):
        if dead.results and not any(r.first_use for r in dead.results):
            dead.detach()
            dead.erase()
    return row, region


def _results(block: Block) -> Collection[SSAValue]:
    return [r for op in block.ops for r in op.results]
