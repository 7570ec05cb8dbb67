"""Decompose selections with data-dependent sizes: count the entries, bind the size to the count, compute the entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.data_dependent.selection import BindSizeOp, SelectionOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.dialects.dl.programs.size_ranges import guards_of, set_guards
from dlc.dialects.entry import entry_of
from dlc.dialects.location_text import location_prefix
from dlc.ir import ModuleOp, SSAValue
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.dims import Dim
from dlc.shapes.guards import Guard


def decompose_selections(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module in which each selection is decomposed.

        %p = dl.nonzero %m {size = #dl.dims<"k">}
    →
        %c = dl.reduce_sum (dl.cast %m);  dl.bind_size %c {size = #dl.dims<"k">}
        %p = … dl.true_indices %m {size = #dl.dims<"k">}
    """
    copy = module.clone()
    selections: dict[BindSizeOp, tuple[str, str]] = {}
    for block in program_blocks(copy):
        rewrite_forward(block, lambda op: _decompose(op, selections))
    _rename_repeated_sizes(copy, selections)
    return copy


def _rename_repeated_sizes(module: ModuleOp, selections: Mapping[BindSizeOp, tuple[str, str]]) -> None:
    """Replace a size that is static or already bound by a new symbol, with the guard that the symbol equals the size.

    `selections` are the name of the op that binds each size, and its name with its location.
    """
    main = entry_of(module)
    defined_symbols = {symbol for a in main.args for size in shape_of(a) for symbol in Dim.lift(size).symbols()}
    bindings = [op for op in main.walk() if isinstance(op, BindSizeOp)]
    used_symbols = defined_symbols | {op.symbol for op in bindings}
    guards = [*guards_of(main)]
    for op in bindings:
        (size,) = op.size.sizes
        if isinstance(size, int) or op.symbol in defined_symbols:
            name, origin = selections[op]
            new_symbol = next(symbol for k in count() if (symbol := f"{name}_{k}") not in used_symbols)
            used_symbols.add(new_symbol)
            guards.append(Guard(Dim.lift(Dim.symbol(new_symbol) - size), "==", origin))
            op.size = DimsAttr.of((Dim.symbol(new_symbol),))
        defined_symbols.add(op.symbol)
    set_guards(main, guards)


def _decompose(op: DlOp, selections: dict[BindSizeOp, tuple[str, str]]) -> Sequence[SSAValue] | None:
    if not isinstance(op, SelectionOp):
        return None
    results = op.decompose(*op.operands)
    previous = op.prev_op
    while not isinstance(previous, BindSizeOp):
        assert previous is not None, f"{op.name} binds no size"
        previous = previous.prev_op
    selections[previous] = op.name.removeprefix("dl."), f"{location_prefix(op.location)}{op.name}"
    if op.count != 0:
        return results
    # An empty selection computes nothing, but its count must still be checked.
    build = DlBuilder(op)
    return [build(BroadcastToOp, build.scalar(0, like=r), shape=shape_of(r)) for r in op.results]
