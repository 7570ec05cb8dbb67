"""Alternative tile choices for autotuning, which measurement may find better than the rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """A deviation from the rules that choose tiles.

    `rows`: scales the maximum rows of a contraction's register tile; `work`: scales the target's work per task;
    `other_order`: swaps the loop order of rows and panels.
    """

    rows: float = 1
    work: float = 1
    other_order: bool = False

    def __str__(self) -> str:
        rows = f"{self.rows:.0%} of the rows" if self.rows != 1 else ""
        work = f"tasks of {self.work:g} times the work" if self.work != 1 else ""
        return ", ".join(filter(None, (rows, work, "in the other loop order" if self.other_order else ""))) or "default rules"


# The first variant follows the rules; the others are worth measuring.
VARIANTS = (
    Variant(),
    *(Variant(rows=rows) for rows in (0.9, 0.75, 0.6, 0.5)),
    *(Variant(work=work) for work in (1 / 4, 4)),
    Variant(other_order=True),
)
