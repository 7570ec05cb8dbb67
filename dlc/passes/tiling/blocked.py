"""A task whose first reduction goes block by block of what it reduces: all register tiles use a block while caches hold it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from dlc.ir import SSAValue
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.ahead import NextBlock
from dlc.passes.tiling.leaf import Leaf, Local, part_of
from dlc.passes.tiling.nests import Nest, Stage
from dlc.passes.tiling.plan import TilePlan, first_reduction
from dlc.passes.tiling.ranges import Range, Tile, steps
from dlc.passes.tiling.structured_ops import operand_maps
from dlc.passes.tiling.windows import Window, copy
from dlc.passes.tiling.zeros import Spans, where_shown
from dlc.passes.types import memref_of

# Where to compute each register tile of a task's part.
Tiles = Callable[[Place, Tile], Iterator[tuple[Place, Tile]]]
# What is turned in registers: so many elements that are neighbours in memory, of each lane.
_TURNED = 8
# Elements of a cache line, and the most that are copied at once.
_LINE, _WIDEST = 16, 64


class TaskBuffers:
    """What a task of a plan with `blocks` or `panels` keeps: copies of operands, and sums that later stages read.

    `sizes` are those of a whole task: one at the end of a ragged dimension, which is code of its own, uses less of them.
    """

    def __init__(self, nest: Nest, plan: TilePlan, place: Place, sizes: Mapping[int, int]) -> None:
        reduction = first_reduction(nest)
        assert reduction is not None
        self.reduction = reduction
        self.panels = {k: _Panel(nest, plan, reduction, k, {**sizes, **plan.parts}, place) for k in plan.panels}
        self.sums: dict[SSAValue, Local] = {}
        root = reduction.output.root
        if plan.blocks and root in nest.locals():
            dims = tuple(d for d in Leaf(nest, plan, {}).axes_of(root) if sizes[d] > 1)
            buffer = place.alloca(memref_of(root).element_type, tuple(sizes[d] for d in dims), root.name_hint)
            self.sums[root] = Local(buffer, dims, shared=True)


class BlockedTask:
    """One task of a plan with `blocks` or `panels`: sums are filled, then added to by one block after the other, then used.

    They wait where they are wanted, or in a buffer of the task where later stages make something else of them. Where one
    block is all, a register tile goes through all stages at once, and its sums wait nowhere.
    """

    def __init__(self, nest: Nest, plan: TilePlan, place: Place, tile: Tile, tiles: Tiles, buffers: TaskBuffers) -> None:
        self.nest = nest
        self.plan = plan
        self.place = place
        self.tile = tile
        self.tiles = tiles
        self.reduction = buffers.reduction
        self.panels = buffers.panels
        # What is copied for each part of the task.
        self.apart = [k for k, panel in self.panels.items() if plan.parts.keys() & panel.shared]
        self.once = [k for k in self.panels if k not in self.apart]
        self.sums = buffers.sums
        self.ahead = [NextBlock(nest, plan, self.reduction, k) for k in plan.ahead]
        self.spans = None if plan.spans is None else Spans(self.reduction, plan.spans, plan, tile, place)

    def run(self) -> None:
        if self.plan.blocks:
            self.by_blocks()
        else:
            self.at_once()

    def at_once(self) -> None:
        whole = {d: Range(0, self.nest.extents[d]) for d in self.reduction.reductions}
        for at, leaf in self.leaves(self.place, whole):
            leaf.run(at if self.plan.hidden is None else where_shown(at, leaf, self.plan.hidden))

    def look(self, place: Place, block: Tile) -> None:
        if self.spans is not None:
            self.spans.look(place, block[self.spans.reduced], lambda part: self.leaf({**self.tile, **part}, self.once))

    def by_blocks(self) -> None:
        first, _, *rest = self.nest.stages
        for at, leaf in self.bare_leaves(self.place, self.tile, {}):
            leaf.stages(at, [first], leaf.tile)
        self.blocks(self.place, [d for d in self.reduction.dims if d in self.reduction.reductions], {})
        for at, leaf in self.bare_leaves(self.place, self.tile, {}) if rest else ():
            for other in leaf.local_roots():
                if other not in self.sums:
                    leaf.make_local(at, other, {d: r.size for d, r in leaf.tile.items()})
            leaf.stages(at, rest, leaf.tile)

    def blocks(self, place: Place, dims: Sequence[int], block: Tile) -> None:
        """Loops over the blocks, dimension by dimension."""
        if dims:
            d, *rest = dims
            extent = self.nest.extents[d]
            for at, part in steps(place, Range(0, extent), self.plan.blocks.get(d, extent), f"k{d}"):
                self.blocks(at, rest, {**block, d: Range(part.offset, part.size)})
            return
        stage = self.reduction
        for at, leaf in self.leaves(place, block):
            leaf.stage(at.located(stage.op.location), stage, {d: leaf.tile[d] for d in stage.dims if d >= 0})

    def leaves(self, place: Place, block: Tile) -> Iterator[tuple[Place, Leaf]]:
        """Each register tile of the task for a block of what is reduced, once the panels have what it reads."""
        for k in self.once:
            self.panels[k].bring(place, self.tile, block)
        self.look(place, block)
        for at, tile in self.parts(place, self.tile, [d for d in self.plan.order if d in self.plan.parts]):
            for k in self.apart:
                self.panels[k].bring(at, tile, block)
            for inner, leaf in self.bare_leaves(at, tile, block):
                for operand in self.ahead:
                    operand.ask(inner, tile, leaf.tile, block)
                yield inner, leaf

    def parts(self, place: Place, tile: Tile, dims: Sequence[int]) -> Iterator[tuple[Place, Tile]]:
        """The parts of the task that go through a block one after the other."""
        if not dims:
            yield place, tile
            return
        d, *rest = dims
        for at, part in steps(place, tile[d], self.plan.parts[d], f"p{d}"):
            yield from self.parts(at, {**tile, d: part}, rest)

    def bare_leaves(self, place: Place, tile: Tile, block: Tile) -> Iterator[tuple[Place, Leaf]]:
        """Each register tile of a part of the task, with what of the reduced dimensions is its turn."""
        for at, some in self.tiles(place, tile):
            leaf = self.leaf({**{d: Range(r.offset, r.size, 0, r.within) for d, r in some.items()}, **block}, self.panels)
            if self.spans is not None and block:
                leaf.spans = self.spans.of(at, leaf.tile)
            yield at, leaf

    def leaf(self, tile: Tile, copied: Collection[int]) -> Leaf:
        leaf = Leaf(self.nest, self.plan, tile)
        leaf.locals |= self.sums
        leaf.copies |= {(self.reduction.op, k): self.panels[k].window for k in copied}
        return leaf


class _Panel:
    """A task's copy of an operand's block, as register tiles read it: [tile, reduced, place in the tile]."""

    def __init__(self, nest: Nest, plan: TilePlan, stage: Stage, k: int, sizes: Mapping[int, int], place: Place) -> None:
        self.plan = plan
        self.stage = stage
        self.k = k
        self.source = stage.op.operands[k]
        whole = {d: Range(0, e) for d, e in nest.extents.items()}
        self.axes = [part_of(None, e, stage.dims, whole)[0] for e in operand_maps(stage.op)[k].results]
        access = stage.accesses[k]
        assert access is not None
        self.shared = [d for d in self.axes if d not in stage.reductions]
        self.reduced = [d for d in stage.dims if d in self.axes and d in stage.reductions]
        # Along which reduced dimension elements are neighbours, if lanes are not.
        neighbours = [d for d in self.reduced if access.stride(d) == 1]
        self.turned = neighbours[0] if neighbours else None
        # Lanes are as wide as tiles. What is broadcast one by one stays in rows as it lies, of an odd number of lines: along
        # what is reduced, or all in one panel.
        has_lanes = any(stage.output.stride(d) == 1 for d in self.shared)
        self.in_rows = self.turned is not None and not has_lanes
        row = next((d for d in self.axes if access.stride(d) == 1 and not has_lanes), None)
        self.sizes = {d: sizes[d] for d in self.shared}
        self.widths = {d: 1 if self.in_rows else sizes[d] if d == row else plan.tile(d) for d in self.shared}
        reduced = {d: plan.blocks.get(d, nest.extents[d]) for d in self.reduced}
        shape = (
            *(-(-sizes[d] // self.widths[d]) for d in self.shared),
            *(_odd_lines(size) if d == row else size for d, size in reduced.items()),
            *(_odd_lines(self.widths[d]) if d == row else self.widths[d] for d in self.shared),
        )
        self.buffer = place.alloca(memref_of(self.source).element_type, shape, "panel")
        # Where in the task what was brought begins.
        self.origin: Mapping[int, Index] = {}

    def bring(self, place: Place, tile: Tile, block: Tile) -> None:
        """Copies what a part of the task needs of the block, in the order of memory unless lanes are turned."""
        self.origin = {d: tile[d].within for d in self.shared}
        dims = [*self.reduced, *self.shared] if self.turned is None else [*self.shared, *self.reduced]
        self._bring(place, {**tile, **block}, {}, dims)

    def _bring(self, place: Place, whole: Tile, part: Tile, dims: Sequence[int]) -> None:
        if dims:
            d, *rest = dims
            piece = (_WIDEST if self.in_rows else _TURNED) if d == self.turned else 1
            step = min(self.widths[d], _WIDEST) if d in self.shared else piece
            start = whole[d]
            for at, some in steps(place, Range(start.offset, start.size), min(step, start.size), f"c{d}"):
                self._bring(at, whole, {**part, d: some}, rest)
            return
        parts = [(d, part[d]) for d in self.axes]
        offsets, sizes = [r.offset for _, r in parts], [r.size for _, r in parts]
        drop = [i for i, size in enumerate(sizes) if size == 1]
        source = place.subview(self.source, offsets, sizes, drop), [d for d, r in parts if r.size > 1]
        copy(place, source, self._window(place, {d: (r.within, r.size) for d, r in part.items()}))

    def window(self, place: Place, tile: Tile) -> Window:
        """What a register tile, or a part of it along what is reduced, reads of the copy."""
        ranges = {d: (place.subtract(tile[d].grouped, self.origin[d]), tile[d].size) for d in self.shared}
        return self._window(place, ranges | {d: (tile[d].within, tile[d].size) for d in self.reduced})

    def _window(self, place: Place, ranges: dict[int, tuple[Index, int]]) -> Window:
        panels: list[tuple[Index, int]] = []
        within: list[tuple[Index, int]] = []
        for d in self.shared:
            start, size = ranges[d]
            width = self.widths[d]
            alone = width == self.sizes[d]
            panels.append((start, size) if width == 1 else (0 if alone else place.floordiv(start, width), 1))
            within.append((0, 1) if width == 1 else (start if alone else 0, size))
        parts = [*panels, *(ranges[d] for d in self.reduced), *within]
        dims = [*self.shared, *self.reduced, *self.shared]
        drop = [i for i, (_, size) in enumerate(parts) if size == 1]
        view = place.subview(self.buffer, [o for o, _ in parts], [size for _, size in parts], drop)
        return view, [d for d, (_, size) in zip(dims, parts, strict=True) if size > 1]


def _odd_lines(size: int) -> int:
    """Room for so many elements and a line more, an odd number of lines: rows side by side meet in no set of a cache."""
    return size + _LINE + -size % _LINE + (size // _LINE % 2) * _LINE
