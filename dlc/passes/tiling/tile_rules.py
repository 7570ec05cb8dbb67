"""What plans for a CPU are made of: register tiles that fill the vector unit, steps, chunks, the order and the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dims import Size
from dlc.ir import Float64Type, IntegerType
from dlc.passes.tiling.access import Access
from dlc.passes.tiling.nests import Nest, Stage, can_split
from dlc.passes.tiling.plan import equal_tile, even_tile, fitting_tile
from dlc.passes.tiling.variants import Variant
from dlc.passes.types import memref_of
from dlc.target import Target

# Sums in vectors that a processor adds to at once; with fewer each waits for the one before.
SUMS = 12
# So many are enough where a tile's vectors stay in the nearest cache: more of them share what costs nothing to read, and the
# next tile's sums wait longer for what becomes of theirs.
_ENOUGH = 16
# Rows of an open extent in a tile of a contraction: each number of them is code of its own.
EVEN = 6
# The vectors of a row of a contraction that has next to no other.
MOST_VECTORS = 8


@dataclass(frozen=True)
class TileRules:
    """Rules for a nest on a target, as far as a variant does not say otherwise; where it is `exact`, zeros count in sums."""

    nest: Nest
    target: Target
    variant: Variant
    exact: bool

    def rows_beside(self, stage: Stage, vectors: int) -> int:
        """How many rows of so many vectors a register tile of a contraction holds."""
        # One operand's vectors or broadcasts are held, the fewer of them, and those of the other pass by. Of an operand that
        # repeats elements each sum has a vector of its own, from which step by step others are made.
        sums, registers = stage.sums, self.target.vector_registers
        repeats = self.repeats(stage)

        def needed(rows: int) -> int:
            return (sums + repeats) * rows * vectors + sums + (vectors if repeats else min(rows, vectors))

        fitting = (r for r in range(registers, 0, -1) if needed(r) <= registers)
        return max(1, int(self.variant.rows * next(fitting, 1)))

    def repeats(self, stage: Stage) -> bool:
        """Whether an operand of a stage repeats elements along a dimension."""
        times = self.nest.repetitions
        return any(t.iterator in times and t.divisor > 1 for a in stage.inputs for t in a.terms)

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
        """The largest tile up to `wanted` that a dimension may have."""
        return fitting_tile(self.nest, d, wanted)

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
        wanted = self.target.machine.vectors if lane in self.nest.packed_periods else max(2, min(few, MOST_VECTORS))
        columns = self.fitting(lane, wanted * lanes)
        vectors = -(-columns // lanes)
        rows = self.rows_beside(stage, vectors)
        if self.stays_near(stage, columns):
            rows = min(rows, max(1, _ENOUGH // vectors))
        register = {lane: columns}
        vectors_of = [a for a in stage.inputs if a.uses(lane)]

        def nearness(d: int) -> tuple[bool, Size]:
            return all(a.uses(d) for a in vectors_of), stage.output.stride(d)

        # Dimensions whose rows share vectors first; of these the one nearest in memory, whose rows share lines and addresses.
        for d in sorted(row_dims, key=nearness):
            # Rows that are neighbours in a panel share its lines where they are an even part of them.
            least = 0 if any((a := stage.accesses[k]) is not None and a.stride(d) == 1 for k in panels) else SUMS / vectors
            if d in self.nest.open:
                # An even cut of an example is none of the other extents.
                register[d] = rows if rows <= EVEN else self.fitting(d, rows)
                break
            tiles = ({**register, d: n} for n in range(min(rows, extents[d]), 0, -1))
            kept = next(tile[d] for tile in tiles if tile[d] == 1 or self.lines_stay(stage, lane, tile, panels))
            register[d] = self.fitting(d, row_tile(extents[d], kept, least))
            rows //= register[d]
            if rows < 2 or register[d] < extents[d]:
                break
        return register

    def stays_near(self, stage: Stage, columns: int) -> bool:
        """Whether the vectors that register tiles of a contraction share take no more than half of the first-level cache."""
        machine, steps = self.target.machine, prod(self.nest.extents[d] for d in stage.reductions)
        size = numpy_dtype(memref_of(stage.op.operands[-1]).element_type).itemsize
        return 2 * steps * columns * size <= machine.cache_ways * machine.way_bytes

    def lines_stay(self, stage: Stage, lane: int, tile: Mapping[int, int], panels: Sequence[int]) -> bool:
        """Whether lines of which a contraction broadcasts elements stay in the first-level cache until all of them are read.

        Rows that lie a power of two apart meet in few sets, and each of these holds a line for each of its ways. Where a task
        copies an operand, as it does `panels`, its rows lie close together.
        """
        machine, rows = self.target.machine, [d for d in tile if d != lane]
        places = [dict(zip(rows, place, strict=True)) for place in product(*(range(tile[d]) for d in rows))]
        for k, a in enumerate(stage.accesses[:-1]):
            if a is None or a.uses(lane) or k in panels:
                continue
            size = numpy_dtype(memref_of(stage.op.operands[k]).element_type).itemsize
            lines = {a.distance(place) * size // ALIGNMENT for place in places}
            sets = Counter(line % (machine.way_bytes // ALIGNMENT) for line in lines)
            if max(sets.values()) > machine.cache_ways:
                return False
        return True

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
        packed = self.nest.packed_periods
        for stage in self.nest.stages:
            lanes = self.lanes(stage)
            for d in stage.dims:
                if d < 0 or d in self.nest.shared or d in chunks:
                    continue
                contiguous = any(a.stride(d) == 1 for a in (*stage.inputs, stage.output))
                if d not in self.reduced():
                    chunks[d] = self.fitting(d, self.target.machine.vectors * lanes if contiguous else 1)
                elif d in packed or (lane is None and contiguous and self.splits(stage, d)):
                    wanted = self.target.machine.vectors * lanes
                    # A row of not much more goes at once: what is left over is added up by itself.
                    whole = d not in packed and self.nest.extents[d] <= 2 * wanted and not stage.has_long_formulas
                    chunks[d] = self.fitting(d, 2 * wanted if whole and d not in self.nest.open else wanted)
        return chunks

    def reduced(self) -> set[int]:
        return {d for s in self.nest.stages for d in s.reductions}

    def splits(self, stage: Stage, d: int) -> bool:
        return all(can_split(s, self.nest) for s in self.nest.stages if d in s.reductions)

    def order(self, shared: list[int], lane: int | None) -> tuple[int, ...]:
        """Panels of the lane dimension before rows, so that one panel of weights serves all of them, or rows first.

        Products of a batch come one after the other: they share nothing, and the cache holds what their panels share. Groups of
        a few channels do, as parts of lines.
        """
        stage = self.nest.stages[-1]
        rows = sorted((d for d in shared if d != lane), key=lambda d: -stage.output.stride(d))
        contraction = next((s for s in self.nest.stages if s.is_contraction), None)
        if lane is None or lane not in shared:
            return tuple(rows)
        if contraction is None:
            return (*rows, lane)
        batch = [d for d in rows if all(a.uses(d) and _lines_apart(a, d) for a in contraction.inputs)]
        beside = [d for d in rows if d not in batch]
        if self.rows_go_first(contraction, lane, batch) != self.variant.other_order:
            return (*batch, *beside, lane)
        return (*batch, lane, *beside)

    def rows_go_first(self, stage: Stage, lane: int, batch: Sequence[int]) -> bool:
        """Whether all panels of a contraction pass by a few rows before the next ones, for each of its batch.

        Packed weights in a row are one long piece of memory, and rows that each panel reads again many short ones: these
        weights pass by where a cache holds them, others where the nearest one does. Where no cache holds the results it is
        better to store those of one panel, whose equal distances the processor foresees. Lanes that share nothing read and
        write lines of their own, of which caches get the next ones too: where results fill the second level, they go in the
        order of memory.
        """
        machine, extents = self.target.machine, self.nest.extents
        if self.nest.open:
            return False
        results = prod(extents[d] for d in self.nest.shared if stage.output.uses(d) and d not in batch)
        if all(a.uses(lane) for a in stage.inputs):
            return results >= machine.block_elements
        far, weights = machine.far_blocks * machine.block_elements, prod(extents[d] for d in (lane, *stage.reductions))
        packed = lane in self.nest.packed_periods and weights <= far
        return results <= far and (packed or self.stays_near(stage, extents[lane]))

    def grid(
        self, register: dict[int, int], order: Sequence[int], part: Callable[[int, int], int] = even_tile
    ) -> dict[int, int]:
        """Parts of about as much work as the variant says: outer dimensions are cut to the register tile first.

        All of them are full where half as much work allows it: one that is not is code of its own.
        """
        per_point, most = self.work_per_point(), int(self.target.machine.task_work * self.variant.work)
        return self.cut(register, order, lambda _, block: most // max(1, per_point * prod(block.values())), part)

    def work_per_point(self) -> int:
        """Of all stages, for one element of what they share."""
        extents = self.nest.extents
        return sum(
            (1 if s.is_contraction else self.target.machine.element_work)
            * prod(extents[d] for d in s.dims if d >= 0 and d not in self.nest.shared and d != s.scattered)
            for s in self.nest.stages
        )

    def cut(
        self,
        register: dict[int, int],
        order: Sequence[int],
        tiles: Callable[[int, dict[int, int]], int],
        part: Callable[[int, int], int] = equal_tile,
    ) -> dict[int, int]:
        """Equal parts of each dimension, innermost first, of as many tiles as `tiles` says, given the parts of all so far."""
        extents = self.nest.extents
        whole = {d: register.get(d, 1) for d in order}
        for d in reversed(order):
            steps = -(-extents[d] // whole[d])
            wanted = max(1, min(steps, tiles(d, whole)))
            # A task that is nearly empty keeps the others waiting.
            whole[d] *= part(steps, wanted)
        return {d: whole[d] if d in self.nest.open else min(extents[d], whole[d]) for d in order}


def _lines_apart(a: Access, d: int) -> bool:
    """Whether elements along a dimension lie in lines of their own."""
    return a.stride(d) * numpy_dtype(memref_of(a.root).element_type).itemsize >= ALIGNMENT


def row_tile(extent: int, limit: int, least: float) -> int:
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
