"""Ranges of symbolic sizes: what a program is compiled for, and which size its plans are made for.

    func.func @main(%x: tensor<?x3xf32, #dl.dims<"N", 3>>) attributes {ranges = {N = array<i64: 1, 32>}} { … }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt

from dlc.dialects.dl.base import attribute, ints
from dlc.ir import DictionaryAttr, ModuleOp, func

RANGES = "ranges"
# A batch for which plans are good where nothing is said: several samples, and not so many that few do badly.
_SEVERAL = 4


@dataclass(frozen=True)
class Range:
    """The sizes from `low` to `high`, both included; `high` is None where there is no largest."""

    low: int = 0
    high: int | None = None

    @property
    def representative(self) -> int:
        """The size that plans are made for: between the ends, nearer to the lower one."""
        if self.high is None:
            return max(self.low, _SEVERAL)
        return max(self.low, min(self.high, isqrt(max(self.low, 1) * self.high)), 1)

    def __contains__(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


def ranges_of(module: ModuleOp) -> dict[str, Range]:
    """The ranges that a module's functions state, by symbol."""
    found: dict[str, Range] = {}
    for op in module.ops:
        stated = op.attributes.get(RANGES)
        if isinstance(op, func.FuncOp) and isinstance(stated, DictionaryAttr):
            found |= {name: Range(*ints(ends)) for name, ends in stated.data.items()}
    return found


def state_ranges(function: func.FuncOp, ranges: Mapping[str, Range]) -> None:
    """Writes ranges into a function."""
    ends = {name: (r.low,) if r.high is None else (r.low, r.high) for name, r in ranges.items()}
    function.attributes[RANGES] = DictionaryAttr({name: attribute(pair) for name, pair in ends.items()})
