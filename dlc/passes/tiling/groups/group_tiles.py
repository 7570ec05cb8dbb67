"""The plan of work-groups whose work-items compute their register tiles independently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlc.passes.tiling.groups.group_plan import GroupPlan
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan import RegisterTiles


@dataclass(frozen=True, kw_only=True)
class GroupTiles(GroupPlan, RegisterTiles):
    """One register tile per work-item and round.

    Attributes:
        items: The work-items along shared dimensions, outermost first; 1 without an entry.
    """

    items: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def item_axes(self) -> Sequence[tuple[int, int]]:
        return list(self.items.items())

    @property
    def needs_barriers(self) -> bool:
        return False

    def item_tile_stride(self, d: int) -> int:
        """Return the extent along a shared dimension of one register tile per work-item of a group."""
        return self.tile(d) * self.items.get(d, 1)

    def group_tile(self, d: int) -> int:
        return self.item_tile_stride(d)

    def check(self, nest: SizedLoopNest) -> None:
        super().check(nest)
        for d, n in self.items.items():
            if d not in nest.shared_dims:
                raise ValueError(f"items[d{d}] = {n}: must be a shared dimension")
