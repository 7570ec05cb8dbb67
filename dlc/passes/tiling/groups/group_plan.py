"""The common base of the plans of work-groups: work-items and barriers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan import TilePlan
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class GroupPlan(TilePlan, ABC):
    """A plan whose tasks are work-groups."""

    @property
    @abstractmethod
    def item_axes(self) -> Sequence[tuple[int, int]]:
        """The dimension of each axis of work-items, and their number along it; adjacent work-items differ in the last axis."""

    @property
    def num_items(self) -> int:
        """The work-items of a group."""
        return prod(n for _, n in self.item_axes)

    @property
    def needs_barriers(self) -> bool:
        """True if the work-items of a group synchronize at barriers."""
        return True

    @property
    def distributed_dims(self) -> set[int]:
        """The dimensions that the work-items divide among themselves."""
        return {*self.order}

    def check(self, nest: SizedLoopNest) -> None:
        super().check(nest)
        for d, n in self.item_axes:
            if d not in nest.extents or n < 1:
                raise ValueError(f"items[d{d}] = {n}: must be a dimension of the nest and at least 1")
        for d in nest.dynamic_dims.intersection(nest.shared_dims):
            if (self.tile(d), self.grid.get(d)) != (1, self.group_tile(d)):
                raise ValueError(
                    f"grid[d{d}] = {self.grid.get(d)}: along a dynamic dimension, a work-item must compute one index"
                )
        for d, block in self.grid.items() if self.needs_barriers else ():
            one_round = min(self.group_tile(d), nest.extents[d])
            if block != one_round and nest.extents[d] % block:
                raise ValueError(
                    f"grid[d{d}] = {block}: a group with barriers cannot compute partial tiles of "
                    f"the extent {nest.extents[d]}; use grid[d{d}] = {one_round}"
                )

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        yield f"work-groups of {self.num_items} work-items: " + " × ".join(f"d{d}: {n}" for d, n in self.item_axes)
