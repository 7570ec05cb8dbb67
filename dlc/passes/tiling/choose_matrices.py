"""Choosing a tile plan for a contraction of words on a device whose items multiply matrices together.

Each unit of the device goes through its groups, a few at once, step by step of what is reduced. A step takes longer by what is
read from local memory, which large parts read less of, and never less than it takes to bring anything, to meet and to multiply
one part. What these cost was measured on one device (docs/performance.md); how many units there are the target says.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dlc.dialects.matrices import WORDS
from dlc.passes.tiling.matrices import MatrixProduct, brings_whole, matrix_product
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import Matrices, TilePlan, promoted_stage
from dlc.target import Groups, Target

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
# Rows of which the second operand is read once, and decides.
_FEW_ROWS = 4
# Of a step, in products that a unit makes in the same time: what a row or column of a part costs that is read, and the least
# that it takes, of all and for each sum of a part.
_READ, _LEAST, _OF_SUM = 128, 25000, 33
# Parts that a unit has at once, and sums in their registers.
_PARTS, _SUMS = 16, 1 << 15


def choose_matrices(nest: Nest, target: Target) -> TilePlan | None:
    """The plan for a contraction by matrix units; None where the nest is none, or the target has none."""
    stage = promoted_stage(nest)
    if stage is None or target.groups is None or not target.dots:
        return None
    product = matrix_product(stage, nest)
    if product is None or product.dot not in target.dots or prod(nest.extents[d] for d in product.rows) <= _FEW_ROWS:
        return None
    return _Chooser(nest, target.groups, product).plan()


@dataclass(frozen=True)
class _Chooser:
    nest: Nest
    groups: Groups
    product: MatrixProduct

    def plan(self) -> TilePlan | None:
        plans = [self.planned(*tile) for tile in TILES if self.fits(*tile)]
        return min(plans, key=self.cost, default=None)

    def fits(self, rows: int, columns: int, down: int, right: int) -> bool:
        """Whether a group may be so large, and its items bring whole pieces of both operands."""
        m = Matrices(self.product.rows, self.product.column, rows, columns, down, right)
        local = 4 * WORDS * (rows + columns)
        return m.items <= self.groups.items and local <= self.groups.local_bytes and brings_whole(m)

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
        m = plan.matrices
        assert m is not None
        groups = prod(-(-self.nest.extents[d] // size) for d, size in plan.grid.items())
        in_turn, sums, tile = -(-groups // self.groups.units), m.down * m.right, m.rows * m.columns
        at_once = max(1, min(_PARTS, _SUMS // sums) * sums // tile)
        return in_turn * tile * (1 + _READ / m.down + _READ / m.right) + -(-in_turn // at_once) * (_LEAST + _OF_SUM * sums)
