"""The stages of a nest on one tile: structured ops on the windows of their operands that the tile touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

from dlc.dialects.sizes import strides_of
from dlc.dialects.unrolled import UNROLLED
from dlc.dims import Size, is_multiple
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    MemRefType,
    Operation,
    Region,
    SSAValue,
    UnitAttr,
    arith,
    linalg,
    memref,
)
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.forms import KnownProduct, Terms, form_body, known_product, shared_forms
from dlc.passes.tiling.nests import Nest, Stage, can_split, identity_of
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.ranges import Range, Tile, open_steps, steps, steps_between
from dlc.passes.tiling.scatter import scatter_of
from dlc.passes.tiling.scatter import split as split_scatter
from dlc.passes.tiling.structured_ops import IN_HALVES, ONE_STEP, operand_maps
from dlc.passes.tiling.windows import Window, combine, copy, element_of, fill, generic, without_units
from dlc.passes.types import memref_of

# Steps of a reduction by an item that are written one by one.
_WRITTEN_OUT = 64


@dataclass(frozen=True)
class Local:
    """A buffer of the leaf, and the dimensions that its axes follow; `shared` by the items of a group, or an item's own."""

    buffer: SSAValue
    dims: tuple[int, ...]
    shared: bool = False

    def start(self, r: Range) -> Index:
        return r.grouped if self.shared else r.within


Continuation: TypeAlias = Callable[[Place, Tile], None]


