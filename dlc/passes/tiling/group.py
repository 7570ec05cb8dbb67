"""The stages of a nest on the tile of a group: shared out to its items, which meet at barriers.

Three ways. Each item computes its own register tile, without the others. A *team* shares the work along the dimensions of
single stages: what one stage leaves, the items read behind a barrier. The third, of contractions, is in `contract.py`.

Barriers stand where all items come by, and outside of branches, where drivers get them right. So what is ragged is guarded
stage by stage: behind a guard an item computes a part of its tile, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from dlc.dialects.unrolled import ROLLED
from dlc.dialects.workgroup import WORKGROUP
from dlc.dims import Size
from dlc.ir import SSAValue, UnitAttr, gpu
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.leaf import Continuation, Leaf, Local
from dlc.passes.tiling.nests import Nest, Stage, identity_of, initial_of
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.ranges import Range, Tile, whole_or_end
from dlc.passes.tiling.windows import Window, combine, copy, fill
from dlc.passes.types import memref_of

# What an item of a team adds up between two barriers.
_WAYS = 8
# Rounds of a team that are code of their own each, and rows of a matrix that an item reads at once.
_ROUNDS, _TOGETHER = 4, 8


class Group:
    """The items of a grid's point: `place` is where their code goes; buffers that they share stand before them.

    `lengths` are the extents that are known only when the kernel runs.
    """

    def __init__(self, nest: Nest, plan: TilePlan, task: Place, ragged: Sequence[int], lengths: Mapping[int, Size]) -> None:
        self.nest = nest
        self.plan = plan
        self.lengths = lengths
        # Where the last group has less to do than the others.
        self.ragged = ragged
        # Who multiplies matrices with others is told by the number alone.
        self.axes = [(plan.order[-1], prod((plan.items or {}).values()))] if plan.matrices else _axes(nest, plan)
        loop = task.parallel("item", [(n, 1) for _, n in self.axes] or [(1, 1)], [f"t{d}" for d, _ in self.axes] or ["t"])
        arguments = loop.body.block.args
        self.place = task.inside(loop.body.block)
        self.index: dict[int, Index] = {d: i for (d, n), i in zip(self.axes, arguments, strict=False) if n > 1}
        self.count = prod(n for _, n in self.axes)
        self._before = Place(task.constants, task.block, task.location, anchor=loop)
        self._shared: dict[object, SSAValue] = {}
        # The number of an item in its group.
        self.number: Index = 0
        for (_, n), i in zip(self.axes, arguments, strict=False) if plan.promote else ():
            self.number = self.place.add(self.place.multiply(self.number, n), i)
        team = plan.team_dims(nest)
        self.team = plan.team(nest)
        in_rounds = any(plan.grid.get(d, nest.extents[d]) > plan.covered(d) for d in plan.order)
        self.repeats = in_rounds and plan.meets(nest)
        self.member: Index = self.index.get(team[0], 0) if team else 0

    def shared(self, key: object, like: SSAValue, shape: tuple[int, ...], name: str | None) -> SSAValue:
        """A buffer of the group, one for each key: code for the ends of ragged dimensions uses the same."""
        if key not in self._shared:
            self._shared[key] = self._before.alloca(memref_of(like).element_type, shape, name, WORKGROUP)
        return self._shared[key]

    def meet_again(self, place: Place) -> None:
        """A barrier before the next round, where others may still read what it overwrites."""
        if self.repeats:
            place.insert(gpu.BarrierOp())


def _axes(nest: Nest, plan: TilePlan) -> list[tuple[int, int]]:
    """The axes of the items: a dimension and its size; the team has one, called by its first dimension."""
    items, team = plan.items or {}, plan.team_dims(nest)
    return [(d, n) for d, n in items.items() if d not in team[1:]]


class GroupLeaf(Leaf):
    """All stages on the tile of a group; `tile` is an item's register tile."""

    def __init__(self, group: Group, whole: Tile) -> None:
        plan = group.plan
        apart = {*plan.order, *plan.team_dims(group.nest)}
        lengths = {d: extent for d, extent in group.lengths.items() if d not in apart}
        super().__init__(group.nest, plan, {d: Range(0, plan.tile(d)) for d in whole}, lengths)
        self.group = group
        self.own = {d: r.size for d, r in self.tile.items()}
        self.whole = {**self.tile, **whole}
        self.fresh: set[SSAValue] = set()

    def run(self, place: Place) -> None:
        for root in self.local_roots():
            self.make_local(place, root, self.own)
        if self.group.team > 1:
            for stage in self.nest.stages:
                self.team_stage(place.located(stage.op.location), stage)
        else:
            self.each_item(place, lambda p, t: self.stages(p, self.nest.stages, t))

    # One item's part

    def each_item(self, place: Place, then: Continuation) -> None:
        """Runs `then` on the part of each item, where it has one."""
        for at, whole in self.cases(place, self.whole, self.group.ragged):
            self.share_out(at, whole, self.plan.order, then)

    def cases(self, place: Place, whole: Tile, ragged: Sequence[int]) -> Iterator[tuple[Place, Tile]]:
        """What the group has to do: the same as others, or what remains at the end of a ragged dimension."""
        if not ragged:
            yield place, whole
            return
        d, *rest = ragged
        for at, part in whole_or_end(place, whole[d], self.nest.extents[d]):
            yield from self.cases(at, {**whole, d: part}, rest)

    def share_out(self, place: Place, tile: Tile, dims: Sequence[int], then: Continuation) -> None:
        """Runs `then` on the part that each item has of a tile along these dimensions, where it has one."""
        if not dims:
            then(place, tile)
            return
        d, *rest = dims
        i = self.group.index.get(d, 0)
        if d in self.group.lengths:
            at = self.inside(place, d, place.add(tile[d].offset, i))
            self.share_out(at, {**tile, d: tile[d].part(at, i, 1)}, rest, then)
            return
        for at, part in shares(place, tile[d], i, self.items(d), self.plan.tile(d)):
            self.share_out(at, {**tile, d: part}, rest, then)

    def inside(self, place: Place, d: int, at: Index) -> Place:
        """Where a place along a dimension is known to be one, if its extent is open."""
        extent = self.group.lengths.get(d)
        return place if extent is None else place.branch(place.compare(at, "ult", place.size(extent)))

    def items(self, d: int) -> int:
        return (self.plan.items or {}).get(d, 1)

    # A team

    def make_local(self, place: Place, root: SSAValue, sizes: Mapping[int, int]) -> None:
        """What a team's items leave for each other is shared; along their own dimension each keeps what it computes."""
        team = self.plan.team_dims(self.nest)
        if not team or set(team).intersection(self.axes_of(root)):
            super().make_local(place, root, {**sizes, **{d: self.kept(d) for d in team}})
            return
        sizes = self.grouped()
        dims = tuple(d for d in self.axes_of(root) if sizes[d] > 1)
        buffer = self.group.shared(root, root, tuple(sizes[d] for d in dims), root.name_hint)
        self.locals[root] = Local(buffer, dims, shared=True)

    def grouped(self) -> dict[int, int]:
        """The size of each dimension for all items of a group together, ragged or not."""
        return {d: self.plan.covered(d) if d in self.plan.order else r.size for d, r in self.tile.items()}

    def kept(self, d: int) -> int:
        """How many iterations of a team's dimension one item computes."""
        chunk = self.plan.chunks.get(d, 1)
        return chunk * -(-self.nest.extents[d] // (chunk * self.group.team))

    def team_stage(self, place: Place, stage: Stage) -> None:
        d = next((d for d in self.plan.team_dims(self.nest) if d in stage.dims), None)
        if self.is_replaced(stage):
            return
        self.meet(place, stage)
        if d is not None and d in stage.reductions:
            self.reduce(place, stage, d)
        elif d is not None:
            self.each_item(place, lambda p, t: self.spread(p, stage, t, d))
        else:
            self.each_item(place, lambda p, t: self.stages(self.alone(p, stage), [stage], t))

    def is_replaced(self, stage: Stage) -> bool:
        """Whether it fills what a team's reduction writes at its end."""
        team = self.plan.team_dims(self.nest)
        return any(s.reductions.intersection(team) and initial_of(s, self.nest) is stage for s in self.nest.stages)

    def meet(self, place: Place, stage: Stage) -> None:
        """A barrier where the stage touches what other items may have written since the last."""
        roots = {a.root for a in stage.accesses if a is not None}
        if roots & self.fresh:
            place.insert(gpu.BarrierOp())
            self.fresh.clear()
        root = stage.output.root
        if root not in self.locals or self.locals[root].shared:
            self.fresh.add(root)

    def alone(self, place: Place, stage: Stage) -> Place:
        """Where one item of a team works, and of those that would compute the same."""
        for d, i in self.group.index.items():
            if d not in stage.dims or i is self.group.member:
                place = place.branch(place.compare(i, "eq", 0))
        return place

    def is_inner(self) -> bool:
        """Whether items of one team are neighbours in memory."""
        return self.group.axes[-1][0] in self.plan.team_dims(self.nest)

    def partial_results(self, d: int) -> int:
        """Where neighbours have other results, what is reduced lies across: it has no lanes."""
        across = d in self.plan.team_dims(self.nest) and not self.is_inner()
        return 1 if across else super().partial_results(d)

    def spread(self, place: Place, stage: Stage, tile: Tile, d: int) -> None:
        """A stage along the team's dimension, each item its chunks."""
        for at, part in self.chunks(place, d):
            self.stage(at, stage, {**{x: tile[x] for x in stage.dims if x >= 0}, d: part})

    def chunks(self, place: Place, d: int, together: int = 1) -> Iterator[tuple[Place, Range]]:
        """An item's parts of a team's dimension: every so many chunks one, neighbours side by side, and several in a loop's
        step, if they are to go `together`."""
        member, n, chunk = self.group.member, self.group.team, self.plan.chunks.get(d, 1)
        if d in self.group.lengths:
            loop = place.loop(member, place.size(self.group.lengths[d]), n, name=f"j{d}")
            inside = place.inside(loop.body.block)
            yield inside, Range(loop.body.block.args[0], 1)
            inside.yield_()
            return
        rounds, rest = divmod(self.nest.extents[d], n * chunk)
        own = place.multiply(member, chunk)
        # A few rounds have no loop: what an item keeps is in registers, which have no computed numbers.
        looped = 0 if rounds <= max(_ROUNDS, together) else rounds - rounds % together
        if looped:
            # From its own place on: PoCL takes a loop that is the same for all items for one in which they meet.
            loop = place.loop(own, place.add(own, looped * n * chunk), together * n * chunk, name=f"j{d}")
            if together > 1:
                # More loads under way would take more registers than a large group has.
                loop.attributes[ROLLED] = UnitAttr()
            inside = place.inside(loop.body.block)
            for k in range(together):
                offset = inside.add(loop.body.block.args[0], k * n * chunk)
                yield inside, Range(offset, chunk, inside.multiply(inside.floordiv(offset, n * chunk), chunk))
            inside.yield_()
        for k in range(looped, rounds):
            yield place, Range(place.add(own, k * n * chunk), chunk, k * chunk)
        if rest:
            yield from shares(place, Range(rounds * n * chunk, rest, rounds * chunk), member, n, chunk)

    def reduce(self, place: Place, stage: Stage, d: int) -> None:
        """Each item reduces its chunks; then, as a tree, an eighth of the items add to what they have what the others have.

        p[t] = reduce(own chunks);  for s = team/8, …, 1: barrier;  if t < s: p[t] = combine(p[t], p[t + s], …, p[t + 7s]);
        y = p[0]
        """
        output = len(stage.op.operands) - 1
        sizes = self.grouped()
        axes = [x for x in self.axes_of(stage.output.root) if sizes[x] > 1]
        n, member = self.group.team, self.group.member
        # Items that are neighbours have neighbouring results.
        order = [*axes, d] if self.is_inner() else [d, *axes]
        shape = tuple({**sizes, d: n}[x] for x in order)
        partials = self.group.shared((stage.op, "partials"), stage.op.operands[output], shape, "partials")

        def of(p: Place, t: Tile, number: Index) -> Window:
            ranges = {**{x: Range(t[x].grouped, t[x].size) for x in axes}, d: Range(number, 1)}
            return self.window(p, partials, [(x, ranges[x]) for x in order])

        def own(p: Place, t: Tile) -> None:
            mine = of(p, t, member)
            fill(p, identity_of(stage, self.nest), mine[0])
            part = {**{x: t[x] for x in stage.dims if x >= 0}, d: self.tile[d]}
            # Loads of rows that lie apart are under way together.
            together = 1 if self.is_inner() else _TOGETHER
            self.split_reduction(p, stage, part, d, mine, self.chunks(p, d, together))

        def finish(p: Place, t: Tile) -> None:
            alone = self.alone(p, stage)
            copy(alone, of(alone, t, 0), self.operand(alone, stage, output, t))

        self.each_item(place, own)
        while n > 1:
            ways = min(_WAYS, n)
            n //= ways
            place.insert(gpu.BarrierOp())
            low = place.branch(place.compare(member, "ult", n))
            tile = self.nominal(low)
            for k in range(1, ways):
                combine(low, stage, of(low, tile, low.add(member, k * n)), of(low, tile, member))
        self.each_item(place, finish)

    def nominal(self, place: Place) -> Tile:
        """An item's register tile as if nothing were ragged: it may lie outside what there is to compute."""
        starts = {d: place.multiply(self.group.index.get(d, 0), self.plan.tile(d)) for d in self.plan.order}
        parts = {d: self.whole[d].part(place, start, self.plan.tile(d)) for d, start in starts.items()}
        return {**self.tile, **{d: Range(r.offset, r.size, 0, r.grouped) for d, r in parts.items()}}


def shares(place: Place, whole: Range, i: Index, n: int, step: int) -> Iterator[tuple[Place, Range]]:
    """The part that item `i` of `n` has of a range, `step` iterations at most: guarded where not all have the same."""
    full, rest = divmod(whole.size, step)
    if full == n or n == 1:
        # With one item what does not fill a step is all there is.
        start, size = place.multiply(i, step), step if full else rest
        yield place, Range(place.add(whole.offset, start), size, whole.within, place.add(whole.grouped, start))
        return
    start = place.multiply(i, step)
    for relation, size in (("ult", step), ("eq", rest)):
        if size and (relation == "eq" or full):
            at = place.branch(place.compare(i, relation, full))
            yield at, Range(at.add(whole.offset, start), size, whole.within, at.add(whole.grouped, start))
