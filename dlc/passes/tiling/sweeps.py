"""Stages that go through a tile together: part by part, so that a part is in registers from the first of them to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.ir import Operation, SSAValue
from dlc.passes.structured import Index, Place, memref_of
from dlc.passes.tiling.leaf import Leaf, Range, Tile, Window, combine, fill, steps
from dlc.passes.tiling.nests import Stage, identity_of
from dlc.passes.tiling.plan import Sweep


def run_stages(leaf: Leaf, place: Place, sweeps: Sequence[Sweep]) -> None:
    """All stages of a leaf's nest, in order: those of a sweep together."""
    stages, done = leaf.nest.stages, 0
    for sweep in sweeps:
        leaf.stages(place, stages[done : sweep.first], leaf.tile)
        _Sweep(leaf, stages[sweep.first : sweep.last]).parts(place, leaf.tile, sweep.steps, {})
        done = sweep.last
    leaf.stages(place, stages[done:], leaf.tile)


@dataclass(frozen=True)
class _Partial:
    """Partial results of a reduction along `reduced`: the dimensions of the buffer's axes, and the tile that it is for."""

    buffer: SSAValue
    dims: Sequence[int]
    reduced: int
    tile: Tile

    def parts(self, place: Place, tile: Tile) -> list[tuple[int, Range]]:
        """Where the results for a part of the tile are."""

        def start(d: int) -> Index:
            base, here = self.tile[d].within, tile[d].within
            return 0 if d == self.reduced or here is base else place.subtract(here, base)

        return [(d, Range(start(d), tile[d].size)) for d in self.dims]


class _Sweep:
    """The stages of a sweep. What is no contraction and reduces a dimension keeps as many partial results as a part has."""

    def __init__(self, leaf: Leaf, stages: Sequence[Stage]) -> None:
        self.leaf = leaf
        self.stages = stages

    def parts(self, place: Place, tile: Tile, loops: Sequence[tuple[int, int]], partials: Mapping[Operation, _Partial]) -> None:
        """Loops over parts of the tile, one dimension after the other; all stages on each."""
        if not loops:
            for stage in self.stages:
                if stage.op not in partials:
                    self.emit(place, stage, tile)
                    continue
                partial = partials[stage.op]
                window = self.leaf.window(place, partial.buffer, partial.parts(place, tile))
                self.emit(place, stage, tile, {len(stage.op.operands) - 1: window})
            return
        (d, step), *rest = loops
        split = [s for s in self.stages if d in s.reductions and not s.is_contraction]
        made = {s.op: self.partial(place, s, tile, d, min(step, tile[d].size)) for s in split}
        # What lies outside of the dimension is what its sums begin as.
        inside = [s for s in self.stages if not split or d in s.dims]
        for stage in self.stages:
            if stage not in inside:
                self.emit(place, stage, tile)
        sweep = _Sweep(self.leaf, inside)
        for at, part in steps(place, tile[d], step, f"j{d}"):
            sweep.parts(at, {**tile, d: part}, rest, {**partials, **made})
        for stage in split:
            partial = made[stage.op]
            target = self.leaf.operand(place, stage, len(stage.op.operands) - 1, tile)
            combine(place.located(stage.op.location), stage, (partial.buffer, partial.dims), target)

    def partial(self, place: Place, stage: Stage, tile: Tile, d: int, step: int) -> _Partial:
        _, kept = self.leaf.operand(place, stage, len(stage.op.operands) - 1, tile)
        dims = [*kept, *([d] if step > 1 else [])]
        shape = tuple(step if axis == d else tile[axis].size for axis in dims)
        buffer = place.alloca(memref_of(stage.op.operands[-1]).element_type, shape, "partial")
        fill(place, identity_of(stage, self.leaf.nest), buffer)
        return _Partial(buffer, dims, d, tile)

    def emit(self, place: Place, stage: Stage, tile: Tile, windows: Mapping[int, Window] | None = None) -> None:
        own = {d: tile[d] for d in stage.dims if d >= 0}
        self.leaf.emit(place.located(stage.op.location), stage, own, windows)
