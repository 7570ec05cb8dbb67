"""The body of a register tile of a task with dynamic rows."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dlc.ir import Operation, UnitAttr, arith
from dlc.passes.tiling.buffer_views import BufferView
from dlc.passes.tiling.iteration_ranges import Tile
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.tiling.structured_ops import TWO_ACCUMULATORS
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tile_body import TileBody
from dlc.shapes.dims import Size


class TaskTileBody(TileBody):
    """All ops on one register tile; contractions of few dynamic rows have two sets of accumulators."""

    def __init__(self, nest: SizedLoopNest, plan: TaskTiles, tile: Tile, dynamic_extents: Mapping[int, Size]) -> None:
        super().__init__(nest, plan, tile, dynamic_extents)
        self.plan = plan

    def annotate(self, op: Operation, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView]) -> None:
        if self.plan.balance_threshold is None or not nest_op.is_contraction:
            return
        yield_op = op.regions[0].block.last_op
        is_sum = yield_op is not None and isinstance(yield_op.operands[0].owner, arith.AddfOp)
        dynamic_rows = prod(tile[d].size for d in self.plan.register if d in self.nest.dynamic_dims and d in tile)
        if is_sum and dynamic_rows < self.plan.balance_threshold:
            op.attributes[TWO_ACCUMULATORS] = UnitAttr()