class Leaf:
    """All stages on one tile, with local buffers of the tile's size.

    `lengths` are the extents, of dimensions of single stages, that are known only when the kernel runs.
    """

    def __init__(self, nest: Nest, plan: TilePlan, tile: Tile, lengths: Mapping[int, Size] | None = None) -> None:
        self.nest = nest
        self.plan = plan
        self.lengths = lengths or {}
        whole = {d: Range(0, e) for d, e in nest.extents.items()}
        self.tile: Tile = {**whole, **tile}
        self.locals: dict[SSAValue, Local] = {}
        # Operands of ops, by position, that are read from a copy: its window.
        self.copies: dict[tuple[Operation, int], Callable[[Place, Tile], Window]] = {}
        self.views: dict[tuple[Any, ...], SSAValue] = {}
        # Dimensions of which only a part counts in reductions: from where, to where, in which steps.
        self.spans: Mapping[int, tuple[Index, Index, int]] = {}
        # Reductions whose accumulator is filled where they begin, and with what.
        self.starts: dict[Operation, SSAValue] = {}

    def run(self, place: Place) -> None:
        self.allocate(place)
        self.stages(place, self.nest.stages, self.tile)

    def allocate(self, place: Place) -> None:
        """Buffers for what lives inside the nest, with room for one block of what runs."""
        running = () if self.plan.running is None else (self.plan.running,)
        for root in self.local_roots():
            if (source := self.overwritten(root)) is not None:
                self.locals[root] = self.locals[source]
            else:
                self.make_local(place, root, {d: r.size for d, r in self.tile.items()} | dict(running))

    def stages(self, place: Place, stages: Sequence[Stage], tile: Tile) -> None:
        for stage, following in zip(stages, [*stages, None][1:], strict=True):
            if following is not None and self.begins(stage, following, tile):
                self.starts[following.op] = stage.op.operands[0]
            else:
                self.stage(place.located(stage.op.location), stage, {d: tile[d] for d in stage.dims if d >= 0})

    def begins(self, stage: Stage, following: Stage, tile: Tile) -> bool:
        """Whether a stage only fills what the following one accumulates in, part by part: they go in the same steps then."""
        if not isinstance(stage.op, linalg.FillOp) or following.output.root is not stage.output.root:
            return False
        return following.scattered is None and following.reductions.isdisjoint([*self.wanted(following, tile), *self.spans])

    def wanted(self, stage: Stage, tile: Tile) -> dict[int, int]:
        """The steps that the plan asks for in a stage on a tile."""
        own = self.plan.steps.get(self.nest.stages.index(stage), {})
        whole = dict.fromkeys(self.lengths, 1)
        asked = {**whole, **self.plan.chunks, **own}
        mine = [d for d in asked if d in stage.dims and d != stage.scattered]
        # Partial results are made of a row that goes at once, too.
        partial = {d for d in mine if d in stage.reductions and asked[d] > 1}
        return {d: asked[d] for d in mine if asked[d] < tile[d].size or d in self.lengths or d in partial}

    def parts(self, place: Place, tile: Tile, d: int, step: int) -> Iterator[tuple[Place, Range]]:
        """Where to compute each part of `step` iterations along a dimension of a stage, and what remains."""
        if d not in self.lengths:
            return steps(place, tile[d], step, f"j{d}")
        extent = self.lengths[d]
        return open_steps(place, tile[d], place.size(extent), step, is_multiple(extent, step), f"j{d}")

    def stage(self, place: Place, stage: Stage, tile: Tile) -> None:
        """A stage on a tile, in the steps that the plan asks for."""
        wanted = self.wanted(stage, tile)
        if stage.scattered is not None:
            self.scatter(place, stage, tile, [d for d in stage.dims if d in stage.reductions])
            return
        spanned = next((d for d in self.spans if d in stage.reductions), None)
        split = next((d for d in wanted if d in stage.reductions), None)
        if spanned is not None:
            target = self.operand(place, stage, len(stage.op.operands) - 1, tile)
            first, end, step = self.spans[spanned]
            parts = steps_between(place, tile[spanned], step, first, end, f"k{spanned}")
            self.split_reduction(place, stage, tile, spanned, target, parts)
        elif any(d in self.lengths for d in stage.reductions):
            in_order = sorted(wanted.items(), key=lambda w: (w[0] in stage.reductions, w[1]))
            self.lengthwise(place, stage, tile, in_order)
        elif split is not None:
            target = self.operand(place, stage, len(stage.op.operands) - 1, tile)
            self.split_reduction(place, stage, tile, split, target, steps(place, tile[split], wanted[split], f"j{split}"))
        else:
            self.stepwise(place, stage, tile, list(wanted.items()))

    def stepwise(self, place: Place, stage: Stage, tile: Tile, wanted: Sequence[tuple[int, int]]) -> None:
        """Loops over parts of the tile that are computed at once."""
        if not wanted:
            self.emit(place, stage, tile)
            return
        (d, step), *rest = wanted
        for at, part in self.parts(place, tile, d, step):
            self.stepwise(at, stage, {**tile, d: part}, rest)

    def lengthwise(self, place: Place, stage: Stage, tile: Tile, wanted: Sequence[tuple[int, int]]) -> None:
        """A reduction along lengths: all that it keeps part by part, and what it reduces last in partial results."""
        (d, step), *rest = wanted
        if not rest and can_split(stage, self.nest):
            target = self.operand(place, stage, len(stage.op.operands) - 1, tile)
            self.split_reduction(place, stage, tile, d, target, self.parts(place, tile, d, step))
            return
        for at, part in self.parts(place, tile, d, step):
            if rest:
                self.lengthwise(at, stage, {**tile, d: part}, rest)
            else:
                self.emit(at, stage, {**tile, d: part})

    def split_reduction(
        self, place: Place, stage: Stage, tile: Tile, d: int, target: Window, parts: Iterator[tuple[Place, Range]]
    ) -> None:
        """A reduction along contiguous memory keeps `chunk` partial results and combines them at the end.

        p = identity : [chunk];  for k: p[j] = combine(p[j], x[k + j]);  y = reduce(p)

        What is left over has partial results of its own: those of all of a chunk, written in part, would be read as a whole.
        """
        width = min(self.partial_results(d), tile[d].size)
        kept = [t for t in target[1] if tile[t].size > 1]
        partial = self.partial(place, stage, tile, kept, width)
        for at, part in parts:
            if at.block is place.block and 1 < part.size < width:
                rest = self.partial(at, stage, tile, kept, part.size)
                self.emit(at, stage, {**tile, d: part}, {len(stage.op.operands) - 1: (rest, [*kept, d])})
                combine(at, stage, (rest, [*kept, d]), target)
                continue
            window, axes = partial, kept
            if width > 1:
                sizes = (*(tile[t].size for t in kept), part.size)
                window = without_units(at, at.subview(partial, [0] * len(sizes), sizes))
                axes = [*kept, d] if part.size > 1 else kept
            self.emit(at, stage, {**tile, d: part}, {len(stage.op.operands) - 1: (window, axes)})
        combine(place, stage, (partial, [*kept, d] if width > 1 else kept), target)

    def partial_results(self, d: int) -> int:
        """How many of each result there are along a dimension that is reduced."""
        return self.plan.chunks.get(d, 1)

    def partial(self, place: Place, stage: Stage, tile: Tile, kept: Sequence[int], width: int) -> SSAValue:
        """A buffer of partial results: of what is kept, and so many of each along what is reduced."""
        shape = (*(tile[t].size for t in kept), *([width] if width > 1 else []))
        partial = place.alloca(memref_of(stage.op.operands[-1]).element_type, shape, "partial")
        fill(place, identity_of(stage, self.nest), partial)
        return partial

    def scatter(self, place: Place, stage: Stage, tile: Tile, dims: Sequence[int]) -> None:
        """A scatter step by step, each on the row that it names."""
        for d in dims[:1]:
            for at, one in self.parts(place, tile, d, 1):
                self.scatter(at, stage, {**tile, d: one}, dims[1:])
            return
        scatter, rows = scatter_of(stage.op), stage.scattered
        assert isinstance(stage.op, linalg.GenericOp) and scatter is not None and rows is not None

        def load(k: int) -> SSAValue:
            window, _ = self.operand(place, stage, k, tile)
            return place.op(memref.LoadOp.get(window, []))

        row, body = split_scatter(stage.op, scatter, place, load)
        op = linalg.GenericOp.create(operands=stage.op.operands, properties=stage.op.properties, regions=[body])
        self.emit(place, replace(stage, op=op, reductions=frozenset()), {**tile, rows: Range(row, 1, row, row)})
        op.erase()

    def emit(self, place: Place, stage: Stage, tile: Tile, windows: Mapping[int, Window] | None = None) -> None:
        """The stage's op on the part of its operands that the tile touches; `windows` replace operands, by position."""
        windows = windows or {}
        dims = [d for d in stage.dims if d >= 0 and tile[d].size > 1]
        operands: list[SSAValue] = []
        maps: list[AffineMap] = []
        output: Sequence[int] = ()
        for k, operand in enumerate(stage.op.operands):
            view, output = operand, list[int]()
            if isinstance(operand.type, MemRefType):
                view, output = windows[k] if k in windows else self.operand(place, stage, k, tile)
            operands.append(view)
            sizes = memref_of(view).get_shape() if isinstance(view.type, MemRefType) else ()
            repeated = (tile[d].size // size for d, size in zip(output, sizes, strict=True))
            maps.append(
                AffineMap(len(dims), 0, tuple(_repeated(dims.index(d), n) for d, n in zip(output, repeated, strict=True)))
            )
        lane = output[-1] if output else None
        if lane is not None and any(_lies_apart(v, m, dims.index(lane)) for v, m in zip(operands, maps, strict=True)):
            for at, one in steps(place, Range(0, tile[lane].size), 1, f"j{lane}"):
                own = {k: element_of(at, window, lane, one.offset) for k, window in windows.items()}
                self.emit(at, stage, {**tile, lane: tile[lane].part(at, one.offset, 1)}, own)
            return
        if isinstance(stage.op, linalg.FillOp):
            fill(place, operands[0], operands[1])
            return
        product = None if windows else known_product(stage, self.nest)
        if product is not None and product.shape == (tile[product.row].size, tile[product.column].size):
            self.emit_forms(place, stage, tile, product, [d for d in output if d != product.row])
            return
        if stage.op in self.starts:
            fill(place, self.starts[stage.op], operands[-1])
        # Partial results of a reduction have an axis along it.
        reduced = [d in stage.reductions and d not in output for d in dims]
        body = _clone_body(place, stage, tile, dims)
        op, last = generic(place, operands, maps, reduced, body), body.block.last_op
        if stage.reductions and all(tile[d].size == 1 for d in stage.reductions):
            op.attributes[ONE_STEP] = UnitAttr()
        adds = last is not None and isinstance(last.operands[0].owner, arith.AddfOp)
        # A stage may lie along none of them, such as a copy of weights.
        rows = prod(tile[d].size for d in self.plan.register if d in self.nest.open and d in tile)
        if adds and stage.is_contraction and rows < self.plan.even:
            op.attributes[IN_HALVES] = UnitAttr()
        read = [k for k in windows if k < len(stage.op.operands) - 1]
        if self.plan.items is not None and not read and 1 < prod(tile[d].size for d in stage.reductions) <= _WRITTEN_OUT:
            # Loads from far away do not wait for one another then.
            op.attributes[UNROLLED] = UnitAttr()

    def emit_forms(self, place: Place, stage: Stage, tile: Tile, product: KnownProduct, dims: Sequence[int]) -> None:
        """The product with a known matrix, all of it: what its rows, of these dimensions, share comes first.

        Buffers of the tile's size hold that, which are values once stores are forwarded.
        """
        made, rows = shared_forms(product.matrix)
        shape, identity = tuple(tile[d].size for d in dims), AffineMap.identity(len(dims))
        read = {k for terms in (*made, *rows) for k, _ in terms}
        values: dict[int, SSAValue] = {}

        def add_up(terms: Terms, window: Window) -> None:
            operands = [*(values[k] for k, _ in terms), window[0]]
            maps = [*(identity for _ in terms), AffineMap(len(dims), 0, tuple(AffineDimExpr(dims.index(d)) for d in window[1]))]
            generic(place, operands, maps, [False] * len(dims), form_body(terms, product.element, place.constants))

        def buffer(k: int) -> Window:
            values[k] = place.alloca(product.element, shape, f"x{k}")
            return values[k], dims

        for k in range(product.shape[1]):
            if k in read:
                at = {**tile, product.column: tile[product.column].part(place, k, 1)}
                copy(place, self.operand(place, stage, 0, at), buffer(k))
        for k, terms in enumerate(made, product.shape[1]):
            add_up(terms, buffer(k))
        for r, terms in enumerate(rows):
            at = {**tile, product.row: tile[product.row].part(place, r, 1)}
            add_up(terms, self.operand(place, stage, len(stage.op.operands) - 1, at))

    def operand(self, place: Place, stage: Stage, k: int, tile: Tile) -> Window:
        """The window of an operand under the tile, and the dimension that each of its axes of size > 1 follows."""
        if (stage.op, k) in self.copies:
            return self.copies[stage.op, k](place, tile)
        a = stage.accesses[k]
        assert a is not None
        operand = stage.op.operands[k]
        parts = [part_of(place, expr, stage.dims, tile) for expr in operand_maps(stage.op)[k].results]
        if a.root in self.locals:
            local = self.locals[a.root]
            operand = local.buffer
            parts = [(d, Range(local.start(r), r.size)) for d, r in parts if d in local.dims]
        return self.window(place, operand, parts)

    def window(self, place: Place, buffer: SSAValue, parts: Sequence[tuple[int, Range]]) -> Window:
        """The part of a buffer that covers a range of each axis; axes of size 1 go."""
        offsets = [r.offset for _, r in parts]
        sizes = [r.size for _, r in parts]
        key = (buffer, *offsets, *sizes, place.block)
        if key not in self.views:
            drop = [i for i, size in enumerate(sizes) if size == 1]
            self.views[key] = place.subview(buffer, offsets, sizes, drop)
        return self.views[key], [d for d, r in parts if r.size > 1]

    def local_roots(self) -> list[SSAValue]:
        """The buffers that live inside the nest, in the order in which they are first written."""
        roots = self.nest.locals()
        return list(dict.fromkeys(s.output.root for s in self.nest.stages if s.output.root in roots))

    def make_local(self, place: Place, root: SSAValue, sizes: Mapping[int, int]) -> None:
        """A local buffer for one tile; it has no axis where the tile's size is 1."""
        dims = tuple(d for d in self.axes_of(root) if sizes[d] > 1)
        shape = tuple(sizes[d] for d in dims)
        self.locals[root] = Local(place.alloca(memref_of(root).element_type, shape, root.name_hint), dims)

    def overwritten(self, root: SSAValue) -> SSAValue | None:
        """The buffer of an earlier sweep that a stage makes `root` of, element by element, and nobody else reads after it."""
        stages = self.nest.stages
        stage = next(s for s in stages if s.output.root is root)
        sweep = next((s for s in self.plan.sweeps if stage in stages[s.first : s.last]), None)
        if sweep is None or stage.reductions or any(d not in stage.dims for d, _ in sweep.steps):
            return None
        earlier = stages[: sweep.first]
        for read in stage.inputs:
            used = [s for s in stages if any(a is not None and a.root is read.root for a in s.accesses)]
            alike = read._replace(root=root) == stage.output and read.root.type == root.type
            if read.root in self.locals and alike and all(s is stage or s in earlier for s in used):
                return read.root
        return None

    def axes_of(self, root: SSAValue) -> list[int]:
        """The dimensions along which a buffer of the nest is written."""
        stage = next(s for s in self.nest.stages if s.output.root is root)
        return [part_of(None, e, stage.dims, self.tile)[0] for e in operand_maps(stage.op)[-1].results]


def _lies_apart(operand: SSAValue, map_: AffineMap, iterator: int) -> bool:
    """Whether the elements of an operand along an iterator lie at a distance that is known only when the kernel runs."""
    if not isinstance(operand.type, MemRefType):
        return False
    strides = zip(map_.results, strides_of(operand), strict=True)
    return any(e == AffineDimExpr(iterator) and not isinstance(stride, int) for e, stride in strides)


def _repeated(iterator: int, times: int) -> AffineExpr:
    """Where an operand is read that has each element so many times along an iterator."""
    expr = AffineDimExpr(iterator)
    return expr if times == 1 else AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, expr, AffineConstantExpr(times))


