"""The plan of work-groups that promote the operands of a contraction to local memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.leading_reduction import promoted_contraction
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan import size_text
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class PromotedTiles(GroupTiles):
    """Register tiles of a contraction whose operands are copied to local memory in chunks of a reduced dimension.

    Attributes:
        promoted_dim: The reduced dimension.
        chunk_size: The k iterations per chunk.
        tiles_per_item: The number of register tiles of a work-item along shared dimensions; the tiles of different
            work-items are interleaved. 1 without an entry.
    """

    promoted_dim: int
    chunk_size: int
    tiles_per_item: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def needs_barriers(self) -> bool:
        return True

    def group_tile(self, d: int) -> int:
        return self.item_tile_stride(d) * self.tiles_per_item.get(d, 1)

    def check(self, nest: SizedLoopNest) -> None:
        for d, n in self.tiles_per_item.items():
            if d not in nest.shared_dims or n < 1:
                raise ValueError(f"tiles_per_item[d{d}] = {n}: must be a shared dimension")
        super().check(nest)
        contraction = promoted_contraction(nest)
        if contraction is None:
            raise ValueError(f"promoted_dim d{self.promoted_dim}: the nest must begin with a contraction of plain operands")
        d, size = self.promoted_dim, self.chunk_size
        if d not in contraction.reductions or not 1 <= size <= nest.extents[d] or nest.dynamic_dims & contraction.reductions:
            raise ValueError(
                f"promoted_dim d{d} in chunks of {size}: must be a reduced dimension, all of them static, "
                "with 1 ≤ size ≤ its extent"
            )

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        if self.tiles_per_item:
            sizes = size_text(self.tiles_per_item)
            yield f"register tiles per work-item, interleaved with those of the other work-items: {sizes}"
        yield f"promoted to local memory, shared by the work-items of a group: d{self.promoted_dim}: {self.chunk_size}"
