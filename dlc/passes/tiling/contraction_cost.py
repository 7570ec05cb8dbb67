"""What a contraction by groups costs, in clock cycles of a unit of the device; plans are compared by it.

A group of w warps with tiles of h × v sums goes through parts of s steps of what is reduced. Of the groups that come to a unit,
n, it has r at once. For each part it takes

    n · (w · s · work + fetching) + ⌈n / r⌉ · waiting

work: multiplying, and reading h + v numbers for each item from local memory, which go on at the same time but for a share of
the shorter one. Where its items meet, and until what they fetch has come, a group waits: the less of that is seen the more
warps there are. The numbers are the device's (`ProductsByGroups`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.passes.tiling.access import Access
from dlc.passes.tiling.nests import Nest, Stage
from dlc.passes.tiling.plan import TilePlan
from dlc.target import Target


def cost_of_contraction(plan: TilePlan, nest: Nest, stage: Stage, target: Target) -> float:
    """The cycles of a plan, of which those of different plans for a nest can be compared, on a target with groups."""
    assert target.groups is not None
    of = target.machine.groups.products
    ((d, step),) = plan.promote.items()
    items = prod((plan.items or {}).values())
    own = {x: plan.tile(x) * plan.pieces.get(x, 1) for x in plan.order}
    read = [[x for x in plan.order if a.uses(x)] for a in stage.inputs]
    sums = prod(own.values())
    loads = sum(_read(plan, dims, of.one_by_one) for dims in read)
    fetched = sum(prod(plan.covered(x) for x in dims) for dims in read) * step
    times = [of.one_by_one if _lies_apart(a) else 1.0 for a in stage.inputs]
    fetching = sum(prod(plan.covered(x) for x in dims) * n for dims, n in zip(read, times, strict=True)) * step
    count = prod(-(-nest.extents[x] // plan.covered(x)) for x in plan.order)
    registers = sums + 2 * loads + fetched / items + of.own_registers
    each = -(-count // target.groups.units)
    at_once = max(1, min(each, int(of.registers // (items * registers)), of.most_items // items))
    warps = -(-items // of.warp)
    multiply, local = of.multiply * sums, of.local * loads
    work = step * (max(multiply, local) + of.unhidden * min(multiply, local))
    # Each part of a unit has warps of its own: some have one more.
    busy = -(-each * warps // of.parts) * of.parts
    parts = prod(nest.extents[x] for x in stage.reductions if x != d) * -(-nest.extents[d] // step)
    rounds = -(-each // at_once)
    waiting = (of.waiting + of.waiting_step * step) / (1 + at_once * warps / of.hiding)
    return parts * (busy * work + each * of.far * fetching + rounds * waiting) + rounds * of.start


def _lies_apart(a: Access) -> bool:
    """Whether rows of an operand begin where no four elements are read at once."""
    return any(not isinstance(t.stride, int) or t.stride % 4 for t in a.terms if t.stride != 1)


def _read(plan: TilePlan, dims: Sequence[int], one_by_one: float) -> float:
    """What of an operand an item reads for each step, as numbers of which several are read at once."""
    count = prod(plan.tile(x) * plan.pieces.get(x, 1) for x in dims)
    return count * (one_by_one if dims and plan.tile(dims[-1]) % 2 else 1)
