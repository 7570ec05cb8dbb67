"""Tile plans: the tile sizes and loop order of a loop nest, as a value to print, compare or override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from dlc.dialects.matrix_multiply import SUBGROUP_ITEMS, TILE_COLUMNS, TILE_ROWS
from dlc.passes.tiling.loop_nests import NestOp, StaticLoopNest, can_split, initial_fill
from dlc.passes.tiling.online_softmax import match_online_softmax


@dataclass(frozen=True)
class FusedLoop:
    """Ops that share loops over steps of a tile.

    Attributes:
        first: The position of the first op.
        end: The position after the last op.
        steps: Pairs (dimension, step), outermost first.
        skips_masked: Whether to skip steps that do not affect the result. If the ops end in a masked select, these are
            the fully masked steps; for a contraction, the steps of the outermost loop in which the first operand is all
            zeros.
        unmasked: A dimension and a block size. The loop along the dimension ends after the last block that is not fully
            masked, by the mask of the first fused loop that ends in a masked select.
    """

    first: int
    end: int
    steps: tuple[tuple[int, int], ...]
    skips_masked: bool = False
    unmasked: tuple[int, int] | None = None

    def __str__(self) -> str:
        skips = ", skips" if self.skips_masked else ""
        unmasked = "" if self.unmasked is None else f", d{self.unmasked[0]} up to the last unmasked {self.unmasked[1]}"
        return (
            f"ops {self.first} to {self.end - 1}: " + ", ".join(f"d{d} by {step}" for d, step in self.steps) + skips + unmasked
        )


@dataclass(frozen=True)
class MatrixUnitTile:
    """The tile of a matrix product that a work-group computes on matrix units.

    It has up to `rows` rows along the linearized dimensions `row_dims`, the outermost first, and up to `columns`
    columns along the dimension `column`. Each warp of 32 work-items computes a tile of `warp_rows` by `warp_columns`.
    """

    row_dims: tuple[int, ...]
    column: int
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int

    @property
    def items(self) -> int:
        return SUBGROUP_ITEMS * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    def __str__(self) -> str:
        row_dims = " ".join(f"d{d}" for d in self.row_dims)
        return f"{self.rows} ({row_dims}) × {self.columns} (d{self.column}), {self.warp_rows} × {self.warp_columns} per warp"


@dataclass(frozen=True)
class TilePlan:
    """Tile sizes and loop order of one loop nest.

    Dimensions are those of the nest, sizes are in iterations, and operands are given by position.

    On all targets:
    - `grid`: for shared dimensions, the extent that one task covers; tasks run in parallel. A task covers dimensions
      without an entry completely.
    - `register`: for shared dimensions, the size of the register tile.
    - `order`: the loops over register tiles inside a task, outermost first.
    - `chunks`: for private dimensions (those of single ops), the step size; for a reduction along contiguous memory,
      the number of partial results.
    - `steps`: for some ops, smaller steps than the register tile, which would need too many registers.

    Without an entry in `register` or `chunks`, the step is 1 along a shared dimension, the extent along a private one.

    Work-groups (None or empty for a CPU task, which is one thread):
    - `items`: the work-items along each dimension, outermost first. Along a shared dimension each work-item has its own
      register tile. Along private dimensions, all with the same number of work-items, the work-items cooperate: they
      compute interleaved chunks of an op, and combine their partial results of a reduction.
    - `promote`: one reduced dimension of a contraction, and the chunk size in which operands are copied to local
      memory.
    - `tiles_per_item`: with `promote`, the number of register tiles of a work-item along shared dimensions; the tiles
      of different work-items are interleaved.
    - `matrix_tile`: with `promote`, the tile that matrix units compute; the task of a group is then one such tile.

    Cache blocking (packed GEMM):
    - `blocks`: for dimensions of the leading reduction, the cache block size (kc). A task computes all of its register
      tiles for one block before the next block. Between blocks, accumulators are in memory; the order of additions is
      that of the unblocked sum.
    - `panels`: the operands that a task packs, one block at a time, in the order in which its tiles read them.
    - `macro_tile`: for shared dimensions, the tile (mc, nc) of a task for which operands along them are packed at a
      time.
    - `prefetch`: the operands to prefetch: during a cache block the next one, or during a product of a batch the next
      product if its reduction is one block.

    Zeros and masks:
    - `zero_trimmed_operand`: the operand whose leading and trailing zeros along the reduction each register tile skips.
    - `mask_operand`: an operand of the last op; a register tile where it is all zeros is not computed.

    Attention:
    - `fused_loops`: ops that run in common loops.
    - `online_softmax`: a dimension and the size of its key blocks. The fused loops up to the last reduction along it
      run block by block, with an online softmax (`online_softmax.py`), and buffers along it hold one block.

    Dynamic shapes:
    - `balance_threshold`: if not 0, tasks split dynamic extents evenly into as few register tiles as possible. Tiles
      with fewer rows than this use two sets of accumulators, because one would not hide the FMA latency.
    """

    grid: Mapping[int, int] = field(default_factory=dict[int, int])
    register: Mapping[int, int] = field(default_factory=dict[int, int])
    order: tuple[int, ...] = ()
    chunks: Mapping[int, int] = field(default_factory=dict[int, int])
    steps: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    items: Mapping[int, int] | None = None
    promote: Mapping[int, int] = field(default_factory=dict[int, int])
    tiles_per_item: Mapping[int, int] = field(default_factory=dict[int, int])
    matrix_tile: MatrixUnitTile | None = None
    blocks: Mapping[int, int] = field(default_factory=dict[int, int])
    panels: tuple[int, ...] = ()
    macro_tile: Mapping[int, int] = field(default_factory=dict[int, int])
    prefetch: tuple[int, ...] = ()
    zero_trimmed_operand: int | None = None
    mask_operand: int | None = None
    fused_loops: tuple[FusedLoop, ...] = ()
    online_softmax: tuple[int, int] | None = None
    balance_threshold: int = 0

    def check(self, nest: StaticLoopNest) -> None:
        """Raise ValueError, naming the entry, if the plan is not legal for the nest."""
        shared_dims = set(nest.shared_dims)
        for name, sizes in (("grid", self.grid), ("register", self.register)):
            for d, size in sizes.items():
                # The extent of a dynamic dimension is only representative: it may be larger.
                if d not in shared_dims or size < 1 or (size > nest.extents[d] and d not in nest.dynamic_dims):
                    raise ValueError(f"{name}[d{d}] = {size}: must be a shared dimension with 1 ≤ size ≤ its extent")
        for d, block in self.grid.items():
            if block % self.tile(d) and block != nest.extents[d]:
                raise ValueError(f"grid[d{d}] = {block}: must be a multiple of the register tile {self.tile(d)}")
        if sorted(self.order) != sorted(shared_dims):
            raise ValueError(f"order {self.order}: must be a permutation of the shared dimensions {sorted(shared_dims)}")
        for d, size in self.chunks.items():
            if d in shared_dims or d not in nest.extents or not 1 <= size <= nest.extents[d]:
                raise ValueError(f"chunks[d{d}] = {size}: must be a private dimension with 1 ≤ size ≤ its extent")
        for k, steps in self.steps.items():
            for d, size in steps.items():
                if not 0 <= k < len(nest.ops) or d not in nest.ops[k].dims or d in nest.ops[k].reductions or size < 1:
                    raise ValueError(f"steps[{k}][d{d}] = {size}: must be a dimension that the op does not reduce")
        fused_dims = self.check_fused_loops(nest)
        self.check_online_softmax(nest)
        for d, panel in nest.panel_sizes.items():
            name, tile = ("register", self.tile(d)) if d in shared_dims else ("chunks", self.chunks.get(d, nest.extents[d]))
            if d not in fused_dims and panel % tile:
                raise ValueError(f"{name}[d{d}] = {tile}: an operand is packed in panels of {panel}")
        for d, repeat_count in nest.repeat_counts.items():
            if self.tile(d) % repeat_count and repeat_count % self.tile(d):
                raise ValueError(f"register[d{d}] = {self.tile(d)}: an operand repeats each element {repeat_count} times")
        self.check_items(nest)
        self.check_promote(nest)
        self.check_matrix_tile(nest)
        self.check_partial_group_tiles(nest)
        self.check_blocks(nest)

    def check_fused_loops(self, nest: StaticLoopNest) -> set[int]:
        """Check the fused loops; return their dimensions."""
        next_position = 0
        for fused_loop in self.fused_loops:
            nest_ops = nest.ops[fused_loop.first : fused_loop.end]
            if (
                self.items is not None
                or self.is_blocked
                or not next_position <= fused_loop.first < fused_loop.end <= len(nest.ops)
            ):
                raise ValueError(
                    f"fused loop {fused_loop}: its ops must follow those of the previous loop, without items or blocks"
                )
            for d, step in fused_loop.steps:
                if not 1 <= step <= nest.extents.get(d, 0):
                    raise ValueError(
                        f"fused loop {fused_loop}: d{d} must be a dimension of the nest, with 1 ≤ step ≤ its extent"
                    )
                reductions = [op for op in nest_ops if d in op.reductions]
                if not all(op.is_contraction or can_split(op, nest) for op in reductions):
                    raise ValueError(f"fused loop {fused_loop}: a reduction cannot be split: it has no combiner or no identity")
                if any(a.root in {op.output.root for op in reductions} for op in nest_ops for a in op.inputs):
                    raise ValueError(f"fused loop {fused_loop}: an op reads the result of a reduction before it is complete")
                if any(
                    t.modulus % step for op in nest_ops for a in op.inputs for t in a.terms if t.iterator == d and t.modulus
                ):
                    raise ValueError(f"fused loop {fused_loop}: the step must divide the panels of a packed operand")
                if fused_loop.unmasked is not None and fused_loop.unmasked[0] == d and fused_loop.unmasked[1] % step:
                    raise ValueError(f"fused loop {fused_loop}: the unmasked size must be a multiple of the step")
            next_position = fused_loop.end
        return {d for s in self.fused_loops for d, _ in s.steps}

    def check_online_softmax(self, nest: StaticLoopNest) -> None:
        if self.online_softmax is None:
            return
        d, size = self.online_softmax
        if not self.fused_loops or match_online_softmax(nest, d) is None:
            raise ValueError(f"online_softmax[d{d}]: must be the reduced dimension of a softmax in fused loops")
        if not 1 <= size <= nest.extents[d] or (size < nest.extents[d] and size % nest.panel_sizes.get(d, 1)):
            raise ValueError(
                f"online_softmax[d{d}] = {size}: must be a multiple of an operand's panels, and at most the extent"
            )

    def check_items(self, nest: StaticLoopNest) -> None:
        for d, n in (self.items or {}).items():
            if d not in nest.extents or n < 1:
                raise ValueError(f"items[d{d}] = {n}: must be a dimension of the nest and at least 1")
        cooperative_dims = self.cooperative_dims(nest)
        for d in nest.dynamic_dims if self.items is not None else ():
            if d in nest.shared_dims and (self.tile(d), self.grid.get(d)) != (1, self.group_tile(d)):
                raise ValueError(
                    f"grid[d{d}] = {self.grid.get(d)}: along a dynamic dimension, a work-item must compute one index"
                )
            if d in cooperative_dims and self.chunks.get(d, 1) != 1:
                raise ValueError(
                    f"chunks[d{d}] = {self.chunks[d]}: must be 1 for cooperating work-items along a dynamic dimension"
                )
        if not cooperative_dims:
            return
        size = self.num_cooperating_items(nest)
        if size & (size - 1) or any((self.items or {})[d] != size for d in cooperative_dims):
            raise ValueError(f"items {self.items}: private dimensions must have equally many work-items, a power of two")
        for nest_op in nest.ops:
            if nest_op.scatter_dim in cooperative_dims:
                raise ValueError(f"items[d{nest_op.scatter_dim}]: must not be a dimension along which an op scatters")
            op_dims = [d for d in nest_op.dims if d in cooperative_dims]
            if len(op_dims) > 1:
                raise ValueError(
                    f"items {self.items}: work-items can cooperate along one dimension per op, not along {op_dims}"
                )
            if nest_op.reductions.intersection(op_dims) and not can_split(nest_op, nest):
                raise ValueError(f"items[d{op_dims[0]}]: the reduction cannot be split: it has no combiner or no identity")

    def check_partial_group_tiles(self, nest: StaticLoopNest) -> None:
        for d, block in self.grid.items():
            if self.needs_barriers(nest) and block > self.group_tile(d) and nest.extents[d] % block:
                raise ValueError(
                    f"grid[d{d}] = {block}: a group with barriers cannot loop over partial tiles of "
                    f"the extent {nest.extents[d]}; use grid[d{d}] = {self.group_tile(d)}"
                )

    def check_promote(self, nest: StaticLoopNest) -> None:
        for d, n in self.tiles_per_item.items():
            if not self.promote or d not in nest.shared_dims or n < 1:
                raise ValueError(f"tiles_per_item[d{d}] = {n}: must be a shared dimension of a promoted contraction")
        if not self.promote:
            return
        contraction = promoted_contraction(nest)
        if contraction is None or self.items is None or self.cooperative_dims(nest):
            raise ValueError(
                f"promote {self.promote}: must be a contraction of plain operands by work-groups without cooperating items"
            )
        for d, size in self.promote.items():
            is_static = not nest.dynamic_dims & contraction.reductions
            if len(self.promote) > 1 or d not in contraction.reductions or not 1 <= size <= nest.extents[d] or not is_static:
                raise ValueError(
                    f"promote[d{d}] = {size}: must be one reduced dimension, all of them static, 1 ≤ size ≤ its extent"
                )

    def check_matrix_tile(self, nest: StaticLoopNest) -> None:
        """Check `matrix_tile`; `matrix_product` decides which operands are legal."""
        if (m := self.matrix_tile) is None:
            return
        if not self.promote or nest.dynamic_dims or set(self.grid) != set(nest.shared_dims):
            raise ValueError(
                f"matrix_tile {m}: must be a promoted contraction with static sizes and all shared dimensions in the grid"
            )
        if m.rows % m.warp_rows or m.columns % m.warp_columns or m.warp_rows % TILE_ROWS or m.warp_columns % TILE_COLUMNS:
            raise ValueError(
                f"matrix_tile {m}: warp tiles must be multiples of {TILE_ROWS} by {TILE_COLUMNS}, and divide the group's tile"
            )
        if prod(self.grid[d] for d in m.row_dims) > m.rows or self.grid[m.column] > m.columns:
            raise ValueError(f"grid {self.grid}: exceeds matrix_tile {m}")
        if prod((self.items or {}).values()) != m.items or self.register or self.tiles_per_item:
            raise ValueError(f"items {self.items}: must be {m.items} for matrix_tile {m}, without register tiles")

    def check_blocks(self, nest: StaticLoopNest) -> None:
        if not self.is_blocked:
            return
        reduction = leading_reduction(nest)
        if reduction is None or self.items is not None or nest.dynamic_dims:
            raise ValueError(
                f"blocks {self.blocks}, panels {self.panels}: must be a reduction with static sizes, without items"
            )
        for d, size in self.blocks.items():
            if d not in reduction.reductions or d in self.chunks or not 1 <= size <= nest.extents[d]:
                raise ValueError(
                    f"blocks[d{d}] = {size}: must be a reduced dimension without chunks, with 1 ≤ size ≤ its extent"
                )
        for d, size in self.macro_tile.items():
            if d not in nest.shared_dims or not self.panels or size % self.tile(d) or size < 1:
                raise ValueError(f"macro_tile[d{d}] = {size}: must be a multiple of the register tile, in a plan with panels")
        has_blocks = any(size < nest.extents[d] for d, size in self.blocks.items())
        for k in self.prefetch:
            access = reduction.accesses[k] if 0 <= k < len(reduction.accesses) - 1 else None
            is_plain = access is not None and all(t.is_plain for t in access.terms)
            is_in_rows = access is not None and any(access.stride(d) == 1 for d in nest.shared_dims)
            if not is_plain or not is_in_rows or not (has_blocks or any(map(reduction.is_batch_dim, nest.shared_dims))):
                raise ValueError(
                    f"prefetch {self.prefetch}: operand {k} must be read in rows, by a contraction with blocks or a batch"
                )
        k = self.zero_trimmed_operand
        if k is not None and (len(reduction.reductions) != 1 or not 0 <= k < len(reduction.accesses) - 1):
            raise ValueError(f"zero_trimmed_operand {k}: must be an operand of a contraction that reduces one dimension")
        if self.mask_operand is not None and (self.blocks or len(nest.ops) != 3):
            raise ValueError(f"mask_operand {self.mask_operand}: needs one op after the contraction, and no blocks")
        for k in self.panels:
            access = reduction.accesses[k] if 0 <= k < len(reduction.accesses) - 1 else None
            if access is None or not all(t.is_plain for t in access.terms):
                raise ValueError(f"panels {self.panels}: operand {k} must have plain strides")

    @property
    def is_blocked(self) -> bool:
        """True if the register tiles of a task share work: cache blocks, packed panels, prefetches, or a scan for zeros."""
        return bool(
            self.blocks
            or self.panels
            or self.prefetch
            or self.zero_trimmed_operand is not None
            or self.mask_operand is not None
        )

    def tile(self, d: int) -> int:
        """Return the register tile along a shared dimension."""
        return self.register.get(d, 1)

    def item_tile_stride(self, d: int) -> int:
        """Return the extent along a shared dimension of one register tile per work-item of a group."""
        return self.tile(d) * (self.items or {}).get(d, 1)

    def group_tile(self, d: int) -> int:
        """Return the extent along a shared dimension that a group, or the one thread of a task, covers in one round."""
        return self.grid[d] if self.matrix_tile is not None else self.item_tile_stride(d) * self.tiles_per_item.get(d, 1)

    def cooperative_dims(self, nest: StaticLoopNest) -> list[int]:
        """Return the private dimensions along which work-items cooperate."""
        return [d for d in self.items or {} if d not in nest.shared_dims]

    def num_cooperating_items(self, nest: StaticLoopNest) -> int:
        """Return the number of work-items that compute one register tile together."""
        return max(((self.items or {})[d] for d in self.cooperative_dims(nest)), default=1)

    def needs_barriers(self, nest: StaticLoopNest) -> bool:
        """Return whether the work-items of a group synchronize at barriers."""
        return bool(self.promote) or self.num_cooperating_items(nest) > 1

    def __str__(self) -> str:
        def sizes(m: Mapping[int, int]) -> str:
            return ", ".join(f"d{d}: {s}" for d, s in m.items())

        order = " ".join(f"d{d}" for d in self.order)
        text = f"grid {{{sizes(self.grid)}}} register {{{sizes(self.register)}}} chunks {{{sizes(self.chunks)}}}"
        steps = "".join(f" steps[{k}] {{{sizes(s)}}}" for k, s in self.steps.items())
        items = "" if self.items is None else f" items {{{sizes(self.items)}}}"
        promote = f" promote {{{sizes(self.promote)}}}" if self.promote else ""
        promote += f" tiles_per_item {{{sizes(self.tiles_per_item)}}}" if self.tiles_per_item else ""
        promote += "" if self.matrix_tile is None else f" matrix_tile {{{self.matrix_tile}}}"
        blocks = f" blocks {{{sizes(self.blocks)}}} panels {self.panels}" if self.is_blocked else ""
        blocks += f" macro_tile {{{sizes(self.macro_tile)}}}" if self.macro_tile else ""
        blocks += f" prefetch {self.prefetch}" if self.prefetch else ""
        operands = {"zero_trimmed_operand": self.zero_trimmed_operand, "mask_operand": self.mask_operand}
        zeros = "".join(f" {name} {k}" for name, k in operands.items() if k is not None)
        fused_loops = "".join(f" fused_loop {{{s}}}" for s in self.fused_loops)
        online_softmax = (
            "" if self.online_softmax is None else f" online_softmax d{self.online_softmax[0]} by {self.online_softmax[1]}"
        )
        text += f" balance_threshold {self.balance_threshold}" if self.balance_threshold else ""
        return f"{text}{steps}{items}{promote}{blocks}{zeros}{fused_loops}{online_softmax} order ({order})"


def fitting_tile(nest: StaticLoopNest, d: int, max_size: int) -> int:
    """Return the largest legal tile up to `max_size` along a dimension.

    It divides the panel size of a packed operand. If an operand repeats each element n times, it is a multiple or a
    divisor of n.
    """
    max_size, panel, repeat_count = min(max_size, nest.extents[d]), nest.panel_sizes.get(d), nest.repeat_counts.get(d, 1)
    if panel is None and max_size >= repeat_count:
        return max_size - max_size % repeat_count
    return next(tile for tile in range(min(max_size, panel or repeat_count), 0, -1) if (panel or repeat_count) % tile == 0)


def leading_contraction(nest: StaticLoopNest) -> NestOp | None:
    """Return the leading reduction of a nest if it is a contraction, else None."""
    nest_op = leading_reduction(nest)
    return nest_op if nest_op is not None and nest_op.is_contraction else None


def leading_reduction(nest: StaticLoopNest) -> NestOp | None:
    """Return the first reduction of a nest, if only the fill of its result precedes it.

    None for other nests, and for a reduction with a private parallel dimension.
    """
    reduction = next((k for k, op in enumerate(nest.ops) if op.reductions), 0)
    nest_op = nest.ops[reduction]
    preceding = nest.ops[:reduction]
    if (
        not nest_op.reductions
        or nest_op.scatter_dim is not None
        or nest_op.has_indirect_loads
        or len(preceding) != 1
        or preceding[0] is not initial_fill(nest_op, nest)
    ):
        return None
    private_dims = [d for d in nest_op.dims if d >= 0 and d not in nest.shared_dims and d not in nest_op.reductions]
    return None if private_dims else nest_op


def promoted_contraction(nest: StaticLoopNest) -> NestOp | None:
    """Return the contraction whose operands can be promoted to local memory: a leading one of plain operands."""
    nest_op = leading_contraction(nest)
    if nest_op is None or not all(t.is_plain for a in (*nest_op.inputs, nest_op.output) for t in a.terms):
        return None
    return nest_op


def balanced_tile(extent: int, limit: int) -> int:
    """Return the size of as few nearly equal tiles of up to `limit` as possible that cover `extent`."""
    return -(-extent // -(-extent // limit))


def vector_divisor_tile(extent: int, limit: int) -> int:
    """Return a tile like `divisor_tile`, preferably a multiple of four, the elements of a vector load."""
    multiples = (tile for tile in range(limit - limit % 4, limit // 2, -4) if extent % tile == 0)
    return next(multiples, divisor_tile(extent, limit))


def divisor_tile(extent: int, limit: int) -> int:
    """Return the largest divisor of `extent` between half the limit and the limit; without one, a balanced tile."""
    if extent <= limit:
        return extent
    divisors = (tile for tile in range(limit, limit // 2, -1) if extent % tile == 0)
    return next(divisors, balanced_tile(extent, limit))
