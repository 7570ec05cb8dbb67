"""The instructions of a function before they are text, and their order: loads and broadcasts directly before their first use.

Ops on tiles read whole operands before the first multiplication. LLVM's scheduler mostly keeps that order, and the tile's
operands would push its accumulators out of the registers: 14x32 accumulators leave four registers of 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Place(Enum):
    """Where an instruction may stand."""

    MOVABLE = "before its first use, or the next barrier"
    FIXED = "where it was written"
    BARRIER = "where it was written, and all before it too: writes and ends of blocks"


class Line(NamedTuple):
    """An instruction or a label: its text, what it defines and uses, and for a debugger, where it comes from."""

    text: str
    result: str = ""
    operands: tuple[str, ...] = ()
    place: Place = Place.FIXED
    location: str = ""


def ordered(lines: Iterable[Line]) -> list[str]:
    """The text of a function's lines, each where it is best placed."""
    placed: list[str] = []
    waiting: dict[str, Line] = {}

    def place(name: str) -> None:
        line = waiting.pop(name)
        for operand in line.operands:
            if operand in waiting:
                place(operand)
        placed.append(line.text + line.location)

    for line in lines:
        if line.place is Place.MOVABLE:
            waiting[line.result] = line
            continue
        if waiting:
            for name in list(waiting) if line.place is Place.BARRIER else line.operands:
                if name in waiting:
                    place(name)
        placed.append(line.text + line.location)
    return placed
