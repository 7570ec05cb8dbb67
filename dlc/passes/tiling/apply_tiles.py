"""Cutting a nest as its plan says: a grid of tasks, loops over register tiles, the stages on each tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dlc.dims import UndecidableError, is_multiple
from dlc.ir import Operation, scf
from dlc.passes.structured import Constants, Place
from dlc.passes.tiling.blocked import BlockedTask, TaskBuffers
from dlc.passes.tiling.contract import Contraction
from dlc.passes.tiling.group import Group, GroupLeaf
from dlc.passes.tiling.leaf import Leaf
from dlc.passes.tiling.matrices import MatrixLeaf
from dlc.passes.tiling.nests import Nest, OpenNest
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.ranges import Range, Tile, even_steps, open_steps, steps, whole_or_end
from dlc.passes.tiling.sweeps import run_stages


def apply_tiles(nest: OpenNest, plan: TilePlan, constants: Constants, sizes: Mapping[str, int] | None = None) -> scf.ParallelOp:
    """Replaces the stages of a nest, where the last one stands, by tiled code: a grid, which it returns.

    `sizes` are those that the plan is made for. Raises ValueError for an illegal plan, and UndecidableError for sizes that
    must be known.
    """
    known = nest.at(sizes or {})
    plan.check(known)
    _check_symbolic(nest, plan)
    first = nest.stages[0].op
    block = first.parent
    assert block is not None
    # Views of the nest's operands may stand between its stages: the grid goes where the last one stands.
    last = nest.stages[-1].op
    grid = _Tiler(nest, known, plan).grid(Place(constants, block, last.location, anchor=last))
    locals_ = [root.owner for root in nest.locals()]
    for stage in nest.stages:
        stage.op.detach()
        stage.op.erase(safe_erase=False)
    for op in locals_:
        assert isinstance(op, Operation)
        op.detach()
        op.erase(safe_erase=False)
    return grid


def _check_symbolic(nest: OpenNest, plan: TilePlan) -> None:
    """Raises UndecidableError for a nest in which an extent must be a number and is none."""
    alone = set(nest.symbolic).difference(nest.shared)
    for stage in nest.stages:
        kept = alone.intersection(t.iterator for t in stage.output.terms) if stage.output.root in nest.locals() else ()
        for d in kept:
            raise UndecidableError(f"a buffer of {nest.extents[d]} elements belongs to a kernel alone")
        for a in stage.accesses:
            if a is not None and any(not t.is_plain for t in a.terms if t.iterator in alone):
                raise UndecidableError("a packed axis has an extent that is known only when the kernel runs")


class _Tiler:
    def __init__(self, nest: OpenNest, known: Nest, plan: TilePlan) -> None:
        self.extents = nest.extents
        self.symbolic = set(nest.symbolic)
        self.lengths = {d: nest.extents[d] for d in nest.symbolic if d not in nest.shared}
        self.nest = known
        self.plan = plan
        self.group: Group | None = None
        self.buffers: TaskBuffers | None = None

    def grid(self, place: Place) -> scf.ParallelOp:
        extents = self.nest.extents
        blocks = {d: self.plan.grid.get(d, extents[d]) for d in self.plan.order}
        cut = [d for d in self.plan.order if blocks[d] < extents[d] or d in self.symbolic]
        bounds = [(self.extents[d], blocks[d]) for d in cut] or [(1, 1)]
        grid = place.parallel("grid", bounds, [f"i{d}" for d in cut] or ["task"])
        block = grid.body.block
        starts = dict(zip(cut, block.args, strict=False))
        tile = {d: Range(starts.get(d, 0), blocks[d]) for d in self.plan.order}
        ragged = [d for d in cut if extents[d] % blocks[d] and d not in self.symbolic]
        task = place.inside(block)
        if self.plan.is_blocked:
            self.buffers = TaskBuffers(self.nest, self.plan, task, blocks)
        if self.plan.items is None:
            self.edges(task, tile, ragged)
        else:
            # Barriers stand outside of branches: there what is ragged is told apart between them.
            meets = self.plan.meets(self.nest)
            self.group = Group(self.nest, self.plan, task, ragged if meets else (), {d: self.extents[d] for d in self.symbolic})
            self.edges(self.group.place, tile, () if meets else ragged)
            self.group.place.insert(scf.ReduceOp())
        task.insert(scf.ReduceOp())
        return grid

    def edges(self, place: Place, tile: Tile, ragged: Sequence[int]) -> None:
        """A task at the end of a ragged dimension covers what remains there: code of its own."""
        if not ragged:
            self.task(place, tile)
            return
        d, *rest = ragged
        for at, part in whole_or_end(place, tile[d], self.nest.extents[d]):
            self.edges(at, {**tile, d: part}, rest)

    def task(self, place: Place, tile: Tile) -> None:
        """What one task computes."""
        if self.buffers is not None:
            BlockedTask(self.nest, self.plan, place, tile, self.tiles, self.buffers).run()
            return
        for at, part in self.tiles(place, tile):
            # A tile is where its buffers start.
            part = {d: Range(r.offset, r.size) for d, r in part.items()}
            if self.group is None:
                leaf = Leaf(self.nest, self.plan, part, self.lengths)
                leaf.allocate(at)
                run_stages(leaf, at)
            else:
                self.group.meet_again(at)
                kind = MatrixLeaf if self.plan.matrices else Contraction if self.plan.promote else GroupLeaf
                kind(self.group, part).run(at)

    def tiles(self, place: Place, tile: Tile) -> Iterator[tuple[Place, Tile]]:
        """Loops over what is computed at once of the task's part, dimension by dimension."""
        return self._tiles(place, tile, self.plan.order)

    def _tiles(self, place: Place, tile: Tile, order: Sequence[int]) -> Iterator[tuple[Place, Tile]]:
        if not order:
            yield place, tile
            return
        d, *rest = order
        # Items of a group see by themselves what there is of an open extent.
        parts = self.parts(place, tile[d], d) if d in self.symbolic and self.group is None else None
        for at, part in parts or steps(place, tile[d], self.plan.covered(d), f"j{d}"):
            yield from self._tiles(at, {**tile, d: part}, rest)

    def parts(self, place: Place, whole: Range, d: int) -> Iterator[tuple[Place, Range]]:
        """The tiles of a task along a dimension whose extent is known only when the kernel runs."""
        extent, step = self.extents[d], self.plan.tile(d)
        if is_multiple(extent, whole.size):
            return steps(place, whole, step, f"j{d}")
        size = place.minimum(place.subtract(place.size(extent), whole.offset), whole.size)
        if self.plan.even and step > 1 and not is_multiple(extent, step):
            return even_steps(place, whole, size, step, f"j{d}")
        return open_steps(place, whole, size, step, is_multiple(extent, step), f"j{d}")
