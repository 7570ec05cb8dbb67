"""Choose a plan with packed panels and cache blocking for a contraction, or a streaming plan for a memory-bound reduction.

A *panel* is a task's copy of an operand in the order in which register tiles read it. A large operand that few
tiles read is not packed, but streamed in memory order, like the operand of a reduction over rows (column sums).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.loop_nests import NestStage
from dlc.passes.tiling.plan import TilePlan, divisor_tile, leading_reduction
from dlc.passes.tiling.tile_rules import MAX_ROW_VECTORS, TileRules
from dlc.passes.types import memref_of

# Products of a batch share no operands: the panels of all products of a task may fill 1 / `_BATCH_L2_DIVISOR` of the L2 cache.
_BATCH_L2_DIVISOR = 8


class CacheBlockingChooser(TileRules):
    """Choose plans for the leading reduction of a nest with static extents and no prepacked operand."""

    def plan(self) -> TilePlan | None:
        """Return a plan with packed panels or streaming for the nest; None if neither pays."""
        nest = self.nest
        stage = leading_reduction(nest)
        if stage is None or nest.dynamic_dims or nest.panel_sizes:
            return None
        lane = next((d for d in nest.shared if stage.output.stride(d) == 1), None)
        if lane is None or nest.extents[lane] < self.lanes(stage):
            return None
        if not all(a is None or all(t.is_plain for t in a.terms) for a in stage.accesses):
            return None
        order = self.order(nest.shared, lane)
        if not stage.is_contraction:
            return None if stage.has_transcendental_math else self.plan_streaming(stage, lane, {}, order)
        register = self.contraction_tile(stage, lane)
        panels = tuple(k for k in range(len(stage.accesses) - 1) if self.is_worth_packing(stage, k, register, lane))
        if not panels:
            return self.plan_streaming(stage, lane, register, order)
        operands_fit_l2 = self.operands_fit_l2(stage, panels)
        blocks = {} if operands_fit_l2 else self.blocks(stage)
        row_operands = [
            k for k in range(len(stage.accesses) - 1) if blocks and self.is_worth_packing_rows(stage, k, panels, lane)
        ]
        if row_operands and self.amortizes_row_packing(
            (row_packed_plan := self.plan_packed(stage, lane, order, blocks, {*panels, *row_operands})), lane
        ):
            return row_packed_plan
        return self.plan_packed(stage, lane, order, blocks, panels, operands_fit_l2)

    def plan_packed(
        self,
        stage: NestStage,
        lane: int,
        order: tuple[int, ...],
        blocks: dict[int, int],
        packed_operands: Iterable[int],
        operands_fit_l2: bool = False,
    ) -> TilePlan:
        """Return the plan that packs `packed_operands`.

        With `operands_fit_l2` they are read in place, with the same tiles and loop order.
        """
        panels = tuple(sorted(packed_operands))
        register = self.contraction_tile(stage, lane, panels)
        if any(a is not None and a.uses(lane) for a in (stage.accesses[k] for k in panels)):
            # Rows are accessed in place and stay in cache while all panels are iterated.
            batch = [d for d in order if d != lane and all(a.uses(d) for a in stage.inputs)]
            order = (*batch, *(d for d in order if d != lane and d not in batch), lane)
        if operands_fit_l2:
            # The tiles and the loop order are as good for operands that are read in place.
            panels = ()
        grid, macro_tile = self.blocked_grid(stage, register, order, blocks, panels)
        chunks, steps = self.chunks(lane), self.steps(register, lane)
        prefetch = self.prefetch(stage) if blocks or operands_fit_l2 else ()
        return TilePlan(
            grid, register, order, chunks, steps, blocks=blocks, panels=panels, macro_tile=macro_tile, prefetch=prefetch
        )

    def amortizes_row_packing(self, plan: TilePlan, lane: int) -> bool:
        """Return whether packing rows is profitable: it needs more than twice as many tiles per macro tile as packing lanes."""
        columns = plan.macro_tile.get(lane, plan.grid[lane])
        return columns > 2 * self.target.costs.min_tiles_per_panel * plan.register[lane]

    def is_lane_innermost(self, stage: NestStage, lane: int, batch: Sequence[int]) -> bool:
        """Return False: the loop order depends on which operands are packed."""
        return False

    def plan_streaming(self, stage: NestStage, lane: int, register: dict[int, int], order: tuple[int, ...]) -> TilePlan | None:
        """Return a plan that streams a large operand, read by few tiles, in memory order; None for other nests.

        Each step reads a few complete rows of the operand, with accumulators in registers or in the L1 cache; a column of
        tiles would touch another page at each step. Each reduction of a batch must be enough work for a task, which the
        reductions of sliding windows are not.
        """
        costs, extents = self.target.costs, self.nest.extents
        matrix_dims = stage.reductions | {lane}
        batch = [d for d in order if d != lane and all(a.uses(d) for a in stage.inputs)]
        rows = [d for d in order if d != lane and d not in batch]
        # Batch dimensions share no operands: they are not part of a tile.
        register = {d: register[d] for d in (lane, *rows) if d in register} if rows else self.streaming_tile(stage, lane)
        input_dims = ([d for d in stage.dims if d not in batch and a.uses(d)] for a in stage.inputs if a.stride(lane) == 1)
        large = any(matrix_dims == frozenset(dims) for dims in input_dims)
        tiles = prod(-(-extents[d] // register.get(d, 1)) for d in rows)
        if (
            not large
            or prod(extents[d] for d in (*matrix_dims, *batch)) <= costs.block_elements
            or tiles >= costs.min_tiles_per_panel
        ):
            return None
        count = prod(extents[d] for d in rows)
        work = self.work_per_point() * count
        if batch and not stage.is_contraction and work * extents[lane] < costs.task_work:
            return None
        total_work = work * prod(extents[d] for d in (lane, *batch))
        max_work = max(costs.task_work, total_work // costs.min_block_tasks)
        columns = max(1, min(max_work // work, costs.max_l1_partial_sums // count) // register[lane])
        task_tiles = {d: 1 for d in batch} | {lane: columns}
        grid = self.split_into_tasks(register, (*batch, lane, *rows), lambda d, _: task_tiles.get(d, extents[d]))
        # For a single row of results, each step reads one complete row of the operand.
        is_single_row = count == 1 and columns * register[lane] >= extents[lane]
        blocks = self.blocks(stage, 1 if is_single_row else costs.unpacked_row_block) if register[lane] < extents[lane] else {}
        return TilePlan(grid, register, order, self.chunks(lane), self.steps(register, lane), blocks=blocks)

    def streaming_tile(self, stage: NestStage, lane: int) -> dict[int, int]:
        """Return a register tile for a whole row of results if it fits half of the registers, else a tile of maximum width."""
        max_whole_row, max_width = self.target.vector_registers // 2 * self.lanes(stage), MAX_ROW_VECTORS * self.lanes(stage)
        return {lane: self.nest.extents[lane] if self.nest.extents[lane] <= max_whole_row else max_width}

    def blocks(self, stage: NestStage, steps: int | None = None) -> dict[int, int]:
        """Return the cache block sizes (kc) of the reduction, for about `steps` steps per block (default: the cost model's).

        Inner dimensions are whole as far as possible, outer ones have blocks of 1. If no operand is contiguous along the
        reduction, each step reads separate cache lines of both operands, so the L1 cache holds fewer steps.
        """
        extents, costs = self.nest.extents, self.target.costs
        reduced = [d for d in stage.dims if d in stage.reductions]
        is_contiguous = any(a.stride(reduced[-1]) == 1 for a in stage.inputs)
        max_steps = steps or (costs.block_steps if is_contiguous else costs.block_lines)
        total = prod(extents[d] for d in reduced)
        max_unblocked = costs.unblocked_steps if is_contiguous and steps is None else 3 * max_steps // 2
        remaining = total if total <= max_unblocked else max_steps
        blocks: dict[int, int] = {}
        for d in reversed(reduced):
            blocks[d] = divisor_tile(extents[d], remaining)
            remaining = remaining // blocks[d] if blocks[d] == extents[d] else 1
        return {d: size for d, size in blocks.items() if size < extents[d]}

    def is_worth_packing(self, stage: NestStage, k: int, register: dict[int, int], lane: int) -> bool:
        """Return whether packing an operand pays: it is reused, and has strided lanes or rows that the L1 cache does not hold.

        Rows whose distance is a multiple of a power of two map to the same sets of the L1 cache. For an operand that does
        not fit the L2 cache half as much reuse is enough.
        """
        nest, costs, a = self.nest, self.target.costs, stage.accesses[k]
        if a is None:
            return False
        tiles = prod(-(-nest.extents[d] // register.get(d, 1)) for d in nest.shared if not a.uses(d))
        exceeds_l2 = prod(nest.extents[d] for d in stage.dims if d >= 0 and a.uses(d)) > costs.block_elements
        if tiles < (costs.min_tiles_per_panel // 2 if exceeds_l2 else costs.min_tiles_per_panel):
            return False
        if a.uses(lane) and a.stride(lane) != 1:
            return a.stride(next(d for d in reversed(stage.dims) if d in stage.reductions)) == 1
        is_strided = self.reduction_stride_bytes(stage, k) >= ALIGNMENT_BYTES
        return is_strided and prod(nest.extents[d] for d in stage.reductions) > self.l1_resident_steps(stage, k)

    def prefetch(self, stage: NestStage) -> tuple[int, ...]:
        """Return the operands to prefetch: those read in short row segments, at whose ends hardware prefetching stops."""
        if self.target.costs.prefetch is None:
            return ()
        operands, shared = enumerate(stage.accesses[:-1]), self.nest.shared
        return tuple(k for k, a in operands if a is not None and any(a.stride(d) == 1 for d in shared))

    def operands_fit_l2(self, stage: NestStage, panels: Sequence[int]) -> bool:
        """Return whether the operands need no packing because the caches hold them in place.

        That is so for the products of a batch if the L2 cache holds a product and the next one, which is prefetched meanwhile,
        and the L1 cache holds half a block of their rows.
        """
        nest, costs = self.nest, self.target.costs
        batch = [d for d in nest.shared if nest.extents[d] > 1 and stage.is_batch_dim(d)]
        if not batch or not {*panels} <= {*self.prefetch(stage)}:
            return False
        product_dims = [d for d in stage.dims if d >= 0 and d not in batch]
        two_products = 2 * sum(prod(nest.extents[d] for d in product_dims if a.uses(d)) for a in stage.inputs)
        return two_products <= costs.block_elements and all(
            2 * self.l1_resident_steps(stage, k) >= costs.block_lines for k in panels
        )

    def l1_resident_steps(self, stage: NestStage, k: int) -> int:
        """Return the number of reduction steps for which the L1 cache holds a separate line of an operand each."""
        costs, reduction_stride_bytes = self.target.costs, self.reduction_stride_bytes(stage, k)
        return costs.cache_ways * (costs.way_bytes // max(ALIGNMENT_BYTES, gcd(costs.way_bytes, reduction_stride_bytes)))

    def reduction_stride_bytes(self, stage: NestStage, k: int) -> int:
        """Return the distance in bytes between an operand's elements of consecutive reduction steps."""
        a, last = stage.accesses[k], next(d for d in reversed(stage.dims) if d in stage.reductions)
        row = 0 if a is None else int(a.stride(last))
        return row * numpy_dtype(memref_of(stage.op.operands[k]).element_type).itemsize

    def is_worth_packing_rows(self, stage: NestStage, k: int, panels: Sequence[int], lane: int) -> bool:
        """Return whether to pack the row operand as well, if lanes are packed: the rows of a tile are in different pages."""
        a, last = stage.accesses[k], next(d for d in reversed(stage.dims) if d in stage.reductions)
        packs_lanes = any(b is not None and b.uses(lane) for b in (stage.accesses[j] for j in panels))
        return packs_lanes and a is not None and not a.uses(lane) and a.stride(last) == 1

    def blocked_grid(
        self, stage: NestStage, register: dict[int, int], order: Sequence[int], blocks: dict[int, int], panels: Sequence[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the task tile and the macro tile of a plan with cache blocks: a few large tasks that share blocks.

        Operands along the innermost dimension of a task stay in the L2 cache, if packed one macro tile at a time. Operands
        along the other dimensions may be in an outer cache, since a whole macro tile reuses each of their register tiles.
        Chooses the loop order whose tasks pack the fewest elements.
        """
        costs, extents, inner = self.target.costs, self.nest.extents, order[-1]
        max_work = max(costs.task_work, self.work_per_point() * prod(extents[d] for d in order) // costs.min_block_tasks)
        steps = prod(blocks.get(d, extents[d]) for d in stage.reductions)
        packed_inner = [a for k in panels if (a := stage.accesses[k]) is not None and a.uses(inner)]

        def fitting_tiles(d: int, block: dict[int, int]) -> int:
            read = max(prod(size for x, size in block.items() if a.uses(x)) for a in stage.inputs if a.uses(d))
            return costs.block_elements // (steps * read)

        def tiles(d: int, block: dict[int, int]) -> int:
            max_tiles = max_work // (self.work_per_point() * prod(block.values()))
            if all(a.uses(d) for a in stage.inputs):
                packed_accesses = [a for k in panels if (a := stage.accesses[k]) is not None] or stage.inputs
                packed_elements = steps * sum(prod(size for x, size in block.items() if a.uses(x)) for a in packed_accesses)
                return min(max_tiles, costs.block_elements // (_BATCH_L2_DIVISOR * packed_elements))
            if d == inner:
                return max_tiles if packed_inner else min(max_tiles, fitting_tiles(d, block))
            return min(max_tiles, costs.outer_cache_blocks * fitting_tiles(d, block))

        def packed_elements(grid: dict[int, int]) -> int:
            tasks = prod(-(-extents[d] // size) for d, size in grid.items())
            return sum(
                tasks * prod(size for d, size in grid.items() if (a := stage.accesses[k]) is not None and a.uses(d))
                for k in panels
            )

        grid = min(
            (self.split_into_tasks(register, loop_order, tiles) for loop_order in (order, (*order[1:], order[0]))),
            key=packed_elements,
        )
        macro_tile = {**{d: register.get(d, 1) for d in order}, **{d: size for d, size in grid.items() if d != inner}}
        inner_tiles = -(-grid[inner] // macro_tile[inner])
        wanted_tiles = max(
            1, fitting_tiles(inner, {d: s for d, s in macro_tile.items() if d == inner or any(a.uses(d) for a in packed_inner)})
        )
        if not packed_inner or wanted_tiles >= inner_tiles:
            return grid, {}
        return grid, {inner: macro_tile[inner] * -(-inner_tiles // -(-inner_tiles // wanted_tiles))}
