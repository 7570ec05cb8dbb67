"""Cost model of contractions by work-groups, in clock cycles of a compute unit, to compare plans.

A group has w warps, whose work-items have tiles of h × v accumulators, and runs the reduction in chunks of s k iterations. Of
the n groups of a compute unit, r are resident at once. Each chunk takes

    n · (w · s · work + fetch) + ⌈n / r⌉ · wait

cycles. `work` multiplies, and reads h + v elements per work-item from local memory; the two overlap, except for a fraction
of the shorter one. `wait` is the time at barriers and for fetches, of which resident warps hide a part. The
constants are the device's (`GroupContractionCosts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.target import Target


def cost_of_contraction(plan: PromotedTiles, nest: SizedLoopNest, nest_op: NestOp, target: Target) -> float:
    """Return the estimated cycles of a plan on a target with work-groups."""
    assert target.groups is not None
    costs = target.costs.groups.contractions
    d, step = plan.promoted_dim, plan.chunk_size
    items = plan.num_items
    item_extents = {x: plan.tile(x) * plan.tiles_per_item.get(x, 1) for x in plan.order}
    input_dims = [[x for x in plan.order if a.uses(x)] for a in nest_op.inputs]
    accumulators = prod(item_extents.values())
    item_loads = sum(_loads_per_k_iteration(plan, dims, costs.scalar_load_factor) for dims in input_dims)
    fetched_elements = sum(prod(plan.group_tile(x) for x in dims) for dims in input_dims) * step
    cost_factors = [costs.scalar_load_factor if _is_misaligned(a) else 1.0 for a in nest_op.inputs]
    fetch_cost = (
        sum(prod(plan.group_tile(x) for x in dims) * n for dims, n in zip(input_dims, cost_factors, strict=True)) * step
    )
    num_groups = prod(-(-nest.extents[x] // plan.group_tile(x)) for x in plan.order)
    registers = accumulators + 2 * item_loads + fetched_elements / items + costs.overhead_registers
    groups_per_unit = -(-num_groups // target.groups.units)
    resident_groups = max(
        1, min(groups_per_unit, int(costs.registers // (items * registers)), costs.max_resident_items // items)
    )
    warps = -(-items // costs.warp_items)
    multiply, local_loads = costs.multiply * accumulators, costs.local_load * item_loads
    work = step * (max(multiply, local_loads) + costs.exposed_share * min(multiply, local_loads))
    # The schedulers of a compute unit share the warps; the slowest one has the rounded-up share.
    busy_warps = -(-groups_per_unit * warps // costs.schedulers) * costs.schedulers
    num_chunks = prod(nest.extents[x] for x in nest_op.reductions if x != d) * -(-nest.extents[d] // step)
    rounds = -(-groups_per_unit // resident_groups)
    wait = (costs.stall + costs.stall_per_step * step) / (1 + resident_groups * warps / costs.latency_hiding_warps)
    return (
        num_chunks * (busy_warps * work + groups_per_unit * costs.global_load * fetch_cost + rounds * wait)
        + rounds * costs.group_start
    )


def _is_misaligned(a: AffineAccess) -> bool:
    """Return whether rows of an operand are not aligned to vector loads of four elements."""
    return any(not isinstance(t.stride, int) or t.stride % 4 for t in a.terms if t.stride != 1)


def _loads_per_k_iteration(plan: PromotedTiles, dims: Sequence[int], scalar_load_factor: float) -> float:
    """Return the vector loads of an operand per work-item and k iteration."""
    count = prod(plan.tile(x) * plan.tiles_per_item.get(x, 1) for x in dims)
    return count * (scalar_load_factor if dims and plan.tile(dims[-1]) % 2 else 1)
