"""Ways to choose tiles otherwise than the rules say, which measurement may find better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """A way to choose otherwise, which measurement may find better for a kernel.

    `rows`: how many of the rows that fit a contraction's register tile takes at most, as a share; `work`: how much makes a
    task, in tasks of the target; `other_order`: rows before panels of weights where these came first, and the other way round.
    """

    rows: float = 1
    work: float = 1
    other_order: bool = False

    def __str__(self) -> str:
        rows = f"{self.rows:.0%} of the rows" if self.rows != 1 else ""
        work = f"tasks of {self.work:g} times the work" if self.work != 1 else ""
        return ", ".join(filter(None, (rows, work, "in the other order" if self.other_order else ""))) or "as the rules say"


# The first is what the rules say; the others are worth trying.
VARIANTS = (
    Variant(),
    *(Variant(rows=rows) for rows in (0.9, 0.75, 0.6, 0.5)),
    *(Variant(work=work) for work in (1 / 4, 4)),
    Variant(other_order=True),
)
