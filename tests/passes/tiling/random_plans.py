"""Random legal plans: all of them compute the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlc.passes.tiling.attention.choose_fused_loops import FusedLoopChooser
from dlc.passes.tiling.attention.choose_transposed_fused_loops import TransposedFusedLoopChooser
from dlc.passes.tiling.attention.fused_attention import FusedAttention, FusedLoop
from dlc.passes.tiling.attention.match_attention import AttentionOps, match_attention
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.blocking.zero_skipping import mask_operands
from dlc.passes.tiling.groups.cooperative_tiles import CooperativeTiles
from dlc.passes.tiling.groups.group_tiles import GroupTiles
from dlc.passes.tiling.groups.promoted_tiles import PromotedTiles
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, leading_reduction, promoted_contraction
from dlc.passes.tiling.plan_kinds import DevicePlan, ThreadPlan
from dlc.passes.tiling.tasks.task_tiles import TaskTiles
from dlc.passes.tiling.tasks.variants import VARIANTS
from dlc.passes.tiling.tile_sizes import fitting_tile
from dlc.target import CPU_LEVELS


def random_plan(nest: SizedLoopNest, rng: np.random.Generator) -> ThreadPlan:
    """Return a random plan that its `check` accepts."""
    shared, known = nest.shared_dims, nest.specialize({})
    plan = TaskTiles(**random_tiles(nest, rng), steps=random_steps(nest, rng))
    if (attention := match_attention(known)) is not None:
        return random_attention(known, attention, plan, rng)
    reduction = leading_reduction(nest)
    if reduction is None or rng.random() < 0.5:
        return plan
    extents = nest.extents
    inputs = enumerate(reduction.accesses[:-1]) if reduction.is_contraction else ()
    plain = [k for k, a in inputs if a is not None and a.terms and all(t.is_plain for t in a.terms)]
    blocks = {d: size(rng, extents[d]) for d in sorted(reduction.reductions) if rng.random() < 0.7}
    hides = (
        [k for k, _ in mask_operands(nest.ops[-1])] if reduction.is_contraction and len(nest.ops) == 3 and not blocks else []
    )
    panels = tuple(k for k in plain if rng.random() < 0.7)
    macro_tile = {d: plan.tile(d) * int(rng.integers(1, 4)) for d in shared if panels and rng.random() < 0.5}
    in_rows = [k for k in plain if any(reduction.accesses[k].stride(d) == 1 for d in shared)]
    has_next = any(n < extents[d] for d, n in blocks.items()) or any(map(reduction.is_batch_dim, shared))
    trims = plain and len(reduction.reductions) == 1 and rng.random() < 0.5
    return BlockedTiles(
        grid=plan.grid,
        order=plan.order,
        register=plan.register,
        chunks={d: n for d, n in plan.chunks.items() if d not in reduction.reductions},
        steps=plan.steps,
        blocks=blocks,
        panels=panels,
        macro_tile=macro_tile,
        prefetch=tuple(k for k in in_rows if rng.random() < 0.5) if has_next else (),
        zero_trimmed_operand=int(rng.choice(plain)) if trims else None,
        mask_operand=int(rng.choice(hides)) if hides else None,
    )


def size(rng: np.random.Generator, limit: int) -> int:
    return int(rng.integers(1, limit + 1))


def random_tiles(nest: SizedLoopNest, rng: np.random.Generator) -> dict[str, Any]:
    """Return a random grid, order, register tile and chunks."""
    shared, extents, periods = nest.shared_dims, nest.extents, nest.panel_sizes
    register = {d: min(periods[d], extents[d]) if d in periods else size(rng, min(extents[d], 20)) for d in shared}
    register |= {d: fitting_tile(nest, d, register[d]) for d in nest.repeat_counts if d in shared}
    grid = {d: min(extents[d], register[d] * size(rng, -(-extents[d] // register[d]))) for d in shared if rng.random() < 0.7}
    private = [d for d in extents if d not in shared and not any(op.indexed_dims for op in nest.ops)]
    chunks = {d: size(rng, extents[d]) for d in private if rng.random() < 0.7}
    return {"grid": grid, "register": register, "order": tuple(rng.permutation(shared).tolist()), "chunks": chunks}


def random_steps(nest: SizedLoopNest, rng: np.random.Generator) -> dict[int, dict[int, int]]:
    return {
        k: {d: size(rng, 20) for d in nest.shared_dims if d in op.dims and rng.random() < 0.5}
        for k, op in enumerate(nest.ops)
        if not op.reductions
    }


def random_attention(
    nest: SizedLoopNest, attention: AttentionOps, tiles: TaskTiles, rng: np.random.Generator
) -> FusedAttention:
    """Return a random plan of attention with the order and one tile size of other tiles."""
    query_dim = nest.shared_dims[-1]
    queries = tiles.tile(query_dim)
    key_dim, period = attention.key_dim, nest.panel_sizes.get(attention.key_dim, 1)
    sizes = [n for n in range(1, nest.extents[key_dim] + 1) if n % period == 0]
    grid = {d: n if d == query_dim else size(rng, nest.extents[d]) for d, n in tiles.grid.items()}
    return FusedAttention(
        grid=grid,
        order=tiles.order,
        query_dim=query_dim,
        queries=queries,
        online_softmax=(key_dim, int(rng.choice(sizes))) if rng.random() < 0.5 else None,
        prefetches_rows=bool(rng.random() < 0.5),
        fused_loops=random_fused_loops(nest, attention, rng),
    )


def random_fused_loops(nest: SizedLoopNest, sums: AttentionOps, rng: np.random.Generator) -> tuple[FusedLoop, ...]:
    """Return fused loops of two contractions with random steps."""
    packed = nest.panel_sizes

    def step(d: int, nest_ops: Sequence[NestOp]) -> int:
        read = any(t.modulus for op in nest_ops for a in op.inputs for t in a.terms if t.iterator == d)
        sizes = [n for n in range(1, nest.extents[d] + 1) if not read or packed[d] % n == 0]
        return int(rng.choice(sizes))

    kind = TransposedFusedLoopChooser if sums.is_transposed else FusedLoopChooser
    chooser = kind(nest, CPU_LEVELS["cpu:avx2"], VARIANTS[0], False, sums, nest.shared_dims[-1], 6)
    # Masked parts may be skipped, and rows may end at the last unmasked part, in whole steps of all fused loops.
    skips, ends = rng.random() < 0.7, rng.random() < 0.7
    unmasked = (sums.key_dim, step(sums.key_dim, nest.ops)) if ends else None

    def drawn(fused_loop: FusedLoop) -> FusedLoop:
        steps = [(d, step(d, nest.ops[fused_loop.first : fused_loop.end])) for d, _ in fused_loop.steps]
        if unmasked is not None:
            steps = [unmasked if d == sums.key_dim else (d, size) for d, size in steps]
        return replace(fused_loop, steps=tuple(steps), skips_masked=fused_loop.skips_masked and skips, unmasked=unmasked)

    return tuple(map(drawn, chooser.fused_loops()))


def random_group_plan(nest: SizedLoopNest, rng: np.random.Generator) -> DevicePlan:
    """Return a random plan for work-groups: independent items, cooperating items, or promoted operands."""
    tiles = random_tiles(nest, rng)
    items = {d: int(rng.integers(1, 5)) for d in nest.shared_dims if rng.random() < 0.8}
    kind, contraction = rng.choice(["independent", "cooperative", "promoted"]), promoted_contraction(nest)
    if kind == "promoted" and contraction is not None:
        d = int(rng.choice(sorted(contraction.reductions)))
        return in_one_round(
            nest,
            PromotedTiles(
                **tiles,
                items=items,
                promoted_dim=d,
                chunk_size=size(rng, nest.extents[d]),
                tiles_per_item={d: int(rng.integers(2, 4)) for d in nest.shared_dims if rng.random() < 0.4},
            ),
        )
    scatter_dims = {op.scatter_dim for op in nest.ops}
    private = [d for d in nest.extents if d not in nest.shared_dims and d not in scatter_dims]
    # At most one dimension of each op.
    dims, covered_ops = list[int](), set[int]()
    for d in rng.permutation(private).tolist() if kind == "cooperative" else ():
        positions = {k for k, op in enumerate(nest.ops) if d in op.dims}
        if not positions & covered_ops and nest.can_split(d):
            dims.append(d)
            covered_ops |= positions
    if not dims:
        return in_one_round(nest, GroupTiles(**tiles, items=items))
    return in_one_round(
        nest,
        CooperativeTiles(
            **tiles,
            items=items,
            cooperative_dims=tuple(dims),
            num_cooperating=int(2 ** rng.integers(1, 4)),
            are_adjacent=bool(rng.random() < 0.5),
        ),
    )


def in_one_round(nest: SizedLoopNest, plan: GroupTiles) -> GroupTiles:
    """Return the plan with one round of all work-items along dimensions with a partial group, as barriers need."""
    extents = nest.extents
    grid = {d: min(plan.group_tile(d), extents[d]) if extents[d] % n else n for d, n in plan.grid.items()}
    return replace(plan, grid=grid)
