"""Tile plans: how a nest is cut, as a value that can be printed, compared, overridden and drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from dlc.dialects.matrices import COLUMNS, ITEMS, ROWS
from dlc.passes.tiling.nests import Nest, Stage, can_split, initial_of
from dlc.passes.tiling.running import running_sums


@dataclass(frozen=True)
class Sweep:
    """Stages `first` to before `last` go through a tile together, in `steps`: parts of dimensions, the outermost loop first.

    `skips`: a part is left out where that changes nothing: of stages that end in a choice, where it falls on none of what they
    compute; of a contraction alone, a part of the outermost loop in which its first operand is zeros.

    `shown`: a dimension and a size; of its parts of this size all are left out that are behind the last one in which the
    choice of the first sweep that makes one falls on what is computed.
    """

    first: int
    last: int
    steps: tuple[tuple[int, int], ...]
    skips: bool = False
    shown: tuple[int, int] | None = None

    def __str__(self) -> str:
        skips = ", skips" if self.skips else ""
        shown = "" if self.shown is None else f", as far as d{self.shown[0]} is shown by {self.shown[1]}"
        return f"{self.first} to {self.last - 1}: " + ", ".join(f"d{d} by {step}" for d, step in self.steps) + skips + shown


@dataclass(frozen=True)
class Matrices:
    """The product of matrices that a group makes: of up to `rows` along some dimensions of the task, the outermost first, which
    its parts of these dimensions are counted through, by up to `columns` along another; 32 items have `down` by `right` of it.
    """

    along: tuple[int, ...]
    column: int
    rows: int
    columns: int
    down: int
    right: int

    @property
    def items(self) -> int:
        return ITEMS * (self.rows // self.down) * (self.columns // self.right)

    def __str__(self) -> str:
        along = " ".join(f"d{d}" for d in self.along)
        return f"{self.rows} ({along}) by {self.columns} (d{self.column}), {self.down} by {self.right} at once"


@dataclass(frozen=True)
class TilePlan:
    """How one nest is cut; dimensions are the nest's, sizes in iterations.

    `grid`: for shared dimensions, the part that one task covers; several tasks run at once. Those left out are whole in
    every task. `register`: for shared dimensions, the tile that all stages compute at once. `order`: the loops over
    register tiles inside a task, outermost first. `chunks`: for the dimensions that belong to single stages, how many
    elements are computed at once; for a dimension reduced along contiguous memory, the number of partial results. `steps`:
    for single stages, by position, the parts that are computed at once: all of a tile would not fit the registers.
    A dimension without an entry in `register` or `chunks` goes in steps of 1 when shared, else whole.

    `items`, where a task is a group of items: how many share a dimension, outermost first; None where a task is one thread.
    Along a shared dimension each item has its own register tile. The entries of dimensions of single stages, of one size,
    are a team: its items share the work of a stage along its dimension chunk by chunk, and add up what they reduce.
    `promote`: for one dimension that a contraction reduces, the part of it whose operands are brought to the group's memory
    at a time. `pieces`: then an item may have several register tiles along shared dimensions, so many; the next one is behind
    those of all items.

    `matrices`, where a contraction is promoted: how items multiply matrices together; a group has all of its task at once.

    `blocks`: for dimensions that the first reduction reduces, the part of them that all register tiles of a task go through
    before the next part, so that what it reads stays in a cache; sums wait in memory meanwhile, and are added up in the same
    order. `panels`: the operands of a contraction, by position, of which a task copies each block, in the order in which its
    tiles read them.
    `parts`: for shared dimensions, what of a task goes through a block at once: operands along them are copied part by part.

    `ahead`: the operands of it, by position, of which register tiles ask for the next block while they go through one, or for
    the next product of a batch where all of what is reduced is one block.

    `spans`: the operand of the contraction, by position, of which zeros are left out at both ends of what is reduced, as each
    register tile reads it. `hidden`: the operand of the last stage by whose zeros a register tile is not computed at all.

    `running`: a dimension along which the sweeps go block by block of this size up to the last that reduces it: sums of
    weights run (`running.py`), and buffers along it are of one block.

    `even`: tasks cut open extents evenly, into as few register tiles as there can be. Those of fewer rows than this have few
    sums, which would wait for one another: they are made in two halves.
    """

    grid: Mapping[int, int] = field(default_factory=dict[int, int])
    register: Mapping[int, int] = field(default_factory=dict[int, int])
    order: tuple[int, ...] = ()
    chunks: Mapping[int, int] = field(default_factory=dict[int, int])
    steps: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    items: Mapping[int, int] | None = None
    promote: Mapping[int, int] = field(default_factory=dict[int, int])
    pieces: Mapping[int, int] = field(default_factory=dict[int, int])
    matrices: Matrices | None = None
    blocks: Mapping[int, int] = field(default_factory=dict[int, int])
    panels: tuple[int, ...] = ()
    parts: Mapping[int, int] = field(default_factory=dict[int, int])
    ahead: tuple[int, ...] = ()
    spans: int | None = None
    hidden: int | None = None
    sweeps: tuple[Sweep, ...] = ()
    running: tuple[int, int] | None = None
    even: int = 0

    def check(self, nest: Nest) -> None:
        """Raises ValueError, naming the entry, if the plan is not legal for the nest."""
        shared = set(nest.shared)
        for name, sizes in (("grid", self.grid), ("register", self.register)):
            for d, size in sizes.items():
                # An open extent is an example: there may be more.
                if d not in shared or size < 1 or (size > nest.extents[d] and d not in nest.open):
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
                if not 0 <= k < len(nest.stages) or d not in nest.stages[k].dims or d in nest.stages[k].reductions or size < 1:
                    raise ValueError(f"steps[{k}][d{d}] = {size}: must be a dimension that the stage does not reduce")
        swept = self.check_sweeps(nest)
        self.check_running(nest)
        for d, period in nest.packed_periods.items():
            name, tile = ("register", self.tile(d)) if d in shared else ("chunks", self.chunks.get(d, nest.extents[d]))
            if d not in swept and period % tile:
                raise ValueError(f"{name}[d{d}] = {tile}: an operand is packed in panels of {period}")
        for d, times in nest.repetitions.items():
            if self.tile(d) % times and times % self.tile(d):
                raise ValueError(f"register[d{d}] = {self.tile(d)}: an operand repeats each element {times} times")
        self.check_items(nest)
        self.check_promote(nest)
        self.check_matrices(nest)
        self.check_rounds(nest)
        self.check_blocks(nest)

    def check_sweeps(self, nest: Nest) -> set[int]:
        """The dimensions that sweeps cut, of those of single stages."""
        done = 0
        for sweep in self.sweeps:
            stages = nest.stages[sweep.first : sweep.last]
            if self.items is not None or self.is_blocked or not done <= sweep.first < sweep.last <= len(nest.stages):
                raise ValueError(
                    f"sweep {sweep}: must be stages behind those of the sweep before, of one thread, without blocks"
                )
            for d, step in sweep.steps:
                if not 1 <= step <= nest.extents.get(d, 0):
                    raise ValueError(f"sweep {sweep}: d{d} must be a dimension of the nest, in steps of 1 to its extent")
                sums = [s for s in stages if d in s.reductions]
                if not all(s.is_contraction or can_split(s, nest) for s in sums):
                    raise ValueError(f"sweep {sweep}: a reduction has no combiner or no identity to split it with")
                if any(a.root in {s.output.root for s in sums} for s in stages for a in s.inputs):
                    raise ValueError(f"sweep {sweep}: what a stage reduces must be whole before another reads it")
                if any(t.modulus % step for s in stages for a in s.inputs for t in a.terms if t.iterator == d and t.modulus):
                    raise ValueError(f"sweep {sweep}: an operand is packed in other panels")
                if sweep.shown is not None and sweep.shown[0] == d and sweep.shown[1] % step:
                    raise ValueError(f"sweep {sweep}: what is shown must be whole steps")
            done = sweep.last
        return {d for s in self.sweeps for d, _ in s.steps}

    def check_running(self, nest: Nest) -> None:
        if self.running is None:
            return
        d, size = self.running
        if not self.sweeps or running_sums(nest, d) is None:
            raise ValueError(f"running[d{d}]: must be what sums of exponentials in sweeps reduce")
        if not 1 <= size <= nest.extents[d] or (size < nest.extents[d] and size % nest.packed_periods.get(d, 1)):
            raise ValueError(f"running[d{d}] = {size}: must be whole panels of an operand, and at most its extent")

    def check_items(self, nest: Nest) -> None:
        for d, n in (self.items or {}).items():
            if d not in nest.extents or n < 1:
                raise ValueError(f"items[d{d}] = {n}: must be a dimension of the nest and at least 1")
        team = self.team_dims(nest)
        for d in nest.open if self.items is not None else ():
            if d in nest.shared and (self.tile(d), self.grid.get(d)) != (1, self.covered(d)):
                raise ValueError(f"grid[d{d}] = {self.grid.get(d)}: of an open extent each item of a group has one place")
            if d in team and self.chunks.get(d, 1) != 1:
                raise ValueError(f"chunks[d{d}] = {self.chunks[d]}: a team shares an open extent place by place")
        if not team:
            return
        size = self.team(nest)
        if size & (size - 1) or any((self.items or {})[d] != size for d in team):
            raise ValueError(f"items {self.items}: dimensions of single stages have equal items, a power of two")
        for stage in nest.stages:
            if stage.scattered in team:
                raise ValueError(f"items[d{stage.scattered}]: which of them a stage writes is data; no item has a part")
            mine = [d for d in stage.dims if d in team]
            if len(mine) > 1:
                raise ValueError(f"items {self.items}: one stage has the dimensions {mine}, and one team")
            if stage.reductions.intersection(mine) and not can_split(stage, nest):
                raise ValueError(f"items[d{mine[0]}]: the reduction has no combiner or no identity to split it with")

    def check_rounds(self, nest: Nest) -> None:
        for d, block in self.grid.items():
            if self.meets(nest) and block > self.covered(d) and nest.extents[d] % block:
                raise ValueError(
                    f"grid[d{d}] = {block}: items that meet do the ragged {nest.extents[d]} in one round of {self.covered(d)}"
                )

    def check_promote(self, nest: Nest) -> None:
        for d, n in self.pieces.items():
            if not self.promote or d not in nest.shared or n < 1:
                raise ValueError(f"pieces[d{d}] = {n}: must be of a shared dimension where a contraction is promoted")
        if not self.promote:
            return
        contraction = promoted_stage(nest)
        if contraction is None or self.items is None or self.team_dims(nest):
            raise ValueError(f"promote {self.promote}: the nest is no contraction of plain operands by groups without a team")
        for d, size in self.promote.items():
            known = not nest.open & contraction.reductions
            if len(self.promote) > 1 or d not in contraction.reductions or not 1 <= size <= nest.extents[d] or not known:
                raise ValueError(
                    f"promote[d{d}] = {size}: must be one dimension that is reduced, all of them known, 1 ≤ size ≤ its extent"
                )

    def check_matrices(self, nest: Nest) -> None:
        """Which operands there must be is `matrix_product`'s to say."""
        if (m := self.matrices) is None:
            return
        if not self.promote or nest.open or set(self.grid) != set(nest.shared):
            raise ValueError(f"matrices {m}: must be of a contraction that is promoted, of known sizes, all of it in the grid")
        if m.rows % m.down or m.columns % m.right or m.down % ROWS or m.right % COLUMNS:
            raise ValueError(f"matrices {m}: parts must be whole ones of {ROWS} by {COLUMNS}, and a group have whole parts")
        if prod(self.grid[d] for d in m.along) > m.rows or self.grid[m.column] > m.columns:
            raise ValueError(f"grid {self.grid}: more than the matrices {m} hold")
        if prod((self.items or {}).values()) != m.items or self.register or self.pieces:
            raise ValueError(f"items {self.items}: must be {m.items} for matrices {m}, without register tiles")

    def check_blocks(self, nest: Nest) -> None:
        if not self.is_blocked:
            return
        reduction = first_reduction(nest)
        if reduction is None or self.items is not None or nest.open:
            raise ValueError(
                f"blocks {self.blocks}, panels {self.panels}: the nest is no reduction of known sizes, or computed by groups"
            )
        for d, size in self.blocks.items():
            if d not in reduction.reductions or d in self.chunks or not 1 <= size <= nest.extents[d]:
                raise ValueError(
                    f"blocks[d{d}] = {size}: must be a dimension that is reduced at once, with 1 ≤ size ≤ its extent"
                )
        for d, size in self.parts.items():
            if d not in nest.shared or not self.panels or size % self.tile(d) or size < 1:
                raise ValueError(f"parts[d{d}] = {size}: must be whole register tiles of a task that copies operands")
        in_blocks = any(size < nest.extents[d] for d, size in self.blocks.items())
        for k in self.ahead:
            access = reduction.accesses[k] if 0 <= k < len(reduction.accesses) - 1 else None
            plain = access is not None and all(t.is_plain for t in access.terms)
            rows = access is not None and any(access.stride(d) == 1 for d in nest.shared)
            if not plain or not rows or not (in_blocks or any(map(reduction.is_batch, nest.shared))):
                raise ValueError(f"ahead {self.ahead}: {k} is no operand in rows of a contraction in blocks, or of a batch")
        if self.spans is not None and (len(reduction.reductions) != 1 or not 0 <= self.spans < len(reduction.accesses) - 1):
            raise ValueError(f"spans {self.spans}: must be an operand of a contraction that reduces one dimension")
        if self.hidden is not None and (self.blocks or len(nest.stages) != 3):
            raise ValueError(f"hidden {self.hidden}: a stage must follow the contraction, and register tiles be whole")
        for k in self.panels:
            access = reduction.accesses[k] if 0 <= k < len(reduction.accesses) - 1 else None
            if access is None or not all(t.is_plain for t in access.terms):
                raise ValueError(f"panels {self.panels}: {k} is no operand of plain strides")

    @property
    def is_blocked(self) -> bool:
        """Whether a task does something for its tiles: blocks that they go through together, copies, a look for zeros."""
        return bool(self.blocks or self.panels or self.ahead or self.spans is not None or self.hidden is not None)

    def tile(self, d: int) -> int:
        """The register tile along a shared dimension."""
        return self.register.get(d, 1)

    def apart(self, d: int) -> int:
        """What the items of a group cover of a shared dimension with one register tile each."""
        return self.tile(d) * (self.items or {}).get(d, 1)

    def covered(self, d: int) -> int:
        """What the items of a group, or the one thread of a task, cover of a shared dimension at once."""
        return self.grid[d] if self.matrices is not None else self.apart(d) * self.pieces.get(d, 1)

    def team_dims(self, nest: Nest) -> list[int]:
        """The dimensions of single stages that items share."""
        return [d for d in self.items or {} if d not in nest.shared]

    def team(self, nest: Nest) -> int:
        """The number of items that compute one register tile together."""
        return max(((self.items or {})[d] for d in self.team_dims(nest)), default=1)

    def meets(self, nest: Nest) -> bool:
        """Whether items wait for one another."""
        return bool(self.promote) or self.team(nest) > 1

    def __str__(self) -> str:
        def sizes(m: Mapping[int, int]) -> str:
            return ", ".join(f"d{d}: {s}" for d, s in m.items())

        order = " ".join(f"d{d}" for d in self.order)
        cut = f"grid {{{sizes(self.grid)}}} register {{{sizes(self.register)}}} chunks {{{sizes(self.chunks)}}}"
        steps = "".join(f" steps[{k}] {{{sizes(s)}}}" for k, s in self.steps.items())
        items = "" if self.items is None else f" items {{{sizes(self.items)}}}"
        promote = f" promote {{{sizes(self.promote)}}}" if self.promote else ""
        promote += f" pieces {{{sizes(self.pieces)}}}" if self.pieces else ""
        promote += "" if self.matrices is None else f" matrices {{{self.matrices}}}"
        blocks = f" blocks {{{sizes(self.blocks)}}} panels {self.panels}" if self.is_blocked else ""
        blocks += f" parts {{{sizes(self.parts)}}}" if self.parts else ""
        blocks += f" ahead {self.ahead}" if self.ahead else ""
        zeros = "".join(f" {name} {k}" for name, k in (("spans", self.spans), ("hidden", self.hidden)) if k is not None)
        sweeps = "".join(f" sweep {{{s}}}" for s in self.sweeps)
        running = "" if self.running is None else f" running d{self.running[0]} by {self.running[1]}"
        cut += f" even, in halves below {self.even}" if self.even else ""
        return f"{cut}{steps}{items}{promote}{blocks}{zeros}{sweeps}{running} order ({order})"


