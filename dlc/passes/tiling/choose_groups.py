"""Choosing a tile plan for a nest on a device with groups of items.

The rules come from what is published of GPUs, and their numbers from an H100 and an H200: adjacent items touch adjacent
memory, four elements at a time; a contraction keeps a square of sums in each item's registers and feeds it from local memory;
what is reduced along contiguous memory is shared out to a team of items; and there should be items enough to keep the whole
device busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.access import Access
from dlc.passes.tiling.choose_matrices import choose_matrices
from dlc.passes.tiling.contraction_cost import cost_of_contraction
from dlc.passes.tiling.nests import Nest, Stage, can_split, lane_dim
from dlc.passes.tiling.plan import TilePlan, even_tile, fitting_tile, promoted_stage, whole_parts
from dlc.passes.types import memref_of
from dlc.target import Groups, Target

# A group of no more than these is worth its start.
_FEWEST = 32
# Elements that an item takes at once along contiguous memory.
_LANES = 4
# Items that read a line of memory together.
_LINE = 8
# The reduction that is worth a team, the items of a group of teams, and groups that a unit has items for.
_WORTH_A_TEAM = 64
_TEAM_GROUP = 128
_AT_ONCE = 4
# Register tiles of a contraction (rows, columns), and items of a group along them.
_TILES = ((8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (1, 4))
_BLOCKS = ((16, 16), (8, 16), (16, 8), (8, 8), (4, 16), (4, 8))
# Rows that share the weights of a window, for an item.
_PLACES = (4, 2)
# Elements that an item of a team may keep to itself.
_KEPT = 64
# Elements of a reduction in local memory at a time.
_CHUNKS = (8, 16, 32)
# Multiply-adds of an item in a part, written one by one: more of them were slow on a GPU.
_UNROLLED = 1024
# Rows of a matrix that are worth an item of a team.
_ROWS_OF_A_TEAM = 8
# Where the profile of a device has no groups: the items of a naive one.
_NAIVE = Groups(64, 0)


def choose_groups(nest: Nest, target: Target) -> TilePlan:
    """The plan for a nest on a target with groups."""
    assert target.groups is not None
    return choose_matrices(nest, target) or _Chooser(nest, target, target.groups).plan()


def naive_groups(nest: Nest, target: Target) -> TilePlan:
    """The mapping without tiles: one item for each element of the result."""
    return _Chooser(nest, target, target.groups or _NAIVE).naive()


@dataclass(frozen=True)
class _Chooser:
    nest: Nest
    target: Target
    groups: Groups

    def plan(self) -> TilePlan:
        nest = self.nest
        if any(s.reads_at_computed_places for s in nest.stages):
            return self.naive()
        contraction = next((s for s in nest.stages if s.is_contraction), None)
        if contraction is not None and (tiled := self.contraction(contraction)) is not None:
            return tiled
        return self.team() or self.elementwise()

    @property
    def busy(self) -> int:
        """Items that the device has at work at once."""
        return _AT_ONCE * self.groups.units * self.groups.items

    @property
    def few_rows(self) -> int:
        """Rows of a contraction that are too few to share what its columns read."""
        return self.target.machine.groups.few_rows

    # The parts of a plan

    def steps(self, d: int, tile: int = 1) -> int:
        return -(-self.nest.extents[d] // tile)

    def fitting(self, d: int, wanted: int) -> int:
        """The largest tile up to `wanted` that a dimension may have; of one whose extent is open, an item takes one place, or
        none."""
        return fitting_tile(self.nest, d, 1 if d in self.nest.open else wanted)

    def near_first(self, dims: Sequence[int]) -> list[int]:
        """Dimensions from the nearest in memory to the farthest, in what the nest writes."""
        stage = self.nest.stages[-1]
        return sorted(dims, key=lambda d: stage.output.stride(d) or 1 << 62)

    def fill(self, dims: Sequence[int], register: dict[int, int], limit: int) -> dict[int, int]:
        """Items along dimensions, the first ones first, so that equal parts cover each; outermost first."""
        items: dict[int, int] = {}
        for d in dims:
            steps = self.steps(d, register.get(d, 1))
            items[d] = -(-steps // -(-steps // max(1, limit)))
            limit //= items[d]
        return {d: n for d, n in reversed(items.items()) if n > 1}

    def finish(self, plan: TilePlan) -> TilePlan:
        """The plan with a grid: a group for each part that its items cover at once."""
        order = tuple(reversed(self.near_first(self.nest.shared)))
        grid = {d: plan.covered(d) if d in self.nest.open else min(plan.covered(d), self.nest.extents[d]) for d in order}
        return replace(plan, grid=grid, order=order)

    def limit(self, pieces: int) -> int:
        """Items in a group, so that all of the device has some: whole runs of those that go in step."""
        each = pieces // self.groups.units
        return min(self.groups.items, max(_FEWEST, each - each % _FEWEST))

    # Plans

    def naive(self) -> TilePlan:
        items = self.fill(self.near_first(self.nest.shared), {}, self.limit(1 << 30))
        own = {d: 1 for d in self.nest.extents if d not in self.nest.shared}
        return self.finish(TilePlan(items=items, chunks={d: 1 for d in own if not self.is_reduced(d)}))

    def elementwise(self) -> TilePlan:
        """A few contiguous elements for each item; a small square where an operand lies across."""
        nest = self.nest
        shared = self.near_first(nest.shared)
        lane = lane_dim(nest, nest.stages[-1])
        register: dict[int, int] = {}
        if lane in shared:
            register[lane] = self.fitting(lane, _LANES)
            shared.sort(key=lambda d: d != lane)
        across = [d for s in nest.stages for a in s.inputs for d in shared if d != lane and a.stride(d) == 1]
        limit = self.limit(prod(self.steps(d, register.get(d, 1)) for d in shared))
        if lane in shared and across:
            other = across[0]
            register[other] = self.fitting(other, _LANES)
            side = self.fill([lane], register, max(1, int(limit**0.5)))
            shared.remove(lane)
            shared.sort(key=lambda d: d != other)
            items = {**self.fill(shared, register, limit // side.get(lane, 1)), **side}
        else:
            register |= self.rows_at_once(lane, register)
            items = self.fill(shared, register, limit)
        return self.finish(TilePlan(register=register, items=items, chunks=self.chunks(())))

    def rows_at_once(self, lane: int | None, register: dict[int, int]) -> dict[int, int]:
        """Rows of what a window moves over that share its weights: a few for each item, where there are items enough."""
        nest = self.nest
        shared = [d for d in self.near_first(nest.shared) if d != lane and d not in nest.open]
        again = (d for d in shared if any(not a.uses(d) for s in nest.stages if s.reductions for a in s.inputs))
        d = next(again, None)
        if d is None:
            return {}
        pieces = prod(self.steps(x, register.get(x, 1)) for x in nest.shared)
        fitting = (n for n in _PLACES if nest.extents[d] % n == 0 and self.fitting(d, n) == n and pieces // n >= self.busy)
        n = next(fitting, None)
        return {d: n} if n is not None else {}

    def chunks(self, team: Sequence[int]) -> dict[int, int]:
        """Steps along the dimensions of single stages."""
        chunks: dict[int, int] = {}
        for stage in self.nest.stages:
            for d in stage.dims:
                contiguous = any(a.stride(d) == 1 for a in (*stage.inputs, stage.output))
                if d not in self.nest.shared and (d in team or not self.is_reduced(d)):
                    lanes = 1 if d in team and d in self.nest.open else min(self.nest.extents[d], _LANES)
                    chunks[d] = max(chunks.get(d, 1), lanes if contiguous else 1)
        return chunks

    def is_reduced(self, d: int) -> bool:
        return any(d in s.reductions for s in self.nest.stages)

    def team(self) -> TilePlan | None:
        """A team of items for each row, where rows are long, or there are few of them."""
        nest = self.nest
        dims = self.team_dims()
        if not dims:
            return None
        shared = self.near_first(nest.shared)
        # What most is read of decides which items are neighbours.
        read = max((a for s in nest.stages if s.reductions for a in s.inputs), key=lambda a: self.size(a), default=None)
        lane = next((d for d in shared if read is not None and read.stride(d) == 1), None)
        register = {lane: self.fitting(lane, _LANES)} if lane is not None else {}
        # Rows that share what is read: a few of them in registers.
        few = [d for d in shared if read is not None and not read.uses(d) and nest.extents[d] <= self.few_rows]
        register |= {d: self.fitting(d, nest.extents[d]) for d in few}
        rows = prod(self.steps(d, register.get(d, 1)) for d in shared)
        # Neighbours read neighbouring elements only as a team, where what is reduced is contiguous.
        worth = 2 * _LINE if lane is None else _WORTH_A_TEAM
        if nest.extents[dims[0]] < worth or (lane is not None and rows >= self.busy):
            return None
        # Enough for the device, and for neighbours to read whole lines.
        side = min(self.steps(lane, register[lane]), _LINE) if lane is not None else 1
        kept = max(nest.extents[d] if self.is_kept(d) else 1 for d in dims)
        wanted = min(max(self.busy // rows, kept // _KEPT, 2 * _LINE if lane is None else 1), self.groups.team_items // side)
        chunks = self.chunks(dims)
        pieces = max(self.steps(d, chunks.get(d, 1)) for d in dims)
        if lane is not None:
            # What is reduced lies across: an item goes from row to row.
            chunks |= dict.fromkeys(dims, 1)
            pieces = max(2 * _LINE, nest.extents[dims[0]] // _ROWS_OF_A_TEAM)
        team = 1 << (max(1, min(wanted, pieces)).bit_length() - 1)
        while team > 1:
            limit = max(side, min(self.groups.items, _TEAM_GROUP) // team)
            items = self.fill(shared, register, limit)
            own = {d: team for d in dims}
            # The items that are neighbours in memory are neighbours in the group.
            items = {**items, **own} if lane is None else {**own, **items}
            plan = self.finish(TilePlan(register=register, chunks=chunks, items=items))
            if self.team_bytes(plan) <= self.groups.local_bytes:
                return plan
            team //= 2
        return None

    def is_kept(self, d: int) -> bool:
        """Whether an item keeps what it computes along a dimension for a later stage."""
        roots = self.nest.locals()
        return any(s.output.root in roots and s.output.uses(d) for s in self.nest.stages)

    def team_bytes(self, plan: TilePlan) -> int:
        """What a team's items leave for each other takes of local memory."""
        nest, team = self.nest, plan.team_dims(self.nest)
        sizes = {d: plan.covered(d) if d in plan.order else extent for d, extent in nest.extents.items()}
        total = 0
        for stage in nest.stages:
            if not any(stage.output.uses(d) for d in team):
                places = prod(sizes[t.iterator] for t in stage.output.terms)
                copies = 1 + (plan.team(nest) if stage.reductions.intersection(team) else 0)
                total += copies * places * numpy_dtype(memref_of(stage.op.operands[-1]).element_type).itemsize
        return total

    def size(self, a: Access) -> int:
        """The number of elements that an access touches."""
        return prod(self.nest.extents[d] for d in {t.iterator for t in a.terms})

    def team_dims(self) -> list[int]:
        """For each stage one dimension of its own that a team can share, the longest first; empty if a reduction has none."""
        nest = self.nest
        scattered = {s.scattered for s in nest.stages}
        own = [d for d in nest.extents if d not in nest.shared and d not in scattered]
        chosen: list[int] = []
        taken: set[int] = set()
        for d in sorted(own, key=lambda d: -nest.extents[d]):
            stages = {k for k, s in enumerate(nest.stages) if d in s.dims}
            if not stages & taken and all(can_split(s, nest) for s in nest.stages if d in s.reductions):
                chosen.append(d)
                taken |= stages
        splits = all(set(chosen) & set(s.reductions) for s in nest.stages if s.reductions)
        # Sums of an open number would be partial results in local memory.
        kept = [d for s in nest.stages if s.reductions for d in nest.open.intersection(own) if s.output.uses(d)]
        return chosen if splits and not kept else []

    def contraction(self, stage: Stage) -> TilePlan | None:
        """Squares of sums in registers, operands in local memory; None for one whose operands are not read again."""
        nest = self.nest
        lane = lane_dim(nest, stage)
        if promoted_stage(nest) is None or lane is None or lane not in nest.shared or nest.open & stage.reductions:
            return None
        rows = [d for d in self.near_first(nest.shared) if d != lane and stage.output.uses(d)]
        again = [d for a in stage.inputs for d in (lane, *rows) if not a.uses(d) and nest.extents[d] > self.few_rows]
        if lane not in again or not set(rows).intersection(again):
            return None
        plans = [p for p in self.candidates(stage, rows, lane) if self.local_bytes(p, stage) <= self.groups.local_bytes]
        return min(plans, key=lambda p: cost_of_contraction(p, nest, stage, self.target), default=None)

    def candidates(self, stage: Stage, rows: list[int], lane: int) -> Iterator[TilePlan]:
        nest = self.nest
        reduced = [d for d in stage.dims if d in stage.reductions]
        inner = min(reduced, key=lambda d: (min(a.stride(d) or 1 << 62 for a in stage.inputs), -nest.extents[d]))
        # Rows that all operands tell apart are products of their own.
        blocked = [d for d in rows if any(not a.uses(d) for a in stage.inputs)]
        for (height, width), (down, across), chunk, cut in product(_TILES, _BLOCKS, _CHUNKS, (even_tile, min)):
            if down * across > self.groups.items:
                continue
            # Neighbours read and write a few columns each side by side, and the next ones behind those of all.
            columns = min(_LANES, nest.extents[lane])
            tile = {lane: (columns, max(1, min(width, nest.extents[lane]) // columns))}
            if blocked:
                tile[blocked[0]] = cut(nest.extents[blocked[0]], height), 1
            # Of an open size an item takes places one by one.
            tile |= {d: (1, min(height if d != lane else width, nest.extents[d])) for d in nest.open.intersection(tile)}
            own = {d: size * count for d, (size, count) in tile.items()}
            if prod(own.values()) * chunk > _UNROLLED:
                continue
            plan = TilePlan(
                register={d: size for d, (size, _) in tile.items()},
                items={**self.fill(blocked, own, down), **self.fill([lane], own, across)},
                promote={inner: whole_parts(nest.extents[inner], chunk)},
                pieces={d: count for d, (_, count) in tile.items() if count > 1},
                chunks=self.chunks(()),
            )
            yield self.finish(plan)

    def local_bytes(self, plan: TilePlan, stage: Stage) -> int:
        """What the promoted operands take of local memory, with some room for padding."""
        (chunk,) = plan.promote.values()
        total = 0
        for operand, a in zip(stage.op.operands[:-1], stage.accesses, strict=False):
            if a is not None:
                size = prod(plan.covered(d) for d in plan.order if a.uses(d)) + _LANES
                total += chunk * size * numpy_dtype(memref_of(operand).element_type).itemsize
        return total
