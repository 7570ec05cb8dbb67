"""Choose whether a plan skips products with zeros, and masked register tiles."""

from __future__ import annotations

from dataclasses import replace

from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.blocking.zero_skipping import mask_operands
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, leading_contraction
from dlc.passes.tiling.plan_kinds import ThreadPlan

# Minimum length of a reduction for which an operand is scanned for leading and trailing zeros.
_MIN_ZERO_TRIMMED_STEPS = 32


def skip_zeros(plan: ThreadPlan, nest: SizedLoopNest, exact: bool) -> ThreadPlan:
    """Extend a plan to skip products with zeros and masked tiles.

    Without `exact`, 0 · x counts as 0, although x may be NaN or ∞.
    """
    contraction = leading_contraction(nest)
    if contraction is None or nest.dynamic_dims or isinstance(plan, FusedAttention) or not nest.zeros:
        return plan

    def operands_with_zeros(nest_op: NestOp) -> list[int]:
        return [k for k, a in nest_op.input_accesses.items() if a.root in nest.zeros]

    long_extents = [nest.extents[d] for d in contraction.reductions if nest.extents[d] >= _MIN_ZERO_TRIMMED_STEPS]
    can_trim = long_extents and len(contraction.reductions) == 1 and not exact
    trimmed = next(iter(operands_with_zeros(contraction)), None) if can_trim else None
    last, has_blocks = nest.ops[-1], isinstance(plan, BlockedTiles) and bool(plan.blocks)
    masks = (k for k, value in mask_operands(last) if k in operands_with_zeros(last) and not (exact and value is None))
    mask = next(masks, None) if len(nest.ops) == 3 and not has_blocks else None
    if trimmed is None and mask is None:
        return plan
    if isinstance(plan, BlockedTiles):
        return replace(plan, zero_trimmed_operand=trimmed, mask_operand=mask)
    return BlockedTiles(
        grid=plan.grid,
        order=plan.order,
        register=plan.register,
        chunks=plan.chunks,
        steps=plan.steps,
        zero_trimmed_operand=trimmed,
        mask_operand=mask,
    )
