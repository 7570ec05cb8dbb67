"""Scatter: structured ops that update one row of their output, whose index is data-dependent.

    linalg.generic (r, i, s): (i), (i, s) → (r, s)  ins(%indices, %updates) outs(%y) {
      %hit = arith.cmpi eq, (linalg.index 0), %row(indices)
      linalg.yield (arith.select %hit, (%y + %update), %y) }
  →
    scf.for %i { %row = …;  linalg.generic (s): (s) → (s)  ins(%updates[%i]) outs(%y[%row]) { %y + %update } }

Only the row at the index changes, so the code updates it directly instead of comparing the index with all r.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dlc.ir import Block, IteratorTypeAttr, Region, SSAValue, arith, linalg
from dlc.passes.structured import OpBuilder, erase_dead

_EQUAL_PREDICATE_INDEX = 0


@dataclass(frozen=True)
class Scatter:
    """A matched scatter: `iterator` is the iterator over output rows; each step of the reduction stores `element` in `row`."""

    iterator: int
    row: SSAValue
    element: SSAValue


def scatter_of(op: linalg.GenericOp | linalg.FillOp) -> Scatter | None:
    """Return the scatter that an op computes, or None for other ops."""
    if not isinstance(op, linalg.GenericOp):
        return None
    body = op.body.block
    accumulator, yield_op = body.args[-1], body.last_op
    select = yield_op.operands[0].owner if yield_op is not None and yield_op.operands else None
    if not isinstance(select, arith.SelectOp) or select.rhs is not accumulator:
        return None
    comparison = select.cond.owner
    if (
        not isinstance(comparison, arith.CmpiOp)
        or comparison.predicate.value.data != _EQUAL_PREDICATE_INDEX
        or not isinstance(comparison.lhs.owner, linalg.IndexOp)
    ):
        return None
    iterator = comparison.lhs.owner.dim.value.data
    is_parallel = op.iterator_types.data[iterator] == IteratorTypeAttr.parallel()
    return Scatter(iterator, comparison.rhs, select.lhs) if is_parallel and _is_uniform(op, comparison.rhs) else None


def _is_uniform(op: linalg.GenericOp, value: SSAValue) -> bool:
    """Return whether a value of the body is the same for all elements that one iteration of the reduction writes."""
    if isinstance(value.owner, Block):
        if value.owner is not op.body.block or value is op.body.block.args[-1]:
            return value.owner is not op.body.block
        used_dims = op.indexing_maps.data[op.body.block.args.index(value)].data.used_dims()
        return all(op.iterator_types.data[d] == IteratorTypeAttr.reduction() for d in used_dims)
    if value.owner.parent is not op.body.block:
        return True
    return not isinstance(value.owner, linalg.IndexOp) and all(_is_uniform(op, v) for v in value.owner.operands)


def split(
    op: linalg.GenericOp, scatter: Scatter, builder: OpBuilder, load: Callable[[int], SSAValue]
) -> tuple[SSAValue, Region]:
    """Split one step of a scatter: return the row index, computed by `builder`, and a body for the new elements of the row.

    `load` returns the element of an operand, by position, that the step reads.
    """
    region = op.body.clone()
    body = region.block
    copies = dict(zip((*op.body.block.args, *_results(op.body.block)), (*body.args, *_results(body)), strict=True))
    hoisted: dict[SSAValue, SSAValue] = {}

    def hoist(value: SSAValue) -> SSAValue:
        if value not in copies:
            return value
        if value not in hoisted:
            if isinstance(value.owner, Block):
                hoisted[value] = load(op.body.block.args.index(value))
            else:
                operands = {v: hoist(v) for v in value.owner.operands}
                hoisted[value] = builder.op(value.owner.clone(operands), value.name_hint)
        return hoisted[value]

    row = hoist(scatter.row)
    yield_op = body.last_op
    assert yield_op is not None
    # The new element may be defined outside of the body.
    yield_op.operands = [copies.get(scatter.element, scatter.element)]
    for value, copy in copies.items():
        if copy.first_use and not isinstance(value.owner, linalg.IndexOp) and _is_uniform(op, value):
            copy.replace_all_uses_with(hoist(value))
    erase_dead(body)
    return row, region


def _results(block: Block) -> Collection[SSAValue]:
    return [r for op in block.ops for r in op.results]
