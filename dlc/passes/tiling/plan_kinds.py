"""All kinds of tile plans. Code that depends on the kind matches on these unions; the type checker verifies completeness."""

from __future__ import annotations

from typing import TypeAlias

from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.groups.cooperative_tiles import CooperativeTiles
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.matrix_units.matrix_unit_tiles import MatrixUnitTiles
from dlc.passes.tiling.tasks.task_tiles import TaskTiles

# Plans for tasks of one CPU thread.
ThreadPlan: TypeAlias = TaskTiles | BlockedTiles | FusedAttention
# Plans for the work-groups of a device.
DevicePlan: TypeAlias = GroupTiles | CooperativeTiles | PromotedTiles | MatrixUnitTiles
Plan: TypeAlias = ThreadPlan | DevicePlan
