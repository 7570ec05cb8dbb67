"""Stages that go through a tile together: part by part, so that a part is in registers from the first of them to the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dlc.ir import Block, BlockArgument, BoolAttr, Operation, Region, SSAValue, arith, i1, scf
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.leaf import Leaf
from dlc.passes.tiling.nests import Choice, Stage, choosing, identity_of
from dlc.passes.tiling.places import may_hold
from dlc.passes.tiling.ranges import Range, Tile, steps, steps_between
from dlc.passes.tiling.running import running_sums
from dlc.passes.tiling.running_base import RunningBase
from dlc.passes.tiling.windows import Window, combine, fill
from dlc.passes.tiling.zeros import any_of
from dlc.passes.types import memref_of


def run_stages(leaf: Leaf, place: Place) -> None:
    """All stages of a leaf's nest, in order: those of a sweep together; where sums run, block by block."""
    positions = range(len(leaf.nest.stages))
    if leaf.plan.running is None:
        _run(leaf, place, leaf.tile, positions, {})
        return
    lane, size = leaf.plan.running
    running = running_sums(leaf.nest, lane)
    assert running is not None
    last, alone = running.sums[-1], {*running.begin, *running.late}
    inside = [k for k in positions if k <= last and k not in alone]
    base = RunningBase(leaf, running, place)
    _run(leaf, place, leaf.tile, running.begin, {})
    for at, block in steps(place, leaf.tile[lane], size, f"b{lane}"):
        # Buffers have room for one block.
        tile, ends = {**leaf.tile, lane: Range(block.offset, block.size)}, dict[int, Index]()
        at = _where_shown(leaf, at, tile, lane)
        _run(leaf, at, tile, [k for k in inside if k < running.weights], ends)
        base.renew(at, tile)
        _run(leaf, at, tile, [k for k in inside if k >= running.weights], ends)
    _run(leaf, place, leaf.tile, [*running.late, *positions[last + 1 :]], {})


def _where_shown(leaf: Leaf, place: Place, tile: Tile, lane: int) -> Place:
    """Where to compute a block: the first in any case, another where places do not hide all of it."""
    shown_by, begin = [s for s in leaf.plan.sweeps if s.shown is not None], tile[lane].offset
    if not shown_by or isinstance(begin, int):
        return place
    stage, choice = next(found for s in shown_by if (found := choosing(leaf.nest.stages[s.first : s.last])) is not None)
    shown = _all(place, (may_hold(place, stage, c, tile) for c in choice.conditions))
    return place if shown is None else place.branch(place.op(arith.OrIOp(place.compare(begin, "eq", 0), shown)))


def _is_shown(place: Place, leaf: Leaf, stage: Stage, choice: Choice, tile: Tile) -> SSAValue:
    """Whether the choice that a stage makes may fall on what it computes for some element of a tile."""

    def may_be(condition: SSAValue) -> SSAValue | None:
        if isinstance(condition, BlockArgument):
            return any_of(place, leaf.operand(place, stage, condition.index, tile))
        return may_hold(place, stage, condition, tile)

    shown = _all(place, map(may_be, choice.conditions))
    return place.constants.get(BoolAttr.from_bool(True), i1) if shown is None else shown


def _all(place: Place, conditions: Iterable[SSAValue | None]) -> SSAValue | None:
    """Whether all conditions hold, of those that are known."""
    known = [c for c in conditions if c is not None]
    return reduce(lambda a, b: place.op(arith.AndIOp(a, b)), known) if known else None


