"""Replaces composite ops by the simpler ones that define them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Composite, RowComposite, Staged
from dlc.dims import Size, product
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward

# Elements of a row that a kernel keeps in local buffers, a few of which must fit the second-level cache and the stack.
LONGEST_ROW = 1 << 16


@dataclass(frozen=True)
class DecomposeCompositesPass(ModulePass):
    """`decompose-composites`: each composite becomes its decomposition, again and again until none is left.

        dl.silu %x   →   %s = dl.sigmoid %x;  dl.mul %x, %s

    Composites of whole trailing rows (softmax, layer norm) stay where a row fits the cache: one kernel keeps it there.
    """

    name = "decompose-composites"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, _decomposed)


def _decomposed(op: DlOp) -> Sequence[SSAValue] | None:
    if not isinstance(op, Composite) or isinstance(op, Staged) or is_row_kernel(op):
        return None
    return op.decompose(*op.operands)


def is_row_kernel(op: DlOp) -> bool:
    """Whether a composite treats rows that one kernel can keep in its cache."""
    return isinstance(op, RowComposite) and are_rows(op.row_axes, shape_of(op.operands[0]))


def are_rows(axes: Sequence[int], shape: Sequence[Size]) -> bool:
    """Whether these are the last axes of the shape, at least one, and what they span is short enough to stay in cache."""
    rank = len(shape)
    if not axes or tuple(axes) != tuple(range(rank - len(axes), rank)):
        return False
    length = product(shape[a] for a in axes)
    return not isinstance(length, int) or length <= LONGEST_ROW
