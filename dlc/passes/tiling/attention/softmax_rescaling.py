"""Rescale the sums of an online softmax after a block with a larger maximum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Block, FloatAttr, Region, SSAValue, arith, linalg
from dlc.passes.structured import OpBuilder
from dlc.passes.tiling.attention.fused_attention import FusedLoop
from dlc.passes.tiling.attention.online_softmax import OnlineSoftmaxOps
from dlc.passes.tiling.buffer_views import BufferView, fill, generic
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, nested_steps
from dlc.passes.tiling.loop_nests import initial_fill
from dlc.passes.tiling.tile_body import TileBody
from dlc.passes.types import memref_of


class SoftmaxRescaling:
    """The shift of each row: the running maximum of its scores, clamped to the lowest finite value.

    If all scores so far are -∞, their weights are exp(-∞) = 0, as for scores that are far below the maximum.
    """

    def __init__(
        self, tile_body: TileBody, fused_loops: Sequence[FusedLoop], online_softmax: OnlineSoftmaxOps, builder: OpBuilder
    ) -> None:
        self.tile_body = tile_body
        self.fused_loops = fused_loops
        self.online_softmax = online_softmax
        self.maximum, self.weights = (tile_body.nest.ops[k] for k in (online_softmax.maximum, online_softmax.weights))
        maximum = tile_body.local_buffers[self.maximum.output.root]
        self.dims = maximum.dims
        self.element = memref_of(maximum.buffer).element_type
        lowest = float(np.finfo(numpy_dtype(self.element)).min)
        self.lowest = builder.constants.get(FloatAttr(lowest, cast(Any, self.element)), self.element)
        self.shift, self.factor = (
            builder.alloca(self.element, memref_of(maximum.buffer).get_shape(), n) for n in ("base", "factor")
        )
        fill(builder, self.lowest, self.shift)
        tile_body.copies[self.weights.op, online_softmax.maximum_operand] = partial(self.row_view, self.shift)

    def row_view(self, buffer: SSAValue, builder: OpBuilder, tile: Tile) -> BufferView:
        """Return the view of a buffer with one element per row."""
        return self.tile_body.subview(
            builder, buffer, [(d, IterationRange(tile[d].tile_offset, tile[d].size)) for d in self.dims]
        )

    def rescale(self, builder: OpBuilder, tile: Tile) -> None:
        """Update the shift, and rescale all sums by the quotient of the old and new weights.

        factor = exp(shift − max(maximum, lowest));  shift = max(maximum, lowest);  sum = sum · factor
        """
        maximum, axes = self.tile_body.output_view(builder, self.maximum, tile)
        shift_view, maximum_view, factor_view = ((buffer, axes) for buffer in (self.shift, maximum, self.factor))
        generic(builder, [shift_view, maximum_view, factor_view], axes, self.body(builder, 3, self.rescaling_factor))
        generic(builder, [maximum_view, shift_view], axes, self.body(builder, 2, self.clamped_maximum))
        for k in self.online_softmax.sums:
            self.scale_sum(builder, k, tile)

    def scale_sum(self, builder: OpBuilder, k: int, tile: Tile) -> None:
        """Multiply a sum by the factors of its rows, in loops with the steps of its initial fill."""
        nest = self.tile_body.nest
        nest_op = nest.ops[k]
        fill_op = initial_fill(nest_op, nest)
        assert fill_op is not None
        fill_position = nest.ops.index(fill_op)
        fill_loop = next((loop for loop in self.fused_loops if loop.first <= fill_position < loop.end), None)
        step_sizes = {d: step for d, step in fill_loop.steps if d in fill_op.dims} if fill_loop is not None else {}
        for body_builder, step_tile in nested_steps(builder.with_location(nest_op.op.location), tile, step_sizes):
            destination = self.tile_body.output_view(body_builder, nest_op, step_tile)
            factor = self.row_view(self.factor, body_builder, step_tile)
            generic(body_builder, [factor, destination], destination[1], self.body(body_builder, 2, _product))

    def body(self, builder: OpBuilder, num_args: int, formula: Callable[[OpBuilder, Sequence[SSAValue]], SSAValue]) -> Region:
        """Return a body with `num_args` arguments that yields a formula of them."""
        region = Region(Block(arg_types=[self.element] * num_args))
        body_builder = builder.at_block_end(region.block)
        body_builder.insert(linalg.YieldOp(formula(body_builder, region.block.args)))
        return region

    def clamped_maximum(self, builder: OpBuilder, x: Sequence[SSAValue]) -> SSAValue:
        return builder.op(arith.MaximumfOp(x[0], self.lowest))

    def rescaling_factor(self, builder: OpBuilder, x: Sequence[SSAValue]) -> SSAValue:
        """Return exp(shift − new maximum), computed by the formula of the weights."""
        shift, maximum, _ = x
        block = self.weights.body
        values: dict[SSAValue, SSAValue] = dict(zip(block.args, x, strict=True))
        values |= {
            block.args[self.online_softmax.score_operand]: shift,
            block.args[self.online_softmax.maximum_operand]: self.clamped_maximum(builder, [maximum]),
        }
        *formula, _ = block.ops
        for op in formula:
            builder.insert(op.clone(values))
        return values[formula[-1].results[0]]


def _product(builder: OpBuilder, x: Sequence[SSAValue]) -> SSAValue:
    return builder.op(arith.MulfOp(x[0], x[1]))