def _run(leaf: Leaf, place: Place, tile: Tile, positions: Sequence[int], ends: dict[int, Index]) -> None:
    """These stages, in order: those of a sweep together, along those of its dimensions that they have.

    `ends` is how far dimensions go, once a sweep that is shown so has been asked.
    """
    stages, done = leaf.nest.stages, 0
    for sweep in leaf.plan.sweeps:
        leaf.stages(place, [stages[k] for k in positions if done <= k < sweep.first], tile)
        done = sweep.last
        if inside := [stages[k] for k in positions if sweep.first <= k < sweep.last]:
            run = _Sweep(leaf, inside, sweep.skips, ends)
            dims = {d for s in inside for d in s.dims}
            asks = sweep.shown is not None and sweep.shown[0] in dims and choosing(inside) is not None
            if sweep.shown is not None and asks and not ends:
                ends[sweep.shown[0]] = run.end(place, tile, *sweep.shown)
            run.parts(place, tile, [(d, step) for d, step in sweep.steps if d in dims], {})
    leaf.stages(place, [stages[k] for k in positions if k >= done], tile)


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

    def __init__(self, leaf: Leaf, stages: Sequence[Stage], skips: bool, ends: Mapping[int, Index]) -> None:
        self.leaf = leaf
        self.stages = stages
        self.skips = skips
        self.ends = ends

    def parts(self, place: Place, tile: Tile, loops: Sequence[tuple[int, int]], partials: Mapping[Operation, _Partial]) -> None:
        """Loops over parts of the tile, one dimension after the other; all stages on each."""
        if not loops:
            found = choosing(self.stages) if self.skips else None
            if found is None:
                self.run(place, tile, self.stages, partials)
            else:
                self.where_chosen(place, tile, *found, partials)
            return
        (d, step), *rest = loops
        split = [s for s in self.stages if d in s.reductions and not s.is_contraction]
        # Lanes along what is reduced have sums of their own.
        along = [s for s in split if any(a.stride(d) == 1 for a in s.inputs)]
        made = {s.op: self.partial(place, s, tile, d, min(step, tile[d].size)) for s in along}
        # What lies outside of the dimension is what its sums begin as.
        inside = [s for s in self.stages if not split or d in s.dims]
        for stage in self.stages:
            if stage not in inside:
                self.emit(place, stage, tile)
        sums = self.skips and self.stages[0].is_contraction
        sweep = _Sweep(self.leaf, inside, self.skips and not sums, self.ends)
        for at, part in self.steps(place, tile[d], d, step):
            inner = {**tile, d: part}
            sweep.parts(self.where_not_zero(at, inner) if sums else at, inner, rest, {**partials, **made})
        for stage in along:
            partial = made[stage.op]
            target = self.leaf.operand(place, stage, len(stage.op.operands) - 1, tile)
            combine(place.located(stage.op.location), stage, (partial.buffer, partial.dims), target)

    def steps(self, place: Place, whole: Range, d: int, step: int) -> Iterator[tuple[Place, Range]]:
        """Where to compute each part of `step` iterations of a dimension, as far as it goes."""
        if d in self.ends:
            return steps_between(place, whole, step, 0, self.ends[d], f"j{d}")
        return steps(place, whole, step, f"j{d}")

    def end(self, place: Place, tile: Tile, d: int, size: int) -> Index:
        """Where the last part of `size` ends in which the choice that the last stage makes falls on what is computed.

        The first part is computed in any case: a row of which nothing is shown has something to be the sum of.
        """
        found = choosing(self.stages)
        assert found is not None
        last, choice = found
        main = tile[d].size - tile[d].size % size
        loop = place.loop(size, main, size, [SSAValue.get(place.value(size))], f"j{d}")
        at, (start, end) = place.inside(loop.body.block), loop.body.block.args

        def shown(at: Place, start: Index, size: int, end: SSAValue) -> SSAValue:
            part = {**tile, d: tile[d].part(at, start, size)}
            seen = _is_shown(at, self.leaf, last, choice, part)
            return at.op(arith.SelectOp(seen, at.value(at.add(start, size)), end))

        at.yield_(shown(at, start, size, end))
        end = loop.results[0]
        return shown(place, main, tile[d].size - main, end) if tile[d].size > main else end

    def run(self, place: Place, tile: Tile, stages: Iterable[Stage], partials: Mapping[Operation, _Partial]) -> None:
        """Some stages on one part."""
        for stage in stages:
            if stage.op not in partials:
                self.emit(place, stage, tile)
                continue
            partial = partials[stage.op]
            window = self.leaf.window(place, partial.buffer, partial.parts(place, tile))
            self.emit(place, stage, tile, {len(stage.op.operands) - 1: window})

    def where_chosen(
        self, place: Place, tile: Tile, last: Stage, choice: Choice, partials: Mapping[Operation, _Partial]
    ) -> None:
        """All stages, those up to `last` where the choice that it makes falls on what they compute for some element."""
        seen, hidden = Block(), Block()
        end = self.stages.index(last) + 1
        chosen = _is_shown(place, self.leaf, last, choice, tile)
        place.insert(scf.IfOp(chosen, [], Region(seen), Region(hidden)))
        self.run(inner := place.inside(seen), tile, self.stages[:end], partials)
        inner.yield_()
        outer = place.inside(hidden)
        fill(outer, choice.otherwise, self.leaf.operand(outer, last, len(last.op.operands) - 1, tile)[0])
        outer.yield_()
        self.run(place, tile, self.stages[end:], partials)

    def where_not_zero(self, place: Place, tile: Tile) -> Place:
        """Where to compute a contraction, whose first operand is not all zeros in the part."""
        return place.branch(any_of(place, self.leaf.operand(place, self.stages[0], 0, tile)))

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
