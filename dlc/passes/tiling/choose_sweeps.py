"""Choosing how a nest of two contractions is cut whose second one sums along the first one's lanes, such as attention.

What the first leaves for a few rows, and what is made of it, stays in a cache: as many rows as it holds, of several register
tiles, so that each panel of an operand serves all of them while it is in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from dlc.ir import BlockArgument, SSAValue, linalg
from dlc.passes.tiling.hidden import weighs_nothing
from dlc.passes.tiling.nests import Choice, Nest, Stage, can_split, choosing
from dlc.passes.tiling.plan import Sweep
from dlc.passes.tiling.running import running_sums
from dlc.target import Target

# Vectors that go from one formula to the next, and those of a register tile's rows.
_VECTORS = 2
# Registers that a vector of a long formula takes, with its share of the constants.
_FORMULA = 8
# A register tile of so many rows takes what the second-level cache brings of an operand without waiting for it.
_ROWS = 8


@dataclass(frozen=True)
class Sums:
    """Two contractions of a nest, by position: `second` reduces `key`, and has its lanes along `end`.

    The lanes of `first` are along `key`, or, if it is `turned`, along the rows that are summed for.
    """

    first: int
    second: int
    key: int
    end: int
    turned: bool


def sums_of_rows(nest: Nest) -> Sums | None:
    """The two contractions, where a reduction of what the first one makes stands between them."""
    contractions = [k for k, s in enumerate(nest.stages) if s.is_contraction]
    if len(contractions) != 2 or nest.open:
        return None
    a, b = contractions
    first, second = nest.stages[a], nest.stages[b]
    key = next((d for d in second.reductions if first.output.uses(d)), None)
    lane = next((d for d in first.dims if first.output.stride(d) == 1), None)
    end = next((d for d in second.dims if second.output.stride(d) == 1), None)
    between = [s for s in nest.stages[a + 1 : b] if key in s.reductions]
    if key is None or lane not in (key, *nest.shared) or end is None or not between:
        return None
    return Sums(a, b, key, end, lane != key) if all(can_split(s, nest) for s in between) else None


@dataclass(frozen=True)
class SweepChooser:
    """Sweeps over tiles of `rows` of dimension `row`, in vectors of `lanes` elements.

    What a mask hides is not computed, nor are sums of what has no weight, unless they are to be `exact`: 0·∞ is no number.
    Long rows go block by block where sums run.
    """

    nest: Nest
    target: Target
    sums: Sums
    row: int
    rows: int
    lanes: int
    exact: bool = False

    def running(self) -> tuple[int, int] | None:
        """The dimension and size of the blocks in which rows go of which a cache does not hold a few register tiles.

        They are as long as it does hold, or short, of many rows, so that keys and values come from memory less often; but lines
        of a mask are those of one row. Equal ones where there are such, so that there is one code for all.
        """
        lane, machine = self.sums.key, self.target.machine
        extent, held = self.nest.extents[lane], machine.row_elements // self._shared()
        if extent <= held or running_sums(self.nest, lane) is None:
            return None
        most, period = held if self.reads_mask else 2 * machine.block_steps, self.nest.packed_periods.get(lane, self.lanes)
        sizes = range(max(most - most % period, period), most // 2, -period)
        return lane, next((size for size in sizes if extent % size == 0), sizes[0])

    def _shared(self) -> int:
        """The rows that a cache is to hold whole, so that they share what they read."""
        return self.target.machine.row_tiles * self.rows

    @cached_property
    def length(self) -> int:
        """The elements of a row of which weights are made at once."""
        running = self.running()
        return self.nest.extents[self.sums.key] if running is None else running[1]

    @cached_property
    def hides(self) -> bool:
        """Whether a mask says which scores there are."""
        return self._choosing is not None

    @cached_property
    def reads_mask(self) -> bool:
        """Whether each row has its own line of a mask; what places decide costs nothing to see."""
        if self._choosing is None:
            return False
        stage, choice = self._choosing
        read = [stage.accesses[c.index] for c in choice.conditions if isinstance(c, BlockArgument)]
        return any(a is not None and a.uses(self.row) for a in read)

    @cached_property
    def _choosing(self) -> tuple[Stage, Choice] | None:
        """The stage that chooses between scores and a number, as a mask has it, and its choice."""
        first, last = next((a, b) for a, b in self._together(self.sums.key) if a <= self.sums.first < b)
        return choosing(self.nest.stages[first:last])

    def height(self) -> int:
        """The rows of a part of a task: register tiles whose weights a cache holds; of blocks, beside their keys and values."""
        machine, extents = self.target.machine, self.nest.extents
        if self.reads_mask or self.running() is None:
            shared = 1 if self._goes_alone() else machine.row_tiles
            fitting = min(max(1, machine.row_elements // (self.length * self.rows)), shared)
        else:
            fitting = max(1, machine.row_elements // (2 * self.length * self.rows))
        tiles = -(-extents[self.row] // self.rows)
        parts = -(-tiles // fitting)
        return min(extents[self.row], -(-tiles // parts) * self.rows)

    def _goes_alone(self) -> bool:
        """Whether a register tile needs no others to share what it reads.

        It has many rows, and the second-level cache holds what all rows of a product read, such as a head's keys and values.
        """
        stages, extents = (self.nest.stages[k] for k in (self.sums.first, self.sums.second)), self.nest.extents
        read = (stage.reductions | {lane} for stage, lane in zip(stages, (self.sums.key, self.sums.end), strict=True))
        near = sum(prod(extents[d] for d in dims) for dims in read) <= self.target.machine.block_elements
        return near and self.rows >= _ROWS

    def sweeps(self) -> Iterator[Sweep]:
        """The sweeps, as far as a mask shows something, if what it hides weighs nothing."""
        sweeps = list(self._sweeps())
        size, lane = self._block(), self.sums.key
        steps = [step for sweep in sweeps for d, step in sweep.steps if d == lane]
        if self._choosing is None or self.exact or self.length <= size or any(size % step for step in steps):
            return iter(sweeps)
        stages = self.nest.stages[self.nest.stages.index(self._choosing[0]) : self.sums.second]
        if not weighs_nothing(stages, self.nest.stages[self.sums.second], lane):
            return iter(sweeps)
        return (replace(s, shown=(lane, size)) for s in sweeps)

    def _block(self) -> int:
        """What the second contraction adds up at a time; where parts may be hidden, fewer, the more so the fewer rows hide."""
        parts = 1 if not self.hides else 4 if self._goes_alone() else 2
        return min(self.target.machine.block_steps // parts, self.length)

    def _sweeps(self) -> Iterator[Sweep]:
        second, end = self.sums.second, self.sums.end
        yield from self._before(self.sums.key)
        columns, wide = self._panel(end, _VECTORS), self._wide(end)
        yield Sweep(second - 1, second, ((self.row, 1), (end, wide)))
        steps = (self.sums.key, self._block()), (end, columns), (self.row, self.rows)
        yield Sweep(second, second + 1, steps, skips=self.hides and not self.exact)
        if second + 1 < len(self.nest.stages):
            yield Sweep(second + 1, len(self.nest.stages), ((self.row, 1), (end, wide)))

    def _before(self, dim: int) -> Iterator[Sweep]:
        """The stages before the second contraction that have a dimension."""
        for first, last in self._together(dim):
            swept = self.nest.stages[first:last]
            skips = any(s.is_contraction for s in swept) and choosing(swept) is not None
            yield Sweep(first, last, self._steps(dim, swept), skips=skips)

    def _together(self, dim: int) -> Iterator[tuple[int, int]]:
        """The first stage and the one behind the last of as few sweeps along a dimension as its reductions allow.

        What one stage reduces another may need whole.
        """
        stages, last = self.nest.stages, self.sums.second - 1
        whole: set[SSAValue] = set()
        begin = 0
        for k in range(last + 1):
            stage = stages[k]
            outside = dim not in stage.dims and not (isinstance(stage.op, linalg.FillOp) and self._joins(stages[begin:k]))
            if k == last or outside or any(a.root in whole for a in stage.inputs):
                if begin < k:
                    yield begin, k
                alone = outside and not isinstance(stage.op, linalg.FillOp)
                begin = k + alone
                whole.clear()
            if dim in stage.reductions:
                whole.add(stage.output.root)

    def _joins(self, stages: Sequence[Stage]) -> bool:
        """Whether what begins a reduction along lanes may share a sweep: its register tiles would spill."""
        return not any(s.is_contraction for s in stages)

    def _steps(self, dim: int, stages: Sequence[Stage]) -> tuple[tuple[int, int], ...]:
        if any(s.is_contraction for s in stages):
            return (dim, self._panel(dim, _VECTORS)), (self.row, self.rows)
        return (self.row, 1), (dim, self._wide(dim, any(s.has_long_formulas for s in stages)))

    def _panel(self, d: int, vectors: int) -> int:
        """Lanes that are computed at once, inside of a panel if an operand is packed in such."""
        wanted = min(vectors * self.lanes, self.nest.extents[d])
        period = self.nest.packed_periods.get(d, wanted)
        return next(size for size in range(min(wanted, period), 0, -1) if period % size == 0)

    def _wide(self, d: int, long: bool = False) -> int:
        """Lanes of a row that are computed at once: of a formula as many as fit the registers beside its constants."""
        most = self.target.vector_registers // _FORMULA if long else self.target.machine.vectors
        return min(most * self.lanes, self.nest.extents[d])
