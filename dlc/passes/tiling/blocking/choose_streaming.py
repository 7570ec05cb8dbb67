"""Choose plans that stream a large operand, which few tiles read, in memory order."""

from __future__ import annotations

from math import prod

from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.loop_nests import NestOp
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tasks.tile_rules import MAX_ROW_VECTORS, TileRules
from dlc.passes.tiling.tile_sizes import divisor_tile

# A reduction of up to this many times the steps of a block is one block: a short second block would not pay for storing the
# partial sums.
_SINGLE_BLOCK_FACTOR = 1.5


class StreamingChooser(TileRules):
    """Choose streaming plans, and the cache blocks of a reduction."""

    def plan_streaming(
        self, nest_op: NestOp, lane: int, register: dict[int, int], order: tuple[int, ...]
    ) -> TaskTiles | BlockedTiles | None:
        """Return a plan that streams a large operand, which few tiles read, in memory order; None for other nests.

        Each step reads a few complete rows of the operand, with accumulators in registers or in the L1 cache. Tiles of a few
        columns would instead access another page at each step. With a batch, each of its reductions must be enough work for
        a task, unlike the reductions of sliding windows.
        """
        costs, extents = self.target.costs, self.nest.extents
        matrix_dims = nest_op.reductions | {lane}
        batch_dims = [d for d in order if d != lane and nest_op.all_inputs_use(d)]
        rows = [d for d in order if d != lane and d not in batch_dims]
        # Batch dimensions share no operands: they are not part of a tile.
        register = {d: register[d] for d in (lane, *rows) if d in register} if rows else self.streaming_tile(nest_op, lane)
        input_dims = (
            [d for d in nest_op.dims if d not in batch_dims and a.uses(d)] for a in nest_op.inputs if a.stride(lane) == 1
        )
        is_streamed = any(matrix_dims == frozenset(dims) for dims in input_dims)
        tiles = prod(-(-extents[d] // register.get(d, 1)) for d in rows)
        if (
            not is_streamed
            or prod(extents[d] for d in (*matrix_dims, *batch_dims)) <= costs.block_elements
            or tiles >= costs.min_tiles_per_panel
        ):
            return None
        results_per_lane = prod(extents[d] for d in rows)
        work = self.work_per_point() * results_per_lane
        if batch_dims and not nest_op.is_contraction and work * extents[lane] < costs.task_work:
            return None
        total_work = work * prod(extents[d] for d in (lane, *batch_dims))
        max_work = max(costs.task_work, total_work // costs.min_block_tasks)
        columns = max(1, min(max_work // work, costs.max_l1_partial_sums // results_per_lane) // register[lane])
        task_tiles = {d: 1 for d in batch_dims} | {lane: columns}
        grid = self.split_into_tasks(register, (*batch_dims, lane, *rows), lambda d, _: task_tiles.get(d, extents[d]))
        # For a single row of results, each step reads one complete row of the operand.
        is_single_row = results_per_lane == 1 and columns * register[lane] >= extents[lane]
        blocks = (
            self.blocks(nest_op, 1 if is_single_row else costs.unpacked_row_block) if register[lane] < extents[lane] else {}
        )
        chunks, steps = self.chunks(lane), self.steps(register, lane)
        if not blocks:
            return TaskTiles(grid=grid, order=order, register=register, chunks=chunks, steps=steps)
        return BlockedTiles(grid=grid, order=order, register=register, chunks=chunks, steps=steps, blocks=blocks)

    def streaming_tile(self, nest_op: NestOp, lane: int) -> dict[int, int]:
        """Return a register tile of a whole row of results if it fits half of the registers, else of maximum width."""
        max_whole_row, max_width = (
            self.target.vector_registers // 2 * self.lanes(nest_op),
            MAX_ROW_VECTORS * self.lanes(nest_op),
        )
        return {lane: self.nest.extents[lane] if self.nest.extents[lane] <= max_whole_row else max_width}

    def blocks(self, nest_op: NestOp, steps: int | None = None) -> dict[int, int]:
        """Return the cache block sizes (kc) of the reduction: about `steps` k iterations (default: the cost model's).

        Inner dimensions are not split as far as possible; outer ones have blocks of 1. If no operand is contiguous along
        the reduction, each k iteration reads separate cache lines of both operands, so the L1 cache holds fewer of them.
        """
        extents, costs = self.nest.extents, self.target.costs
        reduced_dims = nest_op.reduced_dims
        is_contiguous = any(a.stride(reduced_dims[-1]) == 1 for a in nest_op.inputs)
        max_steps = steps or (costs.block_steps if is_contiguous else costs.block_lines)
        total_steps = prod(extents[d] for d in reduced_dims)
        max_unblocked_steps = (
            costs.unblocked_steps if is_contiguous and steps is None else int(_SINGLE_BLOCK_FACTOR * max_steps)
        )
        remaining_steps = total_steps if total_steps <= max_unblocked_steps else max_steps
        blocks: dict[int, int] = {}
        for d in reversed(reduced_dims):
            blocks[d] = divisor_tile(extents[d], remaining_steps)
            remaining_steps = remaining_steps // blocks[d] if blocks[d] == extents[d] else 1
        return {d: size for d, size in blocks.items() if size < extents[d]}
