"""Choose the plan of attention on a CPU."""

from __future__ import annotations

from dlc.passes.tiling.attention.choose_fused_loops import MAX_PANEL_VECTORS, FusedLoopChooser, attention_tile_rows
from dlc.passes.tiling.attention.choose_transposed_fused_loops import TransposedFusedLoopChooser
from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.attention.match_attention import match_attention
from dlc.passes.tiling.tasks.tile_rules import TileRules


class AttentionChooser(TileRules):
    """Choose the plan of an attention nest, for queries along the rows of scores or along their lanes."""

    def plan(self) -> FusedAttention | None:
        """Return the plan; None if the nest is not attention."""
        nest, attention = self.nest, match_attention(self.nest)
        if attention is None:
            return None
        scores = nest.ops[attention.first].output
        query_dim = min((d for d in nest.shared_dims if scores.uses(d)), key=scores.stride, default=None)
        if query_dim is None:
            return None
        tile_rows = attention_tile_rows(self.target, nest.extents[query_dim], MAX_PANEL_VECTORS)
        chooser_class = TransposedFusedLoopChooser if attention.is_transposed else FusedLoopChooser
        return chooser_class(nest, self.target, self.variant, self.exact, attention, query_dim, tile_rows).plan()
