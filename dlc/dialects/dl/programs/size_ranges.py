"""Ranges of symbolic sizes: the sizes that a program supports, and the representative size that its plans are optimized for.

func.func @main(%x: tensor<?x3xf32, #dl.dims<"N", 3>>) attributes {ranges = {N = array<i64: 1, 32>}} { … }
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects.dl.base import attribute, ints
from dlc.dims import Dim, Size, SizeRange, substitute
from dlc.ir import DictionaryAttr, ModuleOp, StringAttr, func

# The attribute of a function with the ranges of its symbolic sizes.
RANGES = "ranges"
# The attribute of a function with its data-dependent sizes and the size that each must equal.
EQUAL = "equal"


def size_ranges(module: ModuleOp) -> dict[str, SizeRange]:
    """Return the ranges that a module's functions declare, by symbol."""
    ranges: dict[str, SizeRange] = {}
    for op in module.ops:
        range_attr = op.attributes.get(RANGES)
        if isinstance(op, func.FuncOp) and isinstance(range_attr, DictionaryAttr):
            ranges |= {name: SizeRange(*ints(ends)) for name, ends in range_attr.data.items()}
    return ranges


def equal_sizes(module: ModuleOp) -> dict[str, str]:
    """Return a map from data-dependent sizes to the size that each must equal, by symbol."""
    equalities: dict[str, str] = {}
    for op in module.ops:
        equal_attr = op.attributes.get(EQUAL)
        if isinstance(op, func.FuncOp) and isinstance(equal_attr, DictionaryAttr):
            equalities |= {name: other.data for name, other in equal_attr.data.items() if isinstance(other, StringAttr)}
    return equalities


def set_equal_sizes(function: func.FuncOp, equal: Mapping[str, str]) -> None:
    """Store which sizes must be equal, if there are any, as an attribute of a function."""
    if equal:
        function.attributes[EQUAL] = DictionaryAttr({name: StringAttr(other) for name, other in equal.items()})


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
