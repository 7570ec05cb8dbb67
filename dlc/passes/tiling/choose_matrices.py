"""Choosing a tile plan for a contraction of words on a device whose items multiply matrices together.

Each unit of the device goes through its groups, a few at once, step by step of what is reduced. A step takes longer by what is
read from local memory, which large parts read less of, and never less than it takes to bring anything, to meet and to multiply
one part. The numbers are the device's (`ProductsByMatrices`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dlc.dialects.matrices import WORDS
from dlc.passes.tiling.matrix_products import MatrixProduct, brings_whole, matrix_product
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import Matrices, TilePlan, promoted_stage
from dlc.target import Target

# Rows and columns of a group's tile, and of the part of it that 32 items multiply.
TILES = (
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


def choose_matrices(nest: Nest, target: Target) -> TilePlan | None:
    """The plan for a contraction by matrix units; None where the nest is none, or the target has none."""
    stage = promoted_stage(nest)
    if stage is None or target.groups is None or not target.dots:
        return None
    product = matrix_product(stage, nest)
    if product is None or product.dot not in target.dots:
        return None
    few = prod(nest.extents[d] for d in product.rows) <= target.machine.groups.few_rows
    return None if few else _Chooser(nest, target, product).plan()


@dataclass(frozen=True)
class _Chooser:
    nest: Nest
    target: Target
    product: MatrixProduct

    def plan(self) -> TilePlan | None:
        plans = [self.planned(*tile) for tile in TILES if self.fits(*tile)]
        return min(plans, key=self.cost, default=None)

    def fits(self, rows: int, columns: int, down: int, right: int) -> bool:
        """Whether a group may be so large, and its items bring whole pieces of both operands."""
        groups = self.target.groups
        assert groups is not None
        m = Matrices(self.product.rows, self.product.column, rows, columns, down, right)
        local = 4 * WORDS * (rows + columns)
        return m.items <= groups.items and local <= groups.local_bytes and brings_whole(m)

    def planned(self, rows: int, columns: int, down: int, right: int) -> TilePlan:
        """Rows are those of the inner dimensions, as far as they go, and several of the outer ones."""
        product, extents = self.product, self.nest.extents
        matrices, left = Matrices(product.rows, product.column, rows, columns, down, right), rows
        grid = {d: 1 for d in self.nest.shared} | {product.column: min(columns, extents[product.column])}
        for d in reversed(product.rows):
            grid[d] = min(left, extents[d])
            left //= grid[d]
        order = (*(d for d in self.nest.shared if d not in (*product.rows, product.column)), *product.rows, product.column)
        items, promote = {product.column: matrices.items}, {product.words: WORDS}
        return TilePlan(grid={d: grid[d] for d in order}, order=order, items=items, promote=promote, matrices=matrices)

    def cost(self, plan: TilePlan) -> float:
        """The time that a step takes of all groups, relative."""
        m, groups, of = plan.matrices, self.target.groups, self.target.machine.groups.matrices
        assert m is not None and groups is not None
        count = prod(-(-self.nest.extents[d] // size) for d, size in plan.grid.items())
        in_turn, sums, tile = -(-count // groups.units), m.down * m.right, m.rows * m.columns
        at_once = max(1, min(of.parts, of.sums // sums) * sums // tile)
        multiplied = in_turn * tile * (1 + of.read / m.down + of.read / m.right)
        return multiplied + -(-in_turn // at_once) * (of.least + of.least_sum * sums)
