"""Choose the plan of attention with queries vectorized along SIMD lanes: scores are transposed, K·Qᵀ.

The scores of a vector of queries, and all that is computed from them, are processed per lane: no lane depends on
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc.passes.tiling.choose_attention import AttentionChooser
from dlc.passes.tiling.loop_nests import NestStage
from dlc.passes.tiling.plan import FusedLoop, balanced_tile
from dlc.passes.tiling.tile_rules import MIN_LATENCY_HIDING_ACCUMULATORS, row_tile

# Contiguous elements and lanes of the blocks that are transposed in registers.
_TRANSPOSED_ELEMENTS, _TRANSPOSED_LANES = 8, 16
# Key blocks are this many times smaller if they may be masked.
_MASKED_BLOCK_PARTS = 4
# The fewest query rows that share reads from beyond the L2 cache.
_MIN_SHARED_ROWS = 32


@dataclass(frozen=True)
class TransposedAttentionChooser(AttentionChooser):
    """Choose fused loops over register tiles of query vectors by a few keys; the second product is tiled as usual."""

    @property
    def _vectors(self) -> int:
        return self.target.vectors_per_tile_row

    @cached_property
    def _head_dim(self) -> int:
        """The dimension that the first contraction reduces."""
        return next(iter(self.nest.stages[self.attention.first].reductions))

    def _rows_sharing_reads(self) -> int:
        return max(_MIN_SHARED_ROWS, self._vectors * self.lanes)

    def height(self) -> int:
        """Return the rows of a task's tile: their copy fills at most half of the L1 cache, and their weights the L2 cache."""
        costs, extents = self.target.costs, self.nest.extents
        max_l1_rows = (
            costs.cache_ways * costs.way_bytes * self.lanes // (2 * self.target.vector_bytes * extents[self._head_dim])
        )
        max_l2_rows = costs.max_row_elements // (
            self.resident_row_elements if self.online_softmax() is None else 2 * self.resident_row_elements
        )
        max_vectors = max(1, min(max_l1_rows, max_l2_rows) // self.lanes)
        # Use whole register tiles if one fits.
        tile = self.lanes * min(max_vectors, self._vectors)
        return min(extents[self.row], tile * balanced_tile(-(-extents[self.row] // tile), max_vectors * self.lanes // tile))

    def _key_block(self) -> int:
        # The accumulators stay in registers meanwhile, and scores are in the L2 cache in any case.
        steps, keys = self.target.costs.block_steps, self._keys_per_tile
        return min(
            keys * max(1, steps // _MASKED_BLOCK_PARTS // keys) if self.is_masked else 2 * steps, self.resident_row_elements
        )

    @cached_property
    def _tile_lanes(self) -> int:
        return min(self.height(), self._vectors * self.lanes)

    @cached_property
    def _keys_per_tile(self) -> int:
        """The keys of a register tile."""
        return self._fitting_rows(self.resident_row_elements, -(-self._tile_lanes // self.lanes))

    def _fused_loops(self) -> Iterator[FusedLoop]:
        first, second, value_dim, stages = (
            self.attention.first,
            self.attention.second,
            self.attention.value_dim,
            self.nest.stages,
        )
        square = (
            (self._head_dim, self._clamped(self._head_dim, _TRANSPOSED_ELEMENTS)),
            (self.row, self._clamped(self.row, _TRANSPOSED_LANES)),
        )
        copies = (FusedLoop(k, k + 1, square) for k in range(first) if self._head_dim in stages[k].dims)
        yield from sorted((*copies, *self._loops_before_product(self.attention.key_dim)), key=lambda s: s.first)
        columns, wide = self._panel(value_dim, self._vectors), self._row_vector_elements(value_dim)
        yield FusedLoop(second - 1, second, ((self.row, 1), (value_dim, wide)))
        rows = self._fitting_rows(self.height(), -(-columns // self.lanes))
        steps = (self.attention.key_dim, self._key_block()), (value_dim, columns), (self.row, rows)
        yield FusedLoop(second, second + 1, steps, skips=self.is_masked and not self.exact)
        if second + 1 < len(stages):
            yield FusedLoop(second + 1, len(stages), ((self.row, 1), (value_dim, wide)))

    def _can_share_loop(self, stages: Sequence[NestStage]) -> bool:
        return True

    def _steps(self, dim: int, stages: Sequence[NestStage]) -> tuple[tuple[int, int], ...]:
        if any(s.is_contraction for s in stages):
            return (dim, self._keys_per_tile), (self.row, self._tile_lanes)
        return (self.row, self._tile_lanes), (dim, 1)

    def _fitting_rows(self, extent: int, vectors: int) -> int:
        """Return the rows of a register tile that is `vectors` wide."""
        return row_tile(extent, (self.target.vector_registers - 3) // vectors, MIN_LATENCY_HIDING_ACCUMULATORS / vectors)

    def _clamped(self, d: int, wanted: int) -> int:
        return min(wanted, self.nest.extents[d])
