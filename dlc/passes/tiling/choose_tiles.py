"""Choosing a tile plan for a nest on a CPU: register tiles that fill the vector unit, tasks that are worth a hand-over.

The rules come from measurement: a contraction is at its best with accumulators in 12 to 28 vector registers, weights as
vectors and data as broadcasts; anything else with two to four vectors of work per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Float64Type, IntegerType
from dlc.passes.tiling.access import Access
from dlc.passes.tiling.choose_sweeps import SweepChooser, sums_of_rows
from dlc.passes.tiling.nests import Nest, Stage, can_split, lane_dim
from dlc.passes.tiling.plan import TilePlan, even_tile, first_contraction, packed_periods
from dlc.passes.tiling.zeros import hiding
from dlc.passes.types import memref_of
from dlc.target import Target

# Sums in vectors that a processor adds to at once; with fewer each waits for the one before.
_SUMS = 12
# Elements of a line that are turned in registers with those of as many others.
_TURNED = 8
# Rows of an open extent in a tile of a contraction: each number of them is code of its own. So many tiles are cut evenly.
_EVEN, _TOGETHER = 6, 3
# Vectors of sums with fewer than which a step waits for the one before.
_LATENT = 8
# Steps of a reduction among which zeros are worth looking for.
_SPANNED = 32
# The vectors of a row of a contraction that has next to no other.
_MOST_VECTORS = 8
# Products of a batch share nothing: all that is copied for those of a task is such a part of what a cache holds.
_OF_BATCH = 8


@dataclass(frozen=True)
class Variant:
    """A way to choose otherwise, which measurement may find better for a kernel.

    `rows`: how many of the rows that fit a contraction's register tile takes at most, as a share; `work`: how much makes a
    task, in tasks of the target; `panels_first`: whether a panel of weights serves all rows before the next one is read.
    """

    rows: float = 1
    work: float = 1
    panels_first: bool = True

    def __str__(self) -> str:
        rows = f"{self.rows:.0%} of the rows" if self.rows != 1 else ""
        work = f"tasks of {self.work:g} times the work" if self.work != 1 else ""
        return ", ".join(filter(None, (rows, work, "" if self.panels_first else "rows first"))) or "as the rules say"


# The first is what the rules say; the others are worth trying.
VARIANTS = (
    Variant(),
    *(Variant(rows=rows) for rows in (0.9, 0.75, 0.6, 0.5)),
    *(Variant(work=work) for work in (1 / 4, 4)),
    Variant(panels_first=False),
)


def choose_tiles(nest: Nest, target: Target, variant: Variant = VARIANTS[0], exact: bool = False) -> TilePlan:
    """The plan for a nest on a CPU target; where it is `exact`, zeros count in sums."""
    chooser = _Chooser(nest, target, variant, exact)
    return chooser.leaving_out(chooser.plan())


@dataclass(frozen=True)
class _Chooser:
    nest: Nest
    target: Target
    variant: Variant
    exact: bool

    def plan(self) -> TilePlan:
        nest = self.nest
        shared = nest.shared
        if any(s.reads_at_computed_places for s in nest.stages):
            register = self.lanes_of_loads()
            order = (*(d for d in shared if d not in register), *register)
            return TilePlan(self.grid(register, order), register, order, {d: 1 for d in self.own_dims()})
        if (in_panels := self.plan_with_panels()) is not None:
            return in_panels
        if (in_sweeps := self.plan_in_sweeps()) is not None:
            return in_sweeps
        contraction = next((s for s in nest.stages if s.is_contraction), None)
        lane = lane_dim(nest, contraction or nest.stages[-1])
        lane = None if contraction is None and self.goes_row_by_row(lane) else lane
        if contraction is not None and lane in shared:
            register = self.contraction_tile(contraction, lane)
        elif lane in shared:
            register = self.turned_tile(lane) or {lane: self.lane_tile(lane)}
            self.widen(register, shared)
        else:
            register = {}
        order = self.order(shared, lane)
        chunks = self.chunks(lane if lane in shared else None)
        grid, steps = self.grid(register, order), self.steps(register, lane)
        plan = TilePlan(grid, register, order, chunks, steps)
        return plan if contraction is None or lane not in register else self.evenly(plan, contraction, lane)

    def evenly(self, plan: TilePlan, stage: Stage, lane: int) -> TilePlan:
        """The plan, with tasks that cut open rows of a contraction evenly, if there are any."""
        register = plan.register
        rows = [d for d in register if d in self.nest.open and d != lane and register[d] <= _EVEN]
        grid = {d: max(size, register[d] * _TOGETHER) if d in rows else size for d, size in plan.grid.items()}
        # Strictly, one is added to a sum after the other.
        halves = 1 if self.exact else -(-_LATENT * self.lanes(stage) // register[lane])
        return replace(plan, grid=grid, even=halves) if rows else plan

    def rows_beside(self, stage: Stage, vectors: int) -> int:
        """How many rows of so many vectors a register tile of a contraction holds."""
        # One operand's vectors or broadcasts are held, the fewer of them, and those of the other pass by.
        sums, registers = stage.sums, self.target.vector_registers
        fitting = (r for r in range(registers, 0, -1) if sums * (r * vectors + 1) + min(r, vectors) <= registers)
        return max(1, int(self.variant.rows * next(fitting, 1)))

    def plan_with_panels(self) -> TilePlan | None:
        """A contraction of which a task copies operands, so that its tiles share what a cache holds; None where none pays."""
        nest = self.nest
        stage = first_contraction(nest)
        if stage is None or nest.open or packed_periods(nest):
            return None
        lane = next((d for d in nest.shared if stage.output.stride(d) == 1), None)
        if lane is None or nest.extents[lane] < self.lanes(stage):
            return None
        if not all(a is None or all(t.is_plain for t in a.terms) for a in stage.accesses):
            return None
        register, order = self.contraction_tile(stage, lane), self.order(nest.shared, lane)
        panels = tuple(k for k in range(len(stage.accesses) - 1) if self.pays_as_panel(stage, k, register, lane))
        if not panels:
            return self.plan_in_order(stage, lane, register, order)
        blocks = self.blocks(stage)
        beside = (k for k in range(len(stage.accesses) - 1) if blocks and self.lies_in_rows(stage, k, panels, lane))
        panels = tuple(sorted({*panels, *beside}))
        register = self.contraction_tile(stage, lane, panels)
        if not blocks and any(a is not None and a.uses(lane) for a in (stage.accesses[k] for k in panels)):
            # Rows are read and written as they lie, and stay while all panels pass by.
            batch = [d for d in order if all(a.uses(d) for a in stage.inputs)]
            order = (*batch, *(d for d in order if d != lane and d not in batch), lane)
        grid, parts = self.shared_grid(stage, register, order, blocks, panels)
        return TilePlan(
            grid, register, order, self.chunks(lane), self.steps(register, lane), blocks=blocks, panels=panels, parts=parts
        )

    def plan_in_order(self, stage: Stage, lane: int, register: dict[int, int], order: tuple[int, ...]) -> TilePlan | None:
        """A contraction that reads a large operand for few tiles, in the order in which it lies in memory; None for others.

        A few rows of it at a time, from end to end, with the sums in the nearest cache: down a column of tiles each step would
        read another page.
        """
        machine, extents = self.target.machine, self.nest.extents
        lines = stage.reductions | {lane}
        rows = [d for d in order if d != lane]
        large = any(a.stride(lane) == 1 and all(a.uses(d) == (d in lines) for d in stage.dims) for a in stage.inputs)
        tiles = prod(-(-extents[d] // register.get(d, 1)) for d in rows)
        if not large or prod(extents[d] for d in lines) <= machine.block_elements or tiles >= machine.block_tiles:
            return None
        count = prod(extents[d] for d in rows)
        work = self.work_per_point() * count
        most = max(machine.task_work, work * extents[lane] // machine.block_tasks)
        columns = max(1, min(most // work, machine.order_elements // count) // register[lane])
        grid = self.cut(register, (lane, *rows), lambda d, _: columns if d == lane else extents[d])
        blocks = self.blocks(stage, machine.order_steps)
        return TilePlan(grid, register, order, self.chunks(lane), self.steps(register, lane), blocks=blocks)

    def leaving_out(self, plan: TilePlan) -> TilePlan:
        """The plan, with what zeros hide left out of a contraction: 0 · x is 0, unless it is to be no number if x is none."""
        nest, stage = self.nest, first_contraction(self.nest)
        if stage is None or nest.open or plan.sweeps or not nest.zeros:
            return plan

        def zeros(a: Access | None) -> bool:
            return a is not None and a.root in nest.zeros

        long = [nest.extents[d] for d in stage.reductions if nest.extents[d] >= _SPANNED]
        found = (k for k, a in enumerate(stage.accesses[:-1]) if zeros(a) and not self.exact)
        spans = next(found, None) if long and len(stage.reductions) == 1 else None
        last = nest.stages[-1]
        if plan.blocks or len(nest.stages) != 3:
            return replace(plan, spans=spans)
        hidden = (k for k, value in hiding(last) if zeros(last.accesses[k]) and not (self.exact and value is None))
        return replace(plan, spans=spans, hidden=next(hidden, None))

    def plan_in_sweeps(self) -> TilePlan | None:
        """Two contractions of which the second sums along the lanes of the first: what lies between stays in a cache."""
        nest, sums = self.nest, sums_of_rows(self.nest)
        if sums is None:
            return None
        first = nest.stages[sums.first]
        lanes = self.lanes(first)
        row = min((d for d in nest.shared if first.output.uses(d)), key=lambda d: first.output.stride(d), default=None)
        if row is None:
            return None
        rows = _row_tile(nest.extents[row], (self.target.vector_registers - 3) // 2, _SUMS / 2)
        chooser = SweepChooser(nest, self.target, sums, row, rows, lanes, self.exact)
        register, order = {row: chooser.height()}, self.order(nest.shared, None)
        return TilePlan(self.grid(register, order), register, order, sweeps=tuple(chooser.sweeps()), running=chooser.running())

    def lanes_of_loads(self) -> dict[int, int]:
        """The tile along which all loads at computed places read vectors, if there is such a dimension."""
        found = {s.neighbours for s in self.nest.stages if s.reads_at_computed_places}
        lane = found.pop()
        if found or lane is None or lane not in self.nest.shared or lane != lane_dim(self.nest, self.nest.stages[-1]):
            return {}
        return {lane: self.lane_tile(lane)}

    def own_dims(self) -> list[int]:
        """Dimensions of single stages."""
        return [d for d in self.nest.extents if d not in self.nest.shared]

    def lanes(self, stage: Stage) -> int:
        t = memref_of(stage.op.operands[-1]).element_type
        match t:
            case Float64Type():
                width = 8
            case IntegerType():
                width = max(1, t.width.data // 8)
            case _:
                width = 4
        # Conversions keep lane counts equal across types: four-byte lanes unless elements are wider, or all narrower.
        return self.target.lanes(max(width, self.nest.element_bytes))

    def fitting(self, d: int, wanted: int) -> int:
        """The largest tile up to `wanted` that a dimension may have: within its extent, and a part of a packed panel."""
        wanted = min(wanted, self.nest.extents[d])
        period = packed_periods(self.nest).get(d)
        return wanted if period is None else next(tile for tile in range(min(wanted, period), 0, -1) if period % tile == 0)

    def lane_tile(self, lane: int) -> int:
        return self.fitting(lane, self.target.machine.vectors * self.lanes(self.nest.stages[-1]))

    def contraction_tile(self, stage: Stage, lane: int, panels: Sequence[int] = ()) -> dict[int, int]:
        """Rows × lanes in registers: the vectors of one operand times broadcasts of the other.

        accumulators + vectors of one operand + 1 of the other fit the register file; so do 2 · accumulators and one more where
        a step adds up products of its own.
        """
        lanes = self.lanes(stage)
        extents = self.nest.extents
        # Panels are as wide as is best for the contraction that they were made for, up to four vectors.
        row_dims = [d for d in self.nest.shared if d != lane and stage.output.uses(d)]
        # Where there are few rows at all, wider ones keep as many accumulators busy, and read longer pieces of memory.
        few = self.target.vector_registers // (2 * prod(extents[d] for d in row_dims))
        wanted = self.target.machine.vectors if lane in packed_periods(self.nest) else max(2, min(few, _MOST_VECTORS))
        columns = self.fitting(lane, wanted * lanes)
        vectors = -(-columns // lanes)
        rows = self.rows_beside(stage, vectors)
        register = {lane: columns}
        # The dimension nearest in memory first: its rows share cache lines and address registers.
        for d in sorted(row_dims, key=lambda d: stage.output.stride(d)):
            # Rows that are neighbours in a panel share its lines where they are an even part of them.
            least = 0 if any((a := stage.accesses[k]) is not None and a.stride(d) == 1 for k in panels) else _SUMS / vectors
            if d in self.nest.open:
                # An even cut of an example is none of the other extents.
                register[d] = rows if rows <= _EVEN else self.fitting(d, rows)
                break
            register[d] = self.fitting(d, _row_tile(extents[d], rows, least))
            rows //= register[d]
            if rows < 2 or register[d] < extents[d]:
                break
        return register

    def turned_tile(self, lane: int) -> dict[int, int]:
        """A block of elements whose neighbours in memory are along another dimension for an operand than for the result.

        It is turned in registers; empty where nothing is to be turned.
        """
        stages, extents = self.nest.stages, self.nest.extents
        apart = [a for s in stages for a in s.inputs if a.uses(lane) and a.stride(lane) != 1]
        across = {d for a in apart for d in self.nest.shared if a.stride(d) == 1}
        sums = any(s.reductions for s in stages)
        if sums or len(across) != 1 or min(extents[lane], extents[d := min(across)]) < _TURNED:
            return {}
        return {lane: self.fitting(lane, 2 * _TURNED), d: self.fitting(d, _TURNED)}

    def goes_row_by_row(self, lane: int | None) -> bool:
        """Whether vectors along what a stage reduces, the last, are better than along `lane`, where its operands lie apart."""
        stage = next((s for s in reversed(self.nest.stages) if s.reductions), self.nest.stages[-1])
        if lane in stage.reductions or any(a.stride(lane) == 1 for a in stage.inputs if lane is not None):
            return False
        chunk = self.target.machine.vectors * self.lanes(stage)
        rows = [d for d in stage.reductions if any(a.stride(d) == 1 for a in stage.inputs) and self.splits(stage, d)]
        return any(self.nest.extents[d] > chunk for d in rows)

    def widen(self, register: dict[int, int], shared: list[int]) -> None:
        """More rows per step where the lane dimension alone gives fewer than the wanted vectors."""
        stage = self.nest.stages[-1]
        lanes = self.lanes(stage)
        vectors = -(-prod(register.values()) // lanes)
        for d in sorted((d for d in shared if d not in register), key=lambda d: stage.output.stride(d)):
            if vectors * 2 > self.target.machine.vectors:
                break
            register[d] = self.fitting(d, even_tile(self.nest.extents[d], self.target.machine.vectors // vectors))
            vectors *= register[d]

    def steps(self, register: dict[int, int], lane: int | None) -> dict[int, dict[int, int]]:
        """What goes in smaller steps than the register tile, since it would spill, and fill the kernel.

        Long formulas go row by row; the sums of a contraction that a later stage sums up again, one by one.
        """
        steps: dict[int, dict[int, int]] = {}
        for k, stage in enumerate(self.nest.stages):
            if stage.is_contraction and (own := [d for d in stage.dims if d in self.reduced() - stage.reductions]):
                steps[k] = {d: 1 for d in own}
            rows = [d for d in register if d != lane and d in stage.dims and register[d] > 1]
            if rows and not stage.reductions and stage.has_long_formulas:
                steps[k] = {d: 1 for d in rows}
        return steps

    def chunks(self, lane: int | None) -> dict[int, int]:
        """Steps along the dimensions of single stages: vectors along contiguous memory, one element elsewhere."""
        chunks: dict[int, int] = {}
        packed = packed_periods(self.nest)
        for stage in self.nest.stages:
            lanes = self.lanes(stage)
            for d in stage.dims:
                if d < 0 or d in self.nest.shared or d in chunks:
                    continue
                contiguous = any(a.stride(d) == 1 for a in (*stage.inputs, stage.output))
                if d not in self.reduced():
                    chunks[d] = self.fitting(d, self.target.machine.vectors * lanes if contiguous else 1)
                elif d in packed or (lane is None and contiguous and self.splits(stage, d)):
                    chunks[d] = self.fitting(d, self.target.machine.vectors * lanes)
        return chunks

    def blocks(self, stage: Stage, steps: int | None = None) -> dict[int, int]:
        """Parts of what is reduced, of about as many steps as are asked for, or as the machine says.

        The innermost dimensions are whole as far as that goes, and the outermost go one by one. Where no operand lies along
        what is reduced, each step reads a line of either, of which the nearest cache holds fewer.
        """
        extents, machine = self.nest.extents, self.target.machine
        reduced = [d for d in stage.dims if d in stage.reductions]
        along = any(a.stride(reduced[-1]) == 1 for a in stage.inputs)
        most = steps or (machine.block_steps if along else machine.block_lines)
        total = prod(extents[d] for d in reduced)
        whole = machine.whole_steps if along and steps is None else 3 * most // 2
        left = total if total <= whole else most
        blocks: dict[int, int] = {}
        for d in reversed(reduced):
            blocks[d] = even_tile(extents[d], left)
            left = left // blocks[d] if blocks[d] == extents[d] else 1
        return {d: size for d, size in blocks.items() if size < extents[d]}

    def pays_as_panel(self, stage: Stage, k: int, register: dict[int, int], lane: int) -> bool:
        """Whether an operand is better copied: it serves many tiles, and its lanes lie apart or its rows leave the cache.

        Rows that lie a multiple of a power of two apart meet in the same sets of the first-level cache. Of an operand that
        comes from behind the second level half as many tiles are many.
        """
        nest, machine, a = self.nest, self.target.machine, stage.accesses[k]
        if a is None:
            return False
        tiles = prod(-(-nest.extents[d] // register.get(d, 1)) for d in nest.shared if not a.uses(d))
        large = prod(nest.extents[d] for d in stage.dims if d >= 0 and a.uses(d)) > machine.block_elements
        if tiles < (machine.block_tiles // 2 if large else machine.block_tiles):
            return False
        row = a.stride(next(d for d in reversed(stage.dims) if d in stage.reductions))
        if a.uses(lane) and a.stride(lane) != 1:
            return row == 1
        apart = int(row) * numpy_dtype(memref_of(stage.op.operands[k]).element_type).itemsize
        kept = machine.cache_ways * (machine.way_bytes // max(ALIGNMENT, gcd(machine.way_bytes, apart)))
        return apart >= ALIGNMENT and prod(nest.extents[d] for d in stage.reductions) > kept

    def lies_in_rows(self, stage: Stage, k: int, panels: Sequence[int], lane: int) -> bool:
        """Whether an operand's rows are better copied beside panels of the lanes: parts of them lie in pages of their own."""
        a, last = stage.accesses[k], next(d for d in reversed(stage.dims) if d in stage.reductions)
        lanes = any(b is not None and b.uses(lane) for b in (stage.accesses[j] for j in panels))
        return lanes and a is not None and not a.uses(lane) and a.stride(last) == 1

    def reduced(self) -> set[int]:
        return {d for s in self.nest.stages for d in s.reductions}

    def splits(self, stage: Stage, d: int) -> bool:
        return all(can_split(s, self.nest) for s in self.nest.stages if d in s.reductions)

    def order(self, shared: list[int], lane: int | None) -> tuple[int, ...]:
        """Panels of the lane dimension outermost, so that one panel of weights serves all rows; or as the variant says.

        Products of a batch come one after the other: they share nothing, and the cache holds what their panels share.
        """
        stage = self.nest.stages[-1]
        rows = sorted((d for d in shared if d != lane), key=lambda d: -stage.output.stride(d))
        contraction = next((s for s in self.nest.stages if s.is_contraction), None)
        if lane is None or lane not in shared:
            return tuple(rows)
        if contraction is None or not self.variant.panels_first:
            return (*rows, lane)
        batch = [d for d in rows if all(a.uses(d) for a in contraction.inputs)]
        return (*batch, lane, *(d for d in rows if d not in batch))

    def grid(self, register: dict[int, int], order: Sequence[int]) -> dict[int, int]:
        """Parts of about as much work as the variant says: outer dimensions are cut to the register tile first."""
        per_point, most = self.work_per_point(), int(self.target.machine.task_work * self.variant.work)
        return self.cut(register, order, lambda _, block: most // max(1, per_point * prod(block.values())))

    def shared_grid(
        self, stage: Stage, register: dict[int, int], order: Sequence[int], blocks: dict[int, int], panels: Sequence[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """A few large tasks where register tiles share blocks, and the parts that they go in.

        What the innermost dimension of a task reads stays in the second-level cache, in parts where it is copied for each;
        what the others read is further away, since a register tile of them serves all of a part. Of the ways to cut
        dimensions into tasks the one in which they copy least.
        """
        machine, extents, inner = self.target.machine, self.nest.extents, order[-1]
        most = max(machine.task_work, self.work_per_point() * prod(extents[d] for d in order) // machine.block_tasks)
        steps = prod(blocks.get(d, extents[d]) for d in stage.reductions)
        in_parts = [a for k in panels if (a := stage.accesses[k]) is not None and a.uses(inner)]

        def fitting(d: int, block: dict[int, int]) -> int:
            read = max(prod(size for x, size in block.items() if a.uses(x)) for a in stage.inputs if a.uses(d))
            return machine.block_elements // (steps * read)

        def tiles(d: int, block: dict[int, int]) -> int:
            worth = most // (self.work_per_point() * prod(block.values()))
            if all(a.uses(d) for a in stage.inputs):
                copies = (a for k in panels if (a := stage.accesses[k]) is not None)
                copied = steps * sum(prod(size for x, size in block.items() if a.uses(x)) for a in copies)
                return min(worth, machine.block_elements // (_OF_BATCH * copied))
            if d == inner:
                return worth if in_parts else min(worth, fitting(d, block))
            return min(worth, machine.far_blocks * fitting(d, block))

        def copied(grid: dict[int, int]) -> int:
            tasks = prod(-(-extents[d] // size) for d, size in grid.items())
            return sum(
                tasks * prod(size for d, size in grid.items() if (a := stage.accesses[k]) is not None and a.uses(d))
                for k in panels
            )

        grid = min((self.cut(register, o, tiles) for o in (order, (*order[1:], order[0]))), key=copied)
        part = {**{d: register.get(d, 1) for d in order}, **{d: size for d, size in grid.items() if d != inner}}
        whole = -(-grid[inner] // part[inner])
        wanted = max(1, fitting(inner, {d: s for d, s in part.items() if d == inner or any(a.uses(d) for a in in_parts)}))
        if not in_parts or wanted >= whole:
            return grid, {}
        return grid, {inner: part[inner] * -(-whole // -(-whole // wanted))}

    def work_per_point(self) -> int:
        """Of all stages, for one element of what they share."""
        extents = self.nest.extents
        return sum(
            (1 if s.is_contraction else self.target.machine.element_work)
            * prod(extents[d] for d in s.dims if d >= 0 and d not in self.nest.shared and d != s.scattered)
            for s in self.nest.stages
        )

    def cut(
        self, register: dict[int, int], order: Sequence[int], tiles: Callable[[int, dict[int, int]], int]
    ) -> dict[int, int]:
        """Equal parts of each dimension, innermost first, of as many tiles as `tiles` says, given the parts of all so far."""
        extents = self.nest.extents
        whole = {d: register.get(d, 1) for d in order}
        for d in reversed(order):
            steps = -(-extents[d] // whole[d])
            wanted = max(1, min(steps, tiles(d, whole)))
            # Equal parts: a task that is nearly empty keeps the others waiting.
            parts = -(-steps // wanted)
            whole[d] *= -(-steps // parts)
        return {d: whole[d] if d in self.nest.open else min(extents[d], whole[d]) for d in order}


def _row_tile(extent: int, limit: int, least: float) -> int:
    """Rows of a contraction's tile: those that take least time for the extent, an even cut where that is as good.

    A tile of fewer than `least` rows waits for its sums a little; what remains takes as long as so many, and as half of the
    most, since it waits for the weights besides.
    """
    if extent <= limit:
        return extent

    def cost(rows: int) -> tuple[float, bool, int]:
        rest = extent % rows
        left = max(rest, limit // 2, least) if rest else 0
        return (extent - rest) * (1.06 if rows < least else 1) + left, rest > 0, -rows

    return min(range(limit, limit // 2, -1), key=cost)
