"""Ranges of symbolic sizes: what a program is compiled for, and which size its plans are made for.

func.func @main(%x: tensor<?x3xf32, #dl.dims<"N", 3>>) attributes {ranges = {N = array<i64: 1, 32>}} { … }
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects.dl.base import attribute, ints
from dlc.dims import Dim, Range, Size, substitute
from dlc.ir import DictionaryAttr, ModuleOp, StringAttr, func

RANGES = "ranges"
# Sizes that data decides, and those that they have to be.
EQUAL = "equal"


def ranges_of(module: ModuleOp) -> dict[str, Range]:
    """The ranges that a module's functions state, by symbol."""
    found: dict[str, Range] = {}
    for op in module.ops:
        stated = op.attributes.get(RANGES)
        if isinstance(op, func.FuncOp) and isinstance(stated, DictionaryAttr):
            found |= {name: Range(*ints(ends)) for name, ends in stated.data.items()}
    return found


def equal_of(module: ModuleOp) -> dict[str, str]:
    """The sizes that data decides which have to be others, and these, by symbol."""
    found: dict[str, str] = {}
    for op in module.ops:
        stated = op.attributes.get(EQUAL)
        if isinstance(op, func.FuncOp) and isinstance(stated, DictionaryAttr):
            found |= {name: other.data for name, other in stated.data.items() if isinstance(other, StringAttr)}
    return found


def state_equal(function: func.FuncOp, equal: Mapping[str, str]) -> None:
    """Writes which sizes have to be which, if there are any, into a function."""
    if equal:
        function.attributes[EQUAL] = DictionaryAttr({name: StringAttr(other) for name, other in equal.items()})


def representative(size: Size, ranges: Mapping[str, Range]) -> int:
    """The number that plans take for a size."""
    symbols = Dim.lift(size).symbols()
    return int(substitute(size, {s: ranges.get(s, Range()).representative for s in symbols}))


def state_ranges(function: func.FuncOp, ranges: Mapping[str, Range]) -> None:
    """Writes ranges, if there are any, into a function."""
    ends = {name: (r.low,) if r.high is None else (r.low, r.high) for name, r in ranges.items()}
    if not ranges:
        return
    function.attributes[RANGES] = DictionaryAttr({name: attribute(pair) for name, pair in ends.items()})
