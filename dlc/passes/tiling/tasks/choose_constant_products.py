"""Choose tile plans for products with constant matrices, such as Winograd transforms."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.constant_matrix_products import ConstantMatrixProduct, match_constant_matrix_product
from dlc.passes.tiling.loop_nests import lane_dim
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tasks.tile_rules import TileRules
from dlc.passes.tiling.tile_sizes import divisor_tile

# The share of the L1 cache for intermediate values.
_L1_SHARE = Fraction(2, 3)
# A task of up to this many times the preferred tiles avoids a partial one.
_MAX_FULL_TASK_FACTOR = 4


class ConstantProductChooser(TileRules):
    """Choose the plan of a nest with products with constant matrices."""

    def plan(self) -> TaskTiles | None:
        """Return the plan; None for other nests.

        A register tile computes all rows of a product, since rows share subexpressions, in as many vectors as fit registers.
        Rows of the result are far apart in memory and often map to the same cache sets. So the tile also spans adjacent
        positions, up to the number whose intermediate values fit the L1 cache, and writes one row at all positions before
        the next row. The lane dimension is the innermost loop.
        """
        products = {
            k: p for k, op in enumerate(self.nest.ops) if (p := match_constant_matrix_product(op, self.nest)) is not None
        }
        first_position = min(products, default=None)
        lane = None if first_position is None else lane_dim(self.nest, self.nest.ops[first_position])
        if first_position is None or lane not in self.nest.shared_dims or any(lane == p.row for p in products.values()):
            return None
        lanes = self.lanes(self.nest.ops[first_position])
        vectors = max(1, self.target.vector_registers // max(sum(p.shape) for p in products.values()))
        extent, rows = self.nest.extents, {p.row for p in products.values()}
        columns = divisor_tile(-(-extent[lane] // lanes), min(vectors, self.target.costs.vectors)) * lanes
        register = {lane: self.fitting(lane, columns)} | {d: extent[d] for d in rows if d in self.nest.shared_dims}
        steps = self.steps(register, lane)
        other_dims = [d for d in self.nest.shared_dims if d not in register and d not in self.nest.dynamic_dims]
        for d in sorted(other_dims, key=self.nest.ops[-1].output.stride)[:1]:
            register[d] = self.positions_in_l1(list(products.values()), extent[d], register[lane])
        for k, nest_op in enumerate(self.nest.ops):
            p = products.get(k)
            whole_dims = [p.row] if p is not None else [d for d in rows if d not in self.nest.shared_dims and d in nest_op.dims]
            single_step_dims = [d for d in register if d != lane and d in nest_op.dims and d not in whole_dims]
            steps[k] = {**steps.get(k, {}), **{d: 1 for d in single_step_dims}, **{d: extent[d] for d in whole_dims}}
        order = (*(d for d in self.order(self.nest.shared_dims, lane) if d != lane), lane)
        grid = self.grid(register, order, _full_tiles_per_task)
        return TaskTiles(grid=grid, order=order, register=register, chunks=self.chunks(lane), steps=steps)

    def positions_in_l1(self, products: Sequence[ConstantMatrixProduct], extent: int, columns: int) -> int:
        """Return the number of adjacent positions, of `columns` lanes each, whose intermediate values fit the L1 cache.

        Prefers a divisor of the extent between half and twice that number, because a remainder needs separate code.
        """
        costs, size = self.target.costs, numpy_dtype(products[0].element).itemsize
        product_bytes = max(n for p in products for n in p.shape) ** 2 * columns * size
        max_positions = max(1, int(_L1_SHARE * costs.l1_bytes / product_bytes))
        divisors = [n for n in range(max(max_positions // 2, 1), 2 * max_positions) if extent % n == 0]
        return max(
            (n for n in divisors if n <= max_positions), default=min(divisors, default=divisor_tile(extent, max_positions))
        )


def _full_tiles_per_task(steps: int, min_tiles: int) -> int:
    """Return a divisor of `steps` from `min_tiles` to several times that, so that all tasks are full; else a near-even split.

    A partial task needs separate code.
    """
    return next(
        (n for n in range(min_tiles, _MAX_FULL_TASK_FACTOR * min_tiles) if steps % n == 0), divisor_tile(steps, min_tiles)
    )
