"""Apply a tile plan to a loop nest: generate its grid of tasks, its loops over register tiles, and the ops in each tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dlc.ir import SSAValue, erase_op, memref, scf
from dlc.passes.structured import ConstantPool, Index, OpBuilder
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.attention.attention_tile_body import AttentionTileBody
from dlc.passes.tiling.attention.fused_attention import FusedAttention
from dlc.passes.tiling.blocking.blocked_task import BlockedTask
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
    full_steps,
    nested,
    remainder_steps,
    steps,
)
from dlc.passes.tiling.loop_nests import LoopNest, NestOp, SizedLoopNest
from dlc.passes.tiling.matrix_units.matrix_tile_body import MatrixTileBody
from dlc.passes.tiling.matrix_units.matrix_unit_tiles import MatrixUnitTiles
from dlc.passes.tiling.plan_kinds import DevicePlan, Plan, ThreadPlan
from dlc.passes.tiling.tasks.task_tiles import TaskTileBody, TaskTiles
from dlc.passes.tiling.tile_body import TileBody
from dlc.shapes.dims import UndecidableError
from dlc.shapes.polynomials import is_multiple


def apply_tiles(nest: LoopNest, plan: Plan, constants: ConstantPool, sizes: Mapping[str, int] | None = None) -> scf.ParallelOp:
    """Replace the ops of a nest by a grid of tiled code, inserted at the last op; return the grid.

    `sizes` are the representative sizes that the plan assumes. Raises ValueError for an illegal plan, and
    UndecidableError for symbolic sizes that must be static.
    """
    plan.check(nest.specialize(sizes or {}))
    _check_symbolic(nest)
    nest = replace(nest, ops=[_with_views(op, nest, constants) for op in nest.ops])
    # Views of the nest's operands may be defined between its ops, so the grid is inserted at the last op.
    last = nest.ops[-1].op
    block = last.parent
    assert block is not None
    grid = _Tiler(nest, nest.specialize(sizes or {}), plan).build_grid(OpBuilder(constants, block, last.location, anchor=last))
    for nest_op in nest.ops:
        erase_op(nest_op.op, is_unused=False)
    for op in reversed(list(block.ops)):
        if isinstance(op, memref.SubviewOp | memref.ReinterpretCastOp | memref.AllocaOp) and not op.results[0].first_use:
            erase_op(op)
    return grid


def _with_views(nest_op: NestOp, nest: LoopNest, constants: ConstantPool) -> NestOp:
    """Return an op with views of its operands, inserted before it, with one axis per term of the access; not of local buffers.

      linalg.generic (h, w, o, kh, k): (h + kh, w, k), …  ins(%x : memref<58x56x192xf32>, …)
    →
      %window = memref.reinterpret_cast %x … sizes [56, 56, 3, 192], strides [10752, 192, 10752, 1]
    """
    block, local_buffers = nest_op.op.parent, nest.local_buffers()
    assert block is not None
    builder = OpBuilder(constants, block, nest_op.op.location, anchor=nest_op.op)

    def view(operand: SSAValue, a: AffineAccess | None) -> SSAValue:
        if a is None or a.root in local_buffers:
            return operand
        shape = tuple(t.num_values(nest.extents[t.iterator]) for t in a.terms)
        return builder.reinterpret(a.root, a.offset, shape, tuple(t.stride for t in a.terms))

    return replace(nest_op, operands=tuple(map(view, nest_op.operands, nest_op.accesses)))


def _check_symbolic(nest: LoopNest) -> None:
    """Raise UndecidableError if a dimension that must be static is symbolic."""
    private_dims = set(nest.symbolic_dims).difference(nest.shared_dims)
    for nest_op in nest.ops:
        if nest_op.output.root in nest.local_buffers():
            for d in private_dims.intersection(t.iterator for t in nest_op.output.terms):
                raise UndecidableError(f"a local buffer would have the symbolic dim {nest.extents[d]}; make this dim static")
        if any(t.iterator in private_dims and not t.is_plain for t in nest_op.terms):
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
            self.emit_tasks(task_builder, self.plan, tile, partial_dims)
        task_builder.insert(scf.ReduceOp())
        return grid

    def emit_tasks(self, builder: OpBuilder, plan: ThreadPlan, tile: Tile, partial_dims: Sequence[int]) -> None:
        """Emit a task of one CPU thread; partial tasks, at the ends of `partial_dims`, have separate code."""
        emit_task: Callable[[OpBuilder, Tile], None]
        match plan:
            case BlockedTiles():
                sizes = {d: r.size for d, r in tile.items()}
                emit_task = BlockedTask(self.nest, plan, builder, sizes, self.register_tiles).emit_task
            case FusedAttention():
                emit_task = self.round_emitter(partial(AttentionTileBody, self.nest, plan))
            case TaskTiles():
                emit_task = self.round_emitter(lambda tile: TaskTileBody(self.nest, plan, tile, self.dynamic_extents))
        for task_builder, task_tile in full_and_partial_tiles(builder, tile, partial_dims, self.nest.extents):
            emit_task(task_builder, task_tile)

    def emit_group(self, builder: OpBuilder, plan: DevicePlan, tile: Tile, partial_dims: Sequence[int]) -> None:
        """Emit a work-group: a loop over its work-items, with their code as its body."""
        group = WorkGroup(self.nest, plan, builder, partial_dims, {d: self.extents[d] for d in self.symbolic_dims})
        make_body: Callable[[Tile], TileBody]
        match plan:
            case CooperativeTiles():
                make_body = partial(CooperativeTileBody, group, plan)
            case PromotedTiles():
                make_body = partial(PromotedTileBody, group.linearize(), plan)
            case GroupTiles():
                make_body = partial(GroupTileBody, group, plan)
            case MatrixUnitTiles():
                make_body = partial(MatrixTileBody, group.linearize(), plan)
        emit_rounds = self.round_emitter(make_body, group.emit_round_barrier)
        # Barriers must be in uniform control flow. So a group with barriers guards the code of its partial tiles between the
        # barriers, not around them.
        branch_dims = () if plan.needs_barriers else partial_dims
        for group_builder, group_tile in full_and_partial_tiles(group.builder, tile, branch_dims, self.nest.extents):
            emit_rounds(group_builder, group_tile)
        group.builder.insert(scf.ReduceOp())

    def round_emitter(
        self, make_body: Callable[[Tile], TileBody], begin_round: Callable[[OpBuilder], None] = lambda builder: None
    ) -> Callable[[OpBuilder, Tile], None]:
        """Return a function that emits each register tile of a task, or each round of a group, by `make_body`."""

        def emit(builder: OpBuilder, tile: Tile) -> None:
            for body_builder, tile_ranges in self.register_tiles(builder, tile):
                begin_round(body_builder)
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

        *outer_dims, lane = self.plan.order or (0,)
        if outer_dims and self.has_dynamic_rows(tile[lane], lane):
            return self.tiles_of_rows(builder, tile, lane, lambda b, t: nested(b, t, outer_dims, tile_steps))
        return nested(builder, tile, self.plan.order, tile_steps)

    def has_dynamic_rows(self, task_range: IterationRange, lane: int) -> bool:
        """Return whether a task has rows of a dynamic length, whose elements are independent."""
        is_elementwise = isinstance(self.plan, TaskTiles) and not any(op.reductions for op in self.nest.ops)
        has_remainder = lane in self.symbolic_dims and not is_multiple(self.extents[lane], self.plan.tile(lane))
        return is_elementwise and has_remainder and not is_multiple(self.extents[lane], task_range.size)

    def tiles_of_rows(
        self, builder: OpBuilder, tile: Tile, lane: int, rows: Callable[[OpBuilder, Tile], TileSteps]
    ) -> TileSteps:
        """Yield the register tiles of `rows` along `lane`: their full tiles, then each part of the remainder for all rows.

        Short rows consist of a remainder, whose parts are thus chosen once per task and not once per row.
        """
        step, size = self.plan.tile(lane), self.dynamic_size(builder, tile[lane], lane)
        remainder = builder.remainder(size, step)
        full_size = builder.subtract(size, remainder)
        full_builder = builder.branch(builder.compare(step, "ule", size))
        for row_builder, row in rows(full_builder, tile):
            for body_builder, lane_range in full_steps(row_builder, tile[lane], full_size, step, f"j{lane}"):
                yield body_builder, {**row, lane: lane_range}
        for part_builder, part in remainder_steps(builder, tile[lane], size, step, remainder):
            yield from rows(part_builder, {**tile, lane: part})

    def dynamic_size(self, builder: OpBuilder, task_range: IterationRange, d: int) -> Index:
        """Return the number of iterations of a task along a dimension with a symbolic extent."""
        return builder.minimum(builder.subtract(builder.size(self.extents[d]), task_range.offset), task_range.size)

    def dynamic_tiles(self, builder: OpBuilder, task_range: IterationRange, d: int) -> RangeSteps:
        """Yield the register tiles of a task along a dimension with a symbolic extent."""
        extent, step = self.extents[d], self.plan.tile(d)
        if is_multiple(extent, task_range.size):
            return steps(builder, task_range, step, f"j{d}")
        size = self.dynamic_size(builder, task_range, d)
        is_balanced = isinstance(self.plan, TaskTiles) and self.plan.balance_threshold is not None
        if is_balanced and step > 1 and not is_multiple(extent, step):
            return balanced_steps(builder, task_range, size, step, f"j{d}")
        return dynamic_steps(builder, task_range, size, step, is_multiple(extent, step), f"j{d}")
