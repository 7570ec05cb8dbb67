"""Decompose composite ops into simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Composite, RowComposite, StagedComposite
from dlc.ir import Context, ModuleOp, SSAValue
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.shapes.dims import Size, product


@dataclass(frozen=True)
class DecomposeCompositesPass(TargetPass):
    """`decompose-composites`: replaces each composite by its decomposition, until none is left.

        dl.silu %x   →   %s = dl.sigmoid %x;  dl.mul %x, %s

    Composites over whole trailing rows (softmax, layer norm) stay where a row fits the cache: a single kernel keeps it there.
    """

    name = "decompose-composites"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, partial(_decompose, max_row_elements=self.target.costs.max_row_elements), Composite)


def _decompose(op: Composite, max_row_elements: int) -> Sequence[SSAValue] | None:
    if isinstance(op, StagedComposite) or is_row_kernel(op, max_row_elements):
        return None
    return op.decompose(*op.operands)


def is_row_kernel(op: DlOp, max_row_elements: int) -> bool:
    """Return whether a composite operates on rows that fit the cache, so that it stays one kernel."""
    return isinstance(op, RowComposite) and are_rows(op.row_axes, shape_of(op.operands[0]), max_row_elements)


def are_rows(axes: Sequence[int], shape: Sequence[Size], max_row_elements: int) -> bool:
    """Return whether `axes` are trailing axes, at least one, that span at most `max_row_elements` elements."""
    rank = len(shape)
    if not axes or tuple(axes) != tuple(range(rank - len(axes), rank)):
        return False
    length = product(shape[a] for a in axes)
    return not isinstance(length, int) or length <= max_row_elements
