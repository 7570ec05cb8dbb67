"""Alternative choices for autotuning, which may be faster than those of the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.cost_model import UNLIMITED_ROWS, UnrollingCosts
from dlc.target import Target


@dataclass(frozen=True)
class Variant:
    """A deviation from the rules that choose tiles, prefetching and unrolling.

    Attributes:
        row_scale: The scale of the maximum rows of a contraction's register tile.
        work_scale: The scale of the target's work per task.
        swaps_loop_order: Whether the loops over rows and panels are swapped.
        swaps_prefetching: Whether the next panel is prefetched instead of the next rows, or vice versa.
        prefetch_distance: The prefetch distance in k iterations, if it is not that of the target.
        unrolling_factor: The k iterations per iteration of an unrolled loop, if they are not those of the target.
    """

    row_scale: float = 1
    work_scale: float = 1
    swaps_loop_order: bool = False
    swaps_prefetching: bool = False
    prefetch_distance: int | None = None
    unrolling_factor: int | None = None

    def __str__(self) -> str:
        rows = f"{self.row_scale:.0%} of the rows" if self.row_scale != 1 else ""
        work = f"tasks of {self.work_scale:g} times the work" if self.work_scale != 1 else ""
        order = "in the other loop order" if self.swaps_loop_order else ""
        prefetching = "with the other prefetching" if self.swaps_prefetching else ""
        distance = f"prefetching {self.prefetch_distance} iterations ahead" if self.prefetch_distance is not None else ""
        unrolling = f"unrolled by {self.unrolling_factor}" if self.unrolling_factor is not None else ""
        return ", ".join(filter(None, (rows, work, order, prefetching, distance, unrolling))) or "default rules"

    def adapted(self, target: Target) -> Target:
        """Return the target with the variant's costs of prefetching and unrolling."""
        costs, factor = target.costs, self.unrolling_factor
        prefetch, unrolling = costs.prefetch, costs.unrolling
        if prefetch is not None:
            distance = self.prefetch_distance or prefetch.prefetch_distance
            rows = prefetch.next_panel_rows
            if self.swaps_prefetching:
                rows = 0 if rows == UNLIMITED_ROWS else UNLIMITED_ROWS
            prefetch = replace(prefetch, prefetch_distance=distance, next_panel_rows=rows)
        if factor is not None:
            unrolling = UnrollingCosts(factor=factor, integer_factor=factor) if factor > 1 else None
        return replace(target, costs=replace(costs, prefetch=prefetch, unrolling=unrolling))


# The first variant follows the rules; autotuning also measures the others.
VARIANTS = (
    Variant(),
    *(Variant(row_scale=scale) for scale in (0.9, 0.75, 0.6, 0.5)),
    *(Variant(work_scale=scale) for scale in (1 / 4, 4)),
    Variant(swaps_loop_order=True),
    Variant(swaps_prefetching=True),
    *(Variant(prefetch_distance=distance) for distance in (4, 16)),
    *(Variant(unrolling_factor=factor) for factor in (1, 2, 4)),
)
