"""A tile plan in sentences: what each of its numbers is good for, on this target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.nests import Nest
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.types import memref_of
from dlc.target import Target


def explain_plan(nest: Nest, plan: TilePlan, target: Target) -> Iterator[str]:
    """Why a nest is cut as it is, line by line."""
    shared, extents = nest.shared, nest.extents
    reduced = sorted({d for s in nest.stages for d in s.reductions})
    contraction = next((s for s in nest.stages if s.is_contraction), None)
    what = "a contraction" if contraction is not None else "sums along rows" if reduced else "element by element"
    summed = f", sums over {_product(reduced, extents)}" if reduced else ""
    steps = "1 step" if len(nest.stages) == 1 else f"{len(nest.stages)} steps"
    yield f"{what}, {steps} over {_product(shared, extents)}{summed}"
    stage = contraction or nest.stages[-1]
    lane = next((d for d in plan.register if stage.output.stride(d) == 1), None)
    if plan.register:
        lanes = target.lanes(max(4, numpy_dtype(memref_of(stage.op.operands[-1]).element_type).itemsize))
        wide = plan.register.get(lane, 1) if lane is not None else 1
        vectors = prod(plan.register.values()) // wide * -(-wide // lanes)
        tile = " × ".join(f"d{d}: {size}" for d, size in plan.register.items())
        along = f", vectors along d{lane}, whose elements are neighbours in memory" if lane is not None else ""
        yield f"register tile {tile}: {vectors} of {target.vector_registers} registers of {lanes} lanes{along}"
    for d, period in nest.packed_periods.items():
        yield f"d{d} goes by panels of {period}, as an operand is packed"
    if plan.items is None:
        tasks = prod(-(-extents[d] // size) for d, size in plan.grid.items())
        part = " × ".join(f"d{d}: {size}" for d, size in plan.grid.items()) or "all"
        worth = f"less than about {target.machine.task_work:,} multiply-adds is not worth a task"
        yield f"{tasks} {'task' if tasks == 1 else 'tasks'} of {part}: {worth}"
    else:
        yield f"groups of {prod(plan.items.values())} items: " + " × ".join(f"d{d}: {n}" for d, n in plan.items.items())
    if plan.chunks:
        yield "at once along dimensions of single steps: " + ", ".join(f"d{d}: {size}" for d, size in plan.chunks.items())
    if plan.pieces:
        yield "register tiles of an item, which lie apart by what all items cover with one: " + _sizes(plan.pieces.items())
    if plan.matrices is not None:
        yield f"32 items multiply matrices together: {plan.matrices}"
    if plan.promote:
        yield "brought to the group's memory, so that its items share it: " + _sizes(plan.promote.items())
    if plan.panels:
        operands = ", ".join(map(str, plan.panels))
        yield f"operands {operands} are copied in panels: they serve many tiles, and their rows would leave the cache"
    if plan.parts:
        yield f"parts of a task, of which copies stay in a cache while all columns read them: {_sizes(plan.parts.items())}"
    if plan.blocks:
        yield f"blocks of what is summed, so that what tiles share stays in a cache: {_sizes(plan.blocks.items())}"
    if plan.ahead:
        of_next = "block" if plan.blocks else "product of the batch"
        yield f"operands {', '.join(map(str, plan.ahead))} of the next {of_next} are asked for while tiles go through one"
    if plan.spans is not None:
        yield f"zeros of operand {plan.spans} are left out at both ends of what is summed, where it has some when it runs"
    if plan.hidden is not None:
        yield f"a tile is not computed where operand {plan.hidden} of the last step has nothing but zeros for it"
    if plan.running is not None:
        d, size = plan.running
        yield f"d{d} goes by blocks of {size}, all that the cache holds: maxima and sums run, weighed anew by each block"
    if contraction is not None and len(plan.order) > 1 and lane is not None:
        if plan.order[-1] == lane:
            yield f"d{lane} innermost: all panels of it pass by a few rows before the next are read"
        else:
            yield f"d{lane} before rows: one panel of it serves all of them before the next is read"


def _product(dims: Iterable[int], extents: Mapping[int, int]) -> str:
    return " × ".join(f"d{d} = {extents[d]}" for d in dims) or "one element"


def _sizes(items: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"d{d}: {size}" for d, size in items)
