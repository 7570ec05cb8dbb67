"""Match a scan and its reverse (the scan of its derivative), which become one kernel over lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.programs.control import ScanOp, has_effect, read_values
from dlc.ir import Operation

# Note [Loops and their reverse in one kernel]
#
# The reverse of a scan reads the residuals that the scan stacks: for many lanes and steps, more than the caches hold. If one
# kernel runs both loops for each vector of lanes, only the residuals of these lanes exist at a time. The ops between the loops,
# which compute cotangents from the final states and the stacked results, must work on each lane separately.


@dataclass(frozen=True)
class KernelOps:
    """Ops of a block that become one kernel at the last of them.

    Attributes:
        ops: The ops, in order.
        replaced: Those that are erased. Other users of their results read results of the kernel.
        moved: The ops between them that read their results, and move after the kernel.
    """

    ops: Sequence[Operation]
    replaced: Sequence[Operation]
    moved: Sequence[Operation] = ()


def with_reverse(loop: ScanOp) -> KernelOps | None:
    """Return a scan, the scan that reads its stacked results in reverse, and the ops between them on which that depends.

    Returns None if there is no such scan, or if ops between them have side effects.
    """
    stacked, values = set(loop.results[loop.state_count :]), set(loop.results)
    dependent: list[Operation] = []
    op = loop.next_op
    while op is not None and not (_is_reverse_of(op, loop) and not stacked.isdisjoint(op.operands)):
        if not values.isdisjoint(read_values(op)):
            dependent.append(op)
            values.update(op.results)
        op = op.next_op
    if op is None or any(has_effect(o) for o in dependent):
        return None
    required = set(read_values(op))
    between: list[Operation] = []
    for producer in reversed(dependent):
        if not required.isdisjoint(producer.results):
            required.update(producer.operands)
            between.insert(0, producer)
    if not all(isinstance(producer, DlOp | ScanOp) for producer in between):
        return None
    ops = [loop, *between, op]
    replaced: set[Operation] = {o for o in ops if isinstance(o, ScanOp)}
    for producer in reversed(between):
        if all(use.operation in replaced for result in producer.results for use in result.uses):
            replaced.add(producer)
    return KernelOps(ops, [o for o in ops if o in replaced], [o for o in dependent if o not in replaced])


def _is_reverse_of(op: Operation, loop: ScanOp) -> bool:
    return isinstance(op, ScanOp) and op.steps == loop.steps and op.is_reverse != loop.is_reverse
