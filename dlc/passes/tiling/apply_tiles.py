"""Apply a tile plan to a loop nest: a grid of tasks, loops over register tiles, the stages on each tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dlc.dims import UndecidableError, is_multiple
from dlc.ir import Operation, scf
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.tiling.cache_blocking import BlockedTask, TaskBuffers
from dlc.passes.tiling.contraction_tile_body import ContractionTileBody
from dlc.passes.tiling.fused_loops import run_stages
from dlc.passes.tiling.group_tile_body import GroupTileBody, WorkGroup
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, balanced_steps, dynamic_steps, full_or_remainder, steps
from dlc.passes.tiling.loop_nests import DynamicLoopNest, StaticLoopNest
from dlc.passes.tiling.matrix_tile_body import MatrixTileBody
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.tile_body import TileBody


def apply_tiles(
    nest: DynamicLoopNest, plan: TilePlan, constants: ConstantPool, sizes: Mapping[str, int] | None = None
) -> scf.ParallelOp:
    """Replace the stages of a nest by tiled code at the last stage; return its grid.

    `sizes` are the representative sizes that the plan is made for. Raises ValueError for an illegal plan, and
    UndecidableError for symbolic sizes that must be static.
    """
    static_nest = nest.specialize(sizes or {})
    plan.check(static_nest)
    _check_symbolic(nest, plan)
    first = nest.stages[0].op
    block = first.parent
    assert block is not None
    # Views of the nest's operands may be defined between its stages, so the grid is inserted at the last stage.
    last = nest.stages[-1].op
    grid = _Tiler(nest, static_nest, plan).grid(OpBuilder(constants, block, last.location, anchor=last))
    locals_ = [root.owner for root in nest.local_buffers()]
    for stage in nest.stages:
        stage.op.detach()
        stage.op.erase(safe_erase=False)
    for op in locals_:
        assert isinstance(op, Operation)
        op.detach()
        op.erase(safe_erase=False)
    return grid


def _check_symbolic(nest: DynamicLoopNest, plan: TilePlan) -> None:
    """Raise UndecidableError if a dimension that must be static is symbolic."""
    private_dims = set(nest.symbolic_dims).difference(nest.shared)
    for stage in nest.stages:
        stored_dims = (
            private_dims.intersection(t.iterator for t in stage.output.terms)
            if stage.output.root in nest.local_buffers()
            else ()
        )
        for d in stored_dims:
            raise UndecidableError(f"a kernel needs a local buffer of {nest.extents[d]} elements; its size must be static")
        for a in stage.accesses:
            if a is not None and any(not t.is_plain for t in a.terms if t.iterator in private_dims):
                raise UndecidableError("a packed axis has a symbolic size; it must be static")


class _Tiler:
    """Generate the grid, the tasks and the loops over register tiles.

    `symbolic_dims` have symbolic extents; `dynamic_extents` are those of dimensions that belong to single stages.
    """

    def __init__(self, nest: DynamicLoopNest, static_nest: StaticLoopNest, plan: TilePlan) -> None:
        self.extents = nest.extents
        self.symbolic_dims = set(nest.symbolic_dims)
        self.dynamic_extents = {d: nest.extents[d] for d in nest.symbolic_dims if d not in nest.shared}
        self.nest = static_nest
        self.plan = plan
        self.group: WorkGroup | None = None
        self.buffers: TaskBuffers | None = None

    def grid(self, builder: OpBuilder) -> scf.ParallelOp:
        """Insert the grid with the code of a task and return it."""
        extents = self.nest.extents
        blocks = {d: self.plan.grid.get(d, extents[d]) for d in self.plan.order}
        tiled_dims = [d for d in self.plan.order if blocks[d] < extents[d] or d in self.symbolic_dims]
        bounds = [(self.extents[d], blocks[d]) for d in tiled_dims] or [(1, 1)]
        grid = builder.parallel("grid", bounds, [f"i{d}" for d in tiled_dims] or ["task"])
        block = grid.body.block
        starts = dict(zip(tiled_dims, block.args, strict=False))
        tile = {d: IterationRange(starts.get(d, 0), blocks[d]) for d in self.plan.order}
        ragged = [d for d in tiled_dims if extents[d] % blocks[d] and d not in self.symbolic_dims]
        task = builder.inside(block)
        if self.plan.is_blocked:
            self.buffers = TaskBuffers(self.nest, self.plan, task, blocks)
        if self.plan.items is None:
            self.edges(task, tile, ragged)
        else:
            # Barriers must not be inside branches: with barriers, remainders are handled between them.
            needs_barriers = self.plan.needs_barriers(self.nest)
            self.group = WorkGroup(
                self.nest, self.plan, task, ragged if needs_barriers else (), {d: self.extents[d] for d in self.symbolic_dims}
            )
            self.edges(self.group.builder, tile, () if needs_barriers else ragged)
            self.group.builder.insert(scf.ReduceOp())
        task.insert(scf.ReduceOp())
        return grid

    def edges(self, builder: OpBuilder, tile: Tile, ragged: Sequence[int]) -> None:
        """Generate separate code for tasks at the end of a ragged dimension, which cover only the remainder."""
        if not ragged:
            self.task(builder, tile)
            return
        d, *inner_dims = ragged
        for body_builder, edge_range in full_or_remainder(builder, tile[d], self.nest.extents[d]):
            self.edges(body_builder, {**tile, d: edge_range}, inner_dims)

    def task(self, builder: OpBuilder, tile: Tile) -> None:
        """Generate the code of one task."""
        if self.buffers is not None:
            BlockedTask(self.nest, self.plan, builder, tile, self.tiles, self.buffers).run()
            return
        for body_builder, tile_ranges in self.tiles(builder, tile):
            # The tile's local buffers begin at the tile: its offsets within buffers are 0.
            tile_ranges = {d: IterationRange(r.offset, r.size) for d, r in tile_ranges.items()}
            if self.group is None:
                tile_body = TileBody(self.nest, self.plan, tile_ranges, self.dynamic_extents)
                tile_body.allocate(body_builder)
                run_stages(tile_body, body_builder)
            else:
                self.group.barrier_before_next_round(body_builder)
                kind = MatrixTileBody if self.plan.matrix_tile else ContractionTileBody if self.plan.promote else GroupTileBody
                kind(self.group, tile_ranges).run(body_builder)

    def tiles(self, builder: OpBuilder, tile: Tile) -> Iterator[tuple[OpBuilder, Tile]]:
        """Yield a builder and the ranges of each register tile (or group tile) of a task, in loops dimension by dimension."""
        return self._tiles(builder, tile, self.plan.order)

    def _tiles(self, builder: OpBuilder, tile: Tile, order: Sequence[int]) -> Iterator[tuple[OpBuilder, Tile]]:
        if not order:
            yield builder, tile
            return
        d, *inner_dims = order
        # Work-items compare their own index with a symbolic extent.
        dynamic_parts = self.parts(builder, tile[d], d) if d in self.symbolic_dims and self.group is None else None
        for body_builder, step_range in dynamic_parts or steps(builder, tile[d], self.plan.group_tile(d), f"j{d}"):
            yield from self._tiles(body_builder, {**tile, d: step_range}, inner_dims)

    def parts(self, builder: OpBuilder, whole: IterationRange, d: int) -> Iterator[tuple[OpBuilder, IterationRange]]:
        """Yield the tiles of a task along a dimension with a symbolic extent."""
        extent, step = self.extents[d], self.plan.tile(d)
        if is_multiple(extent, whole.size):
            return steps(builder, whole, step, f"j{d}")
        size = builder.minimum(builder.subtract(builder.size(extent), whole.offset), whole.size)
        if self.plan.balance_threshold and step > 1 and not is_multiple(extent, step):
            return balanced_steps(builder, whole, size, step, f"j{d}")
        return dynamic_steps(builder, whole, size, step, is_multiple(extent, step), f"j{d}")
