"""Alternative tile choices for autotuning, which may be faster than those of the rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """A deviation from the rules that choose tiles.

    `row_scale`: scales the maximum rows of a contraction's register tile; `work_scale`: scales the target's work per
    task; `swaps_loop_order`: swaps the loops over rows and panels.
    """

    row_scale: float = 1
    work_scale: float = 1
    swaps_loop_order: bool = False

    def __str__(self) -> str:
        rows = f"{self.row_scale:.0%} of the rows" if self.row_scale != 1 else ""
        work = f"tasks of {self.work_scale:g} times the work" if self.work_scale != 1 else ""
        order = "in the other loop order" if self.swaps_loop_order else ""
        return ", ".join(filter(None, (rows, work, order))) or "default rules"


# The first variant follows the rules; autotuning also measures the others.
VARIANTS = (
    Variant(),
    *(Variant(row_scale=scale) for scale in (0.9, 0.75, 0.6, 0.5)),
    *(Variant(work_scale=scale) for scale in (1 / 4, 4)),
    Variant(swaps_loop_order=True),
)
