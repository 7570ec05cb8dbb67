"""Generate the code of a work-group's tile, distributed over its work-items.

Work-items divide the work in one of two ways:
- Each work-item computes its own register tile, independently.
- Work-items *cooperate* along a private dimension of an op; they read each other's results after a barrier.

`contraction_tile_body.py` has a third way, for contractions whose operands are promoted to local memory.

Barriers are in uniform control flow only, since drivers miscompile barriers in branches. So each op has its own bounds
guard, inside which a work-item computes all, a part or nothing of its tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from dlc.dialects.loop_attributes import ROLLED
from dlc.dialects.workgroup import WORKGROUP
from dlc.dims import Size
from dlc.ir import SSAValue, UnitAttr, gpu
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, combine, copy, fill
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, full_or_remainder
from dlc.passes.tiling.loop_nests import NestOp, StaticLoopNest, identity_of, initial_fill
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.tile_body import Continuation, LocalBuffer, TileBody
from dlc.passes.types import memref_of

# Fan-in of the tree reduction: partial results that a work-item combines between two barriers.
_REDUCTION_FAN_IN = 8
# Maximum unrolled rounds of cooperating work-items.
_MAX_UNROLLED_ROUNDS = 4
# Number of strided chunks that a work-item loads before it uses them.
_LOADS_IN_FLIGHT = 8


class WorkGroup:
    """The work-group of one grid point: its work-items, their indices, and the buffers that they subrange.

    `builder` inserts the code of a work-item; shared buffers are allocated before the loop over work-items.
    `dynamic_extents` maps dimensions to their symbolic extents.
    """

    def __init__(
        self,
        nest: StaticLoopNest,
        plan: TilePlan,
        task: OpBuilder,
        partial_dims: Sequence[int],
        dynamic_extents: Mapping[int, Size],
    ) -> None:
        self.nest = nest
        self.plan = plan
        self.dynamic_extents = dynamic_extents
        # Dimensions along which the last group has a partial tile.
        self.partial_dims = partial_dims
        # With matrix units, work-items are distributed by their linear index.
        self.axes = [(plan.order[-1], prod((plan.items or {}).values()))] if plan.matrix_tile else _item_axes(nest, plan)
        loop = task.parallel("item", [(n, 1) for _, n in self.axes] or [(1, 1)], [f"t{d}" for d, _ in self.axes] or ["t"])
        arguments = loop.body.block.args
        self.builder = task.at_block_end(loop.body.block)
        self.item_indices: dict[int, Index] = {d: i for (d, n), i in zip(self.axes, arguments, strict=False) if n > 1}
        self.num_items = prod(n for _, n in self.axes)
        self._allocation_builder = OpBuilder(task.constants, task.block, task.location, anchor=loop)
        self._shared: dict[object, SSAValue] = {}
        # The linear index of a work-item in its group.
        self.linear_index: Index = 0
        for (_, n), i in zip(self.axes, arguments, strict=False) if plan.promote else ():
            self.linear_index = self.builder.add(self.builder.multiply(self.linear_index, n), i)
        cooperative_dims = plan.cooperative_dims(nest)
        self.num_cooperating = plan.num_cooperating_items(nest)
        has_rounds = any(plan.grid.get(d, nest.extents[d]) > plan.group_tile(d) for d in plan.order)
        self.needs_barrier_between_rounds = has_rounds and plan.needs_barriers(nest)
        self.cooperative_index: Index = self.item_indices.get(cooperative_dims[0], 0) if cooperative_dims else 0

    def shared_buffer(self, key: object, like: SSAValue, shape: tuple[int, ...], name: str | None) -> SSAValue:
        """Return the shared buffer for a key, allocated once: code for full and for partial tiles uses the same buffer."""
        if key not in self._shared:
            self._shared[key] = self._allocation_builder.alloca(memref_of(like).element_type, shape, name, WORKGROUP)
        return self._shared[key]

    def emit_round_barrier(self, builder: OpBuilder) -> None:
        """Insert a barrier between rounds: other work-items may still read what this one overwrites next."""
        if self.needs_barrier_between_rounds:
            builder.insert(gpu.BarrierOp())


def _item_axes(nest: StaticLoopNest, plan: TilePlan) -> list[tuple[int, int]]:
    """Return (dimension, size) of each axis of work-items; all cooperative dimensions map to one axis, that of the first."""
    items, cooperative_dims = plan.items or {}, plan.cooperative_dims(nest)
    return [(d, n) for d, n in items.items() if d not in cooperative_dims[1:]]


class GroupTileBody(TileBody):
    """All ops on the tile of a work-group, `group_tile`; `tile` is the register tile of a work-item."""

    def __init__(self, group: WorkGroup, group_tile: Tile) -> None:
        plan = group.plan
        distributed_dims = {*plan.order, *plan.cooperative_dims(group.nest)}
        dynamic_extents = {d: extent for d, extent in group.dynamic_extents.items() if d not in distributed_dims}
        super().__init__(group.nest, plan, {d: IterationRange(0, plan.tile(d)) for d in group_tile}, dynamic_extents)
        self.group = group
        self.item_sizes = {d: r.size for d, r in self.tile.items()}
        self.group_tile = {**self.tile, **group_tile}
        self.unsynchronized: set[SSAValue] = set()

    def run(self, builder: OpBuilder) -> None:
        for root in self.local_roots():
            self.make_local(builder, root, self.item_sizes)
        if self.group.num_cooperating > 1:
            for nest_op in self.nest.ops:
                self.emit_cooperative_op(builder.with_location(nest_op.op.location), nest_op)
        else:
            self.for_each_item(
                builder, lambda item_builder, item_tile: self.emit_nest_ops(item_builder, self.nest.ops, item_tile)
            )

    # Independent work-items

    def for_each_item(self, builder: OpBuilder, body: Continuation) -> None:
        """Emit `body` for the work-item's subtile of the group tile, under a guard if it may be empty."""
        for inner_builder, full_tile in self.full_and_remainder_tiles(builder, self.group_tile, self.group.partial_dims):
            self.distribute(inner_builder, full_tile, self.plan.order, body)

    def full_and_remainder_tiles(
        self, builder: OpBuilder, full_tile: Tile, partial_dims: Sequence[int]
    ) -> Iterator[tuple[OpBuilder, Tile]]:
        """Yield the tile of a full group, and the partial tiles of the last groups along these dimensions."""
        if not partial_dims:
            yield builder, full_tile
            return
        d, *inner_dims = partial_dims
        for inner_builder, tile_range in full_or_remainder(builder, full_tile[d], self.nest.extents[d]):
            yield from self.full_and_remainder_tiles(inner_builder, {**full_tile, d: tile_range}, inner_dims)

    def distribute(self, builder: OpBuilder, tile: Tile, dims: Sequence[int], body: Continuation) -> None:
        """Emit `body` for the work-item's subtile along these dimensions, under a guard if it may be empty."""
        if not dims:
            body(builder, tile)
            return
        d, *inner_dims = dims
        i = self.group.item_indices.get(d, 0)
        if d in self.group.dynamic_extents:
            inner_builder = self.guard_index(builder, d, builder.add(tile[d].offset, i))
            self.distribute(inner_builder, {**tile, d: tile[d].subrange(inner_builder, i, 1)}, inner_dims, body)
            return
        for inner_builder, subrange in item_subranges(builder, tile[d], i, self.num_items_along(d), self.plan.tile(d)):
            self.distribute(inner_builder, {**tile, d: subrange}, inner_dims, body)

    def guard_index(self, builder: OpBuilder, d: int, index: Index) -> OpBuilder:
        """Guard `index < extent` if the extent is symbolic; return the builder inside the guard."""
        extent = self.group.dynamic_extents.get(d)
        return builder if extent is None else builder.branch(builder.compare(index, "ult", builder.size(extent)))

    def num_items_along(self, d: int) -> int:
        """Return the number of work-items along a dimension."""
        return (self.plan.items or {}).get(d, 1)

    # Cooperating work-items

    def make_local(self, builder: OpBuilder, root: SSAValue, sizes: Mapping[int, int]) -> None:
        """Allocate a local buffer: private if it has a cooperative dimension, else shared by cooperating work-items."""
        cooperative_dims = self.plan.cooperative_dims(self.nest)
        if not cooperative_dims or set(cooperative_dims).intersection(self.axes_of(root)):
            super().make_local(builder, root, {**sizes, **{d: self.iterations_per_item(d) for d in cooperative_dims}})
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
        return chunk * -(-self.nest.extents[d] // (chunk * self.group.num_cooperating))

    def emit_cooperative_op(self, builder: OpBuilder, nest_op: NestOp) -> None:
        """Emit an op for cooperating work-items, after a barrier if it needs one."""
        d = next((d for d in self.plan.cooperative_dims(self.nest) if d in nest_op.dims), None)
        if self.is_fill_of_cooperative_reduction(nest_op):
            return
        self.synchronize(builder, nest_op)
        if d is not None and d in nest_op.reductions:
            self.emit_cooperative_reduction(builder, nest_op, d)
        elif d is not None:
            self.for_each_item(
                builder, lambda item_builder, item_tile: self.emit_cooperative_chunks(item_builder, nest_op, item_tile, d)
            )
        else:
            self.for_each_item(
                builder,
                lambda item_builder, item_tile: self.emit_nest_ops(
                    self.guard_single_item(item_builder, nest_op), [nest_op], item_tile
                ),
            )

    def is_fill_of_cooperative_reduction(self, nest_op: NestOp) -> bool:
        """Return whether an op only initializes a cooperative reduction, whose partial results are initialized separately."""
        cooperative_dims = self.plan.cooperative_dims(self.nest)
        return any(
            op.reductions.intersection(cooperative_dims) and initial_fill(op, self.nest) is nest_op for op in self.nest.ops
        )

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
            if d not in nest_op.dims or i is self.group.cooperative_index:
                builder = builder.branch(builder.compare(i, "eq", 0))
        return builder

    def has_adjacent_cooperating_items(self) -> bool:
        """Return whether cooperating work-items access adjacent memory."""
        return self.group.axes[-1][0] in self.plan.cooperative_dims(self.nest)

    def num_partial_results(self, d: int) -> int:
        """Return the number of partial results of a work-item.

        It is 1 for strided loads, where adjacent work-items reduce different results.
        """
        is_strided = d in self.plan.cooperative_dims(self.nest) and not self.has_adjacent_cooperating_items()
        return 1 if is_strided else super().num_partial_results(d)

    def emit_cooperative_chunks(self, builder: OpBuilder, nest_op: NestOp, tile: Tile, d: int) -> None:
        """Emit an op with the cooperative dimension `d` on a work-item's chunks."""
        for inner_builder, chunk_range in self.item_chunks(builder, d):
            self.emit_nest_op(inner_builder, nest_op, {**{x: tile[x] for x in nest_op.dims if x >= 0}, d: chunk_range})

    def item_chunks(self, builder: OpBuilder, d: int, loads_in_flight: int = 1) -> Iterator[tuple[OpBuilder, IterationRange]]:
        """Yield a work-item's chunks of a cooperative dimension, interleaved with those of the other work-items.

        A loop iteration computes `loads_in_flight` chunks, so that their loads overlap.
        """
        cooperative_index, num_items, chunk = (
            self.group.cooperative_index,
            self.group.num_cooperating,
            self.plan.chunks.get(d, 1),
        )
        if d in self.group.dynamic_extents:
            loop = builder.loop(cooperative_index, builder.size(self.group.dynamic_extents[d]), num_items, name=f"j{d}")
            body_builder = builder.at_block_end(loop.body.block)
            yield body_builder, IterationRange(loop.body.block.args[0], 1)
            body_builder.yield_()
            return
        rounds, remainder = divmod(self.nest.extents[d], num_items * chunk)
        first_offset = builder.multiply(cooperative_index, chunk)
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
                cooperative_index,
                num_items,
                chunk,
            )

    def emit_cooperative_reduction(self, builder: OpBuilder, nest_op: NestOp, d: int) -> None:
        """Reduce the chunks of each work-item, then combine the partial results by a tree reduction in local memory.

        p[t] = reduce(chunks of work-item t)
        for s = n/8, …, 1:  barrier;  if t < s: p[t] = combine(p[t], p[t + s], …, p[t + 7s])
        y = p[0]
        """
        output = len(nest_op.op.operands) - 1
        sizes = self.group_sizes()
        axes = [x for x in self.axes_of(nest_op.output.root) if sizes[x] > 1]
        n, cooperative_index = self.group.num_cooperating, self.group.cooperative_index
        # Adjacent work-items have adjacent results.
        order = [*axes, d] if self.has_adjacent_cooperating_items() else [d, *axes]
        shape = tuple({**sizes, d: n}[x] for x in order)
        partials = self.group.shared_buffer((nest_op.op, "partials"), nest_op.op.operands[output], shape, "partials")

        def view_of(item_builder: OpBuilder, item_tile: Tile, item: Index) -> BufferView:
            ranges = {
                **{x: IterationRange(item_tile[x].group_offset, item_tile[x].size) for x in axes},
                d: IterationRange(item, 1),
            }
            return self.subview(item_builder, partials, [(x, ranges[x]) for x in order])

        def reduce_chunks(item_builder: OpBuilder, item_tile: Tile) -> None:
            own_view = view_of(item_builder, item_tile, cooperative_index)
            fill(item_builder, identity_of(nest_op, self.nest), own_view[0])
            reduction_tile = {**{x: item_tile[x] for x in nest_op.dims if x >= 0}, d: self.tile[d]}
            # Strided loads have a long latency: issue several before the first use.
            loads_in_flight = 1 if self.has_adjacent_cooperating_items() else _LOADS_IN_FLIGHT
            self.split_reduction(
                item_builder, nest_op, reduction_tile, d, own_view, self.item_chunks(item_builder, d, loads_in_flight)
            )

        def write_result(item_builder: OpBuilder, item_tile: Tile) -> None:
            single_builder = self.guard_single_item(item_builder, nest_op)
            copy(
                single_builder,
                view_of(single_builder, item_tile, 0),
                self.operand_view(single_builder, nest_op, output, item_tile),
            )

        self.for_each_item(builder, reduce_chunks)
        while n > 1:
            fan_in = min(_REDUCTION_FAN_IN, n)
            n //= fan_in
            builder.insert(gpu.BarrierOp())
            combine_builder = builder.branch(builder.compare(cooperative_index, "ult", n))
            tile = self.unclipped_tile(combine_builder)
            for k in range(1, fan_in):
                combine(
                    combine_builder,
                    nest_op,
                    view_of(combine_builder, tile, combine_builder.add(cooperative_index, k * n)),
                    view_of(combine_builder, tile, cooperative_index),
                )
        self.for_each_item(builder, write_result)

    def unclipped_tile(self, builder: OpBuilder) -> Tile:
        """Return a work-item's register tile without clipping to the extents."""
        starts = {d: builder.multiply(self.group.item_indices.get(d, 0), self.plan.tile(d)) for d in self.plan.order}
        item_ranges = {d: self.group_tile[d].subrange(builder, start, self.plan.tile(d)) for d, start in starts.items()}
        return {**self.tile, **{d: IterationRange(r.offset, r.size, 0, r.group_offset) for d, r in item_ranges.items()}}


def item_subranges(
    builder: OpBuilder, full_range: IterationRange, i: Index, n: int, step: int
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield the subrange of work-item `i`: at most `step` iterations each for `n` work-items; guarded unless all are equal."""
    num_full_subranges, remainder = divmod(full_range.size, step)
    if num_full_subranges == n or n == 1:
        # A single work-item takes the whole range.
        start, size = builder.multiply(i, step), step if num_full_subranges else remainder
        yield (
            builder,
            IterationRange(
                builder.add(full_range.offset, start), size, full_range.tile_offset, builder.add(full_range.group_offset, start)
            ),
        )
        return
    start = builder.multiply(i, step)
    for relation, size in (("ult", step), ("eq", remainder)):
        if size and (relation == "eq" or num_full_subranges):
            inner_builder = builder.branch(builder.compare(i, relation, num_full_subranges))
            yield (
                inner_builder,
                IterationRange(
                    inner_builder.add(full_range.offset, start),
                    size,
                    full_range.tile_offset,
                    inner_builder.add(full_range.group_offset, start),
                ),
            )
