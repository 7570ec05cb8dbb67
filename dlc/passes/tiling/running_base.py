"""What exponentials of running sums are taken from, and what a block that brings a larger maximum makes of earlier sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import AffineDimExpr, AffineMap, Block, FloatAttr, Region, SSAValue, arith, linalg
from dlc.passes.structured import Place
from dlc.passes.tiling.leaf import Leaf
from dlc.passes.tiling.nests import initial_of
from dlc.passes.tiling.ranges import Range, Tile, steps
from dlc.passes.tiling.running import Running
from dlc.passes.tiling.windows import Window, fill, generic
from dlc.passes.types import memref_of


class RunningBase:
    """The most of each row's scores so far, but no less than the lowest number there is.

    Where all scores so far are -∞ their weights are exp(-∞) = 0, as if others had come before them.
    """

    def __init__(self, leaf: Leaf, running: Running, place: Place) -> None:
        self.leaf = leaf
        self.running = running
        self.maximum, self.weights = (leaf.nest.stages[k] for k in (running.maximum, running.weights))
        maximum = leaf.locals[self.maximum.output.root]
        self.dims = maximum.dims
        self.element = memref_of(maximum.buffer).element_type
        lowest = float(np.finfo(numpy_dtype(self.element)).min)
        self.lowest = place.constants.get(FloatAttr(lowest, cast(Any, self.element)), self.element)
        self.base, self.factor = (
            place.alloca(self.element, memref_of(maximum.buffer).get_shape(), n) for n in ("base", "factor")
        )
        fill(place, self.lowest, self.base)
        leaf.copies[self.weights.op, running.most] = partial(self.window, self.base)

    def window(self, buffer: SSAValue, place: Place, tile: Tile) -> Window:
        return self.leaf.window(place, buffer, [(d, Range(tile[d].within, tile[d].size)) for d in self.dims])

    def renew(self, place: Place, tile: Tile) -> None:
        """factor = exp(base − max(maximum, lowest));  base = max(maximum, lowest);  sum = sum · factor, of all sums."""
        maximum, axes = self.leaf.operand(place, self.maximum, len(self.maximum.accesses) - 1, tile)
        maps, kept = [AffineMap.identity(len(axes))] * 3, [False] * len(axes)
        generic(place, [self.base, maximum, self.factor], maps, kept, self.body(place, 3, self.weight))
        generic(place, [maximum, self.base], maps[:2], kept, self.body(place, 2, self.bounded))
        for k in self.running.sums:
            self.scale(place, k, tile)

    def scale(self, place: Place, k: int, tile: Tile) -> None:
        """Multiplies a sum by the factors of its rows, in the steps in which it was filled."""
        nest = self.leaf.nest
        stage = nest.stages[k]
        filled = initial_of(stage, nest)
        assert filled is not None
        begin = nest.stages.index(filled)
        loops = [step for s in self.leaf.plan.sweeps if s.first <= begin < s.last for step in s.steps if step[0] in filled.dims]
        for at, part in _parts(place.located(stage.op.location), tile, loops):
            target, axes = self.leaf.operand(at, stage, len(stage.accesses) - 1, part)
            factor, rows = self.window(self.factor, at, part)
            maps = [AffineMap(len(axes), 0, tuple(AffineDimExpr(list(axes).index(d)) for d in kept)) for kept in (rows, axes)]
            generic(at, [factor, target], maps, [False] * len(axes), self.body(at, 2, _product))

    def body(self, place: Place, operands: int, formula: Callable[[Place, Sequence[SSAValue]], SSAValue]) -> Region:
        region = Region(Block(arg_types=[self.element] * operands))
        inside = place.inside(region.block)
        inside.insert(linalg.YieldOp(formula(inside, region.block.args)))
        return region

    def bounded(self, place: Place, x: Sequence[SSAValue]) -> SSAValue:
        return place.op(arith.MaximumfOp(x[0], self.lowest))

    def weight(self, place: Place, x: Sequence[SSAValue]) -> SSAValue:
        """What a score that is the base has as its weight, for the maximum that there is now."""
        base, maximum, _ = x
        block = self.weights.op.regions[0].block
        values: dict[SSAValue, SSAValue] = dict(zip(block.args, x, strict=True))
        values |= {block.args[self.running.score]: base, block.args[self.running.most]: self.bounded(place, [maximum])}
        *formula, _ = block.ops
        for op in formula:
            place.insert(op.clone(values))
        return values[formula[-1].results[0]]


def _product(place: Place, x: Sequence[SSAValue]) -> SSAValue:
    return place.op(arith.MulfOp(x[0], x[1]))


def _parts(place: Place, tile: Tile, loops: Sequence[tuple[int, int]]) -> Iterator[tuple[Place, Tile]]:
    """Where to compute each part of a tile."""
    if not loops:
        yield place, tile
        return
    (d, step), *rest = loops
    for at, part in steps(place, tile[d], step, f"j{d}"):
        yield from _parts(at, {**tile, d: part}, rest)
