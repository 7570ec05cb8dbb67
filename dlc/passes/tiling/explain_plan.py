"""Describe a tile plan as text: each entry and its purpose on the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.loop_nests import StaticLoopNest
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.types import memref_of
from dlc.target import Target


def explain_plan(nest: StaticLoopNest, plan: TilePlan, target: Target) -> Iterator[str]:
    """Yield the lines of text that describe a plan."""
    shared_dims, extents = nest.shared_dims, nest.extents
    reduced_dims = sorted({d for op in nest.ops for d in op.reductions})
    contraction = next((op for op in nest.ops if op.is_contraction), None)
    kind = "a contraction" if contraction is not None else "row-wise reductions" if reduced_dims else "elementwise"
    reduction_text = f", reduced over {_product(reduced_dims, extents)}" if reduced_dims else ""
    ops_text = "1 op" if len(nest.ops) == 1 else f"{len(nest.ops)} ops"
    yield f"{kind}, {ops_text} over {_product(shared_dims, extents)}{reduction_text}"
    nest_op = contraction or nest.ops[-1]
    lane = next((d for d in plan.register if nest_op.output.stride(d) == 1), None)
    if plan.register:
        lanes = target.lanes(max(4, numpy_dtype(memref_of(nest_op.op.operands[-1]).element_type).itemsize))
        width = plan.register.get(lane, 1) if lane is not None else 1
        vectors = prod(plan.register.values()) // width * -(-width // lanes)
        tile = " × ".join(f"d{d}: {size}" for d, size in plan.register.items())
        vector_dim_text = f", vectors along d{lane}, which is contiguous in memory" if lane is not None else ""
        yield f"register tile {tile}: {vectors} of {target.vector_registers} registers of {lanes} lanes{vector_dim_text}"
    for d, panel_size in nest.panel_sizes.items():
        yield f"d{d} in packed panels of {panel_size}"
    if plan.items is None:
        num_tasks = prod(-(-extents[d] // size) for d, size in plan.grid.items())
        grid_text = " × ".join(f"d{d}: {size}" for d, size in plan.grid.items()) or "all"
        reason = f"a task should have at least about {target.costs.task_work:,} multiply-adds"
        yield f"{num_tasks} {'task' if num_tasks == 1 else 'tasks'} of {grid_text}: {reason}"
    else:
        yield f"work-groups of {prod(plan.items.values())} work-items: " + " × ".join(
            f"d{d}: {n}" for d, n in plan.items.items()
        )
    if plan.chunks:
        yield "chunk sizes along dimensions of a single op: " + ", ".join(f"d{d}: {size}" for d, size in plan.chunks.items())
    if plan.tiles_per_item:
        yield "register tiles per work-item, interleaved with those of the other work-items: " + _sizes(
            plan.tiles_per_item.items()
        )
    if plan.matrix_tile is not None:
        yield f"matrix units, 32 work-items each: {plan.matrix_tile}"
    if plan.promote:
        yield "promoted to local memory, shared by the work-items of a group: " + _sizes(plan.promote.items())
    if plan.panels:
        operands = ", ".join(map(str, plan.panels))
        yield f"operands {operands} packed into panels, because many tiles read them and their rows exceed a cache"
    if plan.macro_tile:
        yield f"macro tile (its packed operands fit a cache): {_sizes(plan.macro_tile.items())}"
    if plan.blocks:
        yield f"cache blocks of the reduction, shared by all tiles: {_sizes(plan.blocks.items())}"
    if plan.prefetch:
        prefetched_unit = "block" if plan.blocks else "matrix product of the batch"
        yield f"operands {', '.join(map(str, plan.prefetch))} of the next {prefetched_unit} are prefetched"
    if plan.zero_trimmed_operand is not None:
        yield f"zeros of operand {plan.zero_trimmed_operand} at both ends of the reduction are skipped at run time"
    if plan.mask_operand is not None:
        yield f"register tiles where operand {plan.mask_operand} of the last op is all zeros are skipped"
    if plan.online_softmax is not None:
        d, size = plan.online_softmax
        yield f"online softmax: d{d} in blocks of {size} that fit the cache; each block rescales earlier sums"
    if contraction is not None and len(plan.order) > 1 and lane is not None:
        if plan.order[-1] == lane:
            yield f"loop order: d{lane} innermost (all panels for a few rows, then the next rows)"
        else:
            yield f"loop order: d{lane} outside of the rows (all rows for one panel, then the next panel)"


def _product(dims: Iterable[int], extents: Mapping[int, int]) -> str:
    return " × ".join(f"d{d} = {extents[d]}" for d in dims) or "one element"


def _sizes(items: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"d{d}: {size}" for d, size in items)
