"""Choose tile plans for CPUs: register tiles that fill the vector unit, tasks that amortize their scheduling.

The rules come from measurement: a contraction is fastest with accumulators in 12 to 28 vector registers, weights
loaded as vectors and data broadcast; other nests are fastest with two to four vectors of work per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.choose_attention import AttentionChooser, match_attention
from dlc.passes.tiling.choose_cache_blocking import CacheBlockingChooser
from dlc.passes.tiling.choose_transposed_attention import TransposedAttentionChooser
from dlc.passes.tiling.constant_matrix_products import ConstantMatrixProduct, match_constant_matrix_product
from dlc.passes.tiling.loop_nests import NestOp, StaticLoopNest, lane_dim
from dlc.passes.tiling.plan import TilePlan, divisor_tile, leading_contraction
from dlc.passes.tiling.tile_rules import (
    MAX_DYNAMIC_TILE_ROWS,
    MIN_LATENCY_HIDING_ACCUMULATORS,
    OPERAND_REGISTERS,
    TileRules,
    row_tile,
)
from dlc.passes.tiling.variants import VARIANTS, Variant
from dlc.passes.tiling.zero_blocks import mask_operands
from dlc.target import Target

# Side of the square blocks that are transposed in registers, in elements.
_TRANSPOSE_TILE_ELEMENTS = 8
# Split up to this many row tiles evenly when the row count is dynamic.
_MAX_BALANCED_TILES = 3
# Minimum accumulator vectors that hide the FMA latency: with fewer, a k iteration waits for the previous one.
_MIN_INDEPENDENT_ACCUMULATORS = 8
# Minimum length of a reduction for which an operand is scanned for leading and trailing zeros.
_MIN_ZERO_TRIMMED_STEPS = 32


def choose_tiles(nest: StaticLoopNest, target: Target, variant: Variant = VARIANTS[0], exact: bool = False) -> TilePlan:
    """Return the plan for a nest on a CPU target; `exact` forbids plans that skip products with zeros."""
    chooser = _TileChooser(nest, target, variant, exact)
    return chooser.skip_zeros(chooser.plan())


class _TileChooser(TileRules):
    """Choose the plan of any nest."""

    def plan(self) -> TilePlan:
        """Return the plan of a nest: the first of the specialized plans that applies, or the default rules."""
        nest = self.nest
        shared_dims = nest.shared_dims
        if any(op.has_indirect_loads for op in nest.ops):
            register = self.indirect_load_tile()
            order = (*(d for d in shared_dims if d not in register), *register)
            return TilePlan(self.grid(register, order), register, order, {d: 1 for d in self.private_dims()})
        if (constant_product_plan := self.plan_constant_products()) is not None:
            return constant_product_plan
        if (cache_blocked_plan := CacheBlockingChooser(nest, self.target, self.variant, self.exact).plan()) is not None:
            return cache_blocked_plan
        if (attention := self.plan_attention()) is not None:
            return attention
        contraction = next((op for op in nest.ops if op.is_contraction), None)
        lane = lane_dim(nest, contraction or nest.ops[-1])
        lane = None if contraction is None and self.vectorizes_reduction(lane) else lane
        if contraction is not None and lane in shared_dims:
            register = self.contraction_tile(contraction, lane)
        elif lane in shared_dims:
            register = self.transpose_tile(lane) or {lane: self.lane_tile(lane)}
            self.add_rows(register, shared_dims)
        else:
            register = {}
        order = self.order(shared_dims, lane)
        chunks = self.chunks(lane if lane in shared_dims else None)
        grid, steps = self.grid(register, order), self.steps(register, lane)
        plan = TilePlan(grid, register, order, chunks, steps)
        return plan if contraction is None or lane not in register else self.balance_dynamic_rows(plan, contraction, lane)

    def plan_constant_products(self) -> TilePlan | None:
        """Return a plan for products with constant matrices, such as Winograd transforms; None for other nests.

        A register tile computes all rows of a product, since rows share subexpressions, in as many vectors as fit registers.
        Rows of the result are far apart in memory and often map to the same cache sets. So the tile also spans adjacent
        positions, up to the number whose intermediate values fit the L1 cache, and writes one row at all positions before
        the next row. The lane dimension is the innermost loop.
        """
        products = {
            k: p for k, op in enumerate(self.nest.ops) if (p := match_constant_matrix_product(op, self.nest)) is not None
        }
        first_position = min(products, default=None)
        lane = None if first_position is None else lane_dim(self.nest, self.nest.ops[first_position])
        if first_position is None or lane not in self.nest.shared_dims or any(lane == p.row for p in products.values()):
            return None
        lanes = self.lanes(self.nest.ops[first_position])
        vectors = max(1, self.target.vector_registers // max(sum(p.shape) for p in products.values()))
        extent, rows = self.nest.extents, {p.row for p in products.values()}
        columns = divisor_tile(-(-extent[lane] // lanes), min(vectors, self.target.costs.vectors)) * lanes
        register = {lane: self.fitting(lane, columns)} | {d: extent[d] for d in rows if d in self.nest.shared_dims}
        steps = self.steps(register, lane)
        other_dims = [d for d in self.nest.shared_dims if d not in register and d not in self.nest.dynamic_dims]
        for d in sorted(other_dims, key=self.nest.ops[-1].output.stride)[:1]:
            register[d] = self.positions_in_l1(list(products.values()), extent[d], register[lane])
        for k, nest_op in enumerate(self.nest.ops):
            p = products.get(k)
            whole_dims = [p.row] if p is not None else [d for d in rows if d not in self.nest.shared_dims and d in nest_op.dims]
            single_step_dims = [d for d in register if d != lane and d in nest_op.dims and d not in whole_dims]
            steps[k] = {**steps.get(k, {}), **{d: 1 for d in single_step_dims}, **{d: extent[d] for d in whole_dims}}
        order = (*(d for d in self.order(self.nest.shared_dims, lane) if d != lane), lane)
        return TilePlan(self.grid(register, order, _full_tiles_per_task), register, order, self.chunks(lane), steps)

    def positions_in_l1(self, products: Sequence[ConstantMatrixProduct], extent: int, columns: int) -> int:
        """Return the number of adjacent positions, of `columns` lanes each, whose intermediate values fit the L1 cache.

        Prefers a divisor of the extent between half and twice that number, because a remainder needs separate code.
        """
        costs, size = self.target.costs, numpy_dtype(products[0].element).itemsize
        product_bytes = max(n for p in products for n in p.shape) ** 2 * columns * size
        max_positions = max(1, costs.cache_ways * costs.way_bytes * 2 // (3 * product_bytes))
        divisors = [n for n in range(max(max_positions // 2, 1), 2 * max_positions) if extent % n == 0]
        return max(
            (n for n in divisors if n <= max_positions), default=min(divisors, default=divisor_tile(extent, max_positions))
        )

    def balance_dynamic_rows(self, plan: TilePlan, nest_op: NestOp, lane: int) -> TilePlan:
        """Return the plan with tasks that split the dynamic rows of the contraction evenly; unchanged without dynamic rows."""
        register = plan.register
        dynamic_rows = [
            d for d in register if d in self.nest.dynamic_dims and d != lane and register[d] <= MAX_DYNAMIC_TILE_ROWS
        ]
        grid = {d: max(size, register[d] * _MAX_BALANCED_TILES) if d in dynamic_rows else size for d, size in plan.grid.items()}
        # With `exact`, the order of additions must not change: no second set of accumulators.
        min_rows = 1 if self.exact else -(-_MIN_INDEPENDENT_ACCUMULATORS * self.lanes(nest_op) // register[lane])
        return replace(plan, grid=grid, balance_threshold=min_rows) if dynamic_rows else plan

    def skip_zeros(self, plan: TilePlan) -> TilePlan:
        """Extend a plan to skip products with zeros and masked tiles.

        Without `exact`, 0 · x counts as 0, although x may be NaN or ∞.
        """
        nest, nest_op = self.nest, leading_contraction(self.nest)
        if nest_op is None or nest.dynamic_dims or plan.fused_loops or not nest.zeros:
            return plan

        def may_have_zeros(a: AffineAccess | None) -> bool:
            return a is not None and a.root in nest.zeros

        long_extents = [nest.extents[d] for d in nest_op.reductions if nest.extents[d] >= _MIN_ZERO_TRIMMED_STEPS]
        trimmable_operands = (k for k, a in enumerate(nest_op.accesses[:-1]) if may_have_zeros(a) and not self.exact)
        zero_trimmed_operand = next(trimmable_operands, None) if long_extents and len(nest_op.reductions) == 1 else None
        last = nest.ops[-1]
        if plan.blocks or len(nest.ops) != 3:
            return replace(plan, zero_trimmed_operand=zero_trimmed_operand)
        masks = (
            k for k, value in mask_operands(last) if may_have_zeros(last.accesses[k]) and not (self.exact and value is None)
        )
        return replace(plan, zero_trimmed_operand=zero_trimmed_operand, mask_operand=next(masks, None))

    def plan_attention(self) -> TilePlan | None:
        """Return a fused-attention plan; None if the second of two contractions does not reduce the lanes of the first."""
        nest, attention = self.nest, match_attention(self.nest)
        if attention is None:
            return None
        first = nest.ops[attention.first]
        lanes = self.lanes(first)
        row_dim = min((d for d in nest.shared_dims if first.output.uses(d)), key=lambda d: first.output.stride(d), default=None)
        if row_dim is None:
            return None
        tile_rows = row_tile(
            nest.extents[row_dim], (self.target.vector_registers - OPERAND_REGISTERS) // 2, MIN_LATENCY_HIDING_ACCUMULATORS / 2
        )
        chooser_class = TransposedAttentionChooser if attention.is_transposed else AttentionChooser
        chooser = chooser_class(nest, self.target, attention, row_dim, tile_rows, lanes, self.exact)
        register, order = {row_dim: chooser.queries_per_task()}, self.order(nest.shared_dims, None)
        return TilePlan(
            self.grid(register, order),
            register,
            order,
            fused_loops=tuple(chooser.fused_loops()),
            online_softmax=chooser.online_softmax(),
        )

    def indirect_load_tile(self) -> dict[int, int]:
        """Return a vector tile along the dimension that all indirect loads read contiguously; empty without one."""
        dims = {op.contiguous_load_dim for op in self.nest.ops if op.has_indirect_loads}
        lane = dims.pop()
        if dims or lane is None or lane not in self.nest.shared_dims or lane != lane_dim(self.nest, self.nest.ops[-1]):
            return {}
        return {lane: self.lane_tile(lane)}

    def private_dims(self) -> list[int]:
        """Return the private dimensions, which only one op iterates over."""
        return [d for d in self.nest.extents if d not in self.nest.shared_dims]

    def transpose_tile(self, lane: int) -> dict[int, int]:
        """Return a square tile to transpose in registers, if an operand is contiguous along another dimension than the result.

        Empty for other nests.
        """
        nest_ops, extents = self.nest.ops, self.nest.extents
        strided_accesses = [a for op in nest_ops for a in op.inputs if a.uses(lane) and a.stride(lane) != 1]
        contiguous_dims = {d for a in strided_accesses for d in self.nest.shared_dims if a.stride(d) == 1}
        has_reductions = any(op.reductions for op in nest_ops)
        if (
            has_reductions
            or len(contiguous_dims) != 1
            or min(extents[lane], extents[d := min(contiguous_dims)]) < _TRANSPOSE_TILE_ELEMENTS
        ):
            return {}
        return {lane: self.fitting(lane, 2 * _TRANSPOSE_TILE_ELEMENTS), d: self.fitting(d, _TRANSPOSE_TILE_ELEMENTS)}

    def vectorizes_reduction(self, lane: int | None) -> bool:
        """Return whether to vectorize the last reduction instead of `lane`, because its operands are strided along `lane`."""
        nest_op = next((op for op in reversed(self.nest.ops) if op.reductions), self.nest.ops[-1])
        # An operand with one element per row, such as a mean, is loaded once per row, so its stride does not matter.
        reduced_accesses = [a for a in nest_op.inputs if any(map(a.uses, nest_op.reductions))]
        if lane in nest_op.reductions or any(a.stride(lane) == 1 for a in reduced_accesses if lane is not None):
            return False
        contiguous_reductions = [
            d for d in nest_op.reductions if any(a.stride(d) == 1 for a in nest_op.inputs) and self.can_split_all(nest_op, d)
        ]
        return any(self.nest.extents[d] >= max(self.lanes(nest_op), _TRANSPOSE_TILE_ELEMENTS) for d in contiguous_reductions)

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


def _full_tiles_per_task(steps: int, min_tiles: int) -> int:
    """Return a divisor of `steps` from `min_tiles` to four times that, so that all tasks are full; else a near-even split.

    A partial task needs separate code.
    """
    return next((n for n in range(min_tiles, 4 * min_tiles) if steps % n == 0), divisor_tile(steps, min_tiles))
