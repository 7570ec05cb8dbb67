"""Work-items that cooperate on each register tile: they read each other's results after barriers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.loop_attributes import ROLLED
from dlc.ir import SSAValue, UnitAttr, gpu
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, combine, copy, fill
from dlc.passes.tiling.groups.group_tile_body import GroupTileBody, item_subranges
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, RangeSteps, Tile
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, can_split, identity_of, initial_fill
from dlc.passes.tiling.tile_body import LocalBuffer
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


# Fan-in of the tree reduction: partial results that a work-item combines between two barriers.
_REDUCTION_FAN_IN = 8
# Maximum unrolled rounds of cooperating work-items.
_MAX_UNROLLED_ROUNDS = 4
# Number of strided chunks that a work-item loads before it uses them.
_LOADS_IN_FLIGHT = 8


class CooperativeTileBody(GroupTileBody):
    """All ops on the tile of a work-group, each distributed over the cooperating work-items."""

    def __init__(self, group: WorkGroup, plan: CooperativeTiles, group_tile: Tile) -> None:
        super().__init__(group, plan, group_tile)
        self.dims, self.num_cooperating, self.are_adjacent = plan.cooperative_dims, plan.num_cooperating, plan.are_adjacent
        # The index of a work-item among those that it cooperates with.
        self.item_index: Index = group.item_indices[plan.cooperative_dims[0]]
        self.unsynchronized: set[SSAValue] = set()

    def run(self, builder: OpBuilder) -> None:
        self.make_locals(builder)
        for nest_op in self.nest.ops:
            self.emit_op_cooperatively(builder.with_location(nest_op.op.location), nest_op)

    def make_local(self, builder: OpBuilder, root: SSAValue, sizes: Mapping[int, int] | None = None) -> None:
        """Allocate a local buffer: private if it has a cooperative dimension, else shared by cooperating work-items."""
        if set(self.dims).intersection(self.axes_of(root)):
            super().make_local(builder, root, {d: self.iterations_per_item(d) for d in self.dims})
            return
        sizes = self.group_sizes()
        dims = tuple(d for d in self.axes_of(root) if sizes[d] > 1)
        buffer = self.group.shared_buffer(root, root, tuple(sizes[d] for d in dims), root.name_hint)
        self.local_buffers[root] = LocalBuffer(buffer, dims, is_shared=True)

    def group_sizes(self) -> dict[int, int]:
        """Return the extent of each dimension that a group covers in one round."""
        return {d: self.plan.group_tile(d) if d in self.plan.order else r.size for d, r in self.tile.items()}

    def iterations_per_item(self, d: int) -> int:
        """Return the number of iterations of a cooperative dimension per work-item."""
        chunk = self.plan.chunks.get(d, 1)
        return chunk * -(-self.nest.extents[d] // (chunk * self.num_cooperating))

    def emit_op_cooperatively(self, builder: OpBuilder, nest_op: NestOp) -> None:
        """Emit an op for cooperating work-items, after a barrier if it needs one."""
        d = next((d for d in self.dims if d in nest_op.dims), None)
        if self.is_fill_of_cooperative_reduction(nest_op):
            return
        self.synchronize(builder, nest_op)
        if d is not None and d in nest_op.reductions:
            self.emit_reduction(builder, nest_op, d)
            return
        for item_builder, item_tile in self.item_tiles(builder):
            if d is None:
                self.emit_nest_ops(self.guard_single_item(item_builder, nest_op), [nest_op], item_tile)
                continue
            for chunk_builder, chunk_range in self.item_chunks(item_builder, d):
                self.emit_nest_op(chunk_builder, nest_op, {**item_tile, d: chunk_range})

    def is_fill_of_cooperative_reduction(self, nest_op: NestOp) -> bool:
        """Return whether an op only initializes a cooperative reduction, whose partial results are initialized separately."""
        return any(op.reductions.intersection(self.dims) and initial_fill(op, self.nest) is nest_op for op in self.nest.ops)

    def synchronize(self, builder: OpBuilder, nest_op: NestOp) -> None:
        """Insert a barrier if the op accesses a buffer that other work-items may have written since the last barrier."""
        roots = {a.root for a in nest_op.accesses if a is not None}
        if roots & self.unsynchronized:
            builder.insert(gpu.BarrierOp())
            self.unsynchronized.clear()
        root = nest_op.output.root
        if root not in self.local_buffers or self.local_buffers[root].is_shared:
            self.unsynchronized.add(root)

    def guard_single_item(self, builder: OpBuilder, nest_op: NestOp) -> OpBuilder:
        """Guard redundant code so that one work-item executes it; return the builder inside the guard."""
        for d, i in self.group.item_indices.items():
            if d not in nest_op.dims or i is self.item_index:
                builder = builder.branch(builder.compare(i, "eq", 0))
        return builder

    def num_partial_results(self, nest_op: NestOp, d: int) -> int:
        """Return the number of partial results of a work-item.

        It is 1 for strided loads, where adjacent work-items reduce different results.
        """
        return 1 if d in self.dims and not self.are_adjacent else super().num_partial_results(nest_op, d)

    def item_chunks(self, builder: OpBuilder, d: int, loads_in_flight: int = 1) -> RangeSteps:
        """Yield a work-item's chunks of a cooperative dimension, interleaved with those of the other work-items.

        A loop iteration computes `loads_in_flight` chunks, so that their loads overlap.
        """
        num_items, chunk = self.num_cooperating, self.plan.chunks.get(d, 1)
        if d in self.group.dynamic_extents:
            end = builder.size(self.group.dynamic_extents[d])
            for body_builder, index in builder.each(self.item_index, end, num_items, f"j{d}"):
                yield body_builder, IterationRange(index, 1)
            return
        rounds, remainder = divmod(self.nest.extents[d], num_items * chunk)
        first_offset = builder.multiply(self.item_index, chunk)
        # Few rounds are unrolled completely: private results are in registers, which cannot be indexed dynamically.
        looped_rounds = 0 if rounds <= max(_MAX_UNROLLED_ROUNDS, loads_in_flight) else rounds - rounds % loads_in_flight
        if looped_rounds:
            # The loop starts at the work-item's own offset: PoCL assumes that a loop with uniform bounds contains a barrier.
            loop = builder.loop(
                first_offset,
                builder.add(first_offset, looped_rounds * num_items * chunk),
                loads_in_flight * num_items * chunk,
                name=f"j{d}",
            )
            if loads_in_flight > 1:
                # Do not unroll: a large group has too few registers per work-item.
                loop.attributes[ROLLED] = UnitAttr()
            body_builder = builder.at_block_end(loop.body.block)
            for k in range(loads_in_flight):
                offset = body_builder.add(loop.body.block.args[0], k * num_items * chunk)
                yield (
                    body_builder,
                    IterationRange(
                        offset, chunk, body_builder.multiply(body_builder.floordiv(offset, num_items * chunk), chunk)
                    ),
                )
            body_builder.yield_()
        for k in range(looped_rounds, rounds):
            yield builder, IterationRange(builder.add(first_offset, k * num_items * chunk), chunk, k * chunk)
        if remainder:
            yield from item_subranges(
                builder,
                IterationRange(rounds * num_items * chunk, remainder, rounds * chunk),
                self.item_index,
                num_items,
                chunk,
            )

    def emit_reduction(self, builder: OpBuilder, nest_op: NestOp, d: int) -> None:
        """Reduce the chunks of each work-item, then combine the partial results by a tree reduction in local memory.

        p[t] = reduce(chunks of work-item t)
        for s = n/8, …, 1:  barrier;  if t < s: p[t] = combine(p[t], p[t + s], …, p[t + 7s])
        y = p[0]
        """
        sizes = self.group_sizes()
        axes = [x for x in self.axes_of(nest_op.output.root) if sizes[x] > 1]
        n = self.num_cooperating
        # Adjacent work-items have adjacent results.
        order = [*axes, d] if self.are_adjacent else [d, *axes]
        shape = tuple({**sizes, d: n}[x] for x in order)
        partials = self.group.shared_buffer((nest_op.op, "partials"), nest_op.op.operands[-1], shape, "partials")

        def view_of(item_builder: OpBuilder, item_tile: Tile, item: Index) -> BufferView:
            ranges = {
                **{x: IterationRange(item_tile[x].group_offset, item_tile[x].size) for x in axes},
                d: IterationRange(item, 1),
            }
            return self.subview(item_builder, partials, [(x, ranges[x]) for x in order])

        # Strided loads have a long latency: issue several before the first use.
        loads_in_flight = 1 if self.are_adjacent else _LOADS_IN_FLIGHT
        for item_builder, item_tile in self.item_tiles(builder):
            own_view = view_of(item_builder, item_tile, self.item_index)
            fill(item_builder, identity_of(nest_op, self.nest), own_view[0])
            chunks = self.item_chunks(item_builder, d, loads_in_flight)
            self.split_reduction(item_builder, nest_op, {**item_tile, d: self.tile[d]}, d, chunks, own_view)
        while n > 1:
            fan_in = min(_REDUCTION_FAN_IN, n)
            n //= fan_in
            builder.insert(gpu.BarrierOp())
            combine_builder = builder.branch(builder.compare(self.item_index, "ult", n))
            tile = self.unclipped_tile(combine_builder)
            for k in range(1, fan_in):
                other_view = view_of(combine_builder, tile, combine_builder.add(self.item_index, k * n))
                combine(combine_builder, nest_op, other_view, view_of(combine_builder, tile, self.item_index))
        for item_builder, item_tile in self.item_tiles(builder):
            single_builder = self.guard_single_item(item_builder, nest_op)
            combined = view_of(single_builder, item_tile, 0)
            copy(single_builder, combined, self.output_view(single_builder, nest_op, item_tile))
