"""Rules for CPU tile plans: register tiles that fill the vector unit, step sizes, loop order and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.cost_model import CostModel
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.tiling.tasks.variants import Variant
from dlc.passes.tiling.tile_sizes import balanced_tile, divisor_tile, fitting_tile
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size
from dlc.target import Target

# Maximum rows of a contraction's tile along a dynamic dimension: each row count needs separate code.
MAX_DYNAMIC_TILE_ROWS = 6
# Maximum vectors per row for a contraction with very few rows.
MAX_ROW_VECTORS = 8


@dataclass(frozen=True)
class TileRules:
    """Tiling rules for a nest on a target, modified by a variant; `exact` forbids skipping products with zeros."""

    nest: SizedLoopNest
    target: Target
    variant: Variant
    exact: bool

    def max_tile_rows(self, nest_op: NestOp, vectors: int) -> int:
        """Return the maximum rows of a contraction's register tile for rows of `vectors` vectors."""
        # The operand with fewer vectors or broadcasts stays in registers, the other one is streamed. If an operand repeats
        # elements, each accumulator needs a separate vector of it, which is shuffled in each k iteration.
        registers = self.target.vector_registers
        # With 16 registers, the integer sum of a step takes another register per element.
        sums_in_registers = nest_op.sums_integers and registers <= 16
        accumulators_per_element = nest_op.num_accumulators + sums_in_registers
        has_repeated_operand = self.has_repeated_operand(nest_op)

        def needed_registers(rows: int) -> int:
            return (
                (accumulators_per_element + has_repeated_operand) * rows * vectors
                + accumulators_per_element
                + (vectors if has_repeated_operand else min(rows, vectors))
            )

        fitting_rows = (r for r in range(registers, 0, -1) if needed_registers(r) <= registers)
        return max(1, int(self.variant.row_scale * next(fitting_rows, 1)))

    def has_repeated_operand(self, nest_op: NestOp) -> bool:
        """Return whether an operand of an op repeats elements along a dimension."""
        repeat_counts = self.nest.repeat_counts
        return any(t.iterator in repeat_counts and t.divisor > 1 for a in nest_op.inputs for t in a.terms)

    def lanes(self, nest_op: NestOp) -> int:
        """Return the number of SIMD lanes of an op's element type."""
        # Types of different widths need equal lane counts: 4-byte lanes, unless elements are wider or all are narrower.
        return self.target.lanes(max(nest_op.element_bytes(), self.nest.element_bytes))

    def fitting(self, d: int, preferred_size: int) -> int:
        """Return the largest legal tile up to `preferred_size` along a dimension."""
        return fitting_tile(self.nest, d, preferred_size)

    def lane_tile(self, lane: int) -> int:
        return self.fitting(lane, self.target.costs.vectors * self.lanes(self.nest.ops[-1]))

    def contraction_tile(self, nest_op: NestOp, lane: int, panels: Sequence[int] = ()) -> dict[int, int]:
        """Return the register tile of a contraction: rows × lanes, vectors of one operand times broadcasts of the other.

        It needs registers for the accumulators, the vectors of one operand, and one of the other; with sums of products
        inside a k iteration, for 2 · accumulators + 1.
        """
        lanes = self.lanes(nest_op)
        extents = self.nest.extents
        row_dims = [d for d in self.nest.shared_dims if d != lane and nest_op.output.uses(d)]
        # A contraction with few rows needs wide tiles for enough accumulators and long contiguous reads. Prepacked panels
        # already have the best width.
        max_vectors = self.target.vector_registers // (2 * prod(extents[d] for d in row_dims))
        preferred_size = (
            self.target.costs.vectors if lane in self.nest.panel_sizes else max(2, min(max_vectors, MAX_ROW_VECTORS))
        )
        columns = self.fitting(lane, preferred_size * lanes)
        vectors = -(-columns // lanes)
        rows = self.max_tile_rows(nest_op, vectors)
        if self.fits_half_l1(nest_op, lane, columns):
            rows = min(rows, max(1, self.target.costs.max_l1_accumulators // vectors))
        register = {lane: columns}
        vector_accesses = [a for a in nest_op.inputs if a.uses(lane)]

        def preference(d: int) -> tuple[bool, Size]:
            return all(a.uses(d) for a in vector_accesses), nest_op.output.stride(d)

        # Prefer dimensions whose rows share vectors; of these the innermost one, whose rows share cache lines.
        for d in sorted(row_dims, key=preference):
            # A panel whose rows are adjacent needs an even split, so that tiles share its cache lines.
            min_rows = (
                0
                if any(nest_op.input_accesses[k].stride(d) == 1 for k in panels)
                else self.target.costs.latency_hiding_accumulators / vectors
            )
            if d in self.nest.dynamic_dims:
                # A divisor of the representative extent may not divide the actual one.
                register[d] = rows if rows <= MAX_DYNAMIC_TILE_ROWS else self.fitting(d, rows)
                break
            tiles = ({**register, d: n} for n in range(min(rows, extents[d]), 0, -1))
            max_rows = next(tile[d] for tile in tiles if tile[d] == 1 or self.avoids_set_conflicts(nest_op, lane, tile, panels))
            register[d] = self.fitting(d, row_tile(self.target.costs, extents[d], max_rows, min_rows))
            rows //= register[d]
            if rows < 2 or register[d] < extents[d]:
                break
        return register

    def fits_half_l1(self, nest_op: NestOp, lane: int, columns: int) -> bool:
        """Return whether the vectors that all rows of a contraction share fill at most half of the L1 cache."""
        costs, steps = self.target.costs, prod(self.nest.extents[d] for d in nest_op.reductions)
        vectors_per_step = sum(a.uses(lane) for a in nest_op.inputs)
        return 2 * steps * vectors_per_step * columns * nest_op.element_bytes() <= costs.l1_bytes

    def avoids_set_conflicts(self, nest_op: NestOp, lane: int, tile: Mapping[int, int], panels: Sequence[int]) -> bool:
        """Return whether the L1 cache holds the lines that a contraction broadcasts from until all their elements are read.

        Rows at a distance of a power of two map to few sets, and each set holds one line per way. The rows of packed
        operands (`panels`) are close together.
        """
        costs, rows = self.target.costs, [d for d in tile if d != lane]
        positions = [dict(zip(rows, position, strict=True)) for position in product(*(range(tile[d]) for d in rows))]
        for k, a in nest_op.input_accesses.items():
            if a.uses(lane) or k in panels:
                continue
            lines = {a.distance(position) * nest_op.element_bytes(k) // ALIGNMENT_BYTES for position in positions}
            sets = Counter(line % (costs.way_bytes // ALIGNMENT_BYTES) for line in lines)
            if max(sets.values()) > costs.cache_ways:
                return False
        return True

    def steps(self, register: dict[int, int], lane: int | None) -> dict[int, dict[int, int]]:
        """Return smaller steps than the register tile for ops that would spill registers or have much code.

        Long formulas are computed row by row. Sums of a contraction that a later op reduces are computed one at a time.
        """
        steps: dict[int, dict[int, int]] = {}
        for k, nest_op in enumerate(self.nest.ops):
            if nest_op.is_contraction and (
                private_dims := [d for d in nest_op.dims if d in self.nest.reduced_dims - nest_op.reductions]
            ):
                steps[k] = {d: 1 for d in private_dims}
            rows = [d for d in register if d != lane and d in nest_op.dims and register[d] > 1]
            if rows and not nest_op.reductions and nest_op.has_transcendental_math:
                steps[k] = {d: 1 for d in rows}
        return steps

    def chunks(self, lane: int | None) -> dict[int, int]:
        """Return the steps along private dimensions: vectors along contiguous memory, single elements otherwise."""
        chunks: dict[int, int] = {}
        packed = self.nest.panel_sizes
        for nest_op in self.nest.ops:
            lanes = self.lanes(nest_op)
            for d in nest_op.dims:
                if d in self.nest.shared_dims or d in chunks:
                    continue
                is_contiguous = any(a.stride(d) == 1 for a in (*nest_op.inputs, nest_op.output))
                if d not in self.nest.reduced_dims:
                    chunks[d] = self.fitting(d, self.target.costs.vectors * lanes if is_contiguous else 1)
                elif d in packed or (lane is None and is_contiguous and self.nest.can_split(d)):
                    preferred_size = self.target.costs.vectors * lanes
                    # A slightly longer row is computed in one step: a remainder would need separate partial results.
                    is_short_row = (
                        d not in packed and self.nest.extents[d] <= 2 * preferred_size and not nest_op.has_transcendental_math
                    )
                    chunks[d] = self.fitting(
                        d, 2 * preferred_size if is_short_row and d not in self.nest.dynamic_dims else preferred_size
                    )
        return chunks

    def order(self, shared_dims: list[int], lane: int | None) -> tuple[int, ...]:
        """Return the loop order: the loop over panels of lanes is outside of that over rows, or inside.

        Products of a batch are outermost: they share no operands, and a cache holds the panels of one product. Between blocks
        of rows, the loop over panels is inside.
        """
        nest_op = self.nest.ops[-1]
        rows = sorted((d for d in shared_dims if d != lane), key=lambda d: -nest_op.output.stride(d))
        contraction = self.nest.contraction
        if lane is None or lane not in shared_dims:
            return tuple(rows)
        if contraction is None:
            return (*rows, lane)
        batch_dims = self.batch_dims(contraction)
        row_dims = [d for d in rows if d not in batch_dims]
        has_blocks = self.rows_per_block(contraction, lane) is not None
        if (has_blocks or self.is_lane_innermost(contraction, lane, batch_dims)) != self.variant.swaps_loop_order:
            return (*batch_dims, *row_dims, lane)
        return (*batch_dims, lane, *row_dims)

    def batch_dims(self, contraction: NestOp) -> list[int]:
        """Return the dimensions of independent products, from the outermost to the innermost of the result.

        Small channel groups are not part of the batch, since they share cache lines.
        """
        dims = (d for d in self.nest.shared_dims if all(a.uses(d) and _has_line_stride(a, d) for a in contraction.inputs))
        return sorted(dims, key=lambda d: -self.nest.ops[-1].output.stride(d))

    def rows_per_block(self, nest_op: NestOp, lane: int) -> int | None:
        """Return the rows of a contraction that are multiplied by all panels before the next rows; None for all rows.

        If no cache holds the rows, and the loop over panels is outside of that over rows, each panel would read all rows from
        memory. In blocks of rows that half of the L2 cache holds, each row is read from memory once, and the weights once per
        block. A block has several times as many rows as a panel has lanes: otherwise reading the weights costs as much as
        reading the rows for each panel.
        """
        costs, extents = self.target.costs, self.nest.extents
        panel = self.nest.panel_sizes.get(lane)
        if self.nest.dynamic_dims or panel is None or extents[lane] <= panel:
            return None
        batch_dims = self.batch_dims(nest_op)
        products = prod(extents[d] for d in batch_dims)
        rows = prod(extents[d] for d in self.nest.shared_dims if nest_op.output.uses(d)) // (products * extents[lane])
        terms = prod(extents[d] for d in nest_op.reductions)
        sizes = [prod(memref_of(a.root).get_shape()) // products for a in nest_op.inputs if not a.uses(lane)]
        elements = sum(min(size, rows * terms) for size in sizes)
        is_cached = elements <= costs.outer_cache_blocks * costs.block_elements
        if is_cached or self.is_lane_innermost(nest_op, lane, batch_dims):
            return None
        block = rows * costs.block_elements // (2 * elements)
        return block if block >= 2 * panel else None

    def is_lane_innermost(self, nest_op: NestOp, lane: int, batch_dims: Sequence[int]) -> bool:
        """Return whether the loop over panels is inside that over rows, for each product of the batch.

        It is inside if a cache holds all panels: any cache for packed weights, the L1 cache for others. Packed weights are
        read as one long run of memory, while a loop over rows inside would read many short runs for each panel. If tiles
        prefetch the next panel, these runs do not wait for memory: then the loop is inside only if the L2 cache holds the
        weights but not the rows. If no cache holds the results, it is outside: results of one panel are stored at a constant
        stride, which the hardware prefetches.
        Lanes without shared operands are iterated in memory order if the results fill the L2 cache, since the hardware
        prefetches the next lines.
        """
        costs, extents = self.target.costs, self.nest.extents
        if self.nest.dynamic_dims:
            return False
        results = prod(extents[d] for d in self.nest.shared_dims if nest_op.output.uses(d) and d not in batch_dims)
        if nest_op.all_inputs_use(lane):
            return results >= costs.block_elements
        max_elements = costs.outer_cache_blocks * costs.block_elements
        terms = prod(extents[d] for d in nest_op.reductions)
        num_lane_inputs = sum(a.uses(lane) for a in nest_op.inputs)
        panel_elements = extents[lane] * terms * num_lane_inputs
        rows = results // extents[lane]
        if costs.prefetch is not None and rows <= costs.prefetch.next_panel_rows:
            row_elements = rows * terms * (len(nest_op.inputs) - num_lane_inputs)
            has_cached_panels = panel_elements <= costs.block_elements < row_elements
        else:
            has_cached_panels = panel_elements <= max_elements
        has_cached_panels = has_cached_panels and lane in self.nest.panel_sizes
        return results <= max_elements and (has_cached_panels or self.fits_half_l1(nest_op, lane, extents[lane]))

    def grid(
        self, register: dict[int, int], order: Sequence[int], choose_size: Callable[[int, int], int] = divisor_tile
    ) -> dict[int, int]:
        """Return task tiles of about the variant's work; outer dimensions are split down to the register tile first.

        Prefers full tasks, of at least half as much work, because a partial task needs separate code. Tasks that unpack weights
        have several tiles of rows, which share an unpacked panel. A block of rows is one task per panel.
        """
        work_per_point, max_work = self.work_per_point(), int(self.target.costs.task_work * self.variant.work_scale)
        contraction = self.nest.contraction
        costs = self.target.costs
        shares_panels = contraction is not None and contraction.sums_integers and costs.max_unpacked_panel_bytes > 0
        min_tiles = costs.min_tiles_per_panel if shares_panels else 1
        block_rows = self.rows_per_block(contraction, order[-1]) if contraction is not None and order else None

        def max_tiles(d: int, block: dict[int, int]) -> int:
            if block_rows is not None:
                return 1 if d == order[-1] else block_rows * block[order[-1]] // prod(block.values())
            tiles = max_work // max(1, work_per_point * prod(block.values()))
            return max(tiles, min_tiles) if d == order[-1] else tiles

        return self.split_into_tasks(register, order, max_tiles, choose_size)

    def work_per_point(self) -> int:
        """Return the work of all ops for one index of the shared dimensions, in multiply-adds."""
        extents = self.nest.extents
        return sum(
            self.work_of_point(op) * prod(extents[d] for d in op.dims if d not in self.nest.shared_dims and d != op.scatter_dim)
            for op in self.nest.ops
        )

    def work_of_point(self, nest_op: NestOp) -> int:
        """Return the work of one point of an op, in multiply-adds."""
        costs = self.target.costs
        if not nest_op.is_contraction:
            return costs.elementwise_work
        points = prod(self.nest.extents[d] for d in nest_op.dims)
        shapes = [memref_of(a.root).get_shape() for a in nest_op.inputs]
        # A buffer with an element for each point is read once; those of dynamic size are not counted.
        is_streamed = any(min(shape, default=0) > 0 and prod(shape) >= points for shape in shapes)
        return max(nest_op.multiply_adds_per_point, costs.streaming_work if is_streamed else 1)

    def split_into_tasks(
        self,
        register: dict[int, int],
        order: Sequence[int],
        max_tiles: Callable[[int, dict[int, int]], int],
        choose_size: Callable[[int, int], int] = balanced_tile,
    ) -> dict[int, int]:
        """Return task tiles of up to `max_tiles(d, task_tile)` register tiles along each dimension, innermost first.

        `choose_size(extent, limit)` splits the register tiles of a dimension.
        """
        extents = self.nest.extents
        task_tile = {d: register.get(d, 1) for d in order}
        for d in reversed(order):
            steps = -(-extents[d] // task_tile[d])
            max_task_tiles = max(1, min(steps, max_tiles(d, task_tile)))
            # A nearly empty task would leave threads idle.
            task_tile[d] *= choose_size(steps, max_task_tiles)
        return {d: task_tile[d] if d in self.nest.dynamic_dims else min(extents[d], task_tile[d]) for d in order}


def _has_line_stride(a: AffineAccess, d: int) -> bool:
    """Return whether adjacent elements along a dimension are in different cache lines."""
    return a.stride(d) * numpy_dtype(memref_of(a.root).element_type).itemsize >= ALIGNMENT_BYTES


def row_tile(costs: CostModel, extent: int, limit: int, min_rows: float) -> int:
    """Return the fastest number of rows of a contraction's tile for an extent; of equally fast ones, the most even split.

    Tiles with fewer than `min_rows` rows are slower, since they wait for their accumulators. A partial tile takes at least
    the latency of a multiply-add, and the time of `limit` / 2 rows, since it also waits for the weights.
    """
    if extent <= limit:
        return extent
    latency_rows = min_rows * costs.independent_accumulators / costs.latency_hiding_accumulators

    def slowdown(rows: int) -> float:
        return costs.exposed_latency_slowdown if rows < min_rows else 1

    def cost(rows: int) -> tuple[float, bool, int]:
        remainder = extent % rows
        remainder_cost = max(remainder, limit // 2, latency_rows) * slowdown(remainder) if remainder else 0
        return (extent - remainder) * slowdown(rows) + remainder_cost, remainder > 0, -rows

    return min(range(limit, limit // 2, -1), key=cost)
