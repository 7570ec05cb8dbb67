"""The body of a register tile of a work-item."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dlc.dialects.loop_attributes import UNROLLED
from dlc.ir import Operation, UnitAttr
from dlc.passes.tiling.buffer_views import BufferView
from dlc.passes.tiling.iteration_ranges import Tile
from dlc.passes.tiling.loop_nests import NestOp
from dlc.passes.tiling.tile_body import TileBody

# Maximum iterations of a reduction that a work-item unrolls.
_MAX_UNROLLED_REDUCTION_STEPS = 64


class ItemTileBody(TileBody):
    """All ops on one register tile of a work-item, with unrolled short reductions."""

    def annotate(self, op: Operation, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView]) -> None:
        reads_own_buffers = any(k < len(nest_op.op.operands) - 1 for k in operand_views)
        if not reads_own_buffers and 1 < prod(tile[d].size for d in nest_op.reductions) <= _MAX_UNROLLED_REDUCTION_STEPS:
            # Unrolled global loads are issued together.
            op.attributes[UNROLLED] = UnitAttr()
