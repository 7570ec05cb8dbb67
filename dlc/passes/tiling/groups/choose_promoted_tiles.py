"""Choose plans of contractions whose operands are in local memory: the cheapest candidate by `contraction_cost.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf, prod

from dlc.passes.tiling.groups.contraction_cost import cost_of_contraction
from dlc.passes.tiling.groups.group_rules import GroupRules
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.loop_nests import NestOp, lane_dim, promoted_contraction
from dlc.passes.tiling.tile_sizes import VECTOR_LOAD_ELEMENTS, divisor_tile, vector_divisor_tile

# Candidate register tiles of a contraction (rows, columns), and candidate numbers of work-items along both.
_REGISTER_TILES = ((8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (1, 4))
_GROUP_SHAPES = ((16, 16), (8, 16), (16, 8), (8, 8), (4, 16), (4, 8))
# Candidate numbers of k iterations per chunk of operands in local memory.
_REDUCTION_CHUNK_STEPS = (8, 16, 32)
# Maximum unrolled multiply-adds of a work-item per chunk; more of them were slower on the measured GPUs.
_MAX_UNROLLED_MULTIPLY_ADDS = 1024


class PromotedTileChooser(GroupRules):
    """Choose the plan of a nest that begins with a contraction."""

    def plan(self) -> PromotedTiles | None:
        """Return the cheapest plan with operands in local memory; None if operands are not reused."""
        nest, nest_op = self.nest, promoted_contraction(self.nest)
        if nest_op is None or nest.dynamic_dims & nest_op.reductions:
            return None
        lane = lane_dim(nest, nest_op)
        if lane is None or lane not in nest.shared_dims:
            return None
        rows = [d for d in self.innermost_first(nest.shared_dims) if d != lane and nest_op.output.uses(d)]
        reused_dims = [d for a in nest_op.inputs for d in (lane, *rows) if not a.uses(d) and nest.extents[d] > self.few_rows]
        if lane not in reused_dims or not set(rows).intersection(reused_dims):
            return None
        plans = [p for p in self.candidates(nest_op, rows, lane) if self.local_bytes(p, nest_op) <= self.groups.local_bytes]
        return min(plans, key=lambda p: cost_of_contraction(p, nest, nest_op, self.target), default=None)

    def candidates(self, nest_op: NestOp, rows: list[int], lane: int) -> Iterator[PromotedTiles]:
        """Yield the candidate plans of a contraction."""
        nest = self.nest
        inner = min(nest_op.reduced_dims, key=lambda d: (min(a.stride(d) or inf for a in nest_op.inputs), -nest.extents[d]))
        # Dimensions that all operands have are a batch of independent products, which are not tiled.
        blocked = [d for d in rows if any(not a.uses(d) for a in nest_op.inputs)]
        for (height, width), (down, across), chunk, choose_tile in product(
            _REGISTER_TILES, _GROUP_SHAPES, _REDUCTION_CHUNK_STEPS, (divisor_tile, min)
        ):
            if down * across > self.groups.items:
                continue
            # A work-item has several tiles of a few adjacent columns, interleaved with those of the other work-items.
            columns = min(VECTOR_LOAD_ELEMENTS, nest.extents[lane])
            tile = {lane: (columns, max(1, min(width, nest.extents[lane]) // columns))}
            if blocked:
                tile[blocked[0]] = choose_tile(nest.extents[blocked[0]], height), 1
            # Along a dynamic dimension a work-item has several tiles of size 1.
            tile |= {d: (1, min(height if d != lane else width, nest.extents[d])) for d in nest.dynamic_dims.intersection(tile)}
            item_extents = {d: size * count for d, (size, count) in tile.items()}
            if prod(item_extents.values()) * chunk > _MAX_UNROLLED_MULTIPLY_ADDS:
                continue
            plan = PromotedTiles(
                register={d: size for d, (size, _) in tile.items()},
                items={**self.assign_items(blocked, item_extents, down), **self.assign_items([lane], item_extents, across)},
                promoted_dim=inner,
                chunk_size=vector_divisor_tile(nest.extents[inner], chunk),
                tiles_per_item={d: count for d, (_, count) in tile.items() if count > 1},
                chunks=self.chunks(),
            )
            yield self.with_grid(plan)

    def local_bytes(self, plan: PromotedTiles, nest_op: NestOp) -> int:
        """Return the bytes of local memory of the promoted operands, with an allowance for padding."""
        total = 0
        for k, a in nest_op.input_accesses.items():
            elements = prod(plan.group_tile(d) for d in plan.order if a.uses(d)) + VECTOR_LOAD_ELEMENTS
            total += plan.chunk_size * elements * nest_op.element_bytes(k)
        return total
