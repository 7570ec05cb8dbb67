"""Apply a tile plan to a loop nest: generate its grid of tasks, its loops over register tiles, and the ops in each tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dlc.dims import UndecidableError, is_multiple
from dlc.ir import Operation, scf
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.tiling.cache_blocking import BlockedTask, TaskBuffers
from dlc.passes.tiling.contraction_tile_body import ContractionTileBody
from dlc.passes.tiling.fused_loops import run_nest_ops
from dlc.passes.tiling.group_tile_body import GroupTileBody, WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, balanced_steps, dynamic_steps, full_or_remainder, steps
from dlc.passes.tiling.loop_nests import DynamicLoopNest, StaticLoopNest
from dlc.passes.tiling.matrix_tile_body import MatrixTileBody
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.tile_body import TileBody


def apply_tiles(
    nest: DynamicLoopNest, plan: TilePlan, constants: ConstantPool, sizes: Mapping[str, int] | None = None
) -> scf.ParallelOp:
    """Replace the ops of a nest by a grid of tiled code, inserted at the last op; return the grid.

    `sizes` are the representative sizes that the plan assumes. Raises ValueError for an illegal plan, and
    UndecidableError for symbolic sizes that must be static.
    """
    static_nest = nest.specialize(sizes or {})
    plan.check(static_nest)
    _check_symbolic(nest, plan)
    first = nest.ops[0].op
    block = first.parent
    assert block is not None
    # Views of the nest's operands may be defined between its ops, so the grid is inserted at the last op.
    last = nest.ops[-1].op
    grid = _Tiler(nest, static_nest, plan).build_grid(OpBuilder(constants, block, last.location, anchor=last))
    allocations = [root.owner for root in nest.local_buffers()]
    for nest_op in nest.ops:
        nest_op.op.detach()
        nest_op.op.erase(safe_erase=False)
    for op in allocations:
        assert isinstance(op, Operation)
        op.detach()
        op.erase(safe_erase=False)
    return grid


def _check_symbolic(nest: DynamicLoopNest, plan: TilePlan) -> None:
    """Raise UndecidableError if a dimension that must be static is symbolic."""
    private_dims = set(nest.symbolic_dims).difference(nest.shared_dims)
    for nest_op in nest.ops:
        stored_dims = (
            private_dims.intersection(t.iterator for t in nest_op.output.terms)
            if nest_op.output.root in nest.local_buffers()
            else ()
        )
        for d in stored_dims:
            raise UndecidableError(f"a local buffer would have the symbolic dim {nest.extents[d]}; make this dim static")
        for a in nest_op.accesses:
            if a is not None and any(not t.is_plain for t in a.terms if t.iterator in private_dims):
                raise UndecidableError("a packed operand has a symbolic dim; make this dim static")


class _Tiler:
    """Generate the grid, the tasks and the loops over register tiles.

    `symbolic_dims` are the dimensions with symbolic extents; `dynamic_extents` are the symbolic extents of private
    dimensions, which only one op iterates over.
    """

    def __init__(self, nest: DynamicLoopNest, static_nest: StaticLoopNest, plan: TilePlan) -> None:
        self.extents = nest.extents
        self.symbolic_dims = set(nest.symbolic_dims)
        self.dynamic_extents = {d: nest.extents[d] for d in nest.symbolic_dims if d not in nest.shared_dims}
        self.nest = static_nest
        self.plan = plan
        self.group: WorkGroup | None = None
        self.buffers: TaskBuffers | None = None

    def build_grid(self, builder: OpBuilder) -> scf.ParallelOp:
        """Insert the grid, with the code of a task as its body, and return it."""
        extents = self.nest.extents
        blocks = {d: self.plan.grid.get(d, extents[d]) for d in self.plan.order}
        tiled_dims = [d for d in self.plan.order if blocks[d] < extents[d] or d in self.symbolic_dims]
        bounds = [(self.extents[d], blocks[d]) for d in tiled_dims] or [(1, 1)]
        grid = builder.parallel("grid", bounds, [f"i{d}" for d in tiled_dims] or ["task"])
        block = grid.body.block
        starts = dict(zip(tiled_dims, block.args, strict=False))
        tile = {d: IterationRange(starts.get(d, 0), blocks[d]) for d in self.plan.order}
        partial_dims = [d for d in tiled_dims if extents[d] % blocks[d] and d not in self.symbolic_dims]
        task_builder = builder.at_block_end(block)
        if self.plan.is_blocked:
            self.buffers = TaskBuffers(self.nest, self.plan, task_builder, blocks)
        if self.plan.items is None:
            self.emit_full_and_partial_tasks(task_builder, tile, partial_dims)
        else:
            # Barriers must be in uniform control flow. So a group with barriers guards the code of its partial tiles between
            # the barriers, not around them.
            needs_barriers = self.plan.needs_barriers(self.nest)
            dynamic_extents = {d: self.extents[d] for d in self.symbolic_dims}
            self.group = WorkGroup(self.nest, self.plan, task_builder, partial_dims if needs_barriers else (), dynamic_extents)
            self.emit_full_and_partial_tasks(self.group.builder, tile, () if needs_barriers else partial_dims)
            self.group.builder.insert(scf.ReduceOp())
        task_builder.insert(scf.ReduceOp())
        return grid

    def emit_full_and_partial_tasks(self, builder: OpBuilder, tile: Tile, partial_dims: Sequence[int]) -> None:
        """Generate the code of full tasks, and separate code for partial tasks.

        Partial tasks are at the end of `partial_dims`, the dimensions that the block size does not divide.
        """
        if not partial_dims:
            self.emit_task(builder, tile)
            return
        d, *inner_dims = partial_dims
        for body_builder, task_range in full_or_remainder(builder, tile[d], self.nest.extents[d]):
            self.emit_full_and_partial_tasks(body_builder, {**tile, d: task_range}, inner_dims)

    def emit_task(self, builder: OpBuilder, tile: Tile) -> None:
        """Generate the code of one task."""
        if self.buffers is not None:
            BlockedTask(self.nest, self.plan, builder, tile, self.register_tiles, self.buffers).run()
            return
        for body_builder, tile_ranges in self.register_tiles(builder, tile):
            # Local buffers are allocated per tile, so offsets in them are 0.
            tile_ranges = {d: IterationRange(r.offset, r.size) for d, r in tile_ranges.items()}
            if self.group is None:
                tile_body = TileBody(self.nest, self.plan, tile_ranges, self.dynamic_extents)
                tile_body.allocate(body_builder)
                run_nest_ops(tile_body, body_builder)
            else:
                self.group.emit_round_barrier(body_builder)
                body_class = (
                    MatrixTileBody if self.plan.matrix_tile else ContractionTileBody if self.plan.promote else GroupTileBody
                )
                body_class(self.group, tile_ranges).run(body_builder)

    def register_tiles(self, builder: OpBuilder, tile: Tile) -> Iterator[tuple[OpBuilder, Tile]]:
        """Emit the loops over the register tiles (or group tiles) of a task; yield the builder and ranges of each tile."""
        return self._nested_tiles(builder, tile, self.plan.order)

    def _nested_tiles(self, builder: OpBuilder, tile: Tile, order: Sequence[int]) -> Iterator[tuple[OpBuilder, Tile]]:
        if not order:
            yield builder, tile
            return
        d, *inner_dims = order
        # On a device with work-groups, each work-item compares its index with the symbolic extent instead.
        dynamic_tiles = self.dynamic_tiles(builder, tile[d], d) if d in self.symbolic_dims and self.group is None else None
        for body_builder, step_range in dynamic_tiles or steps(builder, tile[d], self.plan.group_tile(d), f"j{d}"):
            yield from self._nested_tiles(body_builder, {**tile, d: step_range}, inner_dims)

    def dynamic_tiles(
        self, builder: OpBuilder, task_range: IterationRange, d: int
    ) -> Iterator[tuple[OpBuilder, IterationRange]]:
        """Yield the register tiles of a task along a dimension with a symbolic extent."""
        extent, step = self.extents[d], self.plan.tile(d)
        if is_multiple(extent, task_range.size):
            return steps(builder, task_range, step, f"j{d}")
        size = builder.minimum(builder.subtract(builder.size(extent), task_range.offset), task_range.size)
        if self.plan.balance_threshold and step > 1 and not is_multiple(extent, step):
            return balanced_steps(builder, task_range, size, step, f"j{d}")
        return dynamic_steps(builder, task_range, size, step, is_multiple(extent, step), f"j{d}")
