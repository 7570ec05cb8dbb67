"""Independent register tiles: tasks that run all ops of a nest on one register tile after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from dlc.ir import Operation, UnitAttr, arith
from dlc.passes.tiling.buffer_views import BufferView
from dlc.passes.tiling.iteration_ranges import Tile
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.tiling.plan import ThreadTiles
from dlc.passes.tiling.structured_ops import TWO_ACCUMULATORS
from dlc.passes.tiling.tile_body import TileBody
from dlc.shapes.dims import Size
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class TaskTiles(ThreadTiles):
    """Independent register tiles.

    Attributes:
        balance_threshold: Unless None, tasks split dynamic extents evenly into as few register tiles as possible. Tiles with
            fewer rows than this use two sets of accumulators, because one would not hide the FMA latency.
    """

    balance_threshold: int | None = None

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        if self.balance_threshold is not None:
            yield f"dynamic rows are split evenly; tiles of fewer than {self.balance_threshold} rows accumulate twice"


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
