"""Choose plans in which work-items cooperate on each register tile, for long or few rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.groups.cooperative_tiles import CooperativeTiles
from dlc.passes.tiling.groups.group_rules import GroupRules
from dlc.passes.tiling.tile_sizes import VECTOR_LOAD_ELEMENTS

# Adjacent work-items whose loads cover one memory line.
_ITEMS_PER_MEMORY_LINE = 8
# Minimum work-items that cooperate on a contiguous reduction, in two memory lines.
_MIN_CONTIGUOUS_ITEMS = 16
# Minimum length of a reduction on which work-items cooperate.
_MIN_COOPERATIVE_STEPS = 64
# Work-items of a group that cooperates.
_COOPERATIVE_GROUP_ITEMS = 128
# Maximum elements of a cooperating work-item in private memory.
_MAX_PRIVATE_ELEMENTS = 64
# Minimum matrix rows per cooperating work-item.
_MIN_MATRIX_ROWS_PER_ITEM = 8


class CooperativeTileChooser(GroupRules):
    """Choose the plan of a nest with reductions."""

    def plan(self) -> CooperativeTiles | None:
        """Return a plan in which several work-items share each row, for long or few rows; None if it is not profitable."""
        nest, dims = self.nest, self.cooperative_dims()
        if not dims:
            return None
        shared_dims = self.innermost_first(nest.shared_dims)
        lane, register = self.register_tile(shared_dims)
        rows = prod(self.steps(d, register.get(d, 1)) for d in shared_dims)
        # Loads along a contiguous reduction are coalesced only if work-items cooperate on it, so short ones qualify too.
        min_steps = _MIN_CONTIGUOUS_ITEMS if lane is None else _MIN_COOPERATIVE_STEPS
        if nest.extents[dims[0]] < min_steps or (lane is not None and rows >= self.resident_items):
            return None
        chunks = self.chunks(dims)
        num_chunks = max(self.steps(d, chunks.get(d, 1)) for d in dims)
        # Enough work-items for adjacent ones to read whole memory lines.
        lane_items = 1
        if lane is not None:
            # The reduction is strided, so a work-item computes one row per step.
            chunks |= dict.fromkeys(dims, 1)
            num_chunks = max(_MIN_CONTIGUOUS_ITEMS, nest.extents[dims[0]] // _MIN_MATRIX_ROWS_PER_ITEM)
            lane_items = min(self.steps(lane, register[lane]), _ITEMS_PER_MEMORY_LINE)
        max_cooperating = min(self.needed_items(dims, rows, lane), self.groups.max_cooperating_items // lane_items, num_chunks)
        cooperating = 1 << (max(1, max_cooperating).bit_length() - 1)
        while cooperating > 1:
            max_group_items = max(lane_items, min(self.groups.items, _COOPERATIVE_GROUP_ITEMS) // cooperating)
            items = self.assign_items(shared_dims, register, max_group_items)
            plan = self.with_grid(
                CooperativeTiles(
                    register=register,
                    chunks=chunks,
                    items=items,
                    cooperative_dims=tuple(dims),
                    num_cooperating=cooperating,
                    # Work-items that access adjacent memory are adjacent in the group.
                    are_adjacent=lane is None or not items,
                )
            )
            if self.local_bytes(plan) <= self.groups.local_bytes:
                return plan
            cooperating //= 2
        return None

    def register_tile(self, shared_dims: Sequence[int]) -> tuple[int | None, dict[int, int]]:
        """Return the dimension along which adjacent work-items read adjacent elements of the largest input, and the tile."""
        inputs = [a for op in self.nest.ops if op.reductions for a in op.inputs]
        if not inputs:
            return None, {}
        largest_input = max(inputs, key=self.size)
        lane = next((d for d in shared_dims if largest_input.stride(d) == 1), None)
        # A work-item computes all rows that share the largest input if they are few.
        rows = [d for d in shared_dims if not largest_input.uses(d) and self.nest.extents[d] <= self.few_rows]
        register = {} if lane is None else {lane: self.fitting(lane, VECTOR_LOAD_ELEMENTS)}
        return lane, register | {d: self.fitting(d, self.nest.extents[d]) for d in rows}

    def needed_items(self, dims: Sequence[int], rows: int, lane: int | None) -> int:
        """Return the work-items per row that occupy the device, and whose private memory holds the results of a row."""
        private_elements = max(self.nest.extents[d] if self.stores_private_results(d) else 1 for d in dims)
        min_items = _MIN_CONTIGUOUS_ITEMS if lane is None else 1
        return max(self.resident_items // rows, private_elements // _MAX_PRIVATE_ELEMENTS, min_items)

    def stores_private_results(self, d: int) -> bool:
        """Return whether a local buffer holds results along a dimension for a later op."""
        roots = self.nest.local_buffers()
        return any(op.output.root in roots and op.output.uses(d) for op in self.nest.ops)

    def local_bytes(self, plan: CooperativeTiles) -> int:
        """Return the bytes of local memory for the results that cooperating work-items exchange."""
        nest, cooperative_dims = self.nest, plan.cooperative_dims
        sizes = {d: plan.group_tile(d) if d in plan.order else extent for d, extent in nest.extents.items()}
        total = 0
        for nest_op in nest.ops:
            if not any(nest_op.output.uses(d) for d in cooperative_dims):
                elements = prod(sizes[t.iterator] for t in nest_op.output.terms)
                copies = 1 + (plan.num_cooperating if nest_op.reductions.intersection(cooperative_dims) else 0)
                total += copies * elements * nest_op.element_bytes()
        return total

    def size(self, a: AffineAccess) -> int:
        """Return the number of elements of an access."""
        return prod(self.nest.extents[d] for d in {t.iterator for t in a.terms})

    def cooperative_dims(self) -> list[int]:
        """Return one private dimension per op along which work-items can cooperate, the longest first.

        Empty if a reduction has none.
        """
        nest = self.nest
        scatter_dims = {op.scatter_dim for op in nest.ops}
        private_dims = [d for d in nest.extents if d not in nest.shared_dims and d not in scatter_dims]
        dims: list[int] = []
        covered_ops: set[int] = set()
        for d in sorted(private_dims, key=lambda d: -nest.extents[d]):
            positions = {k for k, op in enumerate(nest.ops) if d in op.dims}
            if not positions & covered_ops and nest.can_split(d):
                dims.append(d)
                covered_ops |= positions
        has_dim_per_reduction = all(set(dims) & set(op.reductions) for op in nest.ops if op.reductions)
        # A dynamic number of sums would need a dynamic number of partial results in local memory.
        dynamic_sums = [
            d for op in nest.ops if op.reductions for d in nest.dynamic_dims.intersection(private_dims) if op.output.uses(d)
        ]
        return dims if has_dim_per_reduction and not dynamic_sums else []
