"""Choose the fused loops of attention with transposed scores, Sᵀ = K·Qᵀ: queries are vectorized along SIMD lanes.

Each lane computes the softmax of its own query, so there are no horizontal reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc.passes.tiling.attention.choose_fused_loops import MASKED_BLOCK_DIVISOR, FusedLoopChooser, attention_tile_rows
from dlc.passes.tiling.attention.fused_attention import FusedLoop
from dlc.passes.tiling.loop_nests import NestOp
from dlc.passes.tiling.tile_sizes import TRANSPOSE_TILE_ELEMENTS, balanced_tile

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
        return max(_MIN_QUERIES_PER_READ, self._tile_vectors * self.vector_lanes)

    def queries_per_task(self) -> int:
        """Return the queries per task: the transposed queries fit half of the L1 cache, their softmax weights the L2 cache."""
        costs, extents = self.target.costs, self.nest.extents
        max_l1_rows = costs.l1_bytes * self.vector_lanes // (2 * self.target.vector_bytes * extents[self._head_dim])
        max_l2_rows = costs.max_row_elements // (
            self.resident_row_elements if self.online_softmax is None else 2 * self.resident_row_elements
        )
        max_vectors = max(1, min(max_l1_rows, max_l2_rows) // self.vector_lanes)
        # Use whole register tiles if one fits.
        tile = self.vector_lanes * min(max_vectors, self._tile_vectors)
        tiles = balanced_tile(-(-extents[self.row_dim] // tile), max_vectors * self.vector_lanes // tile)
        return min(extents[self.row_dim], tile * tiles)

    def _key_block(self) -> int:
        # Scores are in the L2 cache for every block size, so choose large blocks: accumulators stay in registers for longer.
        steps, keys = self.target.costs.block_steps, self._keys_per_tile
        return min(
            keys * max(1, steps // MASKED_BLOCK_DIVISOR // keys) if self.is_masked else 2 * steps, self.resident_row_elements
        )

    @cached_property
    def _queries_per_tile(self) -> int:
        return min(self.queries_per_task(), self._tile_vectors * self.vector_lanes)

    @cached_property
    def _keys_per_tile(self) -> int:
        """The keys per register tile."""
        return attention_tile_rows(self.target, self.resident_row_elements, -(-self._queries_per_tile // self.vector_lanes))

    def _fused_loops(self) -> Iterator[FusedLoop]:
        extents, head_dim, value_dim = self.nest.extents, self._head_dim, self.attention.value_dim
        transpose_steps = (
            (head_dim, min(TRANSPOSE_TILE_ELEMENTS, extents[head_dim])),
            (self.row_dim, min(2 * TRANSPOSE_TILE_ELEMENTS, extents[self.row_dim])),
        )
        copies = (
            FusedLoop(k, k + 1, transpose_steps) for k in range(self.attention.first) if head_dim in self.nest.ops[k].dims
        )
        yield from sorted((*copies, *self._loops_before_product(self.attention.key_dim)), key=lambda loop: loop.first)
        columns = self.fitting(value_dim, self._tile_vectors * self.vector_lanes)
        yield from self._loops_of_product(
            columns, attention_tile_rows(self.target, self.queries_per_task(), -(-columns // self.vector_lanes))
        )

    def _can_fuse(self, nest_ops: Sequence[NestOp]) -> bool:
        return True

    def _steps(self, dim: int, nest_ops: Sequence[NestOp]) -> tuple[tuple[int, int], ...]:
        if any(op.is_contraction for op in nest_ops):
            return (dim, self._keys_per_tile), (self.row_dim, self._queries_per_tile)
        return (self.row_dim, self._queries_per_tile), (dim, 1)