def part_of(place: Place | None, expr: AffineExpr, dims: Sequence[int], tile: Tile) -> tuple[int, Range]:
    """The dimension that a map result follows, and the part of the operand's axis that the tile covers."""
    match expr:
        case AffineDimExpr(i):
            return dims[i], tile[dims[i]]
        case AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, AffineDimExpr(i), AffineConstantExpr(panel)) if place:
            # A tile lies inside one panel, or has all of some (TilePlan.check).
            r = tile[dims[i]]
            return dims[i], Range(place.floordiv(r.offset, panel), max(1, r.size // panel))
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mod, AffineDimExpr(i), AffineConstantExpr(panel)) if place:
            r = tile[dims[i]]
            return dims[i], Range(place.remainder(r.offset, panel) if r.size < panel else 0, r.size)
        case _:
            raise UnsupportedError(f"tile-kernels: access by {expr}; run collapse-iterators before")


def _clone_body(place: Place, stage: Stage, tile: Tile, dims: Sequence[int]) -> Region:
    """The op's scalar body; its iteration indices count from the tile's offset."""
    region = stage.op.regions[0].clone()
    for op in list(region.block.ops):
        if not isinstance(op, linalg.IndexOp):
            continue
        d = stage.dims[op.dim.value.data]
        inner = Place(place.constants, region.block, op.location, anchor=op)
        index: Index = inner.op(linalg.IndexOp(dims.index(d))) if d in dims else 0
        op.result.replace_all_uses_with(inner.value(inner.add(tile[d].offset, index)))
        op.detach()
        op.erase()
    return region
