"""What a contraction by groups costs, in clock cycles of a unit of the device; plans are compared by it.

A group of w warps with tiles of h × v sums goes through parts of s steps of what is reduced. Of the groups that come to a unit,
n, it has r at once. For each part it takes

    n · (w · s · work + fetching) + ⌈n / r⌉ · waiting

work: multiplying, and reading h + v numbers for each item from local memory, which go on at the same time but for a share of
the shorter one. Where its items meet, and until what they fetch has come, a group waits: the less of that is seen the more
warps there are.

Fitted to the times of 172 plans for 21 products on an H100 and an H200, of which they are 9 % off in the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.passes.tiling.access import Access
from dlc.passes.tiling.nests import Nest, Stage
from dlc.passes.tiling.plan import TilePlan
from dlc.target import Groups

# Items that run in step, and the parts of a unit, each of which runs some of these.
_WARP, _PARTS = 32, 4
# Sums and other numbers that the items of a unit keep at once, and how many items there can be; what an item needs besides.
_REGISTERS, _MOST_ITEMS, _OWN_REGISTERS = 1 << 16, 2048, 24
# Cycles of a unit for a multiply-add of each item of a warp, for a number that each of them reads from local memory, and for
# one that the group has from global memory.
_MULTIPLY, _LOCAL, _GLOBAL = 0.25, 0.63, 0.084
# Numbers that are read one by one, since those of an item begin anywhere, cost so much more.
_ONE_BY_ONE = 2.25
# Of the shorter of multiplying and reading this share is not hidden.
_UNHIDDEN = 0.13
# Cycles in which a group waits between two parts, for each step of a part besides, and the warps that hide half of it.
_WAITING, _STEP, _HIDING = 274.0, 3.6, 8.2
# Cycles in which a group starts and ends.
_START = 3300.0


def cost_of_contraction(plan: TilePlan, nest: Nest, stage: Stage, groups: Groups) -> float:
    """The cycles of a plan, of which those of different plans for a nest can be compared."""
    ((d, step),) = plan.promote.items()
    items = prod((plan.items or {}).values())
    own = {x: plan.tile(x) * plan.pieces.get(x, 1) for x in plan.order}
    read = [[x for x in plan.order if a.uses(x)] for a in stage.inputs]
    sums = prod(own.values())
    loads = sum(_read(plan, dims) for dims in read)
    fetched = sum(prod(plan.covered(x) for x in dims) for dims in read) * step
    each_by_one = [_ONE_BY_ONE if _lies_apart(a) else 1.0 for a in stage.inputs]
    fetching = sum(prod(plan.covered(x) for x in dims) * n for dims, n in zip(read, each_by_one, strict=True)) * step
    count = prod(-(-nest.extents[x] // plan.covered(x)) for x in plan.order)
    registers = sums + 2 * loads + fetched / items + _OWN_REGISTERS
    each = -(-count // groups.units)
    at_once = max(1, min(each, int(_REGISTERS // (items * registers)), _MOST_ITEMS // items))
    warps = -(-items // _WARP)
    multiply, local = _MULTIPLY * sums, _LOCAL * loads
    work = step * (max(multiply, local) + _UNHIDDEN * min(multiply, local))
    # Each part of a unit has warps of its own: some have one more.
    busy = -(-each * warps // _PARTS) * _PARTS
    parts = prod(nest.extents[x] for x in stage.reductions if x != d) * -(-nest.extents[d] // step)
    rounds = -(-each // at_once)
    waiting = (_WAITING + _STEP * step) / (1 + at_once * warps / _HIDING)
    return parts * (busy * work + each * _GLOBAL * fetching + rounds * waiting) + rounds * _START


def _lies_apart(a: Access) -> bool:
    """Whether rows of an operand begin where no four elements are read at once."""
    return any(not isinstance(t.stride, int) or t.stride % 4 for t in a.terms if t.stride != 1)


def _read(plan: TilePlan, dims: Sequence[int]) -> float:
    """What of an operand an item reads for each step, as numbers of which several are read at once."""
    count = prod(plan.tile(x) * plan.pieces.get(x, 1) for x in dims)
    return count * (_ONE_BY_ONE if dims and plan.tile(dims[-1]) % 2 else 1)
