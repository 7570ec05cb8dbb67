"""Cost model of a contraction by work-groups, in clock cycles of a compute unit, to compare plans.

A group of w warps with tiles of h × v accumulators runs through chunks of s reduction steps. Of the n groups of a
compute unit r are resident at once. Each chunk takes

    n · (w · s · work + fetching) + ⌈n / r⌉ · waiting

work: multiplying, and reading h + v elements per item from local memory; the two overlap except for a share of the
shorter one. A group waits at barriers and for its fetches; the more warps are resident, the more of that is hidden.
The constants are the device's (`GroupContractionCosts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import NestStage, StaticLoopNest
from dlc.passes.tiling.plan import TilePlan
from dlc.target import Target


def cost_of_contraction(plan: TilePlan, nest: StaticLoopNest, stage: NestStage, target: Target) -> float:
    """Return the cycles of a plan, to compare plans of one nest on a target with work-groups."""
    assert target.groups is not None
    device = target.costs.groups.contractions
    ((d, step),) = plan.promote.items()
    items = prod((plan.items or {}).values())
    item_extents = {x: plan.tile(x) * plan.tiles_per_item.get(x, 1) for x in plan.order}
    input_dims = [[x for x in plan.order if a.uses(x)] for a in stage.inputs]
    sums = prod(item_extents.values())
    item_loads = sum(_loads_per_step(plan, dims, device.scalar_load_factor) for dims in input_dims)
    fetched_elements = sum(prod(plan.group_tile(x) for x in dims) for dims in input_dims) * step
    cost_factors = [device.scalar_load_factor if _is_misaligned(a) else 1.0 for a in stage.inputs]
    fetch_cost = (
        sum(prod(plan.group_tile(x) for x in dims) * n for dims, n in zip(input_dims, cost_factors, strict=True)) * step
    )
    count = prod(-(-nest.extents[x] // plan.group_tile(x)) for x in plan.order)
    registers = sums + 2 * item_loads + fetched_elements / items + device.overhead_registers
    groups_per_unit = -(-count // target.groups.units)
    resident_groups = max(
        1, min(groups_per_unit, int(device.registers // (items * registers)), device.max_resident_items // items)
    )
    warps = -(-items // device.warp_items)
    multiply, local = device.multiply * sums, device.local_load * item_loads
    work = step * (max(multiply, local) + device.exposed_share * min(multiply, local))
    # Warps are distributed over the parts of a compute unit: some parts have one more.
    busy_warps = -(-groups_per_unit * warps // device.schedulers) * device.schedulers
    num_chunks = prod(nest.extents[x] for x in stage.reductions if x != d) * -(-nest.extents[d] // step)
    rounds = -(-groups_per_unit // resident_groups)
    waiting = (device.stall + device.stall_per_step * step) / (1 + resident_groups * warps / device.latency_hiding_warps)
    return (
        num_chunks * (busy_warps * work + groups_per_unit * device.global_load * fetch_cost + rounds * waiting)
        + rounds * device.group_start
    )


def _is_misaligned(a: AffineAccess) -> bool:
    """Return whether rows of an operand start where four elements cannot be loaded at once."""
    return any(not isinstance(t.stride, int) or t.stride % 4 for t in a.terms if t.stride != 1)


def _loads_per_step(plan: TilePlan, dims: Sequence[int], scalar_load_factor: float) -> float:
    """Return the loads of an operand per item and step, in multi-element loads."""
    count = prod(plan.tile(x) * plan.tiles_per_item.get(x, 1) for x in dims)
    return count * (scalar_load_factor if dims and plan.tile(dims[-1]) % 2 else 1)
