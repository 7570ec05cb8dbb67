"""Replaces composite ops by the simpler ones that define them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, rank_of
from dlc.dialects.dl.interfaces import Composite, RowComposite
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import function_blocks, rewrite_forward


@dataclass(frozen=True)
class DecomposeCompositesPass(ModulePass):
    """`decompose-composites`: each composite becomes its decomposition, again and again until none is left.

        dl.silu %x   →   %s = dl.sigmoid %x;  dl.mul %x, %s

    Composites of whole trailing rows (softmax, layer norm) stay: one kernel keeps the row in cache.
    """

    name = "decompose-composites"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in function_blocks(op):
            rewrite_forward(block, _decomposed)


def _decomposed(op: DlOp) -> Sequence[SSAValue] | None:
    if not isinstance(op, Composite) or is_row_kernel(op):
        return None
    return op.decompose(*op.operands)


def is_row_kernel(op: DlOp) -> bool:
    """Whether a composite treats rows that span the last axes, contiguous in memory."""
    return isinstance(op, RowComposite) and is_trailing(op.row_axes, rank_of(op.operands[0]))


def is_trailing(axes: Sequence[int], rank: int) -> bool:
    """Whether these are the last axes of a tensor of `rank`, and at least one."""
    return len(axes) > 0 and tuple(axes) == tuple(range(rank - len(axes), rank))
