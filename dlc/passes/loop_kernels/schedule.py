"""Schedule the ops of a loop body: an in-place update comes after all other readers of the array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from dlc.dialects.dl.interfaces import ScatterLike
from dlc.dialects.dl.programs.control import IfOp, ScanOp, WhileOp, read_values
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.loop_kernels.element_ops import Shape
from dlc.passes.loop_kernels.elements import MAX_REGISTER_ELEMENTS, NotLowerableError

# The ops that must precede each op of a body, in a fixed order.
Predecessors: TypeAlias = "Mapping[Operation, Mapping[Operation, None]]"


def overwritten_values(op: Operation, shape: Shape) -> Iterator[SSAValue]:
    """Yield the large arrays that an op updates in place, or that become its results, by which other ops may update them."""
    match op:
        case ScatterLike():
            candidates = [op.operands[0]]
        case ScanOp():
            candidates = list(op.arguments[: op.state_count])
        case WhileOp():
            candidates = list(op.arguments)
        case IfOp():
            inner = (v for block in op.blocks for i in block.ops for v in overwritten_values(i, shape))
            defined = {r for block in op.blocks for i in block.ops for r in i.results}
            renamed = (v for block in op.blocks if block.last_op is not None for v in block.last_op.operands)
            candidates = [v for v in (*inner, *renamed) if v not in defined]
        case _:
            candidates = []
    yield from (v for v in candidates if prod(shape(v)) > MAX_REGISTER_ELEMENTS)


def scheduled(block: Block, shape: Shape) -> list[Operation]:
    """Return the ops of a body, without its terminator, in an order that allows updates in place.

    Raises NotLowerableError if an array is read after its update.
    """
    ops = [op for op in block.ops if op is not block.last_op]
    readers: dict[SSAValue, list[Operation]] = {}
    for op in ops:
        for value in dict.fromkeys(read_values(op)):
            readers.setdefault(value, []).append(op)
    predecessors = {op: dict.fromkeys(v.owner for v in read_values(op) if isinstance(v.owner, Operation)) for op in ops}
    yielded = {*(block.last_op.operands if block.last_op is not None else ())}
    for op in ops:
        for value in overwritten_values(op, shape):
            if value in yielded:
                raise NotLowerableError("an array is read after its update")
            predecessors[op] |= dict.fromkeys(reader for reader in readers.get(value, ()) if reader is not op)
    urgent = _checks_and_their_operands(ops, predecessors)
    return _in_order([*(op for op in ops if op in urgent), *ops], predecessors)


def _in_order(ops: Sequence[Operation], predecessors: Predecessors) -> list[Operation]:
    """Return the ops in this order, each preceded by its predecessors among them; raise NotLowerableError for a cycle."""
    is_done: dict[Operation, bool] = {}
    known, order = set(ops), list[Operation]()
    for first in ops:
        pending = [first]
        while pending:
            op = pending[-1]
            if op in is_done:
                pending.pop()
                if not is_done[op]:
                    is_done[op] = True
                    order.append(op)
                continue
            is_done[op] = False
            missing = [p for p in predecessors[op] if p in known and not is_done.get(p, False)]
            if any(p in is_done for p in missing):
                raise NotLowerableError("an array is read after its update")
            pending += missing
    return order


def _checks_and_their_operands(ops: Sequence[Operation], predecessors: Predecessors) -> set[Operation]:
    """Return the ops that only check conditions, and those that compute the conditions: accesses then use the checked index."""
    urgent: set[Operation] = {op for op in ops if isinstance(op, IfOp) and not op.results}
    for op in reversed(ops):
        if op in urgent:
            urgent.update(predecessors[op])
    return urgent
