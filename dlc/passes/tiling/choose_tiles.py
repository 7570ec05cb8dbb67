"""Choose the tile plan of a nest on a CPU: the first kind of plan that applies."""

from __future__ import annotations

from dlc.passes.tiling.attention.choose_attention import AttentionChooser
from dlc.passes.tiling.blocking.choose_blocked_tiles import BlockedTileChooser
from dlc.passes.tiling.blocking.choose_zero_skipping import skip_zeros
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan_kinds import ThreadPlan
from dlc.passes.tiling.tasks.choose_constant_products import ConstantProductChooser
from dlc.passes.tiling.tasks.choose_task_tiles import TaskTileChooser
from dlc.passes.tiling.tasks.variants import VARIANTS, Variant
from dlc.target import Target


def choose_tiles(nest: SizedLoopNest, target: Target, variant: Variant = VARIANTS[0], exact: bool = False) -> ThreadPlan:
    """Return the plan for a nest on a CPU target; `exact` forbids plans that skip products with zeros."""
    default = TaskTileChooser(nest, target, variant, exact)
    if any(op.has_indirect_loads for op in nest.ops):
        return skip_zeros(default.plan(), nest, exact)
    choosers = (
        chooser(nest, target, variant, exact) for chooser in (ConstantProductChooser, BlockedTileChooser, AttentionChooser)
    )
    plans = (plan for chooser in (*choosers, default) if (plan := chooser.plan()) is not None)
    return skip_zeros(next(plans), nest, exact)
