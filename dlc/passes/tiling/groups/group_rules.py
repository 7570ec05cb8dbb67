"""Rules for plans of work-groups: sizes that fit, work-items with about equal work, and the grid.

The rules follow published GPU practice, with constants measured on an H100 and an H200: adjacent work-items access
adjacent memory, four elements per load, and there are enough work-items to occupy the whole device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.tile_sizes import VECTOR_LOAD_ELEMENTS, fitting_tile
from dlc.target import Target, WorkGroups

_GroupTiles = TypeVar("_GroupTiles", bound=GroupTiles)


@dataclass(frozen=True)
class GroupRules:
    """Tiling rules for a nest on a target with the limits `groups`."""

    nest: SizedLoopNest
    target: Target
    groups: WorkGroups

    @property
    def resident_items(self) -> int:
        """Return the number of work-items that occupy the whole device."""
        return self.target.costs.groups.resident_groups * self.groups.units * self.groups.items

    @property
    def few_rows(self) -> int:
        """Return the maximum rows of a contraction for which sharing the other operand is not profitable."""
        return self.target.costs.groups.few_rows

    def steps(self, d: int, tile: int = 1) -> int:
        return -(-self.nest.extents[d] // tile)

    def fitting(self, d: int, max_size: int) -> int:
        """Return the largest legal tile up to `max_size`; 1 for a dynamic dimension, along which a work-item has one index."""
        return fitting_tile(self.nest, d, 1 if d in self.nest.dynamic_dims else max_size)

    def innermost_first(self, dims: Sequence[int]) -> list[int]:
        """Sort dimensions by their stride in the nest's output, the contiguous one first."""
        nest_op = self.nest.ops[-1]
        return sorted(dims, key=lambda d: nest_op.output.stride(d) or inf)

    def assign_items(self, dims: Sequence[int], register: dict[int, int], limit: int) -> dict[int, int]:
        """Assign up to `limit` work-items to dimensions, in the order of `dims`, each with about the same work.

        The result is ordered from the outermost dimension to the innermost.
        """
        items: dict[int, int] = {}
        for d in dims:
            steps = self.steps(d, register.get(d, 1))
            items[d] = -(-steps // -(-steps // max(1, limit)))
            limit //= items[d]
        return {d: n for d, n in reversed(items.items()) if n > 1}

    def with_grid(self, plan: _GroupTiles) -> _GroupTiles:
        """Return the plan with a grid of one group per group tile."""
        order, extents = tuple(reversed(self.innermost_first(self.nest.shared_dims))), self.nest.extents
        sizes = {d: plan.group_tile(d) for d in order}
        grid = {d: size if d in self.nest.dynamic_dims else min(size, extents[d]) for d, size in sizes.items()}
        return replace(plan, grid=grid, order=order)

    def max_group_items(self, num_tiles: int) -> int:
        """Return the maximum work-items per group for which each compute unit has work, a multiple of the smallest group."""
        tiles_per_unit, min_items = num_tiles // self.groups.units, self.target.costs.groups.min_items
        return min(self.groups.items, max(min_items, tiles_per_unit - tiles_per_unit % min_items))

    def chunks(self, cooperative_dims: Sequence[int] = ()) -> dict[int, int]:
        """Return the steps along private dimensions."""
        chunks: dict[int, int] = {}
        for nest_op in self.nest.ops:
            for d in nest_op.dims:
                is_cooperative = d in cooperative_dims
                if d in self.nest.shared_dims or (d in self.nest.reduced_dims and not is_cooperative):
                    continue
                is_contiguous = any(a.stride(d) == 1 for a in (*nest_op.inputs, nest_op.output))
                is_single = not is_contiguous or (is_cooperative and d in self.nest.dynamic_dims)
                chunks[d] = max(chunks.get(d, 1), 1 if is_single else min(self.nest.extents[d], VECTOR_LOAD_ELEMENTS))
        return chunks
