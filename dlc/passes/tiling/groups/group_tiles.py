"""The plans of work-groups: the base of all kinds, and work-items that compute their register tiles independently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan import RegisterTiles, TilePlan
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
