"""Choose the plan of attention, softmax(QKᵀ)·V, and its fused loops.

The nest has two contractions: QKᵀ computes scores; the second one reduces their lane dimension, the keys.

A task computes the scores and softmax weights of several register tiles of queries, as many as a cache holds. All of
these tiles read a panel of an operand while it is in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from dlc.ir import BlockArgument, SSAValue
from dlc.passes.tiling.attention.fused_attention import FusedAttention, FusedLoop
from dlc.passes.tiling.attention.match_attention import AttentionOps
from dlc.passes.tiling.attention.online_softmax import has_zero_masked_weights, match_online_softmax
from dlc.passes.tiling.loop_nests import MaskedSelect, NestOp, find_masked_select
from dlc.passes.tiling.tasks.tile_rules import TileRules, row_tile
from dlc.target import Target

# Divide the key block by this if blocks may be fully masked, so that more of them are skipped; and by less if several tiles
# of a task share each read of a block.
MASKED_BLOCK_DIVISOR, _SHARED_BLOCK_DIVISOR = 4, 2
# Vector registers that are not accumulators: operand vectors and a broadcast element.
_OPERAND_REGISTERS = 3
# Maximum width of a register tile, in vectors.
MAX_PANEL_VECTORS = 2
# Registers that a transcendental function needs per vector, including some of its constants.
_REGISTERS_PER_FORMULA_VECTOR = 8
# Minimum rows of a register tile that hide the latency of loads from the L2 cache.
_MIN_LATENCY_HIDING_ROWS = 8


@dataclass(frozen=True)
class FusedLoopChooser(TileRules):
    """Choose the plan of attention in register tiles of `tile_rows` rows along `row_dim`.

    Masked scores and products with zero softmax weights are skipped, unless sums must be `exact` (0·∞ is NaN). Long rows are
    split into key blocks with an online softmax.
    """

    attention: AttentionOps
    row_dim: int
    tile_rows: int

    def plan(self) -> FusedAttention:
        """Return the plan: tasks of a few tiles of queries, and their fused loops.

        All queries of a head follow each other, so that the L2 cache holds its keys and values.
        """
        queries = self.queries_per_task()
        order = (*(d for d in self.order(self.nest.shared_dims, None) if d != self.row_dim), self.row_dim)
        return FusedAttention(
            grid=self.grid({self.row_dim: queries}, order),
            order=order,
            query_dim=self.row_dim,
            queries=queries,
            fused_loops=tuple(self.fused_loops()),
            online_softmax=self.online_softmax,
            prefetches_rows=self.prefetches_rows,
        )

    @property
    def prefetches_rows(self) -> bool:
        """True if the results fill the L2 cache, so that their lines, and those of the queries, come from beyond it."""
        result = self.nest.ops[-1].output
        elements = prod(self.nest.extents[d] for d in self.nest.ops[-1].dims if result.uses(d))
        return self.target.costs.prefetch is not None and elements >= self.target.costs.block_elements

    @cached_property
    def vector_lanes(self) -> int:
        """The lanes of a vector of scores."""
        return self.lanes(self.nest.ops[self.attention.first])

    @cached_property
    def online_softmax(self) -> tuple[int, int] | None:
        """The dimension and size of the key blocks if a cache cannot hold the rows of a few tiles; else None.

        Usually blocks are short and tasks have many rows, so that keys and values are read from memory less often. If each
        row has its own mask row, blocks are as long as the cache holds. Divisors of the extent are preferred: they need no
        remainder code.
        """
        lane, costs = self.attention.key_dim, self.target.costs
        extent, resident = self.nest.extents[lane], costs.max_row_elements // self._queries_per_read()
        if extent <= resident or match_online_softmax(self.nest, lane) is None:
            return None
        max_size = resident if self.reads_mask else 2 * costs.block_steps
        period = self.nest.panel_sizes.get(lane, self.vector_lanes)
        sizes = range(max(max_size - max_size % period, period), max_size // 2, -period)
        return lane, next((size for size in sizes if extent % size == 0), sizes[0])

    def _queries_per_read(self) -> int:
        """Return the minimum number of queries that share each read of keys and values."""
        return self.target.costs.row_tiles * self.tile_rows

    @cached_property
    def resident_row_elements(self) -> int:
        """The softmax weights per query that are stored before the second contraction: one per key, or per key of a block."""
        return self.nest.extents[self.attention.key_dim] if self.online_softmax is None else self.online_softmax[1]

    @cached_property
    def is_masked(self) -> bool:
        """Return whether a mask selects the valid scores."""
        return self._masked_select is not None

    @cached_property
    def reads_mask(self) -> bool:
        """Return whether each query reads its own mask row; a mask computed from indices is not read."""
        if self._masked_select is None:
            return False
        nest_op, masked_select = self._masked_select
        masks = {c.index for c in masked_select.conditions if isinstance(c, BlockArgument)}
        return any(a.uses(self.row_dim) for k, a in nest_op.input_accesses.items() if k in masks)

    @cached_property
    def _masked_select(self) -> tuple[NestOp, MaskedSelect] | None:
        """The op that selects between scores and the masked value, and its select."""
        first, last = next((a, b) for a, b in self._fusable_runs(self.attention.key_dim) if a <= self.attention.first < b)
        return find_masked_select(self.nest.ops[first:last])

    def queries_per_task(self) -> int:
        """Return the number of queries per task: as many register tiles as have softmax weights that fit a cache.

        With key blocks, the cache must also hold the keys and values of a block.
        """
        costs, extents = self.target.costs, self.nest.extents
        if self.reads_mask or self.online_softmax is None:
            tiles_sharing_reads = 1 if self._is_single_tile_enough() else costs.row_tiles
            max_tiles = min(
                max(1, costs.max_row_elements // (self.resident_row_elements * self.tile_rows)), tiles_sharing_reads
            )
        else:
            max_tiles = max(1, costs.max_row_elements // (2 * self.resident_row_elements * self.tile_rows))
        tiles = -(-extents[self.row_dim] // self.tile_rows)
        num_tasks = -(-tiles // max_tiles)
        return min(extents[self.row_dim], -(-tiles // num_tasks) * self.tile_rows)

    def _is_single_tile_enough(self) -> bool:
        """Return whether a task may consist of a single register tile.

        The tile must have enough rows, and the L2 cache must hold the operands of one product, such as the keys and values
        of a head.
        """
        nest_ops, extents = (self.nest.ops[k] for k in (self.attention.first, self.attention.second)), self.nest.extents
        operand_dims = (
            nest_op.reductions | {lane}
            for nest_op, lane in zip(nest_ops, (self.attention.key_dim, self.attention.value_dim), strict=True)
        )
        fits_l2 = sum(prod(extents[d] for d in dims) for dims in operand_dims) <= self.target.costs.block_elements
        return fits_l2 and self.tile_rows >= _MIN_LATENCY_HIDING_ROWS

    def fused_loops(self) -> Iterator[FusedLoop]:
        """Return the fused loops; if masked scores provably get zero weight, loops over keys end at the last unmasked one."""
        fused_loops = list(self._fused_loops())
        key_block, lane = self._key_block(), self.attention.key_dim
        steps = [step for fused_loop in fused_loops for d, step in fused_loop.steps if d == lane]
        if (
            self._masked_select is None
            or self.exact
            or self.resident_row_elements <= key_block
            or any(key_block % step for step in steps)
            or not has_zero_masked_weights(self.nest, self._masked_select[0], lane)
        ):
            return iter(fused_loops)
        return (replace(fused_loop, unmasked=(lane, key_block)) for fused_loop in fused_loops)

    def _key_block(self) -> int:
        """Return the keys per block of the second contraction; with a mask, small blocks allow more of them to be skipped."""
        divisor = 1 if not self.is_masked else MASKED_BLOCK_DIVISOR if self._is_single_tile_enough() else _SHARED_BLOCK_DIVISOR
        return min(self.target.costs.block_steps // divisor, self.resident_row_elements)

    def _fused_loops(self) -> Iterator[FusedLoop]:
        yield from self._loops_before_product(self.attention.key_dim)
        columns = self.fitting(self.attention.value_dim, MAX_PANEL_VECTORS * self.vector_lanes)
        yield from self._loops_of_product(columns, self.tile_rows)

    def _loops_of_product(self, columns: int, rows: int) -> Iterator[FusedLoop]:
        """Yield the fused loops of the second contraction, in tiles of `rows` × `columns`, of its fill and its epilogue."""
        second, value_dim, num_ops = self.attention.second, self.attention.value_dim, len(self.nest.ops)
        row_steps = (self.row_dim, 1), (value_dim, self._row_vector_elements(value_dim))
        yield FusedLoop(second - 1, second, row_steps)
        steps = (self.attention.key_dim, self._key_block()), (value_dim, columns), (self.row_dim, rows)
        yield FusedLoop(second, second + 1, steps, skips_masked=self.is_masked and not self.exact)
        if second + 1 < num_ops:
            yield FusedLoop(second + 1, num_ops, row_steps)

    def _loops_before_product(self, dim: int) -> Iterator[FusedLoop]:
        """Yield the fused loops along a dimension of the ops before the second contraction."""
        for first, last in self._fusable_runs(dim):
            run = self.nest.ops[first:last]
            skips = any(op.is_contraction for op in run) and find_masked_select(run) is not None
            yield FusedLoop(first, last, self._steps(dim, run), skips_masked=skips)

    def _fusable_runs(self, dim: int) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of the longest runs of ops that can share a loop along a dimension.

        An op that reads the complete result of a reduction along it starts another loop.
        """
        nest_ops, last = self.nest.ops, self.attention.second - 1
        incomplete_sums: set[SSAValue] = set()
        begin = 0
        for k in range(last + 1):
            nest_op = nest_ops[k]
            is_outside = dim not in nest_op.dims and not (nest_op.is_fill and self._can_fuse(nest_ops[begin:k]))
            if k == last or is_outside or any(a.root in incomplete_sums for a in nest_op.inputs):
                if begin < k:
                    yield begin, k
                is_excluded = is_outside and not nest_op.is_fill
                begin = k + is_excluded
                incomplete_sums.clear()
            if dim in nest_op.reductions:
                incomplete_sums.add(nest_op.output.root)

    def _can_fuse(self, nest_ops: Sequence[NestOp]) -> bool:
        """Return whether a fill may share the loop of a contraction, without spilling its register tiles."""
        return not any(op.is_contraction for op in nest_ops)

    def _steps(self, dim: int, nest_ops: Sequence[NestOp]) -> tuple[tuple[int, int], ...]:
        if any(op.is_contraction for op in nest_ops):
            return (dim, self.fitting(dim, MAX_PANEL_VECTORS * self.vector_lanes)), (self.row_dim, self.tile_rows)
        return (self.row_dim, 1), (dim, self._row_vector_elements(dim, any(op.has_transcendental_math for op in nest_ops)))

    def _row_vector_elements(self, d: int, is_long_formula: bool = False) -> int:
        """Return the number of elements of a row that one step computes.

        A long formula has fewer vectors, since its constants need registers as well.
        """
        max_vectors = (
            self.target.vector_registers // _REGISTERS_PER_FORMULA_VECTOR if is_long_formula else self.target.costs.vectors
        )
        return min(max_vectors * self.vector_lanes, self.nest.extents[d])


def attention_tile_rows(target: Target, extent: int, vectors: int) -> int:
    """Return the number of rows of a register tile that is `vectors` vectors wide."""
    max_rows = (target.vector_registers - _OPERAND_REGISTERS) // vectors
    return row_tile(target.costs, extent, max_rows, target.costs.latency_hiding_accumulators / vectors)
