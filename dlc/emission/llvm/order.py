"""The order of instructions in a block: loads and broadcasts directly before their first use.

Ops on tiles read whole operands before the first multiplication. LLVM's scheduler mostly keeps that order, and the tile's
operands would push its accumulators out of the registers: 14x32 accumulators leave four registers of 32.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOVABLE = re.compile(r"  (%\S+) = (?:load|getelementptr|insertelement|shufflevector) ")
_NAME = re.compile(r"%[\w.]+")
_BARRIERS = ("  store ", "  call void ", "  br ", "  ret ")


def sink_to_uses(lines: Iterable[str]) -> list[str]:
    """The lines of a function with each movable instruction before its first use, or the next write or end of a block."""
    placed: list[str] = []
    waiting: dict[str, str] = {}

    def place(name: str) -> None:
        line = waiting.pop(name)
        for operand in _NAME.findall(line):
            if operand in waiting:
                place(operand)
        placed.append(line)

    for line in lines:
        if movable := _MOVABLE.match(line):
            waiting[movable[1]] = line
            continue
        if waiting:
            needed = list(waiting) if line.startswith(_BARRIERS) else _NAME.findall(line)
            for name in needed:
                if name in waiting:
                    place(name)
        placed.append(line)
    return placed
