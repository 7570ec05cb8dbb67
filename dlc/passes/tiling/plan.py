"""Tile plans: how a nest is cut, as a value that can be printed, compared, overridden and drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlc.passes.tiling.nests import Nest


@dataclass(frozen=True)
class TilePlan:
    """How one nest is cut; dimensions are the nest's, sizes in iterations.

    `grid`: for shared dimensions, the part that one task covers; several tasks run at once. Those left out are whole in
    every task. `register`: for shared dimensions, the tile that all stages compute at once. `order`: the loops over
    register tiles inside a task, outermost first. `chunks`: for the dimensions that belong to single stages, how many
    elements are computed at once; for a dimension reduced along contiguous memory, the number of partial results. `steps`:
    for single stages, by position, smaller parts of the register tile: a stage of long formulas would fill the registers.
    A dimension without an entry in `register` or `chunks` goes in steps of 1 when shared, else whole.
    """

    grid: Mapping[int, int] = field(default_factory=dict[int, int])
    register: Mapping[int, int] = field(default_factory=dict[int, int])
    order: tuple[int, ...] = ()
    chunks: Mapping[int, int] = field(default_factory=dict[int, int])
    steps: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])

    def check(self, nest: Nest) -> None:
        """Raises ValueError, naming the entry, if the plan is not legal for the nest."""
        shared = set(nest.shared)
        for name, sizes in (("grid", self.grid), ("register", self.register)):
            for d, size in sizes.items():
                if d not in shared or not 1 <= size <= nest.extents[d]:
                    raise ValueError(f"{name}[d{d}] = {size}: must be a shared dimension with 1 ≤ size ≤ its extent")
        for d, block in self.grid.items():
            if block % self.tile(d) and block != nest.extents[d]:
                raise ValueError(f"grid[d{d}] = {block} is no multiple of the register tile {self.tile(d)}")
        if sorted(self.order) != sorted(shared):
            raise ValueError(f"order {self.order} is not an order of the shared dimensions {sorted(shared)}")
        for d, size in self.chunks.items():
            if d in shared or d not in nest.extents or not 1 <= size <= nest.extents[d]:
                raise ValueError(f"chunks[d{d}] = {size}: must be a dimension of single stages with 1 ≤ size ≤ its extent")
        for k, steps in self.steps.items():
            for d, size in steps.items():
                if not 0 <= k < len(nest.stages) or d not in shared or nest.stages[k].reductions or size < 1:
                    raise ValueError(f"steps[{k}][d{d}] = {size}: must be a shared dimension of a stage that reduces nothing")
        for d, period in packed_periods(nest).items():
            if d in shared and self.tile(d) != min(period, nest.extents[d]):
                raise ValueError(f"register[d{d}] = {self.tile(d)}: an operand is packed in panels of {period}")

    def tile(self, d: int) -> int:
        """The register tile along a shared dimension."""
        return self.register.get(d, 1)

    def __str__(self) -> str:
        def sizes(m: Mapping[int, int]) -> str:
            return ", ".join(f"d{d}: {s}" for d, s in m.items())

        order = " ".join(f"d{d}" for d in self.order)
        cut = f"grid {{{sizes(self.grid)}}} register {{{sizes(self.register)}}} chunks {{{sizes(self.chunks)}}}"
        steps = "".join(f" steps[{k}] {{{sizes(s)}}}" for k, s in self.steps.items())
        return f"{cut}{steps} order ({order})"


def packed_periods(nest: Nest) -> dict[int, int]:
    """Dimensions along which an operand is packed in panels, and the panel's size."""
    return {t.iterator: t.modulus for s in nest.stages for a in s.accesses if a is not None for t in a.terms if t.modulus}
