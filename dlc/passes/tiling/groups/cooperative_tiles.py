"""The plan of work-groups whose work-items compute each register tile together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.loop_nests import SizedLoopNest, can_split
from dlc.target import Target


@dataclass(frozen=True, kw_only=True)
class CooperativeTiles(GroupTiles):
    """Work-items that compute interleaved chunks of the ops, and combine their partial results of a reduction.

    Attributes:
        cooperative_dims: The private dimensions that they divide, at most one per op.
        num_cooperating: The number of work-items that compute one register tile, a power of two.
        are_adjacent: Whether these work-items are adjacent in the group, to access adjacent memory.
    """

    cooperative_dims: tuple[int, ...]
    num_cooperating: int
    are_adjacent: bool

    @property
    def item_axes(self) -> Sequence[tuple[int, int]]:
        cooperative_axis = (self.cooperative_dims[0], self.num_cooperating)
        return [*self.items.items(), cooperative_axis] if self.are_adjacent else [cooperative_axis, *self.items.items()]

    @property
    def needs_barriers(self) -> bool:
        return True

    @property
    def distributed_dims(self) -> set[int]:
        return {*self.order, *self.cooperative_dims}

    def check(self, nest: SizedLoopNest) -> None:
        super().check(nest)
        n = self.num_cooperating
        if n < 2 or n & (n - 1):
            raise ValueError(f"num_cooperating {n}: must be a power of two, at least 2")
        for d in self.cooperative_dims:
            if d in nest.shared_dims or d not in nest.extents:
                raise ValueError(f"cooperative_dims {self.cooperative_dims}: must be private dimensions")
            if d in nest.dynamic_dims and self.chunks.get(d, 1) != 1:
                raise ValueError(
                    f"chunks[d{d}] = {self.chunks[d]}: must be 1 for cooperating work-items along a dynamic dimension"
                )
        for nest_op in nest.ops:
            if nest_op.scatter_dim in self.cooperative_dims:
                raise ValueError(
                    f"cooperative_dims {self.cooperative_dims}: must not be a dimension along which an op scatters"
                )
            op_dims = [d for d in nest_op.dims if d in self.cooperative_dims]
            if len(op_dims) > 1:
                raise ValueError(f"cooperative_dims {self.cooperative_dims}: must be one dimension per op, not {op_dims}")
            if nest_op.reductions.intersection(op_dims) and not can_split(nest_op, nest):
                raise ValueError(
                    f"cooperative_dims {op_dims}: the reduction cannot be split: it has no combiner or no identity"
                )

    def explain(self, nest: SizedLoopNest, target: Target) -> Iterator[str]:
        yield from super().explain(nest, target)
        dims = ", ".join(f"d{d}" for d in self.cooperative_dims)
        yield f"{self.num_cooperating} {'adjacent ' if self.are_adjacent else ''}work-items cooperate along {dims}"
