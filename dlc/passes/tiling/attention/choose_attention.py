"""Choose the plan of attention on a CPU."""

from __future__ import annotations

from dlc.passes.tiling.attention.choose_fused_loops import MAX_PANEL_VECTORS, FusedLoopChooser, max_tile_rows
from dlc.passes.tiling.attention.choose_transposed_fused_loops import TransposedFusedLoopChooser
from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.attention.match_attention import match_attention
from dlc.passes.tiling.tasks.tile_rules import TileRules


class AttentionChooser(TileRules):
    """Choose the plan of an attention nest: its fused loops, and tasks of a few tiles of queries."""

    def plan(self) -> FusedAttention | None:
        """Return the plan; None if the nest is not attention."""
        nest, attention = self.nest, match_attention(self.nest)
        if attention is None:
            return None
        first = nest.ops[attention.first]
        query_dims = [d for d in nest.shared_dims if first.output.uses(d)]
        if not query_dims:
            return None
        query_dim = min(query_dims, key=lambda d: first.output.stride(d))
        tile_rows = max_tile_rows(self.target, nest.extents[query_dim], MAX_PANEL_VECTORS)
        chooser_class = TransposedFusedLoopChooser if attention.is_transposed else FusedLoopChooser
        chooser = chooser_class(nest, self.target, attention, query_dim, tile_rows, self.lanes(first), self.exact)
        queries, order = chooser.queries_per_task(), self.order(nest.shared_dims, None)
        return FusedAttention(
            grid=self.grid({query_dim: queries}, order),
            order=order,
            query_dim=query_dim,
            queries=queries,
            fused_loops=tuple(chooser.fused_loops()),
            online_softmax=chooser.online_softmax(),
        )
