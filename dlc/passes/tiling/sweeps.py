"""Stages that go along one dimension together: part by part, so that a part is in registers from the first to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.ir import SSAValue
from dlc.passes.structured import Place, memref_of
from dlc.passes.tiling.leaf import Leaf, Range, Tile, combine, fill, steps, without_units
from dlc.passes.tiling.nests import Stage, identity_of
from dlc.passes.tiling.plan import Sweep


def run_stages(leaf: Leaf, place: Place, sweeps: Sequence[Sweep]) -> None:
    """All stages of a leaf's nest, in order: those of a sweep together."""
    stages, done = leaf.nest.stages, 0
    for sweep in sweeps:
        leaf.stages(place, stages[done : sweep.first], leaf.tile)
        _Sweep(leaf, stages[sweep.first : sweep.last], sweep.dim, sweep.step).rows(place, leaf.tile, list(sweep.rows))
        done = sweep.last
    leaf.stages(place, stages[done:], leaf.tile)


@dataclass(frozen=True)
class _Partial:
    """Partial results of a reduction along the sweep: `kept` are the dimensions of its axes, before the sweep's."""

    stage: Stage
    buffer: SSAValue
    kept: tuple[int, ...]


class _Sweep:
    """`stages` in parts of `step` along dimension `dim`; what is reduced along it is combined from as many partial results."""

    def __init__(self, leaf: Leaf, stages: Sequence[Stage], dim: int, step: int) -> None:
        self.leaf = leaf
        self.stages = stages
        self.dim = dim
        self.step = min(step, leaf.tile[dim].size)

    def rows(self, place: Place, tile: Tile, dims: Sequence[int]) -> None:
        """Goes one by one along other dimensions first."""
        if dims:
            d, *rest = dims
            for at, one in steps(place, tile[d], 1, f"j{d}"):
                self.rows(at, {**tile, d: one}, rest)
            return
        # What is outside of the dimension is what results of the sweep begin as.
        for stage in self.stages:
            if self.dim not in stage.dims:
                self.emit(place, stage, tile)
        partials = {s.op: self.partial(place, s, tile) for s in self.stages if self.dim in s.reductions}
        for at, part in steps(place, tile[self.dim], self.step, f"j{self.dim}"):
            for stage in self.stages:
                if self.dim in stage.dims:
                    self.part(at, stage, {**tile, self.dim: part}, partials.get(stage.op))
        for partial in partials.values():
            stage, axes = partial.stage, [*partial.kept, *([self.dim] if self.step > 1 else [])]
            target = self.leaf.operand(place, stage, len(stage.op.operands) - 1, tile)
            combine(place.located(stage.op.location), stage, (partial.buffer, axes), target)

    def partial(self, place: Place, stage: Stage, tile: Tile) -> _Partial:
        _, dims = self.leaf.operand(place, stage, len(stage.op.operands) - 1, tile)
        shape = (*(tile[d].size for d in dims), *([self.step] if self.step > 1 else []))
        buffer = place.alloca(memref_of(stage.op.operands[-1]).element_type, shape, "partial")
        fill(place, identity_of(stage, self.leaf.nest), buffer)
        return _Partial(stage, buffer, tuple(dims))

    def part(self, place: Place, stage: Stage, tile: Tile, partial: _Partial | None) -> None:
        if partial is None:
            self.emit(place, stage, tile)
            return
        window, axes, size = partial.buffer, [*partial.kept], tile[self.dim].size
        if self.step > 1:
            kept = [tile[d].size for d in partial.kept]
            window = without_units(place, place.subview(window, [0] * (len(kept) + 1), (*kept, size)))
            axes += [self.dim] if size > 1 else []
        self.emit(place, stage, tile, {len(stage.op.operands) - 1: (window, axes)})

    def emit(self, place: Place, stage: Stage, tile: Tile, windows: dict[int, tuple[SSAValue, Sequence[int]]] | None = None) -> None:
        own = {d: tile[d] for d in stage.dims if d >= 0}
        self.leaf.emit(place.located(stage.op.location), stage, own, windows)
