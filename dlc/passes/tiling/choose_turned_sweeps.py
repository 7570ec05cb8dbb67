"""Choosing how two contractions are cut of which the second sums the first one's rows, with what it sums for along the lanes.

What the first leaves for a vector of rows, and what is made of it, goes up and down: no lane has anything to do with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc.passes.tiling.choose_sweeps import SweepChooser
from dlc.passes.tiling.nests import Stage
from dlc.passes.tiling.plan import Sweep, equal_tile
from dlc.passes.tiling.tile_rules import SUMS, row_tile

# Elements that are neighbours in memory, and lanes: a square of them is turned in registers.
_TURNED, _TURNED_LANES = 8, 16
# The part of a block that is hidden or shown at once.
_HIDING = 4
# Fewer rows of a part share what they read from behind the second-level cache too little.
_ROWS = 32


@dataclass(frozen=True)
class TurnedSweepChooser(SweepChooser):
    """Sweeps whose register tiles are vectors of rows, for a few keys; those of the second contraction are as others are."""

    @property
    def _vectors(self) -> int:
        return self.target.long_rows

    @cached_property
    def _width(self) -> int:
        """The dimension that the first contraction reduces."""
        return next(iter(self.nest.stages[self.sums.first].reductions))

    def _shared(self) -> int:
        return max(_ROWS, self._vectors * self.lanes)

    def height(self) -> int:
        """The rows of a part of a task: their copy fills half of the nearest cache at most, and their weights the second."""
        machine, extents = self.target.machine, self.nest.extents
        near = machine.cache_ways * machine.way_bytes * self.lanes // (2 * self.target.vector_bytes * extents[self._width])
        held = machine.row_elements // (self.length if self.running() is None else 2 * self.length)
        fitting = max(1, min(near, held) // self.lanes)
        # Whole register tiles, if one fits.
        tile = self.lanes * min(fitting, self._vectors)
        return min(extents[self.row], tile * equal_tile(-(-extents[self.row] // tile), fitting * self.lanes // tile))

    def _block(self) -> int:
        # Sums are in registers meanwhile, and scores wait in the second-level cache in any case.
        steps, keys = self.target.machine.block_steps, self._keys
        return min(keys * max(1, steps // _HIDING // keys) if self.hides else 2 * steps, self.length)

    @cached_property
    def _lanes_of_tile(self) -> int:
        return min(self.height(), self._vectors * self.lanes)

    @cached_property
    def _keys(self) -> int:
        """The keys of a register tile."""
        return self._tile(self.length, -(-self._lanes_of_tile // self.lanes))

    def _sweeps(self) -> Iterator[Sweep]:
        first, second, end, stages = self.sums.first, self.sums.second, self.sums.end, self.nest.stages
        square = (self._width, self._at_most(self._width, _TURNED)), (self.row, self._at_most(self.row, _TURNED_LANES))
        copies = (Sweep(k, k + 1, square) for k in range(first) if self._width in stages[k].dims)
        yield from sorted((*copies, *self._before(self.sums.key)), key=lambda s: s.first)
        columns, wide = self._panel(end, self._vectors), self._wide(end)
        yield Sweep(second - 1, second, ((self.row, 1), (end, wide)))
        rows = self._tile(self.height(), -(-columns // self.lanes))
        steps = (self.sums.key, self._block()), (end, columns), (self.row, rows)
        yield Sweep(second, second + 1, steps, skips=self.hides and not self.exact)
        if second + 1 < len(stages):
            yield Sweep(second + 1, len(stages), ((self.row, 1), (end, wide)))

    def _joins(self, stages: Sequence[Stage]) -> bool:
        return True

    def _steps(self, dim: int, stages: Sequence[Stage]) -> tuple[tuple[int, int], ...]:
        if any(s.is_contraction for s in stages):
            return (dim, self._keys), (self.row, self._lanes_of_tile)
        return (self.row, self._lanes_of_tile), (dim, 1)

    def _tile(self, extent: int, vectors: int) -> int:
        """The rows of a register tile of so many vectors."""
        return row_tile(extent, (self.target.vector_registers - 3) // vectors, SUMS / vectors)

    def _at_most(self, d: int, wanted: int) -> int:
        return min(wanted, self.nest.extents[d])
