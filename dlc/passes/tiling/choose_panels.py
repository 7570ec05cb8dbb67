"""Choosing a plan for a contraction whose register tiles share what a cache holds, or a reduction that memory limits.

An operand that a task copies, so that it lies as tiles read it, is a *panel*. A large operand that few tiles read goes in the
order in which it lies in memory instead, and so does what a reduction reads across its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, prod

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.nests import Stage
from dlc.passes.tiling.plan import TilePlan, even_tile, first_reduction
from dlc.passes.tiling.tile_rules import MOST_VECTORS, TileRules
from dlc.passes.types import memref_of

# Products of a batch share nothing: all that is copied for those of a task is such a part of what a cache holds.
_OF_BATCH = 8


class PanelChooser(TileRules):
    """Plans for the first reduction of a nest, where no extent is open and no operand packed."""

    def plan(self) -> TilePlan | None:
        """A contraction of which a task copies operands, so that its tiles share what a cache holds; None where none pays."""
        nest = self.nest
        stage = first_reduction(nest)
        if stage is None or nest.open or nest.packed_periods:
            return None
        lane = next((d for d in nest.shared if stage.output.stride(d) == 1), None)
        if lane is None or nest.extents[lane] < self.lanes(stage):
            return None
        if not all(a is None or all(t.is_plain for t in a.terms) for a in stage.accesses):
            return None
        order = self.order(nest.shared, lane)
        if not stage.is_contraction:
            return None if stage.has_long_formulas else self.plan_in_order(stage, lane, {}, order)
        register = self.contraction_tile(stage, lane)
        panels = tuple(k for k in range(len(stage.accesses) - 1) if self.pays_as_panel(stage, k, register, lane))
        if not panels:
            return self.plan_in_order(stage, lane, register, order)
        lies_near = self.lies_near(stage, panels)
        blocks = {} if lies_near else self.blocks(stage)
        beside = [k for k in range(len(stage.accesses) - 1) if blocks and self.lies_in_rows(stage, k, panels, lane)]
        if beside and self.serves_many((rows := self.in_panels(stage, lane, order, blocks, {*panels, *beside})), lane):
            return rows
        return self.in_panels(stage, lane, order, blocks, panels, lies_near)

    def in_panels(
        self,
        stage: Stage,
        lane: int,
        order: tuple[int, ...],
        blocks: dict[int, int],
        copied: Iterable[int],
        lies_near: bool = False,
    ) -> TilePlan:
        """The plan in which a task copies these operands, or has tiles as if it did, where they lie near."""
        panels = tuple(sorted(copied))
        register = self.contraction_tile(stage, lane, panels)
        if any(a is not None and a.uses(lane) for a in (stage.accesses[k] for k in panels)):
            # Rows are read and written as they lie, and stay while all panels pass by.
            batch = [d for d in order if d != lane and all(a.uses(d) for a in stage.inputs)]
            order = (*batch, *(d for d in order if d != lane and d not in batch), lane)
        if lies_near:
            # Their tiles and their order are as good as they lie.
            panels = ()
        grid, parts = self.shared_grid(stage, register, order, blocks, panels)
        chunks, steps = self.chunks(lane), self.steps(register, lane)
        ahead = self.ahead(stage) if blocks or lies_near else ()
        return TilePlan(grid, register, order, chunks, steps, blocks=blocks, panels=panels, parts=parts, ahead=ahead)

    def serves_many(self, plan: TilePlan, lane: int) -> bool:
        """Whether a copy of rows pays: more than twice as many tiles of a part read it as are many for a copy of lanes."""
        columns = plan.parts.get(lane, plan.grid[lane])
        return columns > 2 * self.target.machine.block_tiles * plan.register[lane]

    def rows_go_first(self, stage: Stage, lane: int, batch: Sequence[int]) -> bool:
        """What a task copies says what comes first."""
        return False

    def plan_in_order(self, stage: Stage, lane: int, register: dict[int, int], order: tuple[int, ...]) -> TilePlan | None:
        """What reads a large operand for few tiles, in the order in which it lies in memory; None for others.

        A few rows of it at a time, from end to end, with the sums in registers or in the nearest cache: down a column of tiles
        each step would read another page. Sums of a batch are to be worth a task each, which
        those of windows are not.
        """
        machine, extents = self.target.machine, self.nest.extents
        lines = stage.reductions | {lane}
        batch = [d for d in order if d != lane and all(a.uses(d) for a in stage.inputs)]
        rows = [d for d in order if d != lane and d not in batch]
        # What shares nothing is no part of a tile.
        register = {d: register[d] for d in (lane, *rows) if d in register} if rows else self.wide_tile(stage, lane)
        of_lines = ([d for d in stage.dims if d not in batch and a.uses(d)] for a in stage.inputs if a.stride(lane) == 1)
        large = any(lines == frozenset(dims) for dims in of_lines)
        tiles = prod(-(-extents[d] // register.get(d, 1)) for d in rows)
        if not large or prod(extents[d] for d in (*lines, *batch)) <= machine.block_elements or tiles >= machine.block_tiles:
            return None
        count = prod(extents[d] for d in rows)
        work = self.work_per_point() * count
        if batch and not stage.is_contraction and work * extents[lane] < machine.task_work:
            return None
        whole = work * prod(extents[d] for d in (lane, *batch))
        most = max(machine.task_work, whole // machine.block_tasks)
        columns = max(1, min(most // work, machine.order_elements // count) // register[lane])
        in_task = {d: 1 for d in batch} | {lane: columns}
        grid = self.cut(register, (*batch, lane, *rows), lambda d, _: in_task.get(d, extents[d]))
        # Sums of one row take whole rows of the operand one by one: memory is read from end to end.
        alone = count == 1 and columns * register[lane] >= extents[lane]
        blocks = self.blocks(stage, 1 if alone else machine.order_steps) if register[lane] < extents[lane] else {}
        return TilePlan(grid, register, order, self.chunks(lane), self.steps(register, lane), blocks=blocks)

    def wide_tile(self, stage: Stage, lane: int) -> dict[int, int]:
        """All sums of a row that half of the registers hold, or as many as read long pieces of memory."""
        whole, most = self.target.vector_registers // 2 * self.lanes(stage), MOST_VECTORS * self.lanes(stage)
        return {lane: self.nest.extents[lane] if self.nest.extents[lane] <= whole else most}

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
        if a.uses(lane) and a.stride(lane) != 1:
            return a.stride(next(d for d in reversed(stage.dims) if d in stage.reductions)) == 1
        far = self.apart(stage, k) >= ALIGNMENT
        return far and prod(nest.extents[d] for d in stage.reductions) > self.kept(stage, k)

    def ahead(self, stage: Stage) -> tuple[int, ...]:
        """The operands of which each step reads pieces of rows, where the processor's own prefetching ends with each piece."""
        if self.target.machine.prefetch is None:
            return ()
        operands, shared = enumerate(stage.accesses[:-1]), self.nest.shared
        return tuple(k for k, a in operands if a is not None and any(a.stride(d) == 1 for d in shared))

    def lies_near(self, stage: Stage, panels: Sequence[int]) -> bool:
        """Whether operands that would be copied are near as they lie: those of a product of a batch that fits the second level
        beside the next one, which is asked for meanwhile, if the first level has room for half a block of their rows.
        """
        nest, machine = self.nest, self.target.machine
        batch = [d for d in nest.shared if nest.extents[d] > 1 and stage.is_batch(d)]
        if not batch or not {*panels} <= {*self.ahead(stage)}:
            return False
        of_product = [d for d in stage.dims if d >= 0 and d not in batch]
        both = 2 * sum(prod(nest.extents[d] for d in of_product if a.uses(d)) for a in stage.inputs)
        return both <= machine.block_elements and all(2 * self.kept(stage, k) >= machine.block_lines for k in panels)

    def kept(self, stage: Stage, k: int) -> int:
        """The steps of what is reduced for which the first-level cache holds a line of an operand."""
        machine, apart = self.target.machine, self.apart(stage, k)
        return machine.cache_ways * (machine.way_bytes // max(ALIGNMENT, gcd(machine.way_bytes, apart)))

    def apart(self, stage: Stage, k: int) -> int:
        """The bytes from an element of an operand to that of the next step of what is reduced."""
        a, last = stage.accesses[k], next(d for d in reversed(stage.dims) if d in stage.reductions)
        row = 0 if a is None else int(a.stride(last))
        return row * numpy_dtype(memref_of(stage.op.operands[k]).element_type).itemsize

    def lies_in_rows(self, stage: Stage, k: int, panels: Sequence[int], lane: int) -> bool:
        """Whether an operand's rows are better copied beside panels of the lanes: parts of them lie in pages of their own."""
        a, last = stage.accesses[k], next(d for d in reversed(stage.dims) if d in stage.reductions)
        lanes = any(b is not None and b.uses(lane) for b in (stage.accesses[j] for j in panels))
        return lanes and a is not None and not a.uses(lane) and a.stride(last) == 1

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
                copies = [a for k in panels if (a := stage.accesses[k]) is not None] or stage.inputs
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
