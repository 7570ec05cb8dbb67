"""Choose plans with packed panels and cache blocking for contractions, streaming plans for memory-bound reductions.

A *panel* is a task's copy of an operand, in the order in which register tiles read it. A large operand that few
tiles read is streamed in memory order instead, as is the operand of a reduction over rows (column sums).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd, prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.blocking.choose_streaming import StreamingChooser
from dlc.passes.tiling.loop_nests import NestOp, leading_reduction
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tile_sizes import balanced_tile

# The panels of a task with several products of a batch, which share no operands, fill at most this fraction of the L2 cache:
# 1 / `_BATCH_L2_DIVISOR`.
_BATCH_L2_DIVISOR = 8


class BlockedTileChooser(StreamingChooser):
    """Choose plans for the leading reduction of a nest with static extents and no prepacked operand."""

    def plan(self) -> TaskTiles | BlockedTiles | None:
        """Return a plan with packed panels or streaming; None if neither is profitable."""
        nest = self.nest
        nest_op = leading_reduction(nest)
        if nest_op is None or nest.dynamic_dims or nest.panel_sizes:
            return None
        lane = next((d for d in nest.shared_dims if nest_op.output.stride(d) == 1), None)
        if lane is None or nest.extents[lane] < self.lanes(nest_op):
            return None
        if not all(a.is_plain for a in (*nest_op.inputs, nest_op.output)):
            return None
        order = self.order(nest.shared_dims, lane)
        if not nest_op.is_contraction:
            return None if nest_op.has_transcendental_math else self.plan_streaming(nest_op, lane, {}, order)
        register = self.contraction_tile(nest_op, lane)
        panels = tuple(k for k in nest_op.input_accesses if self.is_worth_packing(nest_op, k, register, lane))
        if not panels:
            return self.plan_streaming(nest_op, lane, register, order)
        operands_fit_l2 = self.operands_fit_l2(nest_op, panels)
        blocks = {} if operands_fit_l2 else self.blocks(nest_op)
        row_operands = [k for k in nest_op.input_accesses if blocks and self.is_worth_packing_rows(nest_op, k, panels, lane)]
        if row_operands and self.amortizes_row_packing(
            (row_packed_plan := self.plan_packed(nest_op, lane, order, blocks, {*panels, *row_operands})), lane
        ):
            return row_packed_plan
        return self.plan_packed(nest_op, lane, order, blocks, panels, operands_fit_l2)

    def plan_packed(
        self,
        nest_op: NestOp,
        lane: int,
        order: tuple[int, ...],
        blocks: dict[int, int],
        packed_operands: Iterable[int],
        operands_fit_l2: bool = False,
    ) -> BlockedTiles:
        """Return the plan that packs `packed_operands`.

        With `operands_fit_l2` the plan has the same tiles and loop order, but reads the operands in place.
        """
        panels = tuple(sorted(packed_operands))
        register = self.contraction_tile(nest_op, lane, panels)
        if any(nest_op.input_accesses[k].uses(lane) for k in panels):
            # Rows are read in place, and stay in cache during the loop over all panels.
            batch_dims = [d for d in order if d != lane and nest_op.all_inputs_use(d)]
            order = (*batch_dims, *(d for d in order if d != lane and d not in batch_dims), lane)
        if operands_fit_l2:
            panels = ()
        grid, macro_tile = self.blocked_grid(nest_op, register, order, blocks, panels)
        prefetch = self.prefetch(nest_op) if blocks or operands_fit_l2 else ()
        return BlockedTiles(
            grid=grid,
            order=order,
            register=register,
            chunks=self.chunks(lane),
            steps=self.steps(register, lane),
            blocks=blocks,
            panels=panels,
            macro_tile=macro_tile,
            prefetch=prefetch,
        )

    def amortizes_row_packing(self, plan: BlockedTiles, lane: int) -> bool:
        """Return whether packing rows is profitable: it needs more than twice the tiles per macro tile that lanes need."""
        columns = plan.macro_tile.get(lane, plan.grid[lane])
        return columns > 2 * self.target.costs.min_tiles_per_panel * plan.register[lane]

    def is_lane_innermost(self, nest_op: NestOp, lane: int, batch_dims: Sequence[int]) -> bool:
        """Return False: the loop order depends on which operands are packed."""
        return False

    def max_local_sums(self, nest_op: NestOp, blocks: Mapping[int, int]) -> int:
        """Return the maximum number of accumulators of a task.

        Accumulators in the destination are not limited; local ones share the stack with the packed panels.
        """
        if not blocks or nest_op.output.root not in self.nest.local_buffers():
            return prod(self.nest.extents[d] for d in self.nest.shared_dims)
        costs = self.target.costs
        # The panels of the inner and of the outer dimensions, and as much for their padding and the buffers of a tile.
        panel_elements = (2 + costs.outer_cache_blocks) * costs.block_elements
        size = nest_op.element_bytes()
        return max(costs.stack_bytes // size - panel_elements, costs.max_l1_partial_sums)

    def is_worth_packing(self, nest_op: NestOp, k: int, register: dict[int, int], lane: int) -> bool:
        """Return whether to pack an operand: many tiles read it, and its lanes are strided or its rows exceed the L1 cache.

        Rows at a distance that is divisible by a large power of two map to the same sets of the L1 cache. For an operand
        larger than the L2 cache half as many tiles are enough.
        """
        nest, costs, a = self.nest, self.target.costs, nest_op.input_accesses[k]
        reading_tiles = prod(-(-nest.extents[d] // register.get(d, 1)) for d in nest.shared_dims if not a.uses(d))
        exceeds_l2 = prod(nest.extents[d] for d in nest_op.dims if a.uses(d)) > costs.block_elements
        if reading_tiles < (costs.min_tiles_per_panel // 2 if exceeds_l2 else costs.min_tiles_per_panel):
            return False
        if a.uses(lane) and a.stride(lane) != 1:
            return a.stride(nest_op.reduced_dims[-1]) == 1
        is_strided = self.reduction_stride_bytes(nest_op, k) >= ALIGNMENT_BYTES
        return is_strided and prod(nest.extents[d] for d in nest_op.reductions) > self.l1_resident_steps(nest_op, k)

    def prefetch(self, nest_op: NestOp) -> tuple[int, ...]:
        """Return the operands to prefetch: those with short row segments, at whose ends the hardware prefetcher stops."""
        if self.target.costs.prefetch is None:
            return ()
        return tuple(k for k, a in nest_op.input_accesses.items() if any(a.stride(d) == 1 for d in self.nest.shared_dims))

    def operands_fit_l2(self, nest_op: NestOp, panels: Sequence[int]) -> bool:
        """Return whether the operands need no packing because the caches hold them in place.

        This is the case for the products of a batch if the L2 cache holds one product and the next, which is prefetched, and
        the L1 cache holds half a block of their rows.
        """
        nest, costs = self.nest, self.target.costs
        batch_dims = [d for d in nest.shared_dims if nest.extents[d] > 1 and nest_op.is_batch_dim(d)]
        if not batch_dims or not {*panels} <= {*self.prefetch(nest_op)}:
            return False
        product_dims = [d for d in nest_op.dims if d not in batch_dims]
        two_products = 2 * sum(prod(nest.extents[d] for d in product_dims if a.uses(d)) for a in nest_op.inputs)
        return two_products <= costs.block_elements and all(
            2 * self.l1_resident_steps(nest_op, k) >= costs.block_lines for k in panels
        )

    def l1_resident_steps(self, nest_op: NestOp, k: int) -> int:
        """Return the number of k iterations whose lines of an operand fit the L1 cache, at one line per iteration."""
        costs, reduction_stride_bytes = self.target.costs, self.reduction_stride_bytes(nest_op, k)
        return costs.cache_ways * (costs.way_bytes // max(ALIGNMENT_BYTES, gcd(costs.way_bytes, reduction_stride_bytes)))

    def reduction_stride_bytes(self, nest_op: NestOp, k: int) -> int:
        """Return the distance in bytes between the elements of an operand that consecutive k iterations read."""
        return int(nest_op.input_accesses[k].stride(nest_op.reduced_dims[-1])) * nest_op.element_bytes(k)

    def is_worth_packing_rows(self, nest_op: NestOp, k: int, panels: Sequence[int], lane: int) -> bool:
        """Return whether to pack the row operand next to packed lanes: the rows of a tile are in different pages."""
        a, packs_lanes = nest_op.input_accesses[k], any(nest_op.input_accesses[j].uses(lane) for j in panels)
        return packs_lanes and not a.uses(lane) and a.stride(nest_op.reduced_dims[-1]) == 1

    def blocked_grid(
        self, nest_op: NestOp, register: dict[int, int], order: Sequence[int], blocks: dict[int, int], panels: Sequence[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the task tile and the macro tile of a plan with cache blocks: a few large tasks that share blocks.

        Operands along the innermost dimension of a task stay in the L2 cache, if packed one macro tile at a time. Operands
        along the other dimensions may be in an outer cache, since all register tiles of a macro tile reuse them. Of two loop
        orders, the one whose tasks pack the fewest elements is chosen.
        """
        costs, extents, inner = self.target.costs, self.nest.extents, order[-1]
        max_work = max(costs.task_work, self.work_per_point() * prod(extents[d] for d in order) // costs.min_block_tasks)
        steps_per_block = prod(blocks.get(d, extents[d]) for d in nest_op.reductions)
        packed_accesses = [nest_op.input_accesses[k] for k in panels]
        packed_inner = [a for a in packed_accesses if a.uses(inner)]
        max_sums = self.max_local_sums(nest_op, blocks)

        def max_task_tiles(d: int, block: dict[int, int]) -> int:
            max_tiles = min(max_work // self.work_per_point(), max_sums) // prod(block.values())
            if nest_op.all_inputs_use(d):
                packed_elements = steps_per_block * sum(_elements(a, block) for a in packed_accesses or nest_op.inputs)
                return min(max_tiles, costs.block_elements // (_BATCH_L2_DIVISOR * packed_elements))
            if d == inner:
                return max_tiles if packed_inner else min(max_tiles, self.l2_resident_tiles(nest_op, steps_per_block, d, block))
            return min(max_tiles, costs.outer_cache_blocks * self.l2_resident_tiles(nest_op, steps_per_block, d, block))

        def packed_elements(grid: dict[int, int]) -> int:
            tasks = prod(-(-extents[d] // size) for d, size in grid.items())
            return sum(tasks * _elements(a, grid) for a in packed_accesses)

        loop_orders = (order, (*order[1:], order[0]))
        grid = min((self.split_into_tasks(register, o, max_task_tiles) for o in loop_orders), key=packed_elements)
        if not packed_inner:
            return grid, {}
        tile = {inner: register.get(inner, 1)} | {d: size for d, size in grid.items() if d != inner}
        read_tile = {d: size for d, size in tile.items() if d == inner or any(a.uses(d) for a in packed_inner)}
        resident_tiles = max(1, self.l2_resident_tiles(nest_op, steps_per_block, inner, read_tile))
        inner_tiles = -(-grid[inner] // tile[inner])
        return grid, {inner: tile[inner] * balanced_tile(inner_tiles, resident_tiles)} if resident_tiles < inner_tiles else {}

    def l2_resident_tiles(self, nest_op: NestOp, steps: int, d: int, block: Mapping[int, int]) -> int:
        """Return the number of tiles along a dimension whose operands fit the L2 cache for `steps` k iterations of a block."""
        elements_per_step = max(_elements(a, block) for a in nest_op.inputs if a.uses(d))
        return self.target.costs.block_elements // (steps * elements_per_step)


def _elements(a: AffineAccess, block: Mapping[int, int]) -> int:
    """Return the elements of an operand per k iteration that a block reads."""
    return prod(size for d, size in block.items() if a.uses(d))
