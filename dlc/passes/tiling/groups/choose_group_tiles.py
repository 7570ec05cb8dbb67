"""Choose plans with independent work-items: a few contiguous elements of the result each."""

from __future__ import annotations

from math import prod

from dlc.passes.tiling.groups.group_rules import GroupRules
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.loop_nests import lane_dim
from dlc.passes.tiling.tile_sizes import VECTOR_LOAD_ELEMENTS

# Candidate numbers of output rows per work-item that share the weights of a sliding window.
_WINDOW_ROWS_PER_ITEM = (4, 2)


class GroupTileChooser(GroupRules):
    """Choose the plan of any nest."""

    def naive(self) -> GroupTiles:
        """Return a plan without tiles: one work-item per element of the result."""
        items = self.assign_items(
            self.innermost_first(self.nest.shared_dims),
            {},
            self.groups.items,
        )
        chunks = {d: 1 for d in self.nest.extents if d not in self.nest.shared_dims and d not in self.nest.reduced_dims}
        return self.with_grid(GroupTiles(items=items, chunks=chunks))

    def elementwise(self) -> GroupTiles:
        """Return a plan with a few contiguous elements per work-item, or a small square tile if an operand is transposed."""
        nest = self.nest
        shared_dims = self.innermost_first(nest.shared_dims)
        lane = lane_dim(nest, nest.ops[-1])
        register: dict[int, int] = {}
        if lane in shared_dims:
            register[lane] = self.fitting(lane, VECTOR_LOAD_ELEMENTS)
            shared_dims.sort(key=lambda d: d != lane)
        transposed_dims = [d for op in nest.ops for a in op.inputs for d in shared_dims if d != lane and a.stride(d) == 1]
        max_group_items = self.max_group_items(prod(self.steps(d, register.get(d, 1)) for d in shared_dims))
        if lane in shared_dims and transposed_dims:
            transposed_dim = transposed_dims[0]
            register[transposed_dim] = self.fitting(transposed_dim, VECTOR_LOAD_ELEMENTS)
            lane_items = self.assign_items([lane], register, max(1, int(max_group_items**0.5)))
            shared_dims.remove(lane)
            shared_dims.sort(key=lambda d: d != transposed_dim)
            items = {**self.assign_items(shared_dims, register, max_group_items // lane_items.get(lane, 1)), **lane_items}
        else:
            register |= self.window_rows_per_item(lane, register)
            items = self.assign_items(shared_dims, register, max_group_items)
        return self.with_grid(GroupTiles(register=register, items=items, chunks=self.chunks()))

    def window_rows_per_item(self, lane: int | None, register: dict[int, int]) -> dict[int, int]:
        """Return a tile of output rows that share the weights of a sliding window; empty if too few work-items remain."""
        nest = self.nest
        shared_dims = [d for d in self.innermost_first(nest.shared_dims) if d != lane and d not in nest.dynamic_dims]
        reuse_dims = (d for d in shared_dims if any(not a.uses(d) for op in nest.ops if op.reductions for a in op.inputs))
        d = next(reuse_dims, None)
        if d is None:
            return {}
        num_tiles = prod(self.steps(other, register.get(other, 1)) for other in nest.shared_dims)
        candidates = (
            rows
            for rows in _WINDOW_ROWS_PER_ITEM
            if nest.extents[d] % rows == 0 and self.fitting(d, rows) == rows and num_tiles // rows >= self.resident_items
        )
        rows = next(candidates, None)
        return {d: rows} if rows is not None else {}
