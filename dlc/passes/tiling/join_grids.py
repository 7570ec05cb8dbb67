"""Grids of a kernel that do not depend on one another, as one.

Where items of one of them meet, the points of the others are shared out to all of its items, which compute them first; no
barrier comes to stand behind a branch, where some drivers get it wrong:

    scf.parallel (%i0) = 0 to 56 {level = "grid"} { scf.parallel (%t0) = 0 to 64 {level = "item"} { …, gpu.barrier, … } }
    scf.parallel (%i1) = 0 to 17 {level = "grid"} { scf.parallel (%t1) = 0 to 31 {level = "item"} { A } }
  →
    scf.parallel (%i0) = 0 to 56 {level = "grid"} {
      scf.parallel (%t0) = 0 to 64 {level = "item"} {
        %point = %i0 · 64 + %t0
        scf.if (%point < 527) { A at (%point floordiv 31, %point mod 31) }
        …, gpu.barrier, … } }

Where none meet, their groups, which have as many items then, share a range of numbers:

    scf.parallel (%group) = 0 to 61 {level = "grid"} {
      scf.if (%group < 56) {
        scf.parallel (%t0) = 0 to 64 {level = "item"} { … }
      } else {
        scf.parallel (%item) = 0 to 64 {level = "item"} {
          %point = (%group - 56) · 64 + %item
          scf.if (%point < 527) { A at … } } } }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dlc.dialects.sizes import size_of
from dlc.dialects.workgroup import is_workgroup
from dlc.dims import Size, product
from dlc.ir import Operation, StringAttr, func, gpu, memref, scf
from dlc.passes.structured import Constants, Index, Place
from dlc.passes.tiling.independent import Touched


@dataclass(frozen=True)
class _Grid:
    """A grid of groups, and the loop over the items of one."""

    op: scf.ParallelOp
    items: scf.ParallelOp

    @staticmethod
    def of(op: scf.ParallelOp) -> _Grid:
        loops = (o for o in op.body.block.ops if o.attributes.get("level") == StringAttr("item"))
        return _Grid(op, cast(scf.ParallelOp, next(loops)))

    @property
    def groups(self) -> Size:
        return product(points(self.op))

    @property
    def count(self) -> int:
        """The items of a group."""
        return int(product(points(self.items)))

    @property
    def meets(self) -> bool:
        """Whether its items wait for one another, or share memory."""
        ops = list(self.op.walk())
        shares = any(is_workgroup(o.memref) for o in ops if isinstance(o, memref.AllocaOp))
        return shares or any(isinstance(o, gpu.BarrierOp) for o in ops)

    def groups_of(self, count: int) -> Size:
        """How many groups of so many items its points are."""
        return self.groups if count == self.count else _parts(self.groups * self.count, count)


def points(op: scf.ParallelOp) -> list[Size]:
    """How many points a parallel loop from zero on has along each axis."""
    return [_parts(size_of(high), int(size_of(step))) for high, step in zip(op.upperBound, op.step, strict=True)]


def _parts(size: Size, step: int) -> Size:
    """⌈size / step⌉, of natural numbers alone: a kernel divides no others."""
    return (size + (step - 1)) // step


def join_grids(kernel: func.FuncOp, touched: dict[Operation, Touched], constants: Constants) -> None:
    """Joins neighbours among a kernel's grids of groups; what each of them touches is said."""
    for run in _runs(kernel, touched):
        meeting = next((g for g in run if g.meets), None)
        if len(run) > 1 and meeting is not None:
            _share(meeting, run, constants)
        elif len(run) > 1:
            _Ranges(run, constants).write()


def _runs(kernel: func.FuncOp, touched: dict[Operation, Touched]) -> list[list[_Grid]]:
    """Grids that may be one, in order."""
    runs: list[list[_Grid]] = [[]]
    for op in kernel.body.block.ops:
        if op not in touched:
            # Other code with effects, or that sees those of grids, stays where it is between them.
            if op.regions or not op.results or isinstance(op, memref.LoadOp):
                runs.append([])
            continue
        grid, run = _Grid.of(cast(scf.ParallelOp, op)), runs[-1]
        if sum(g.meets for g in (*run, grid)) > 1 or not all(touched[op].is_independent(touched[g.op]) for g in run):
            runs.append([])
        runs[-1].append(grid)
    return runs


