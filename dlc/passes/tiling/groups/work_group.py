"""The work-group of a grid point: the loop over its work-items, their indices, and the buffers that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects.workgroup import WORKGROUP
from dlc.ir import SSAValue, gpu
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.groups.group_tiles import GroupPlan
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size


class WorkGroup:
    """The work-group of one grid point.

    `builder` inserts the code of a work-item; shared buffers are allocated before the loop over work-items.
    `dynamic_extents` maps dimensions to their symbolic extents.
    """

    def __init__(
        self,
        nest: SizedLoopNest,
        plan: GroupPlan,
        task: OpBuilder,
        partial_dims: Sequence[int],
        dynamic_extents: Mapping[int, Size],
    ) -> None:
        self.nest = nest
        self.dynamic_extents = dynamic_extents
        # Dimensions along which the last group has a partial tile, whose code is guarded between barriers.
        self.partial_dims = partial_dims if plan.needs_barriers else ()
        self.axes = plan.item_axes
        self.num_items = plan.num_items
        loop = task.parallel("item", [(n, 1) for _, n in self.axes] or [(1, 1)], [f"t{d}" for d, _ in self.axes] or ["t"])
        self.builder = task.at_block_end(loop.body.block)
        self.item_indices: dict[int, Index] = {
            d: i for (d, n), i in zip(self.axes, loop.body.block.args, strict=False) if n > 1
        }
        self._allocation_builder = OpBuilder(task.constants, task.block, task.location, anchor=loop)
        self._shared: dict[object, SSAValue] = {}
        # The linear index of a work-item in its group.
        self.linear_index: Index = 0
        has_rounds = any(plan.grid.get(d, nest.extents[d]) > plan.group_tile(d) for d in plan.order)
        self.needs_barrier_between_rounds = has_rounds and plan.needs_barriers

    def linearize(self) -> WorkGroup:
        """Compute the linear index of the work-item; return the group."""
        for (_, n), i in zip(self.axes, self.builder.block.args, strict=False):
            self.linear_index = self.builder.add(self.builder.multiply(self.linear_index, n), i)
        return self

    def shared_buffer(self, key: object, like: SSAValue, shape: tuple[int, ...], name: str | None) -> SSAValue:
        """Return the shared buffer for a key, allocated once: code for full and for partial tiles uses the same buffer."""
        if key not in self._shared:
            self._shared[key] = self._allocation_builder.alloca(memref_of(like).element_type, shape, name, WORKGROUP)
        return self._shared[key]

    def emit_round_barrier(self, builder: OpBuilder) -> None:
        """Insert a barrier between rounds: other work-items may still read what this one overwrites next."""
        if self.needs_barrier_between_rounds:
            builder.insert(gpu.BarrierOp())
