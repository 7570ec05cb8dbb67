"""The plan of work-groups that compute a matrix product on matrix units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects.matrix_multiply import SUBGROUP_ITEMS, TILE_COLUMNS, TILE_ROWS, TILE_WORDS, WORDS_PER_ITEM
from dlc.passes.tiling.groups.group_tiles import GroupPlan
from dlc.passes.tiling.loop_nests import SizedLoopNest, promoted_contraction
from dlc.target import Target

# Work-items per tile row of the first operand or tile column of the second.
ITEMS_PER_ROW = TILE_WORDS // WORDS_PER_ITEM
# Candidate numbers of adjacent columns per load, widest first.
COLUMN_LOAD_WIDTHS = (4, 2, 1)


@dataclass(frozen=True, kw_only=True)
class MatrixUnitTiles(GroupPlan):
    """A tile of a matrix product per work-group, and a part of it per warp of 32 work-items.

    Attributes:
        row_dims: The dimensions whose linearization is the row, the outermost first.
        column: The dimension of the columns.
        rows: The maximum rows of a group's tile.
        columns: The maximum columns of a group's tile.
        warp_rows: The rows of a warp's tile.
        warp_columns: The columns of a warp's tile.
    """

    row_dims: tuple[int, ...]
    column: int
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int

    @property
    def item_axes(self) -> Sequence[tuple[int, int]]:
        # Work-items are distributed by their linear index.
        return [(self.column, SUBGROUP_ITEMS * (self.rows // self.warp_rows) * (self.columns // self.warp_columns))]

    @property
    def words_per_load(self) -> int:
        """The number of words per load of the first operand. A work-item loads them from two rows.

        It is half of the maximum if loads of the maximum width cannot be divided evenly among the work-items.
        """
        return WORDS_PER_ITEM if self.rows * ITEMS_PER_ROW // 2 % self.num_items == 0 else WORDS_PER_ITEM // 2

    @property
    def columns_per_load(self) -> int:
        """The number of adjacent columns per load of the second operand. A work-item loads the same columns of four rows.

        It is the largest for which every work-item has the same number of loads; 0 if there is none.
        """
        widths = (n for n in COLUMN_LOAD_WIDTHS if self.columns // n * ITEMS_PER_ROW % self.num_items == 0)
        return next(widths, 0)

    @property
    def has_even_loads(self) -> bool:
        """True if all work-items have the same number of loads."""
        return self.rows * TILE_WORDS // (2 * self.words_per_load) % self.num_items == 0 and self.columns_per_load > 0

    def group_tile(self, d: int) -> int:
        return self.grid[d]

    def check(self, nest: SizedLoopNest) -> None:
        """Check the plan; `matrix_product` decides which operands are legal."""
        super().check(nest)
        contraction = promoted_contraction(nest)
        if contraction is None or nest.dynamic_dims or set(self.grid) != set(nest.shared_dims):
            raise ValueError(
                f"grid {self.grid}: matrix units need a leading contraction of plain operands with static sizes, and all "
                "shared dimensions in the grid"
            )
        if (
            self.rows % self.warp_rows
            or self.columns % self.warp_columns
            or self.warp_rows % TILE_ROWS
            or self.warp_columns % TILE_COLUMNS
        ):
            raise ValueError(
                f"warp tiles of {self.warp_rows} × {self.warp_columns}: must be multiples of {TILE_ROWS} × {TILE_COLUMNS}, "
                f"and divide the group's tile of {self.rows} × {self.columns}"
            )
        if prod(self.grid[d] for d in self.row_dims) > self.rows or self.grid[self.column] > self.columns:
            raise ValueError(f"grid {self.grid}: exceeds the group's tile of {self.rows} × {self.columns}")

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        row_dims = " ".join(f"d{d}" for d in self.row_dims)
        yield (
            f"matrix units, 32 work-items each: {self.rows} ({row_dims}) × {self.columns} (d{self.column}), "
            f"{self.warp_rows} × {self.warp_columns} per warp"
        )
