"""Which values depend on nothing but weights and literals: the one answer for passes, and for what evaluates them."""

from __future__ import annotations

from typing import Any

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
        if (found := known.get(owner)) is not None:
            return found
        pending: list[Any] = [owner]
        while pending:
            op = pending.pop()
            if not _MAY_BE_EVALUATED[op.__class__]:
                known[op] = False
                continue
            unknown: list[Operation | Block] = []
            for value in op.operands:
                source = known.get(value.owner)
                if source is None:
                    unknown.append(value.owner)
                elif not source:
                    known[op] = False
                    break
            else:
                if unknown:
                    pending += [op, *unknown]
                else:
                    known[op] = _has_known_sizes(op)
        return known[owner]


class _MayBeEvaluated(dict[type, bool]):
    """Whether ops of a class may give such values of such operands; other ops, and blocks, do not."""

    def __missing__(self, kind: type) -> bool:
        found = self[kind] = issubclass(kind, DlOp) and not issubclass(kind, DataDependent)
        return found


_MAY_BE_EVALUATED = _MayBeEvaluated()


def _has_known_sizes(op: DlOp) -> bool:
    """Whether the sizes that an op says and makes are numbers."""
    return not (has_open_sizes(op) or any([is_open(value) for value in op.results]))
