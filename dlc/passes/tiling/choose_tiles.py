"""Choosing a tile plan for a nest on a CPU: register tiles that fill the vector unit, tasks that are worth a hand-over.

The rules come from measurement: a contraction is at its best with accumulators in 12 to 28 vector registers, weights as
vectors and data as broadcasts; anything else with two to four vectors of work per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.access import Access
from dlc.passes.tiling.choose_panels import PanelChooser
from dlc.passes.tiling.choose_sweeps import SweepChooser, sums_of_rows
from dlc.passes.tiling.choose_turned_sweeps import TurnedSweepChooser
from dlc.passes.tiling.forms import KnownProduct, known_product
from dlc.passes.tiling.nests import Nest, Stage, lane_dim
from dlc.passes.tiling.plan import TilePlan, even_tile, first_contraction
from dlc.passes.tiling.tile_rules import EVEN, SUMS, TileRules, row_tile
from dlc.passes.tiling.variants import VARIANTS, Variant
from dlc.passes.tiling.zeros import hiding
from dlc.target import Target

# Elements of a line that are turned in registers with those of as many others.
_TURNED = 8
# So many tiles of open rows are cut evenly.
_TOGETHER = 3
# Vectors of sums with fewer than which a step waits for the one before.
_LATENT = 8
# Steps of a reduction among which zeros are worth looking for.
_SPANNED = 32


def choose_tiles(nest: Nest, target: Target, variant: Variant = VARIANTS[0], exact: bool = False) -> TilePlan:
    """The plan for a nest on a CPU target; where it is `exact`, zeros count in sums."""
    chooser = _Chooser(nest, target, variant, exact)
    return chooser.leaving_out(chooser.plan())


class _Chooser(TileRules):
    """The plan of a nest, of whichever kind it is."""

    def plan(self) -> TilePlan:
        nest = self.nest
        shared = nest.shared
        if any(s.reads_at_computed_places for s in nest.stages):
            register = self.lanes_of_loads()
            order = (*(d for d in shared if d not in register), *register)
            return TilePlan(self.grid(register, order), register, order, {d: 1 for d in self.own_dims()})
        if (in_forms := self.plan_in_forms()) is not None:
            return in_forms
        if (in_panels := PanelChooser(nest, self.target, self.variant, self.exact).plan()) is not None:
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

    def plan_in_forms(self) -> TilePlan | None:
        """Products with known matrices: all rows of each at once, which share sums, of as many vectors as registers hold.

        Rows lie far apart, often in the same sets of a cache: each is written for several neighbours before the next one, as
        many as have room in the first-level cache between two products, and all lanes of these come before others.
        """
        found = {k: p for k, s in enumerate(self.nest.stages) if (p := known_product(s, self.nest)) is not None}
        first = min(found, default=None)
        lane = None if first is None else lane_dim(self.nest, self.nest.stages[first])
        if first is None or lane not in self.nest.shared or any(lane == p.row for p in found.values()):
            return None
        lanes = self.lanes(self.nest.stages[first])
        vectors = max(1, self.target.vector_registers // max(sum(p.shape) for p in found.values()))
        extent, rows = self.nest.extents, {p.row for p in found.values()}
        columns = even_tile(-(-extent[lane] // lanes), min(vectors, self.target.machine.vectors)) * lanes
        register = {lane: self.fitting(lane, columns)} | {d: extent[d] for d in rows if d in self.nest.shared}
        steps = self.steps(register, lane)
        beside = [d for d in self.nest.shared if d not in register and d not in self.nest.open]
        for d in sorted(beside, key=self.nest.stages[-1].output.stride)[:1]:
            register[d] = self.neighbours(list(found.values()), extent[d], register[lane])
        for k, s in enumerate(self.nest.stages):
            p = found.get(k)
            whole = [p.row] if p is not None else [d for d in rows if d not in self.nest.shared and d in s.dims]
            single = [d for d in register if d != lane and d in s.dims and d not in whole]
            steps[k] = {**steps.get(k, {}), **{d: 1 for d in single}, **{d: extent[d] for d in whole}}
        order = (*(d for d in self.order(self.nest.shared, lane) if d != lane), lane)
        return TilePlan(self.grid(register, order, _full), register, order, self.chunks(lane), steps)

    def neighbours(self, products: Sequence[KnownProduct], extent: int, columns: int) -> int:
        """How many neighbours of so many columns have room in the first-level cache between two products.

        What is left of a row would be code of its own: rather a divisor of the row, half as many to twice as many.
        """
        machine, size = self.target.machine, numpy_dtype(products[0].element).itemsize
        between = max(n for p in products for n in p.shape) ** 2 * columns * size
        most = max(1, machine.cache_ways * machine.way_bytes * 2 // (3 * between))
        divisors = [n for n in range(max(most // 2, 1), 2 * most) if extent % n == 0]
        return max((n for n in divisors if n <= most), default=min(divisors, default=even_tile(extent, most)))

    def evenly(self, plan: TilePlan, stage: Stage, lane: int) -> TilePlan:
        """The plan, with tasks that cut open rows of a contraction evenly, if there are any."""
        register = plan.register
        rows = [d for d in register if d in self.nest.open and d != lane and register[d] <= EVEN]
        grid = {d: max(size, register[d] * _TOGETHER) if d in rows else size for d, size in plan.grid.items()}
        # Strictly, one is added to a sum after the other.
        halves = 1 if self.exact else -(-_LATENT * self.lanes(stage) // register[lane])
        return replace(plan, grid=grid, even=halves) if rows else plan

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
        rows = row_tile(nest.extents[row], (self.target.vector_registers - 3) // 2, SUMS / 2)
        kind = TurnedSweepChooser if sums.turned else SweepChooser
        chooser = kind(nest, self.target, sums, row, rows, lanes, self.exact)
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
        # What there is one of for each row, such as a mean, is read once: it may lie along any lane.
        reduced = [a for a in stage.inputs if any(map(a.uses, stage.reductions))]
        if lane in stage.reductions or any(a.stride(lane) == 1 for a in reduced if lane is not None):
            return False
        rows = [d for d in stage.reductions if any(a.stride(d) == 1 for a in stage.inputs) and self.splits(stage, d)]
        return any(self.nest.extents[d] >= max(self.lanes(stage), _TURNED) for d in rows)

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


def _full(steps: int, wanted: int) -> int:
    """How many steps a task has: fewer than four times as many as wanted, so that all are full; else up to that, nearly evenly.

    A task that is not full is code of its own.
    """
    return next((n for n in range(wanted, 4 * wanted) if steps % n == 0), even_tile(steps, wanted))
