"""Decompose selections with data-dependent sizes: count the entries, bind the size to the count, compute the entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.data_dependent.selection import BindSizeOp, SelectionOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.dialects.dl.programs.size_ranges import set_equal_sizes, set_size_ranges, size_ranges
from dlc.dialects.entry import entry_of
from dlc.ir import ModuleOp, SSAValue
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.dims import Dim
from dlc.shapes.ranges import SizeRange


def decompose_selections(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module in which each selection is decomposed.

        %p = dl.nonzero %m {size = #dl.dims<"k">}
    →
        %c = dl.reduce_sum (dl.cast %m);  dl.bind_size %c {size = #dl.dims<"k">}
        %p = … dl.true_indices %m {size = #dl.dims<"k">}
    """
    copy = module.clone()
    op_names: dict[BindSizeOp, str] = {}
    for block in program_blocks(copy):
        rewrite_forward(block, lambda op: _decompose(op, op_names))
    _rename_repeated_sizes(copy, op_names)
    return copy


def _rename_repeated_sizes(module: ModuleOp, op_names: Mapping[BindSizeOp, str]) -> None:
    """Replace a size that is static or already bound by a new symbol, and record the size that the symbol must equal."""
    main, ranges = entry_of(module), size_ranges(module)
    defined_symbols = {symbol for a in main.args for size in shape_of(a) for symbol in Dim.lift(size).symbols()}
    bindings = [op for op in main.walk() if isinstance(op, BindSizeOp)]
    used_symbols = defined_symbols | {op.symbol for op in bindings}
    equal_sizes: dict[str, str] = {}
    for op in bindings:
        (size,) = op.size.sizes
        if isinstance(size, int):
            new_symbol = next(name for k in count() if (name := f"{op_names[op]}_{k}") not in used_symbols)
            used_symbols.add(new_symbol)
            ranges[new_symbol] = SizeRange(size, size)
            op.size = DimsAttr.of((Dim.symbol(new_symbol),))
        elif op.symbol in defined_symbols:
            new_symbol = f"{op.symbol}_again{len(equal_sizes)}"
            equal_sizes[new_symbol] = op.symbol
            op.size = DimsAttr.of((Dim.symbol(new_symbol),))
        defined_symbols.add(op.symbol)
    set_equal_sizes(main, equal_sizes)
    set_size_ranges(main, ranges)


def _decompose(op: DlOp, op_names: dict[BindSizeOp, str]) -> Sequence[SSAValue] | None:
    if not isinstance(op, SelectionOp):
        return None
    results = op.decompose(*op.operands)
    previous = op.prev_op
    while not isinstance(previous, BindSizeOp):
        assert previous is not None, f"{op.name} binds no size"
        previous = previous.prev_op
    op_names[previous] = op.name.removeprefix("dl.")
    if op.count != 0:
        return results
    # An empty selection computes nothing, but its count must still be checked.
    build = DlBuilder(op)
    return [build(BroadcastToOp, build.scalar(0, like=r), shape=shape_of(r)) for r in op.results]
