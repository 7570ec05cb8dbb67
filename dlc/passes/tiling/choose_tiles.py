"""Choose the tile plan of a nest: the first kind of plan that applies, on a CPU or on a device with work-groups (GPU)."""

from __future__ import annotations

from dlc.passes.tiling.attention.choose_attention import AttentionChooser
from dlc.passes.tiling.blocking.choose_blocked_tiles import BlockedTileChooser
from dlc.passes.tiling.blocking.choose_zero_skipping import skip_zeros
from dlc.passes.tiling.groups.choose_cooperative_tiles import CooperativeTileChooser
from dlc.passes.tiling.groups.choose_group_tiles import GroupTileChooser
from dlc.passes.tiling.groups.choose_promoted_tiles import PromotedTileChooser
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.matrix_units.choose_matrix_unit_tiles import choose_matrix_unit_tiles
from dlc.passes.tiling.plan_kinds import DevicePlan, ThreadPlan
from dlc.passes.tiling.tasks.choose_constant_products import ConstantProductChooser
from dlc.passes.tiling.tasks.choose_task_tiles import TaskTileChooser
from dlc.passes.tiling.tasks.variants import VARIANTS, Variant
from dlc.target import Target, WorkGroups

# The group limits for a naive plan if the target defines none.
_DEFAULT_GROUPS = WorkGroups(64, 0)


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


def choose_group_tiles(nest: SizedLoopNest, target: Target) -> DevicePlan:
    """Return the plan for a nest on a target with work-groups."""
    assert target.groups is not None
    default = GroupTileChooser(nest, target, target.groups)
    return (
        choose_matrix_unit_tiles(nest, target)
        or (default.naive() if any(op.has_indirect_loads for op in nest.ops) else None)
        or PromotedTileChooser(nest, target, target.groups).plan()
        or CooperativeTileChooser(nest, target, target.groups).plan()
        or default.elementwise()
    )


def naive_group_tiles(nest: SizedLoopNest, target: Target) -> GroupTiles:
    """Return the plan without tiles: one work-item per element of the result."""
    return GroupTileChooser(nest, target, target.groups or _DEFAULT_GROUPS).naive()
