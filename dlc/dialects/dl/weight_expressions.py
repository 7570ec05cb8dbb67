"""Which values depend on nothing but weights and literals: the one answer for passes, and for what evaluates them."""

from __future__ import annotations

from dlc.dialects.dl.base import DlOp, has_open_sizes, shape_of
from dlc.dialects.dl.control import Control
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dims import is_static
from dlc.ir import Block, Operation, SSAValue


class WeightExpressions:
    """The values of a block, and of those around it, that depend on nothing but weights and literals.

    They are evaluated once, before the first run, so that work moved into them is free: their sizes are known then, and no
    data has a part in them. Answers are kept, also of ops that a pass makes: ask one instance while it runs.
    """

    def __init__(self, block: Block) -> None:
        self._known: dict[Operation, bool] = {}
        # Outermost first, so that an answer follows from others at once.
        blocks = [block]
        while isinstance(outer := blocks[0].parent_op(), Control) and outer.parent is not None:
            blocks.insert(0, outer.parent)
        for op in (op for b in blocks for op in b.ops):
            _ = self.holds(op)

    def __contains__(self, value: SSAValue) -> bool:
        return isinstance(value.owner, DlOp) and self.holds(value.owner)

    def holds(self, op: Operation) -> bool:
        """Whether the results of an op are such values."""
        if op not in self._known:
            self._known[op] = (
                isinstance(op, DlOp)
                and not isinstance(op, DataDependent)
                and all(v in self for v in op.operands)
                and all(is_static(shape_of(r)) for r in op.results)
                and not has_open_sizes(op)
            )
        return self._known[op]