def _share(meeting: _Grid, run: Sequence[_Grid], constants: Constants) -> None:
    """Shares out points of the other grids of a run to the items of the one that meet."""
    block, outside, last = meeting.items.body.block, meeting.op.parent, run[-1].op
    first = block.first_op
    assert first is not None and outside is not None
    if meeting.op is not last:
        # Views of what the others write may stand between them.
        meeting.op.detach()
        outside.insert_op_before(meeting.op, last)
    for grid in run:
        if grid is meeting:
            continue
        place = Place(constants, block, grid.op.location, anchor=first)
        groups, items = _number(place, meeting.op), _number(place, meeting.items)
        own = place.add(place.multiply(groups, meeting.count), items)
        total, at_once = grid.groups * grid.count, meeting.groups * meeting.count
        if isinstance(total, int) and isinstance(at_once, int) and total <= at_once:
            _spread(place if total == at_once else place.branch(place.compare(own, "ult", total)), grid, own)
            continue
        # None of them runs where there is no group, but how many rounds there are is computed.
        rounds = place.quotient(place.divided(total + (at_once - 1)), place.maximum(place.divided(at_once), 1))
        loop = place.loop(0, rounds, 1, name="round")
        inside = place.inside(loop.body.block)
        step = place.value(place.divided(at_once))
        point = inside.add(inside.times(step, loop.body.block.args[0]), own)
        _spread(inside.branch(inside.compare(point, "ult", inside.divided(total))), grid, point)
        inside.yield_()


def _spread(place: Place, grid: _Grid, point: Index) -> None:
    """One of a grid's points, those of each group in turn."""
    _move(place, grid.op, place.floordiv(point, grid.count))
    _move(place, grid.items, place.remainder(point, grid.count))


class _Ranges:
    """Grids whose items do not meet, group behind group."""

    def __init__(self, grids: Sequence[_Grid], constants: Constants) -> None:
        self.grids = grids
        self.count = max(g.count for g in grids)
        self.sizes = [g.groups_of(self.count) for g in grids]
        last = grids[-1].op
        block = last.parent
        assert block is not None
        self.place = Place(constants, block, last.location, anchor=last)

    def write(self) -> None:
        loop = self.place.parallel("grid", [(sum(self.sizes, 0), 1)], ["group"])
        place, group = self.place.inside(loop.body.block), loop.body.block.args[0]
        first: Size = 0
        at = place
        for k, (grid, size) in enumerate(zip(self.grids, self.sizes, strict=True)):
            inner = at.located(grid.op.location)
            number = inner.subtract(group, inner.divided(first))
            first = first + size
            inside = inner
            if k + 1 < len(self.grids):
                inside, at = inner.either(inner.compare(group, "ult", inner.divided(first)))
            if grid.count == self.count:
                _move(inside, grid.op, number)
            else:
                self.points(inside, grid, number)
        place.insert(scf.ReduceOp())

    def points(self, place: Place, grid: _Grid, group: Index) -> None:
        """The points of a grid, spread over groups of another size."""
        loop = place.parallel("item", [(self.count, 1)], ["item"])
        inside = place.inside(loop.body.block)
        point = inside.add(inside.multiply(group, self.count), loop.body.block.args[0])
        _spread(inside.branch(inside.compare(point, "ult", inside.divided(grid.groups * grid.count))), grid, point)
        inside.insert(scf.ReduceOp())


def _move(place: Place, loop: scf.ParallelOp, number: Index) -> None:
    """Moves the body of a parallel loop to where one of its points is computed; the loop goes."""
    block = loop.body.block
    for argument, value in zip(block.args, _digits(place, loop, number), strict=True):
        place_of = place.value(value)
        if place_of.name_hint is None:
            place_of.name_hint = argument.name_hint
        argument.replace_all_uses_with(place_of)
    for op in list(block.ops):
        if op is not block.last_op:
            op.detach()
            place.located(op.location).insert(op)
    loop.detach()
    loop.erase()


def _digits(place: Place, loop: scf.ParallelOp, number: Index) -> list[Index]:
    """The induction variables of point `number` of a parallel loop, row-major."""
    sizes, found = points(loop), list[Index]()
    for size, step in reversed(list(zip(sizes, map(size_of, loop.step), strict=True))):
        digit = number
        if len(found) + 1 < len(sizes):
            by = place.divided(size)
            number, digit = _divided(place, number, by)
        found.insert(0, place.multiply(digit, int(step)))
    return found


def _number(place: Place, loop: scf.ParallelOp) -> Index:
    """The number of the point of a parallel loop that a place is in, row-major."""
    number: Index = 0
    for induction, size, step in zip(loop.body.block.args, points(loop), map(size_of, loop.step), strict=True):
        by = place.divided(size)
        number = place.multiply(number, by) if isinstance(by, int) else place.times(by, number)
        number = place.add(number, place.floordiv(induction, int(step)))
    return number


def _divided(place: Place, a: Index, b: Index) -> tuple[Index, Index]:
    """⌊a / b⌋ and what remains, of an index that is not negative by one that is not zero."""
    if isinstance(b, int):
        return place.floordiv(a, b), place.remainder(a, b)
    whole = place.quotient(a, b)
    return whole, place.subtract(a, place.times(whole, b))
