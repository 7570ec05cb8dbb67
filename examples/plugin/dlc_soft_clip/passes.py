"""The pass `merge-soft-clips`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.extend.passes import (
    Context,
    DlBuilder,
    ModuleOp,
    ModulePass,
    SSAValue,
    defining_op,
    program_blocks,
    rewrite_forward,
    splat,
)
from dlc_soft_clip.op import SoftClipOp


@dataclass(frozen=True)
class MergeSoftClipsPass(ModulePass):
    """`merge-soft-clips`: merges two soft clips with constant limits.

        %a = example.soft_clip %x, 2.0;  %b = example.soft_clip %a, 6.0
    →   %b = example.soft_clip %x, 1.5

    It requires constant limits of one element: soft_clip(soft_clip(x, p), q) = x / (1 + |x| (1/p + 1/q)).
    """

    name = "merge-soft-clips"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, _merge, SoftClipOp)


def _merge(op: SoftClipOp) -> Sequence[SSAValue] | None:
    inner = defining_op(op.x, SoftClipOp)
    if inner is None:
        return None
    limits = splat(inner.y), splat(op.y)
    if None in limits or inner.result.type != op.result.type:
        return None
    build = DlBuilder(op)
    return [build(SoftClipOp, inner.x, build.scalar(1 / sum(1 / limit for limit in limits if limit), like=op.x))]