def fitting_tile(nest: Nest, d: int, wanted: int) -> int:
    """The largest tile up to `wanted` that a dimension may have: within its extent, a part of a packed panel, and whole
    repetitions of an operand's elements or a part of one."""
    wanted, period, times = min(wanted, nest.extents[d]), nest.packed_periods.get(d), nest.repetitions.get(d, 1)
    if period is None and wanted >= times:
        return wanted - wanted % times
    return next(tile for tile in range(min(wanted, period or times), 0, -1) if (period or times) % tile == 0)


def first_contraction(nest: Nest) -> Stage | None:
    """The first reduction of a nest, if it is a contraction."""
    stage = first_reduction(nest)
    return stage if stage is not None and stage.is_contraction else None


def first_reduction(nest: Nest) -> Stage | None:
    """The reduction that a nest begins with but for the fill of its result; its results are those of the nest's tiles."""
    reduction = next((k for k, s in enumerate(nest.stages) if s.reductions), 0)
    stage = nest.stages[reduction]
    before = nest.stages[:reduction]
    if (
        not stage.reductions
        or stage.scattered is not None
        or stage.reads_at_computed_places
        or len(before) != 1
        or before[0] is not initial_of(stage, nest)
    ):
        return None
    private = [d for d in stage.dims if d >= 0 and d not in nest.shared and d not in stage.reductions]
    return None if private else stage


def promoted_stage(nest: Nest) -> Stage | None:
    """The contraction whose operands can be brought to a group's memory: one that the nest begins with, of plain operands."""
    stage = first_contraction(nest)
    if stage is None or not all(t.is_plain for a in (*stage.inputs, stage.output) for t in a.terms):
        return None
    return stage


def equal_tile(extent: int, limit: int) -> int:
    """The tile of which as few as can be, of up to `limit`, cover `extent`: all of them are as good as full."""
    return -(-extent // -(-extent // limit))


def whole_parts(extent: int, limit: int) -> int:
    """As `even_tile`, a multiple of four rather than another divisor: four neighbours are fetched at once."""
    fours = (tile for tile in range(limit - limit % 4, limit // 2, -4) if extent % tile == 0)
    return next(fours, even_tile(extent, limit))


def even_tile(extent: int, limit: int) -> int:
    """The largest tile up to `limit` that cuts `extent` evenly, or nearly so; a divisor if one is above half the limit."""
    if extent <= limit:
        return extent
    divisors = (tile for tile in range(limit, limit // 2, -1) if extent % tile == 0)
    return next(divisors, equal_tile(extent, limit))
