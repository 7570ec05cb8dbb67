"""Which values depend on nothing but weights and literals: the one answer for passes, and for what evaluates them."""

from __future__ import annotations

from dlc.dialects.dl.base import DlOp, has_open_sizes, is_open
from dlc.dialects.dl.interfaces import DataDependent
from dlc.ir import Block, Operation, SSAValue


class WeightExpressions:
    """The values that depend on nothing but weights and literals.

    They are evaluated once, before the first run, so that work moved into them is free: their sizes are known then, and no
    data has a part in them. What is asked is looked for through the producers, and answers are kept: ask one instance while
    a pass runs.
    """

    def __init__(self) -> None:
        self._known: dict[Operation | Block, bool] = {}

    def __contains__(self, value: SSAValue) -> bool:
        known = self._known.get(value.owner)
        return self.holds(value.owner) if known is None else known

    def holds(self, owner: Operation | Block) -> bool:
        """Whether the results of an op are such values; arguments of a block are not."""
        known = self._known
        if owner in known:
            return known[owner]
        pending = [owner]
        while pending:
            last = pending.pop()
            if not isinstance(last, DlOp):
                known[last] = False
                continue
            possible, unknown = True, list[Operation | Block]()
            for value in last.operands:
                source = known.get(value.owner)
                if source is None:
                    unknown.append(value.owner)
                elif not source:
                    possible = False
                    break
            possible = possible and _is_evaluated(last)
            if possible and unknown:
                pending += [last, *unknown]
            else:
                known[last] = possible
        return known[owner]


def _is_evaluated(op: DlOp) -> bool:
    """Whether an op gives such values of such operands."""
    return not (isinstance(op, DataDependent) or has_open_sizes(op) or any(map(is_open, op.results)))
