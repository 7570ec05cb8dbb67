"""Choose a tile plan for a contraction of packed operands on a device with matrix units.

Each compute unit runs a few of its groups concurrently. The time of a k iteration is proportional to the
multiplications plus the reads from local memory; large warp tiles need fewer reads. It is at least the latency of
fetching a chunk, synchronizing and multiplying. The constants are the device's (`MatrixUnitCosts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dlc.dialects.matrix_multiply import TILE_WORDS
from dlc.passes.tiling.loop_nests import SizedLoopNest, promoted_contraction
from dlc.passes.tiling.matrix_units.matrix_products import MatrixProduct, matrix_product
from dlc.passes.tiling.matrix_units.matrix_unit_tiles import MatrixUnitTiles
from dlc.target import Target

# Candidate tiles: rows and columns of a group's tile, then of the tile of one warp (32 work-items).
MATRIX_UNIT_TILES = (
    (64, 64, 32, 32),
    (128, 64, 32, 32),
    (64, 128, 32, 32),
    (128, 256, 64, 64),
    (128, 128, 64, 64),
    (32, 64, 16, 32),
    (64, 32, 16, 32),
    (32, 32, 16, 32),
    (16, 64, 16, 32),
)


def choose_matrix_unit_tiles(nest: SizedLoopNest, target: Target) -> MatrixUnitTiles | None:
    """Return the plan for a contraction on matrix units; None for other nests and targets."""
    nest_op = promoted_contraction(nest)
    if nest_op is None or target.groups is None or not target.dot_products:
        return None
    product = matrix_product(nest_op, nest)
    if product is None or product.dot not in target.dot_products:
        return None
    has_few_rows = prod(nest.extents[d] for d in product.rows) <= target.costs.groups.few_rows
    return None if has_few_rows else _MatrixUnitChooser(nest, target, product).plan()


@dataclass(frozen=True)
class _MatrixUnitChooser:
    nest: SizedLoopNest
    target: Target
    product: MatrixProduct

    def plan(self) -> MatrixUnitTiles | None:
        """Return the cheapest plan of all candidate tiles; None if none fits."""
        plans = (self.build_plan(*tile) for tile in MATRIX_UNIT_TILES)
        return min(filter(self.fits, plans), key=self.cost, default=None)

    def fits(self, plan: MatrixUnitTiles) -> bool:
        """Return whether a plan fits the limits of a group, and its work-items can have equally many loads of each operand."""
        groups = self.target.groups
        assert groups is not None
        local_bytes = 4 * TILE_WORDS * (plan.rows + plan.columns)
        return plan.num_items <= groups.items and local_bytes <= groups.local_bytes and plan.has_even_loads

    def build_plan(self, rows: int, columns: int, warp_rows: int, warp_columns: int) -> MatrixUnitTiles:
        """Return the plan for a tile, whose rows are the innermost row dimensions and several indices of the next ones."""
        product, extents, remaining_rows = self.product, self.nest.extents, rows
        grid = {d: 1 for d in self.nest.shared_dims} | {product.column: min(columns, extents[product.column])}
        for d in reversed(product.rows):
            grid[d] = min(remaining_rows, extents[d])
            remaining_rows //= grid[d]
        order = (*(d for d in self.nest.shared_dims if d not in (*product.rows, product.column)), *product.rows, product.column)
        return MatrixUnitTiles(
            grid={d: grid[d] for d in order},
            order=order,
            row_dims=product.rows,
            column=product.column,
            rows=rows,
            columns=columns,
            warp_rows=warp_rows,
            warp_columns=warp_columns,
        )

    def cost(self, plan: MatrixUnitTiles) -> float:
        """Return the relative time of one k iteration of all groups."""
        groups, costs = self.target.groups, self.target.costs.groups.matrix_units
        assert groups is not None
        num_groups = prod(-(-self.nest.extents[d] // size) for d, size in plan.grid.items())
        groups_per_unit = -(-num_groups // groups.units)
        warp_tile, group_tile = plan.warp_rows * plan.warp_columns, plan.rows * plan.columns
        resident_groups = max(1, min(costs.max_resident_tiles, costs.max_accumulators // warp_tile) * warp_tile // group_tile)
        multiply_time = (
            groups_per_unit * group_tile * (1 + costs.operand_load / plan.warp_rows + costs.operand_load / plan.warp_columns)
        )
        return multiply_time + -(-groups_per_unit // resident_groups) * (costs.min_step + costs.min_per_accumulator * warp_tile)
