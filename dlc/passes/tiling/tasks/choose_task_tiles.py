"""Choose independent register tiles that fill the vector unit, in tasks that amortize their scheduling.

The rules come from measurement: a contraction is fastest with accumulators in 12 to 28 vector registers, weights
loaded as vectors and data broadcast; other nests are fastest with two to four vectors of work per step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dlc.passes.tiling.loop_nests import NestOp, lane_dim, leading_reduction
from dlc.passes.tiling.structured_ops import SCALAR_UNROLL_ELEMENTS
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tasks.tile_rules import MAX_DYNAMIC_TILE_ROWS, TileRules
from dlc.passes.tiling.tile_sizes import TRANSPOSE_TILE_ELEMENTS, divisor_tile

# Split up to this many row tiles evenly when the row count is dynamic.
_MAX_BALANCED_TILES = 3


class TaskTileChooser(TileRules):
    """Choose the tile plan of a loop nest."""

    def plan(self) -> TaskTiles:
        """Return the tile plan of a loop nest by the default rules."""
        nest, shared_dims = self.nest, self.nest.shared_dims
        if any(op.has_indirect_loads for op in nest.ops):
            register = self.indirect_load_tile()
            order = (*(d for d in shared_dims if d not in register), *register)
            chunks = {d: 1 for d in nest.extents if d not in shared_dims}
            return TaskTiles(grid=self.grid(register, order), order=order, register=register, chunks=chunks)
        contraction = nest.contraction
        lane = self.choose_lane()
        lane = None if contraction is None and self.vectorizes_reduction(lane) else lane
        if contraction is not None and lane in shared_dims:
            register = self.contraction_tile(contraction, lane)
        elif lane in shared_dims:
            register = self.transpose_tile(lane) or {lane: self.lane_tile(lane)}
            self.add_rows(register, shared_dims)
        else:
            register = {}
        order = self.order(shared_dims, lane)
        plan = TaskTiles(
            grid=self.grid(register, order),
            order=order,
            register=register,
            chunks=self.chunks(lane if lane in shared_dims else None),
            steps=self.steps(register, lane),
        )
        return plan if contraction is None or lane not in register else self.balance_dynamic_rows(plan, contraction, lane)

    def balance_dynamic_rows(self, plan: TaskTiles, nest_op: NestOp, lane: int) -> TaskTiles:
        """Return the plan with tasks that split the dynamic rows of the contraction evenly; unchanged without dynamic rows."""
        register = plan.register
        dynamic_rows = [
            d for d in register if d in self.nest.dynamic_dims and d != lane and register[d] <= MAX_DYNAMIC_TILE_ROWS
        ]
        grid = {d: max(size, register[d] * _MAX_BALANCED_TILES) if d in dynamic_rows else size for d, size in plan.grid.items()}
        # With `exact`, the order of additions must not change: no second set of accumulators.
        accumulators = self.target.costs.independent_accumulators
        min_rows = 1 if self.exact else -(-accumulators * self.lanes(nest_op) // register[lane])
        return replace(plan, grid=grid, balance_threshold=min_rows) if dynamic_rows else plan

    def indirect_load_tile(self) -> dict[int, int]:
        """Return a vector tile along the dimension that all indirect loads read contiguously.

        Without one, return the elements of an unrolled scalar loop if the nest is a single op without reductions; else empty.
        """
        nest_ops, shared_dims = self.nest.ops, self.nest.shared_dims
        dims = {op.contiguous_load_dim for op in nest_ops if op.has_indirect_loads}
        result_lane = lane_dim(self.nest, nest_ops[-1])
        if dims == {result_lane} and result_lane in shared_dims:
            return {result_lane: self.lane_tile(result_lane)}
        is_scalar = dims == {None} and len(nest_ops) == 1 and not nest_ops[0].reductions
        if not is_scalar or result_lane is None or result_lane not in shared_dims:
            return {}
        return {result_lane: self.fitting(result_lane, SCALAR_UNROLL_ELEMENTS)}

    def choose_lane(self) -> int | None:
        """Return the dimension to vectorize: that of the leading reduction's operands, else that of the result.

        Elementwise ops transpose operands of another layout in registers, and reductions transpose their results. Where a
        dimension is too short for that, most operands decide.
        """
        nest = self.nest
        leading_op = nest.contraction or leading_reduction(nest) or nest.ops[-1]
        result_lane = next((d for d in nest.shared_dims if leading_op.output.stride(d) == 1), None)
        has_transposes = nest.contraction is None and result_lane is not None and self.transpose_tile(result_lane)
        return result_lane if has_transposes else lane_dim(nest, nest.contraction or nest.ops[-1])

    def transpose_tile(self, lane: int) -> dict[int, int]:
        """Return a square tile to transpose in registers, if operands are contiguous along another dimension than `lane`.

        In nests with a leading reduction that is vectorized along `lane`, the result is transposed instead: one vector per
        accumulator. Empty for other nests.
        """
        nest_ops, extents = self.nest.ops, self.nest.extents
        has_reductions = any(op.reductions for op in nest_ops)
        accesses = [nest_ops[-1].output] if has_reductions else [a for op in nest_ops for a in op.inputs]
        strided_accesses = [a for a in accesses if a.uses(lane) and a.stride(lane) != 1]
        contiguous_dims = {d for a in strided_accesses for d in self.nest.shared_dims if a.stride(d) == 1}
        if (
            (has_reductions and leading_reduction(self.nest) is None)
            or len(contiguous_dims) != 1
            or min(extents[lane], extents[d := min(contiguous_dims)]) < TRANSPOSE_TILE_ELEMENTS
        ):
            return {}
        columns = self.lanes(nest_ops[-1]) if has_reductions else 2 * TRANSPOSE_TILE_ELEMENTS
        return {lane: self.fitting(lane, columns), d: self.fitting(d, TRANSPOSE_TILE_ELEMENTS)}

    def vectorizes_reduction(self, lane: int | None) -> bool:
        """Return whether to vectorize the last reduction instead of `lane`, because its operands are strided along `lane`."""
        nest_op = next((op for op in reversed(self.nest.ops) if op.reductions), self.nest.ops[-1])
        # An operand with one element per row, such as a mean, is loaded once per row, so its stride does not matter.
        reduced_accesses = [a for a in nest_op.inputs if any(map(a.uses, nest_op.reductions))]
        if lane in nest_op.reductions or any(a.stride(lane) == 1 for a in reduced_accesses if lane is not None):
            return False
        contiguous_reductions = [
            d for d in nest_op.reductions if any(a.stride(d) == 1 for a in nest_op.inputs) and self.nest.can_split(d)
        ]
        return any(self.nest.extents[d] >= max(self.lanes(nest_op), TRANSPOSE_TILE_ELEMENTS) for d in contiguous_reductions)

    def add_rows(self, register: dict[int, int], shared_dims: list[int]) -> None:
        """Add rows to the register tile until it has about as many vectors as the target prefers."""
        nest_op = self.nest.ops[-1]
        lanes = self.lanes(nest_op)
        vectors = -(-prod(register.values()) // lanes)
        for d in sorted((d for d in shared_dims if d not in register), key=lambda d: nest_op.output.stride(d)):
            if vectors * 2 > self.target.costs.vectors:
                break
            register[d] = self.fitting(d, divisor_tile(self.nest.extents[d], self.target.costs.vectors // vectors))
            vectors *= register[d]
