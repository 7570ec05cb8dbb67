"""What a contraction by groups costs, in clock cycles of a unit of the device; plans are compared by it.

A part of what is reduced, of s steps, takes a group of w warps with tiles of h × v sums, of which n come to each unit and r fit
there at once:

    n · w · s · (max(h · v / 4, h + v) + …) + ⌈n / r⌉ · waiting

A unit multiplies for a warp in a quarter of a cycle, and reads a number for each of its items from local memory in one. Where
items meet, and until what they fetch has come, only other groups work.
"""

from __future__ import annotations

from math import prod

from dlc.passes.tiling.nests import Nest, Stage
from dlc.passes.tiling.plan import TilePlan
from dlc.target import Groups

# Items that run in step.
_WARP = 32
# Sums and other numbers that the items of a unit keep at once, and how many items there can be; what an item needs besides.
_REGISTERS, _MOST_ITEMS, _OWN_REGISTERS = 1 << 16, 2048, 32
# Cycles: a multiply-add, a number from local memory, a number for the group from global memory.
_MULTIPLY, _LOCAL, _GLOBAL = 0.25, 1.0, 0.15
# Of what is hidden behind the longer of the two, this share is not.
_UNHIDDEN = 0.2
# Cycles from one part to the next in which a group waits.
_WAITING = 250.0
# Cycles in which a group starts and ends.
_START = 1500.0


def cost_of_contraction(plan: TilePlan, nest: Nest, stage: Stage, groups: Groups) -> float:
    """The cycles of a plan, of which those of different plans for a nest can be compared."""
    ((d, step),) = plan.promote.items()
    items = prod((plan.items or {}).values())
    own = {x: plan.tile(x) * plan.pieces.get(x, 1) for x in plan.order}
    read = [[x for x in plan.order if a.uses(x)] for a in stage.inputs]
    sums = prod(own.values())
    loads = sum(prod(own[x] for x in dims) for dims in read)
    fetched = sum(prod(plan.covered(x) for x in dims) for dims in read) * step
    count = prod(-(-nest.extents[x] // plan.covered(x)) for x in plan.order)
    registers = sums + 2 * loads + fetched / items + _OWN_REGISTERS
    each = -(-count // groups.units)
    at_once = max(1, min(each, int(_REGISTERS // (items * registers)), _MOST_ITEMS // items))
    warps = -(-items // _WARP)
    multiply, local = _MULTIPLY * sums, _LOCAL * loads
    work = warps * step * (max(multiply, local) + _UNHIDDEN * min(multiply, local)) + _GLOBAL * fetched
    parts = prod(nest.extents[x] for x in stage.reductions if x != d) * -(-nest.extents[d] // step)
    rounds = -(-each // at_once)
    return parts * (each * work + rounds * _WAITING) + rounds * _START
