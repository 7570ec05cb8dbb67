"""The instructions of a function before they are text, and their order: loads and splats directly before their first use.

Ops on tiles read whole operands before the first multiplication. LLVM's scheduler mostly keeps that order, and the operands
of a tile would cause its accumulators to be spilled: 14x32 accumulators leave four of 32 registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class InsertionPoint(Enum):
    """Constraint on where an instruction may be placed."""

    MOVABLE = "before its first use, or before the next barrier"
    FIXED = "where it was emitted"
    BARRIER = "where it was emitted, after all earlier instructions: writes and terminators"


class Line(NamedTuple):
    """An instruction or a label: its text, its result and operands, and a debug location."""

    text: str
    result: str = ""
    operands: tuple[str, ...] = ()
    insertion_point: InsertionPoint = InsertionPoint.FIXED
    location: str = ""


def schedule_lines(lines: Iterable[Line]) -> list[str]:
    """Return the text of a function's lines, with movable instructions placed before their first use."""
    scheduled: list[str] = []
    pending: dict[str, Line] = {}

    def place(name: str) -> None:
        line = pending.pop(name)
        for operand in line.operands:
            if operand in pending:
                place(operand)
        scheduled.append(line.text + line.location)

    for line in lines:
        if line.insertion_point is InsertionPoint.MOVABLE:
            pending[line.result] = line
            continue
        if pending:
            for name in list(pending) if line.insertion_point is InsertionPoint.BARRIER else line.operands:
                if name in pending:
                    place(name)
        scheduled.append(line.text + line.location)
    return scheduled
