"""Selections that kernels can make, as what counts them, what decides a size, and what is as large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from dlc.dialects.dl.base import DimsAttr, DlOp, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.data_dependent.selection import DecideOp, Selection
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.dialects.dl.programs.ranges import ranges_of, state_equal, state_ranges
from dlc.dialects.entry import entry_of
from dlc.dims import Dim, Range
from dlc.ir import ModuleOp, SSAValue
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward


def counted(module: ModuleOp) -> ModuleOp:
    """A copy of a module in which each selection is what it decomposes to.

        %p = dl.nonzero %m {size = #dl.dims<"k">}
    →
        %c = dl.reduce_sum (dl.cast %m);  dl.decide %c {size = #dl.dims<"k">};  %p = … dl.places %m {size = #dl.dims<"k">}
    """
    copy = module.clone()
    made_by: dict[DecideOp, str] = {}
    for block in program_blocks(copy):
        rewrite_forward(block, lambda op: _decomposed(op, made_by))
    _tell_apart(copy, made_by)
    return copy


def _tell_apart(module: ModuleOp, made_by: Mapping[DecideOp, str]) -> None:
    """Gives what is decided to be a size that is known already a name of its own, after what it is `made_by`, and says which
    one it has to be."""
    main, ranges = entry_of(module), ranges_of(module)
    known = {symbol for a in main.args for size in shape_of(a) for symbol in Dim.lift(size).symbols()}
    decisions = [op for op in main.walk() if isinstance(op, DecideOp)]
    taken = known | {op.symbol for op in decisions}
    equal: dict[str, str] = {}
    for op in decisions:
        (size,) = op.size.sizes
        if isinstance(size, int):
            own = next(name for k in count() if (name := f"{made_by[op]}_{k}") not in taken)
            taken.add(own)
            ranges[own] = Range(size, size)
            op.size = DimsAttr.of((Dim.symbol(own),))
        elif op.symbol in known:
            own = f"{op.symbol}_again{len(equal)}"
            equal[own] = op.symbol
            op.size = DimsAttr.of((Dim.symbol(own),))
        known.add(op.symbol)
    state_equal(main, equal)
    state_ranges(main, ranges)


def _decomposed(op: DlOp, made_by: dict[DecideOp, str]) -> Sequence[SSAValue] | None:
    if not isinstance(op, Selection):
        return None
    results = op.decompose(*op.operands)
    before = op.prev_op
    while not isinstance(before, DecideOp):
        assert before is not None, f"{op.name} decides no size"
        before = before.prev_op
    made_by[before] = op.name.removeprefix("dl.")
    if op.count != 0:
        return results
    # Of nothing there is nothing to compute, but that there is nothing has to be seen.
    build = Build(op)
    return [build(BroadcastToOp, build.scalar(0, like=r), shape=shape_of(r)) for r in op.results]
