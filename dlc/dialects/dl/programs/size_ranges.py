"""Ranges of symbolic sizes: the sizes that a program supports, and the representative size that its plans are optimized for.

func.func @main(%x: tensor<?x3xf32, #dl.dims<"N", 3>>) attributes {ranges = {N = array<i64: 1, 32>}} { … }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dlc.dialects.dl.base import attribute, ints
from dlc.ir import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, func
from dlc.shapes.dims import Dim, Relation, Size, substitute
from dlc.shapes.guards import Guard
from dlc.shapes.parsing import parse_size
from dlc.shapes.ranges import SizeRange

# The attribute of a function with the ranges of its symbolic sizes.
RANGES = "ranges"
# Further conditions on sizes under which the program is valid.
GUARDS = "guards"


def size_ranges(module: ModuleOp) -> dict[str, SizeRange]:
    """Return the ranges that a module's functions declare, by symbol."""
    ranges: dict[str, SizeRange] = {}
    for op in module.ops:
        range_attr = op.attributes.get(RANGES)
        if isinstance(op, func.FuncOp) and isinstance(range_attr, DictionaryAttr):
            ranges |= {name: SizeRange(*ints(ends)) for name, ends in range_attr.data.items()}
    return ranges


def representative(size: Size, ranges: Mapping[str, SizeRange]) -> int:
    """Return the value of a size that plans are optimized for."""
    symbols = Dim.lift(size).symbols()
    return int(substitute(size, {s: ranges.get(s, SizeRange()).representative for s in symbols}))


def set_size_ranges(function: func.FuncOp, ranges: Mapping[str, SizeRange]) -> None:
    """Store ranges, if there are any, as an attribute of a function."""
    ends = {name: (r.low,) if r.high is None else (r.low, r.high) for name, r in ranges.items()}
    if not ranges:
        return
    function.attributes[RANGES] = DictionaryAttr({name: attribute(pair) for name, pair in ends.items()})


def set_guards(function: func.FuncOp, guards: Sequence[Guard]) -> None:
    """Store the guards of a function as an attribute: text of the size, relation to 0, and origin of each."""
    function.attributes.pop(GUARDS, None)
    if guards:
        function.attributes[GUARDS] = ArrayAttr(
            ArrayAttr([StringAttr(str(g.size)), StringAttr(g.relation), StringAttr(g.origin)]) for g in guards
        )


def guards_of(function: func.FuncOp) -> tuple[Guard, ...]:
    """Return the guards of a function."""
    guards_attr = cast("ArrayAttr[ArrayAttr[StringAttr]]", function.attributes.get(GUARDS, ArrayAttr(())))
    return tuple(
        Guard(Dim.lift(parse_size(size.data)), cast("Relation", relation.data), origin.data)
        for size, relation, origin in guards_attr
    )
