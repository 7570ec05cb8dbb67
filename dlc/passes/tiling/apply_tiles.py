"""Apply a tile plan to a loop nest: generate its grid of tasks, its loops over register tiles, and the ops in each tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dlc.ir import Operation, scf
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.tiling.attention.attention_tile_body import AttentionTileBody
from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.blocking.blocked_task import BlockedTask, TaskBuffers
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.groups.cooperative_tiles import CooperativeTileBody, CooperativeTiles
from dlc.passes.tiling.groups.group_tile_body import GroupTileBody
from dlc.passes.tiling.groups.group_tiles import GroupPlan, GroupTiles
from dlc.passes.tiling.groups.promoted_tiles import PromotedTileBody, PromotedTiles
from dlc.passes.tiling.groups.work_group import WorkGroup
from dlc.passes.tiling.iteration_ranges import (
    IterationRange,
    RangeSteps,
    Tile,
    TileSteps,
    balanced_steps,
    dynamic_steps,
    full_and_partial_tiles,
    nested,
    steps,
)
from dlc.passes.tiling.loop_nests import LoopNest, SizedLoopNest
from dlc.passes.tiling.matrix_units.matrix_tile_body import MatrixTileBody
from dlc.passes.tiling.matrix_units.matrix_unit_tiles import MatrixUnitTiles
from dlc.passes.tiling.plan_kinds import DevicePlan, Plan, ThreadPlan
from dlc.passes.tiling.tasks.task_tiles import TaskTileBody, TaskTiles
from dlc.passes.tiling.tile_body import TileBody
from dlc.shapes.dims import UndecidableError, is_multiple

# Emits the code of one task.
_EmitTask: TypeAlias = Callable[[OpBuilder, Tile], None]


def apply_tiles(nest: LoopNest, plan: Plan, constants: ConstantPool, sizes: Mapping[str, int] | None = None) -> scf.ParallelOp:
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


def _check_symbolic(nest: LoopNest, plan: Plan) -> None:
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

    def __init__(self, nest: LoopNest, static_nest: SizedLoopNest, plan: Plan) -> None:
        self.extents = nest.extents
        self.symbolic_dims = set(nest.symbolic_dims)
        self.dynamic_extents = {d: nest.extents[d] for d in nest.symbolic_dims if d not in nest.shared_dims}
        self.nest = static_nest
        self.plan = plan

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
        if isinstance(self.plan, GroupPlan):
            self.emit_group(task_builder, self.plan, tile, partial_dims)
        else:
            self.emit_full_and_partial_tasks(
                task_builder, tile, partial_dims, self.task_emitter(task_builder, self.plan, blocks)
            )
        task_builder.insert(scf.ReduceOp())
        return grid

    def task_emitter(self, builder: OpBuilder, plan: ThreadPlan, sizes: Mapping[int, int]) -> _EmitTask:
        """Return the function that emits a task of one CPU thread; `sizes` are the extents of a full task."""
        match plan:
            case BlockedTiles():
                buffers = TaskBuffers(self.nest, plan, builder, sizes)
                return lambda builder, tile: BlockedTask(self.nest, plan, builder, tile, self.register_tiles, buffers).run()
            case FusedAttention():
                return self.round_emitter(lambda tile: AttentionTileBody(self.nest, plan, tile))
            case TaskTiles():
                return self.round_emitter(lambda tile: TaskTileBody(self.nest, plan, tile, self.dynamic_extents))

    def emit_group(self, builder: OpBuilder, plan: DevicePlan, tile: Tile, partial_dims: Sequence[int]) -> None:
        """Emit a work-group: a loop over its work-items, with their code as its body."""
        group = WorkGroup(self.nest, plan, builder, partial_dims, {d: self.extents[d] for d in self.symbolic_dims})
        match plan:
            case CooperativeTiles():
                emit_round = self.round_emitter(lambda tile: CooperativeTileBody(group, plan, tile), group)
            case PromotedTiles():
                group.linearize()
                emit_round = self.round_emitter(lambda tile: PromotedTileBody(group, plan, tile), group)
            case GroupTiles():
                emit_round = self.round_emitter(lambda tile: GroupTileBody(group, plan, tile), group)
            case MatrixUnitTiles():
                group.linearize()
                emit_round = self.round_emitter(lambda tile: MatrixTileBody(group, plan, tile), group)
        # Barriers must be in uniform control flow. So a group with barriers guards the code of its partial tiles between the
        # barriers, not around them.
        self.emit_full_and_partial_tasks(group.builder, tile, () if plan.needs_barriers else partial_dims, emit_round)
        group.builder.insert(scf.ReduceOp())

    def emit_full_and_partial_tasks(
        self, builder: OpBuilder, tile: Tile, partial_dims: Sequence[int], emit_task: _EmitTask
    ) -> None:
        """Generate the code of full tasks, and separate code for partial tasks at the ends of `partial_dims`."""
        for task_builder, task_tile in full_and_partial_tiles(builder, tile, partial_dims, self.nest.extents):
            emit_task(task_builder, task_tile)

    def round_emitter(self, make_body: Callable[[Tile], TileBody], group: WorkGroup | None = None) -> _EmitTask:
        """Return a function that emits each register tile of a task, or each round of a group, by `make_body`."""

        def emit(builder: OpBuilder, tile: Tile) -> None:
            for body_builder, tile_ranges in self.register_tiles(builder, tile):
                if group is not None:
                    group.emit_round_barrier(body_builder)
                # Local buffers are allocated per tile, so offsets in them are 0.
                make_body({d: IterationRange(r.offset, r.size) for d, r in tile_ranges.items()}).run(body_builder)

        return emit

    def register_tiles(self, builder: OpBuilder, tile: Tile) -> TileSteps:
        """Emit the loops over the register tiles (or group tiles) of a task; yield the builder and ranges of each tile."""

        def tile_steps(b: OpBuilder, outer: Tile, d: int) -> RangeSteps:
            # On a device with work-groups, each work-item compares its index with the symbolic extent instead.
            if d in self.symbolic_dims and not isinstance(self.plan, GroupPlan):
                return self.dynamic_tiles(b, outer[d], d)
            return steps(b, outer[d], self.plan.group_tile(d), f"j{d}")

        return nested(builder, tile, self.plan.order, tile_steps)

    def dynamic_tiles(self, builder: OpBuilder, task_range: IterationRange, d: int) -> RangeSteps:
        """Yield the register tiles of a task along a dimension with a symbolic extent."""
        extent, step = self.extents[d], self.plan.tile(d)
        if is_multiple(extent, task_range.size):
            return steps(builder, task_range, step, f"j{d}")
        size = builder.minimum(builder.subtract(builder.size(extent), task_range.offset), task_range.size)
        is_balanced = isinstance(self.plan, TaskTiles) and self.plan.balance_threshold is not None
        if is_balanced and step > 1 and not is_multiple(extent, step):
            return balanced_steps(builder, task_range, size, step, f"j{d}")
        return dynamic_steps(builder, task_range, size, step, is_multiple(extent, step), f"j{d}")
