"""Replaces composite ops by the simpler ones that define them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Composite, RowComposite, Staged
from dlc.dims import Size, product
from dlc.ir import Context, ModuleOp, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward


@dataclass(frozen=True)
class DecomposeCompositesPass(TargetPass):
    """`decompose-composites`: each composite becomes its decomposition, again and again until none is left.

        dl.silu %x   →   %s = dl.sigmoid %x;  dl.mul %x, %s

    Composites of whole trailing rows (softmax, layer norm) stay where a row fits the cache: one kernel keeps it there.
    """

    name = "decompose-composites"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, partial(_decomposed, longest_row=self.target.machine.row_elements), Composite)


def _decomposed(op: Composite, longest_row: int) -> Sequence[SSAValue] | None:
    if isinstance(op, Staged) or is_row_kernel(op, longest_row):
        return None
    return op.decompose(*op.operands)


def is_row_kernel(op: DlOp, longest_row: int) -> bool:
    """Whether a composite treats rows that one kernel can keep in its cache."""
    return isinstance(op, RowComposite) and are_rows(op.row_axes, shape_of(op.operands[0]), longest_row)


def are_rows(axes: Sequence[int], shape: Sequence[Size], longest_row: int) -> bool:
    """Whether these are the last axes of the shape, at least one, and span no more elements than the longest row."""
    rank = len(shape)
    if not axes or tuple(axes) != tuple(range(rank - len(axes), rank)):
        return False
    length = product(shape[a] for a in axes)
    return not isinstance(length, int) or length <= longest_row
