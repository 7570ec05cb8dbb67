"""Prefetch rows of attention: the results of a task and the queries of the next one, while softmax weights are computed."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.prefetch import L2_READ_HINTS
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.attention.fused_attention import FusedAttention, FusedLoop
from dlc.passes.tiling.iteration_ranges import Tile
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.types import memref_of


class RowPrefetcher:
    """Prefetch the rows of an operand for all queries of a task, a few cache lines in each step of a fused loop.

    The rows are those of the task whose first query is `query_offset` queries after that of the current one.
    """

    def __init__(
        self, nest: SizedLoopNest, plan: FusedAttention, operand: tuple[NestOp, int], loop: FusedLoop, query_offset: int
    ) -> None:
        nest_op, k = operand
        self.plan, self.query_offset = plan, query_offset
        self.source, self.axes = nest_op.operands[k], nest_op.axes(k)
        access = nest_op.accesses[k]
        assert access is not None
        self.row_dim = next(d for d in self.axes if access.stride(d) == 1)
        self.line_elements = ALIGNMENT_BYTES // numpy_dtype(memref_of(self.source).element_type).itemsize
        self.lines_per_row = -(-nest.extents[self.row_dim] // self.line_elements)
        # Triples of a dimension, its step and the number of steps, outermost first.
        sizes = {**nest.extents, plan.query_dim: plan.queries}
        self.steps = [(d, step, -(-sizes[d] // step)) for d, step in loop.steps]
        self.lines_per_step = -(-self.lines_per_row * plan.queries // prod(count for _, _, count in self.steps))

    def emit(self, builder: OpBuilder, tile: Tile) -> None:
        """Emit the prefetches of one step."""
        query = tile[self.plan.query_dim]
        position: Index = 0
        for d, step, count in self.steps:
            offset = query.tile_offset if d == self.plan.query_dim else tile[d].offset
            position = builder.add(builder.multiply(position, count), builder.floordiv(offset, step))
        first_query = builder.add(builder.subtract(query.offset, query.tile_offset), self.query_offset)
        first_line = builder.multiply(position, self.lines_per_step)
        for n in range(self.lines_per_step):
            line = builder.add(first_line, n)
            coordinates = {d: tile[d].offset for d in self.axes}
            coordinates[self.plan.query_dim] = builder.add(first_query, builder.floordiv(line, self.lines_per_row))
            coordinates[self.row_dim] = builder.multiply(builder.remainder(line, self.lines_per_row), self.line_elements)
            builder.prefetch(self.source, [coordinates[d] for d in self.axes], L2_READ_HINTS)


def row_prefetchers(nest: SizedLoopNest, plan: FusedAttention, weights: int, key_dim: int) -> Iterator[RowPrefetcher]:
    """Yield the prefetchers of the queries and results, for the fused loop that computes the softmax weights."""
    loop = next(loop for loop in plan.fused_loops if loop.first <= weights < loop.end)
    last = nest.ops[-1]
    operands = [(op, k) for op in nest.ops for k in op.input_accesses if not op.is_fill] + [(last, last.output_position)]
    local_buffers = nest.local_buffers()
    for nest_op, k in operands:
        access = nest_op.accesses[k]
        assert access is not None
        private_dims = [d for d in nest_op.axes(k) if d not in nest.shared_dims]
        has_rows = access.uses(plan.query_dim) and len(private_dims) == 1 and private_dims[0] != key_dim
        is_row = has_rows and access.stride(private_dims[0]) == 1 and all(t.is_plain for t in access.terms)
        is_result = nest_op is last and k == last.output_position
        if is_row and access.root not in local_buffers:
            yield RowPrefetcher(nest, plan, (nest_op, k), loop, 0 if is_result else plan.queries)
