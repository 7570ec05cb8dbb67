"""Choose a tile plan on a device with work-groups (GPU).

The rules follow published GPU practice, with constants measured on an H100 and an H200: adjacent work-items access
adjacent memory, four elements per load; in a contraction, each work-item has a tile of accumulators in registers, and
operands are in local memory; work-items cooperate on reductions along contiguous memory; and there are enough
work-items to occupy the whole device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.choose_matrix_unit_tiles import choose_matrix_unit_tiles
from dlc.passes.tiling.contraction_cost import cost_of_contraction
from dlc.passes.tiling.loop_nests import NestOp, StaticLoopNest, can_split, lane_dim
from dlc.passes.tiling.plan import TilePlan, divisor_tile, fitting_tile, promoted_contraction, vector_divisor_tile
from dlc.passes.types import memref_of
from dlc.target import Target, WorkGroups

# Work-items of the smallest group that amortizes its launch; group sizes are multiples of it.
_MIN_GROUP_ITEMS = 32
# Contiguous elements per load of a work-item.
_VECTOR_ELEMENTS = 4
# Adjacent work-items whose loads cover one memory line.
_ITEMS_PER_MEMORY_LINE = 8
# Minimum length of a reduction on which work-items cooperate.
_MIN_COOPERATIVE_STEPS = 64
# Work-items of a group that cooperates.
_COOPERATIVE_GROUP_ITEMS = 128
# Groups per compute unit that run concurrently.
_RESIDENT_GROUPS_PER_UNIT = 4
# Candidate register tiles of a contraction (rows, columns), and candidate numbers of work-items along both.
_REGISTER_TILES = ((8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (1, 4))
_GROUP_SHAPES = ((16, 16), (8, 16), (16, 8), (8, 8), (4, 16), (4, 8))
# Candidate numbers of output rows per work-item that share the weights of a sliding window.
_WINDOW_ROWS_PER_ITEM = (4, 2)
# Maximum elements of a cooperating work-item in private memory.
_MAX_PRIVATE_ELEMENTS = 64
# Candidate numbers of k iterations per chunk of operands in local memory.
_REDUCTION_CHUNK_STEPS = (8, 16, 32)
# Maximum unrolled multiply-adds of a work-item per chunk; more of them were slower on the measured GPUs.
_MAX_UNROLLED_MULTIPLY_ADDS = 1024
# Minimum matrix rows per cooperating work-item.
_MIN_MATRIX_ROWS_PER_ITEM = 8
# The group limits for a naive plan if the target defines none.
_DEFAULT_GROUPS = WorkGroups(64, 0)


def choose_group_tiles(nest: StaticLoopNest, target: Target) -> TilePlan:
    """Return the plan for a nest on a target with work-groups."""
    assert target.groups is not None
    return choose_matrix_unit_tiles(nest, target) or _GroupTileChooser(nest, target, target.groups).plan()


def naive_group_tiles(nest: StaticLoopNest, target: Target) -> TilePlan:
    """Return the plan without tiles: one work-item per element of the result."""
    return _GroupTileChooser(nest, target, target.groups or _DEFAULT_GROUPS).naive()


@dataclass(frozen=True)
class _GroupTileChooser:
    nest: StaticLoopNest
    target: Target
    groups: WorkGroups

    def plan(self) -> TilePlan:
        """Return the plan for the nest: contraction, cooperative reduction or elementwise."""
        nest = self.nest
        if any(op.has_indirect_loads for op in nest.ops):
            return self.naive()
        contraction = next((op for op in nest.ops if op.is_contraction), None)
        if contraction is not None and (tiled := self.contraction(contraction)) is not None:
            return tiled
        return self.cooperative_plan() or self.elementwise()

    @property
    def resident_items(self) -> int:
        """Return the number of work-items that occupy the whole device."""
        return _RESIDENT_GROUPS_PER_UNIT * self.groups.units * self.groups.items

    @property
    def few_rows(self) -> int:
        """Return the maximum rows of a contraction for which sharing the other operand is not profitable."""
        return self.target.costs.groups.few_rows

    # Components of a plan

    def steps(self, d: int, tile: int = 1) -> int:
        return -(-self.nest.extents[d] // tile)

    def fitting(self, d: int, max_size: int) -> int:
        """Return the largest legal tile up to `max_size`; 1 for a dynamic dimension, along which a work-item has one index."""
        return fitting_tile(self.nest, d, 1 if d in self.nest.dynamic_dims else max_size)

    def innermost_first(self, dims: Sequence[int]) -> list[int]:
        """Sort dimensions by their stride in the nest's output, the contiguous one first."""
        nest_op = self.nest.ops[-1]
        return sorted(dims, key=lambda d: nest_op.output.stride(d) or 1 << 62)

    def assign_items(self, dims: Sequence[int], register: dict[int, int], limit: int) -> dict[int, int]:
        """Assign up to `limit` work-items to dimensions, in the order of `dims`, each with about the same work.

        The result is ordered from the outermost dimension to the innermost.
        """
        items: dict[int, int] = {}
        for d in dims:
            steps = self.steps(d, register.get(d, 1))
            items[d] = -(-steps // -(-steps // max(1, limit)))
            limit //= items[d]
        return {d: n for d, n in reversed(items.items()) if n > 1}

    def with_grid(self, plan: TilePlan) -> TilePlan:
        """Return the plan with a grid of one group per group tile."""
        order = tuple(reversed(self.innermost_first(self.nest.shared_dims)))
        grid = {
            d: plan.group_tile(d) if d in self.nest.dynamic_dims else min(plan.group_tile(d), self.nest.extents[d])
            for d in order
        }
        return replace(plan, grid=grid, order=order)

    def max_group_items(self, num_tiles: int) -> int:
        """Return the maximum work-items per group for which each compute unit has work, a multiple of the smallest group."""
        tiles_per_unit = num_tiles // self.groups.units
        return min(self.groups.items, max(_MIN_GROUP_ITEMS, tiles_per_unit - tiles_per_unit % _MIN_GROUP_ITEMS))

    # Plans

    def naive(self) -> TilePlan:
        """Return a plan without tiles: one work-item per element of the result."""
        items = self.assign_items(self.innermost_first(self.nest.shared_dims), {}, self.max_group_items(1 << 30))
        unit_sizes = {d: 1 for d in self.nest.extents if d not in self.nest.shared_dims}
        return self.with_grid(TilePlan(items=items, chunks={d: 1 for d in unit_sizes if not self.is_reduced(d)}))

    def elementwise(self) -> TilePlan:
        """Return a plan with a few contiguous elements per work-item, or a small square tile if an operand is transposed."""
        nest = self.nest
        shared_dims = self.innermost_first(nest.shared_dims)
        lane = lane_dim(nest, nest.ops[-1])
        register: dict[int, int] = {}
        if lane in shared_dims:
            register[lane] = self.fitting(lane, _VECTOR_ELEMENTS)
            shared_dims.sort(key=lambda d: d != lane)
        transposed_dims = [d for op in nest.ops for a in op.inputs for d in shared_dims if d != lane and a.stride(d) == 1]
        max_group_items = self.max_group_items(prod(self.steps(d, register.get(d, 1)) for d in shared_dims))
        if lane in shared_dims and transposed_dims:
            transposed_dim = transposed_dims[0]
            register[transposed_dim] = self.fitting(transposed_dim, _VECTOR_ELEMENTS)
            lane_items = self.assign_items([lane], register, max(1, int(max_group_items**0.5)))
            shared_dims.remove(lane)
            shared_dims.sort(key=lambda d: d != transposed_dim)
            items = {**self.assign_items(shared_dims, register, max_group_items // lane_items.get(lane, 1)), **lane_items}
        else:
            register |= self.window_rows_per_item(lane, register)
            items = self.assign_items(shared_dims, register, max_group_items)
        return self.with_grid(TilePlan(register=register, items=items, chunks=self.chunks(())))

    def window_rows_per_item(self, lane: int | None, register: dict[int, int]) -> dict[int, int]:
        """Return a tile of output rows that share the weights of a sliding window; empty if too few work-items remain."""
        nest = self.nest
        shared_dims = [d for d in self.innermost_first(nest.shared_dims) if d != lane and d not in nest.dynamic_dims]
        reuse_dims = (d for d in shared_dims if any(not a.uses(d) for op in nest.ops if op.reductions for a in op.inputs))
        d = next(reuse_dims, None)
        if d is None:
            return {}
        num_tiles = prod(self.steps(other, register.get(other, 1)) for other in nest.shared_dims)
        candidates = (
            rows
            for rows in _WINDOW_ROWS_PER_ITEM
            if nest.extents[d] % rows == 0 and self.fitting(d, rows) == rows and num_tiles // rows >= self.resident_items
        )
        rows = next(candidates, None)
        return {d: rows} if rows is not None else {}

    def chunks(self, cooperative_dims: Sequence[int]) -> dict[int, int]:
        """Return the steps along private dimensions."""
        chunks: dict[int, int] = {}
        for nest_op in self.nest.ops:
            for d in nest_op.dims:
                is_contiguous = any(a.stride(d) == 1 for a in (*nest_op.inputs, nest_op.output))
                if d not in self.nest.shared_dims and (d in cooperative_dims or not self.is_reduced(d)):
                    lanes = (
                        1
                        if d in cooperative_dims and d in self.nest.dynamic_dims
                        else min(self.nest.extents[d], _VECTOR_ELEMENTS)
                    )
                    chunks[d] = max(chunks.get(d, 1), lanes if is_contiguous else 1)
        return chunks

    def is_reduced(self, d: int) -> bool:
        return any(d in op.reductions for op in self.nest.ops)

    def cooperative_plan(self) -> TilePlan | None:
        """Return a plan in which several work-items share each row, for long or few rows; None if it is not profitable."""
        nest = self.nest
        dims = self.cooperative_dims()
        if not dims:
            return None
        shared_dims = self.innermost_first(nest.shared_dims)
        # Adjacent work-items should read adjacent elements of the largest input.
        largest_input = max(
            (a for op in nest.ops if op.reductions for a in op.inputs), key=lambda a: self.size(a), default=None
        )
        lane = next((d for d in shared_dims if largest_input is not None and largest_input.stride(d) == 1), None)
        register = {lane: self.fitting(lane, _VECTOR_ELEMENTS)} if lane is not None else {}
        # A work-item computes all rows that share the largest input if they are few.
        row_dims = [
            d
            for d in shared_dims
            if largest_input is not None and not largest_input.uses(d) and nest.extents[d] <= self.few_rows
        ]
        register |= {d: self.fitting(d, nest.extents[d]) for d in row_dims}
        rows = prod(self.steps(d, register.get(d, 1)) for d in shared_dims)
        # Loads along a contiguous reduction are coalesced only if work-items cooperate on it, so short ones qualify too.
        min_steps = 2 * _ITEMS_PER_MEMORY_LINE if lane is None else _MIN_COOPERATIVE_STEPS
        if nest.extents[dims[0]] < min_steps or (lane is not None and rows >= self.resident_items):
            return None
        # Enough work-items to occupy the device, and for adjacent work-items to read whole memory lines.
        lane_items = min(self.steps(lane, register[lane]), _ITEMS_PER_MEMORY_LINE) if lane is not None else 1
        private_elements = max(nest.extents[d] if self.stores_private_results(d) else 1 for d in dims)
        max_cooperating = min(
            max(
                self.resident_items // rows,
                private_elements // _MAX_PRIVATE_ELEMENTS,
                2 * _ITEMS_PER_MEMORY_LINE if lane is None else 1,
            ),
            self.groups.max_cooperating_items // lane_items,
        )
        chunks = self.chunks(dims)
        num_chunks = max(self.steps(d, chunks.get(d, 1)) for d in dims)
        if lane is not None:
            # The reduction is strided, so a work-item computes one row per step.
            chunks |= dict.fromkeys(dims, 1)
            num_chunks = max(2 * _ITEMS_PER_MEMORY_LINE, nest.extents[dims[0]] // _MIN_MATRIX_ROWS_PER_ITEM)
        cooperating = 1 << (max(1, min(max_cooperating, num_chunks)).bit_length() - 1)
        while cooperating > 1:
            max_group_items = max(lane_items, min(self.groups.items, _COOPERATIVE_GROUP_ITEMS) // cooperating)
            items = self.assign_items(shared_dims, register, max_group_items)
            private_items = {d: cooperating for d in dims}
            # Work-items that access adjacent memory are adjacent in the group.
            items = {**items, **private_items} if lane is None else {**private_items, **items}
            plan = self.with_grid(TilePlan(register=register, chunks=chunks, items=items))
            if self.cooperative_local_bytes(plan) <= self.groups.local_bytes:
                return plan
            cooperating //= 2
        return None

    def stores_private_results(self, d: int) -> bool:
        """Return whether a local buffer holds results along a dimension for a later op."""
        roots = self.nest.local_buffers()
        return any(op.output.root in roots and op.output.uses(d) for op in self.nest.ops)

    def cooperative_local_bytes(self, plan: TilePlan) -> int:
        """Return the bytes of local memory for the results that cooperating work-items exchange."""
        nest, cooperative_dims = self.nest, plan.cooperative_dims(self.nest)
        sizes = {d: plan.group_tile(d) if d in plan.order else extent for d, extent in nest.extents.items()}
        total = 0
        for nest_op in nest.ops:
            if not any(nest_op.output.uses(d) for d in cooperative_dims):
                elements = prod(sizes[t.iterator] for t in nest_op.output.terms)
                copies = 1 + (plan.num_cooperating_items(nest) if nest_op.reductions.intersection(cooperative_dims) else 0)
                total += copies * elements * numpy_dtype(memref_of(nest_op.op.operands[-1]).element_type).itemsize
        return total

    def size(self, a: AffineAccess) -> int:
        """Return the number of elements of an access."""
        return prod(self.nest.extents[d] for d in {t.iterator for t in a.terms})

    def cooperative_dims(self) -> list[int]:
        """Return one private dimension per op along which work-items can cooperate, the longest first.

        Empty if a reduction has none.
        """
        nest = self.nest
        scatter_dims = {op.scatter_dim for op in nest.ops}
        private_dims = [d for d in nest.extents if d not in nest.shared_dims and d not in scatter_dims]
        dims: list[int] = []
        covered_ops: set[int] = set()
        for d in sorted(private_dims, key=lambda d: -nest.extents[d]):
            positions = {k for k, op in enumerate(nest.ops) if d in op.dims}
            if not positions & covered_ops and all(can_split(op, nest) for op in nest.ops if d in op.reductions):
                dims.append(d)
                covered_ops |= positions
        has_dim_per_reduction = all(set(dims) & set(op.reductions) for op in nest.ops if op.reductions)
        # A dynamic number of sums would need a dynamic number of partial results in local memory.
        dynamic_sums = [
            d for op in nest.ops if op.reductions for d in nest.dynamic_dims.intersection(private_dims) if op.output.uses(d)
        ]
        return dims if has_dim_per_reduction and not dynamic_sums else []

    def contraction(self, nest_op: NestOp) -> TilePlan | None:
        """Return the cheapest plan with operands in local memory; None if operands are not reused."""
        nest = self.nest
        lane = lane_dim(nest, nest_op)
        if (
            promoted_contraction(nest) is None
            or lane is None
            or lane not in nest.shared_dims
            or nest.dynamic_dims & nest_op.reductions
        ):
            return None
        rows = [d for d in self.innermost_first(nest.shared_dims) if d != lane and nest_op.output.uses(d)]
        reused_dims = [d for a in nest_op.inputs for d in (lane, *rows) if not a.uses(d) and nest.extents[d] > self.few_rows]
        if lane not in reused_dims or not set(rows).intersection(reused_dims):
            return None
        plans = [p for p in self.candidates(nest_op, rows, lane) if self.local_bytes(p, nest_op) <= self.groups.local_bytes]
        return min(plans, key=lambda p: cost_of_contraction(p, nest, nest_op, self.target), default=None)

    def candidates(self, nest_op: NestOp, rows: list[int], lane: int) -> Iterator[TilePlan]:
        """Yield the candidate plans of a contraction."""
        nest = self.nest
        reduced_dims = [d for d in nest_op.dims if d in nest_op.reductions]
        inner = min(reduced_dims, key=lambda d: (min(a.stride(d) or 1 << 62 for a in nest_op.inputs), -nest.extents[d]))
        # Dimensions that all operands have are a batch of independent products, which are not tiled.
        blocked = [d for d in rows if any(not a.uses(d) for a in nest_op.inputs)]
        for (height, width), (down, across), chunk, choose_tile in product(
            _REGISTER_TILES, _GROUP_SHAPES, _REDUCTION_CHUNK_STEPS, (divisor_tile, min)
        ):
            if down * across > self.groups.items:
                continue
            # A work-item has several tiles of a few adjacent columns, interleaved with those of the other work-items.
            columns = min(_VECTOR_ELEMENTS, nest.extents[lane])
            tile = {lane: (columns, max(1, min(width, nest.extents[lane]) // columns))}
            if blocked:
                tile[blocked[0]] = choose_tile(nest.extents[blocked[0]], height), 1
            # Along a dynamic dimension a work-item has several tiles of size 1.
            tile |= {d: (1, min(height if d != lane else width, nest.extents[d])) for d in nest.dynamic_dims.intersection(tile)}
            item_extents = {d: size * count for d, (size, count) in tile.items()}
            if prod(item_extents.values()) * chunk > _MAX_UNROLLED_MULTIPLY_ADDS:
                continue
            plan = TilePlan(
                register={d: size for d, (size, _) in tile.items()},
                items={**self.assign_items(blocked, item_extents, down), **self.assign_items([lane], item_extents, across)},
                promote={inner: vector_divisor_tile(nest.extents[inner], chunk)},
                tiles_per_item={d: count for d, (_, count) in tile.items() if count > 1},
                chunks=self.chunks(()),
            )
            yield self.with_grid(plan)

    def local_bytes(self, plan: TilePlan, nest_op: NestOp) -> int:
        """Return the bytes of local memory of the promoted operands, with an allowance for padding."""
        (chunk,) = plan.promote.values()
        total = 0
        for operand, a in zip(nest_op.op.operands[:-1], nest_op.accesses, strict=False):
            if a is not None:
                size = prod(plan.group_tile(d) for d in plan.order if a.uses(d)) + _VECTOR_ELEMENTS
                total += chunk * size * numpy_dtype(memref_of(operand).element_type).itemsize
        return total
