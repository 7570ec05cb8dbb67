"""Selections that kernels can make, as what counts them, what decides a size, and what is as large."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.data_dependent.selection import Selection
from dlc.ir import ModuleOp, SSAValue
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward


def counted(module: ModuleOp) -> ModuleOp:
    """A copy of a module in which each selection is what it decomposes to.

        %p = dl.nonzero %m {size = #dl.dims<"k">}
    →
        %c = dl.reduce_sum (dl.cast %m);  dl.decide %c {size = #dl.dims<"k">};  %p = … dl.places %m {size = #dl.dims<"k">}
    """
    copy = module.clone()
    for block in program_blocks(copy):
        rewrite_forward(block, _decomposed)
    return copy


def _decomposed(op: DlOp) -> Sequence[SSAValue] | None:
    return op.decompose(*op.operands) if isinstance(op, Selection) else None
