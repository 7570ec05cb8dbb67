"""Value numbering: find values of a traced function that are computed in the same way from the same values."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from dlc.dialects.dl.base import DlOp
from dlc.ir import Block, OpResult, SSAValue


class ValueNumbering:
    """Assign equal numbers to equal computations, and find the blocks that each value depends on."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._cached: dict[SSAValue, tuple[int, frozenset[Block | None]]] = {}

    def of(self, value: SSAValue) -> tuple[int, frozenset[Block | None]]:
        """Return the value number of a value and the blocks that it depends on."""
        # Iterative, because an unrolled Python loop makes chains deeper than the recursion limit.
        worklist = [value]
        while worklist:
            current = worklist[-1]
            op = current.owner
            operands = op.operands if isinstance(op, DlOp) and not op.regions else ()
            unnumbered = [v for v in operands if v not in self._cached]
            worklist += unnumbered
            if unnumbered:
                continue
            worklist.pop()
            key: Hashable = current
            blocks = frozenset([op if isinstance(op, Block) else op.parent])
            if isinstance(op, DlOp) and not op.regions:
                properties = tuple(sorted(op.properties.items(), key=lambda entry: entry[0]))
                operand_numbers = tuple(self._cached[v][0] for v in operands)
                key = op.name, properties, operand_numbers, cast("OpResult[Any]", current).index
                blocks = frozenset[Block | None]().union(*(self._cached[v][1] for v in operands))
            self._cached[current] = self._numbers.setdefault(key, len(self._numbers)), blocks
        return self._cached[value]
