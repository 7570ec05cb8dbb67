"""Choosing a tile plan for a contraction of words on a device whose items multiply matrices together.

Each unit of the device goes through its groups, step by step of what is reduced; a step takes as long as the units of its
groups multiply, and longer by what is brought for it, but never less than it takes to bring anything and to meet. What these
cost was measured on one device (docs/performance.md); how many units there are the target says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from dlc.dialects.matrices import ITEMS, OWN_COLUMNS, OWN_WORDS, WORDS
from dlc.passes.tiling.matrices import PADDING, MatrixProduct, matrix_product
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import TilePlan, promoted_stage
from dlc.target import Groups, Target

# Rows and columns of a group's tile, and of the part of it that 32 items multiply.
TILES = (
    (128, 256, 64, 64),
    (128, 128, 64, 64),
    (128, 64, 32, 32),
    (64, 128, 32, 32),
    (64, 64, 32, 32),
    (32, 64, 16, 32),
    (64, 32, 16, 32),
    (32, 32, 16, 32),
    (16, 64, 16, 32),
)
# Rows of which the second operand is read once, and decides.
_FEW_ROWS = 4
# Of a step, in products that a unit makes in the same time: what a row or column costs that is brought, and the least of all.
_BROUGHT, _LEAST = 60, 31000
# Parts that a unit has at once, and sums in their registers.
_PARTS, _SUMS = 16, 1 << 15


def choose_matrices(nest: Nest, target: Target) -> TilePlan | None:
    """The plan for a contraction by matrix units; None where the nest is none, or the target has none."""
    stage = promoted_stage(nest)
    if stage is None or target.groups is None or not target.dots:
        return None
    product = matrix_product(stage, nest)
    if product is None or product.dot not in target.dots or nest.extents[product.row] <= _FEW_ROWS:
        return None
    return _Chooser(nest, target.groups, product).plan()


@dataclass(frozen=True)
class _Chooser:
    nest: Nest
    groups: Groups
    product: MatrixProduct

    def plan(self) -> TilePlan | None:
        fitting = [tile for tile in TILES if self.fits(*tile)]
        best = min(fitting, key=lambda tile: self.cost(*tile), default=None)
        return None if best is None else self.planned(*best)

    def fits(self, rows: int, columns: int, down: int, right: int) -> bool:
        """Whether a group may be so large, and its items bring whole pieces of both operands."""
        items = ITEMS * (rows // down) * (columns // right)
        local = 4 * WORDS * (rows + columns + PADDING)
        shared = rows * (WORDS // OWN_WORDS) % items == 0 == WORDS * columns // OWN_COLUMNS % items
        return items <= self.groups.items and local <= self.groups.local_bytes and shared

    def cost(self, rows: int, columns: int, down: int, right: int) -> float:
        """The time that a step takes of all groups, relative."""
        extents, of_both = self.nest.extents, (self.product.row, self.product.column)
        parts = (-(-extents[d] // size) for d, size in zip(of_both, (rows, columns), strict=True))
        groups = prod(parts) * prod(extents[d] for d in self.nest.shared if d not in of_both)
        in_turn = -(-groups // self.groups.units)
        at_once = max(1, min(_PARTS, _SUMS // (down * right)) * down * right // (rows * columns))
        return in_turn * (rows * columns + _BROUGHT * (rows + columns)) + -(-in_turn // at_once) * _LEAST

    def planned(self, rows: int, columns: int, down: int, right: int) -> TilePlan:
        row, column, extents = self.product.row, self.product.column, self.nest.extents
        # Eight by four items have a part together.
        items = {row: 8 * (rows // down), column: 4 * (columns // right)}
        plan = TilePlan(
            register={row: down // 8, column: right // 4},
            items=items,
            promote={self.product.words: WORDS},
            matrices={row: down, column: right},
        )
        order = (*(d for d in self.nest.shared if d not in (row, column)), row, column)
        return replace(plan, grid={d: min(plan.covered(d), extents[d]) for d in order}, order=order)
