"""Rules for CPU plans: register tiles that fill the vector unit, steps, chunks, loop order and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dims import Size
from dlc.ir import Float64Type, IntegerType
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import NestStage, StaticLoopNest, can_split
from dlc.passes.tiling.plan import balanced_tile, divisor_tile, fitting_tile
from dlc.passes.tiling.variants import Variant
from dlc.passes.types import memref_of
from dlc.target import Target

# Accumulator vectors that hide the latency of FMA; with fewer each addition waits for the previous one.
MIN_LATENCY_HIDING_ACCUMULATORS = 12
# Maximum accumulator vectors if a tile's vectors stay in the L1 cache: more reuse saves nothing there, and the epilogue of a
# larger tile delays the next tile.
_MAX_L1_ACCUMULATORS = 16
# Maximum rows of a contraction's tile along a dynamic dimension: each row count needs separate code.
MAX_DYNAMIC_TILE_ROWS = 6
# Maximum vectors per row for a contraction with very few rows.
MAX_ROW_VECTORS = 8


@dataclass(frozen=True)
class TileRules:
    """Tiling rules for a nest on a target, modified by a variant; with `exact`, products with zeros are not skipped."""

    nest: StaticLoopNest
    target: Target
    variant: Variant
    exact: bool

    def max_tile_rows(self, stage: NestStage, vectors: int) -> int:
        """Return the maximum number of rows, of `vectors` vectors each, of a contraction's register tile."""
        # The operand with fewer vectors or broadcasts is held in registers, the other one is streamed. For an operand that
        # repeats elements each accumulator has a vector of its own, shuffled at each step.
        sums, registers = stage.num_accumulators, self.target.vector_registers
        has_repeated_operand = self.has_repeated_operand(stage)

        def needed_registers(rows: int) -> int:
            return (
                (sums + has_repeated_operand) * rows * vectors
                + sums
                + (vectors if has_repeated_operand else min(rows, vectors))
            )

        fitting = (r for r in range(registers, 0, -1) if needed_registers(r) <= registers)
        return max(1, int(self.variant.rows * next(fitting, 1)))

    def has_repeated_operand(self, stage: NestStage) -> bool:
        """Return whether an operand of a stage repeats elements along a dimension."""
        times = self.nest.repeat_counts
        return any(t.iterator in times and t.divisor > 1 for a in stage.inputs for t in a.terms)

    def lanes(self, stage: NestStage) -> int:
        """Return the number of SIMD lanes of a stage's element type."""
        t = memref_of(stage.op.operands[-1]).element_type
        match t:
            case Float64Type():
                width = 8
            case IntegerType():
                width = max(1, t.width.data // 8)
            case _:
                width = 4
        # Conversions keep the lane count equal across types: 4-byte lanes unless elements are wider, or all are narrower.
        return self.target.lanes(max(width, self.nest.element_bytes))

    def fitting(self, d: int, preferred_size: int) -> int:
        """Return the largest legal tile up to `wanted` along a dimension."""
        return fitting_tile(self.nest, d, preferred_size)

    def lane_tile(self, lane: int) -> int:
        return self.fitting(lane, self.target.costs.vectors * self.lanes(self.nest.stages[-1]))

    def contraction_tile(self, stage: NestStage, lane: int, panels: Sequence[int] = ()) -> dict[int, int]:
        """Return the register tile of a contraction: rows × lanes, vectors of one operand times broadcasts of the other.

        Accumulators + vectors of one operand + 1 of the other fit the register file; with sums of products inside a step, 2
        · accumulators + 1 do.
        """
        lanes = self.lanes(stage)
        extents = self.nest.extents
        # Prepacked panels have the best width for their contraction, up to four vectors.
        row_dims = [d for d in self.nest.shared if d != lane and stage.output.uses(d)]
        # With few rows in total, wider rows keep enough accumulators busy and read longer contiguous runs of memory.
        max_vectors = self.target.vector_registers // (2 * prod(extents[d] for d in row_dims))
        preferred_size = (
            self.target.costs.vectors if lane in self.nest.panel_sizes else max(2, min(max_vectors, MAX_ROW_VECTORS))
        )
        columns = self.fitting(lane, preferred_size * lanes)
        vectors = -(-columns // lanes)
        rows = self.max_tile_rows(stage, vectors)
        if self.fits_half_l1(stage, columns):
            rows = min(rows, max(1, _MAX_L1_ACCUMULATORS // vectors))
        register = {lane: columns}
        vectors_of = [a for a in stage.inputs if a.uses(lane)]

        def nearness(d: int) -> tuple[bool, Size]:
            return all(a.uses(d) for a in vectors_of), stage.output.stride(d)

        # Prefer dimensions whose rows share vectors; of these the innermost, whose rows share cache lines and addresses.
        for d in sorted(row_dims, key=nearness):
            # Rows that are adjacent in a panel share its cache lines if the tile divides them evenly.
            min_rows = (
                0
                if any((a := stage.accesses[k]) is not None and a.stride(d) == 1 for k in panels)
                else MIN_LATENCY_HIDING_ACCUMULATORS / vectors
            )
            if d in self.nest.dynamic_dims:
                # A divisor of the representative extent need not divide other extents.
                register[d] = rows if rows <= MAX_DYNAMIC_TILE_ROWS else self.fitting(d, rows)
                break
            tiles = ({**register, d: n} for n in range(min(rows, extents[d]), 0, -1))
            max_rows = next(tile[d] for tile in tiles if tile[d] == 1 or self.avoids_set_conflicts(stage, lane, tile, panels))
            register[d] = self.fitting(d, row_tile(extents[d], max_rows, min_rows))
            rows //= register[d]
            if rows < 2 or register[d] < extents[d]:
                break
        return register

    def fits_half_l1(self, stage: NestStage, columns: int) -> bool:
        """Return whether the vectors that register tiles of a contraction share fill at most half of the L1 cache."""
        costs, steps = self.target.costs, prod(self.nest.extents[d] for d in stage.reductions)
        size = numpy_dtype(memref_of(stage.op.operands[-1]).element_type).itemsize
        return 2 * steps * columns * size <= costs.cache_ways * costs.way_bytes

    def avoids_set_conflicts(self, stage: NestStage, lane: int, tile: Mapping[int, int], panels: Sequence[int]) -> bool:
        """Return whether the L1 cache holds the lines whose elements a contraction broadcasts until all elements are read.

        Rows whose distance is a power of two map to few sets, and each set holds one line per way. Packed operands
        (`panels`) have their rows close together.
        """
        costs, rows = self.target.costs, [d for d in tile if d != lane]
        positions = [dict(zip(rows, position, strict=True)) for position in product(*(range(tile[d]) for d in rows))]
        for k, a in enumerate(stage.accesses[:-1]):
            if a is None or a.uses(lane) or k in panels:
                continue
            size = numpy_dtype(memref_of(stage.op.operands[k]).element_type).itemsize
            lines = {a.distance(position) * size // ALIGNMENT_BYTES for position in positions}
            sets = Counter(line % (costs.way_bytes // ALIGNMENT_BYTES) for line in lines)
            if max(sets.values()) > costs.cache_ways:
                return False
        return True

    def steps(self, register: dict[int, int], lane: int | None) -> dict[int, dict[int, int]]:
        """Return smaller steps than the register tile for stages that would spill or bloat the kernel.

        Long formulas go row by row; sums of a contraction that a later stage reduces again go one at a time.
        """
        steps: dict[int, dict[int, int]] = {}
        for k, stage in enumerate(self.nest.stages):
            if stage.is_contraction and (private_dims := [d for d in stage.dims if d in self.reduced() - stage.reductions]):
                steps[k] = {d: 1 for d in private_dims}
            rows = [d for d in register if d != lane and d in stage.dims and register[d] > 1]
            if rows and not stage.reductions and stage.has_transcendental_math:
                steps[k] = {d: 1 for d in rows}
        return steps

    def chunks(self, lane: int | None) -> dict[int, int]:
        """Return the steps along dimensions of single stages: vectors along contiguous memory, single elements elsewhere."""
        chunks: dict[int, int] = {}
        packed = self.nest.panel_sizes
        for stage in self.nest.stages:
            lanes = self.lanes(stage)
            for d in stage.dims:
                if d < 0 or d in self.nest.shared or d in chunks:
                    continue
                contiguous = any(a.stride(d) == 1 for a in (*stage.inputs, stage.output))
                if d not in self.reduced():
                    chunks[d] = self.fitting(d, self.target.costs.vectors * lanes if contiguous else 1)
                elif d in packed or (lane is None and contiguous and self.can_split_all(stage, d)):
                    preferred_size = self.target.costs.vectors * lanes
                    # A row that is only slightly longer is computed at once: its remainder has partial results of its own.
                    is_short_row = (
                        d not in packed and self.nest.extents[d] <= 2 * preferred_size and not stage.has_transcendental_math
                    )
                    chunks[d] = self.fitting(
                        d, 2 * preferred_size if is_short_row and d not in self.nest.dynamic_dims else preferred_size
                    )
        return chunks

    def reduced(self) -> set[int]:
        return {d for s in self.nest.stages for d in s.reductions}

    def can_split_all(self, stage: NestStage, d: int) -> bool:
        """Return whether all reductions along a dimension can be split."""
        return all(can_split(s, self.nest) for s in self.nest.stages if d in s.reductions)

    def order(self, shared: list[int], lane: int | None) -> tuple[int, ...]:
        """Return the loop order: panels of the lane dimension outside of rows, so that all rows use a panel, or inside.

        Products of a batch are outermost: they share no operands, and a cache holds what the panels of one share. Groups of
        a few channels share parts of cache lines.
        """
        stage = self.nest.stages[-1]
        rows = sorted((d for d in shared if d != lane), key=lambda d: -stage.output.stride(d))
        contraction = next((s for s in self.nest.stages if s.is_contraction), None)
        if lane is None or lane not in shared:
            return tuple(rows)
        if contraction is None:
            return (*rows, lane)
        batch = [d for d in rows if all(a.uses(d) and _has_line_stride(a, d) for a in contraction.inputs)]
        row_dims = [d for d in rows if d not in batch]
        if self.is_lane_innermost(contraction, lane, batch) != self.variant.other_order:
            return (*batch, *row_dims, lane)
        return (*batch, lane, *row_dims)

    def is_lane_innermost(self, stage: NestStage, lane: int, batch: Sequence[int]) -> bool:
        """Return whether all panels of a contraction are iterated inside a few rows, for each product of its batch.

        Packed weights in a row are one long run of memory, while rows that each panel reads again are many short runs:
        packed weights are iterated inside if a cache holds them, others if the L1 cache does. If no cache holds the results
        it is better to store those of one panel, whose constant stride the hardware prefetches. Lanes without shared
        operands access cache lines of their own, of which caches prefetch the next: if results fill the L2 cache they are
        iterated in memory order.
        """
        costs, extents = self.target.costs, self.nest.extents
        if self.nest.dynamic_dims:
            return False
        results = prod(extents[d] for d in self.nest.shared if stage.output.uses(d) and d not in batch)
        if all(a.uses(lane) for a in stage.inputs):
            return results >= costs.block_elements
        max_elements, weights = (
            costs.outer_cache_blocks * costs.block_elements,
            prod(extents[d] for d in (lane, *stage.reductions)),
        )
        packed = lane in self.nest.panel_sizes and weights <= max_elements
        return results <= max_elements and (packed or self.fits_half_l1(stage, extents[lane]))

    def grid(
        self, register: dict[int, int], order: Sequence[int], part: Callable[[int, int], int] = divisor_tile
    ) -> dict[int, int]:
        """Return task tiles with about the variant's work; outer dimensions are split down to the register tile first.

        All tasks are full if half as much work allows it: a partial task needs separate code.
        """
        per_point, max_work = self.work_per_point(), int(self.target.costs.task_work * self.variant.work)
        return self.split_into_tasks(
            register, order, lambda _, block: max_work // max(1, per_point * prod(block.values())), part
        )

    def work_per_point(self) -> int:
        """Return the work of all stages for one index of the shared dimensions, in multiply-adds."""
        extents = self.nest.extents
        return sum(
            (1 if s.is_contraction else self.target.costs.elementwise_work)
            * prod(extents[d] for d in s.dims if d >= 0 and d not in self.nest.shared and d != s.scatter_dim)
            for s in self.nest.stages
        )

    def split_into_tasks(
        self,
        register: dict[int, int],
        order: Sequence[int],
        tiles: Callable[[int, dict[int, int]], int],
        part: Callable[[int, int], int] = balanced_tile,
    ) -> dict[int, int]:
        """Return task tiles of up to `tiles(d, task_tile)` register tiles along each dimension, innermost first."""
        extents = self.nest.extents
        task_tile = {d: register.get(d, 1) for d in order}
        for d in reversed(order):
            steps = -(-extents[d] // task_tile[d])
            preferred_size = max(1, min(steps, tiles(d, task_tile)))
            # A nearly empty task would leave threads idle.
            task_tile[d] *= part(steps, preferred_size)
        return {d: task_tile[d] if d in self.nest.dynamic_dims else min(extents[d], task_tile[d]) for d in order}


def _has_line_stride(a: AffineAccess, d: int) -> bool:
    """Return whether elements along a dimension are in different cache lines."""
    return a.stride(d) * numpy_dtype(memref_of(a.root).element_type).itemsize >= ALIGNMENT_BYTES


def row_tile(extent: int, limit: int, min_rows: float) -> int:
    """Return the rows of a contraction's tile that take the least time for the extent, an even split among equals.

    A tile with fewer than `min_rows` rows waits a little for its accumulators; a remainder takes as long as that, and at
    least half as long as `limit` rows, since it waits for the weights as well.
    """
    if extent <= limit:
        return extent

    def cost(rows: int) -> tuple[float, bool, int]:
        remainder = extent % rows
        remainder_cost = max(remainder, limit // 2, min_rows) if remainder else 0
        return (extent - remainder) * (1.06 if rows < min_rows else 1) + remainder_cost, remainder > 0, -rows

    return min(range(limit, limit // 2, -1), key=cost)
