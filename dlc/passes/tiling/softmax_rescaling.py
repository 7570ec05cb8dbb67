"""The shift of an online softmax, and the rescaling of earlier sums after a block with a larger maximum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import AffineDimExpr, AffineMap, Block, FloatAttr, Region, SSAValue, arith, linalg
from dlc.passes.structured import OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, fill, generic
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, steps
from dlc.passes.tiling.loop_nests import initial_fill
from dlc.passes.tiling.online_softmax import OnlineSoftmaxStages
from dlc.passes.tiling.tile_body import TileBody
from dlc.passes.types import memref_of


class SoftmaxRescaling:
    """The running maximum of each row's scores, clamped to the lowest finite value.

    If all scores so far are -∞ their weights are exp(-∞) = 0, as if finite scores had preceded them.
    """

    def __init__(self, tile_body: TileBody, online_softmax: OnlineSoftmaxStages, builder: OpBuilder) -> None:
        self.tile_body = tile_body
        self.online_softmax = online_softmax
        self.maximum, self.weights = (tile_body.nest.stages[k] for k in (online_softmax.maximum, online_softmax.weights))
        maximum = tile_body.local_buffers[self.maximum.output.root]
        self.dims = maximum.dims
        self.element = memref_of(maximum.buffer).element_type
        lowest = float(np.finfo(numpy_dtype(self.element)).min)
        self.lowest = builder.constants.get(FloatAttr(lowest, cast(Any, self.element)), self.element)
        self.shift, self.factor = (
            builder.alloca(self.element, memref_of(maximum.buffer).get_shape(), n) for n in ("base", "factor")
        )
        fill(builder, self.lowest, self.shift)
        tile_body.copies[self.weights.op, online_softmax.maximum_operand] = partial(self.window, self.shift)

    def window(self, buffer: SSAValue, builder: OpBuilder, tile: Tile) -> BufferView:
        return self.tile_body.window(
            builder, buffer, [(d, IterationRange(tile[d].tile_offset, tile[d].size)) for d in self.dims]
        )

    def rescale(self, builder: OpBuilder, tile: Tile) -> None:
        """factor = exp(shift − max(maximum, lowest));  shift = max(maximum, lowest);  sum = sum · factor, for all sums."""
        maximum, axes = self.tile_body.operand(builder, self.maximum, len(self.maximum.accesses) - 1, tile)
        maps, reductions = [AffineMap.identity(len(axes))] * 3, [False] * len(axes)
        generic(builder, [self.shift, maximum, self.factor], maps, reductions, self.body(builder, 3, self.rescaling_factor))
        generic(builder, [maximum, self.shift], maps[:2], reductions, self.body(builder, 2, self.clamped_maximum))
        for k in self.online_softmax.sums:
            self.scale_sum(builder, k, tile)

    def scale_sum(self, builder: OpBuilder, k: int, tile: Tile) -> None:
        """Multiply a sum by the factors of its rows, in the steps in which it was filled."""
        nest = self.tile_body.nest
        stage = nest.stages[k]
        filled = initial_fill(stage, nest)
        assert filled is not None
        initial = nest.stages.index(filled)
        loops = [
            step
            for s in self.tile_body.plan.fused_loops
            if s.first <= initial < s.last
            for step in s.steps
            if step[0] in filled.dims
        ]
        for body_builder, part in _parts(builder.with_location(stage.op.location), tile, loops):
            target, axes = self.tile_body.operand(body_builder, stage, len(stage.accesses) - 1, part)
            factor, rows = self.window(self.factor, body_builder, part)
            maps = [
                AffineMap(len(axes), 0, tuple(AffineDimExpr(list(axes).index(d)) for d in result_dims))
                for result_dims in (rows, axes)
            ]
            generic(body_builder, [factor, target], maps, [False] * len(axes), self.body(body_builder, 2, _product))

    def body(self, builder: OpBuilder, operands: int, formula: Callable[[OpBuilder, Sequence[SSAValue]], SSAValue]) -> Region:
        region = Region(Block(arg_types=[self.element] * operands))
        inside = builder.inside(region.block)
        inside.insert(linalg.YieldOp(formula(inside, region.block.args)))
        return region

    def clamped_maximum(self, builder: OpBuilder, x: Sequence[SSAValue]) -> SSAValue:
        return builder.op(arith.MaximumfOp(x[0], self.lowest))

    def rescaling_factor(self, builder: OpBuilder, x: Sequence[SSAValue]) -> SSAValue:
        """Return the weight, relative to the new maximum, of a score that equals the old shift."""
        shift, maximum, _ = x
        block = self.weights.op.regions[0].block
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


def _parts(builder: OpBuilder, tile: Tile, loops: Sequence[tuple[int, int]]) -> Iterator[tuple[OpBuilder, Tile]]:
    """Yield each part of a tile."""
    if not loops:
        yield builder, tile
        return
    (d, step), *inner_loops = loops
    for body_builder, step_range in steps(builder, tile[d], step, f"j{d}"):
        yield from _parts(body_builder, {**tile, d: step_range}, inner_loops)
