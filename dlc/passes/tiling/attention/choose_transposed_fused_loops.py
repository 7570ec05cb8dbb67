"""Choose the fused loops of attention with transposed scores, Sᵀ = K·Qᵀ: queries are vectorized along SIMD lanes.

Each lane computes the softmax of its own query, so there are no horizontal reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc.passes.tiling.attention.choose_fused_loops import FusedLoopChooser
from dlc.passes.tiling.attention.fused_attention import FusedLoop
from dlc.passes.tiling.loop_nests import NestOp
from dlc.passes.tiling.tasks.tile_rules import MIN_LATENCY_HIDING_ACCUMULATORS, OPERAND_REGISTERS, row_tile
from dlc.passes.tiling.tile_sizes import balanced_tile

# Size of a block that is transposed in registers: contiguous elements × lanes.
_TRANSPOSED_ELEMENTS, _TRANSPOSED_LANES = 8, 16
# Divide the key block by this if blocks may be fully masked, so that more of them are skipped.
_MASKED_BLOCK_DIVISOR = 4
# Minimum queries that share each read of keys and values from the L3 cache or memory.
_MIN_QUERIES_PER_READ = 32


@dataclass(frozen=True)
class TransposedFusedLoopChooser(FusedLoopChooser):
    """Choose fused loops whose score tiles are query vectors × keys; P·V is tiled as in `FusedLoopChooser`."""

    @property
    def _tile_vectors(self) -> int:
        return self.target.vectors_per_tile_row

    @cached_property
    def _head_dim(self) -> int:
        """The head dimension, which Q·Kᵀ reduces."""
        return next(iter(self.nest.ops[self.attention.first].reductions))

    def _queries_per_read(self) -> int:
        return max(_MIN_QUERIES_PER_READ, self._tile_vectors * self.lanes)

    def queries_per_task(self) -> int:
        """Return the queries per task: the transposed queries fit half of the L1 cache, their softmax weights the L2 cache."""
        costs, extents = self.target.costs, self.nest.extents
        max_l1_rows = (
            costs.cache_ways * costs.way_bytes * self.lanes // (2 * self.target.vector_bytes * extents[self._head_dim])
        )
        max_l2_rows = costs.max_row_elements // (
            self.resident_row_elements if self.online_softmax() is None else 2 * self.resident_row_elements
        )
        max_vectors = max(1, min(max_l1_rows, max_l2_rows) // self.lanes)
        # Use whole register tiles if one fits.
        tile = self.lanes * min(max_vectors, self._tile_vectors)
        return min(
            extents[self.row_dim], tile * balanced_tile(-(-extents[self.row_dim] // tile), max_vectors * self.lanes // tile)
        )

    def _key_block(self) -> int:
        # Scores are in the L2 cache for every block size, so choose large blocks: accumulators stay in registers for longer.
        steps, keys = self.target.costs.block_steps, self._keys_per_tile
        return min(
            keys * max(1, steps // _MASKED_BLOCK_DIVISOR // keys) if self.is_masked else 2 * steps, self.resident_row_elements
        )

    @cached_property
    def _queries_per_tile(self) -> int:
        return min(self.queries_per_task(), self._tile_vectors * self.lanes)

    @cached_property
    def _keys_per_tile(self) -> int:
        """The keys per register tile."""
        return self._max_tile_rows(self.resident_row_elements, -(-self._queries_per_tile // self.lanes))

    def _fused_loops(self) -> Iterator[FusedLoop]:
        first, second, value_dim, nest_ops = (
            self.attention.first,
            self.attention.second,
            self.attention.value_dim,
            self.nest.ops,
        )
        transpose_steps = (
            (self._head_dim, self._clamped(self._head_dim, _TRANSPOSED_ELEMENTS)),
            (self.row_dim, self._clamped(self.row_dim, _TRANSPOSED_LANES)),
        )
        copies = (FusedLoop(k, k + 1, transpose_steps) for k in range(first) if self._head_dim in nest_ops[k].dims)
        yield from sorted(
            (*copies, *self._loops_before_product(self.attention.key_dim)), key=lambda fused_loop: fused_loop.first
        )
        columns, row_vector = self._tile_width(value_dim, self._tile_vectors), self._row_vector_elements(value_dim)
        yield FusedLoop(second - 1, second, ((self.row_dim, 1), (value_dim, row_vector)))
        rows = self._max_tile_rows(self.queries_per_task(), -(-columns // self.lanes))
        steps = (self.attention.key_dim, self._key_block()), (value_dim, columns), (self.row_dim, rows)
        yield FusedLoop(second, second + 1, steps, skips_masked=self.is_masked and not self.exact)
        if second + 1 < len(nest_ops):
            yield FusedLoop(second + 1, len(nest_ops), ((self.row_dim, 1), (value_dim, row_vector)))

    def _can_fuse(self, nest_ops: Sequence[NestOp]) -> bool:
        return True

    def _steps(self, dim: int, nest_ops: Sequence[NestOp]) -> tuple[tuple[int, int], ...]:
        if any(op.is_contraction for op in nest_ops):
            return (dim, self._keys_per_tile), (self.row_dim, self._queries_per_tile)
        return (self.row_dim, self._queries_per_tile), (dim, 1)

    def _max_tile_rows(self, extent: int, vectors: int) -> int:
        """Return the number of rows of a register tile that is `vectors` vectors wide."""
        return row_tile(
            extent, (self.target.vector_registers - OPERAND_REGISTERS) // vectors, MIN_LATENCY_HIDING_ACCUMULATORS / vectors
        )

    def _clamped(self, d: int, max_size: int) -> int:
        return min(max_size, self.nest.extents[d])
