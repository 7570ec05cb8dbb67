"""Cutting a nest as its plan says: a grid of tasks, loops over register tiles, the stages on each tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineMapAttr,
    ArrayAttr,
    Block,
    DenseArrayBase,
    IntegerType,
    IteratorTypeAttr,
    MemRefType,
    Operation,
    Region,
    SSAValue,
    linalg,
    scf,
)
from dlc.passes.structured import Constants, Index, Place, memref_of
from dlc.passes.tiling.nests import Nest, Stage, operand_maps
from dlc.passes.tiling.plan import TilePlan


@dataclass(frozen=True)
class Range:
    """`size` iterations from `offset` on; `within` counts from the start of the register tile that they are part of."""

    offset: Index
    size: int
    within: Index = 0


Tile: TypeAlias = Mapping[int, Range]
Continuation: TypeAlias = Callable[[Place, Tile], None]


def apply_tiles(nest: Nest, plan: TilePlan, constants: Constants) -> None:
    """Replaces the stages of a nest, where the first one stands, by tiled code. Raises ValueError for an illegal plan."""
    plan.check(nest)
    first = nest.stages[0].op
    block = first.parent
    assert block is not None
    # Views of the nest's operands may stand between its stages: the grid goes where the last one stands.
    last = nest.stages[-1].op
    _Tiler(nest, plan, constants).grid(Place(constants, block, last.location, anchor=last))
    locals_ = [root.owner for root in nest.locals()]
    for stage in nest.stages:
        stage.op.detach()
        stage.op.erase(safe_erase=False)
    for op in locals_:
        assert isinstance(op, Operation)
        op.detach()
        op.erase(safe_erase=False)


class _Tiler:
    def __init__(self, nest: Nest, plan: TilePlan, constants: Constants) -> None:
        self.nest = nest
        self.plan = plan
        self.constants = constants

    def grid(self, place: Place) -> None:
        extents = self.nest.extents
        cut = [d for d in self.plan.order if self.plan.grid.get(d, extents[d]) < extents[d]]
        bounds = [(extents[d], self.plan.grid[d]) for d in cut] or [(1, 1)]
        grid = place.parallel("grid", bounds, [f"i{d}" for d in cut] or ["task"])
        block = grid.body.block
        starts = dict(zip(cut, block.args, strict=False))
        tile = {d: Range(starts.get(d, 0), self.plan.grid.get(d, extents[d])) for d in self.plan.order}
        inside = place.inside(block)
        self.edges(inside, tile, [d for d in cut if extents[d] % self.plan.grid[d]])
        inside.insert(scf.ReduceOp())

    def edges(self, place: Place, tile: Tile, ragged: Sequence[int]) -> None:
        """A task at the end of a ragged dimension covers what remains there: code of its own."""
        if not ragged:
            self.loops(place, tile, self.plan.order)
            return
        d, *rest = ragged
        extent, (start, size) = self.nest.extents[d], (tile[d].offset, tile[d].size)
        assert isinstance(start, SSAValue)
        inner, edge = Block(), Block()
        condition = place.compare(start, "ule", extent - size)
        place.insert(scf.IfOp(condition, [], Region(inner), Region(edge)))
        for block, covered in ((inner, size), (edge, extent % size)):
            self.edges(place.inside(block), {**tile, d: Range(start, covered)}, rest)
            place.inside(block).yield_()

    def loops(self, place: Place, tile: Tile, order: Sequence[int]) -> None:
        """Loops over the register tiles of the task's part, dimension by dimension."""
        if not order:
            self.leaf(place, tile)
            return
        d, *rest = order
        self.steps(place, tile, d, self.plan.tile(d), lambda p, t: self.loops(p, t, rest))

    def steps(self, place: Place, tile: Tile, d: int, step: int, then: Continuation) -> None:
        """Runs `then` on each part of `step` iterations of dimension `d`, and on what remains."""
        whole = tile[d]
        main = whole.size - whole.size % step

        def part(at: Place, start: Index, size: int) -> Tile:
            return {**tile, d: Range(at.add(whole.offset, start), size, at.add(whole.within, start))}

        if main == step:
            then(place, part(place, 0, step))
        elif main:
            loop = place.loop(0, main, step, name=f"j{d}")
            inside = place.inside(loop.body.block)
            then(inside, part(inside, loop.body.block.args[0], step))
            inside.yield_()
        if whole.size > main:
            then(place, part(place, main, whole.size - main))

    def leaf(self, place: Place, tile: Tile) -> None:
        """All stages on one tile, with local buffers of the tile's size."""
        whole = {d: Range(0, e) for d, e in self.nest.extents.items()}
        register_tile = {d: Range(r.offset, r.size) for d, r in tile.items()}
        leaf = _Leaf(self, {**whole, **register_tile})
        leaf.make_locals(place)
        for k, stage in enumerate(self.nest.stages):
            leaf.stage(place.located(stage.op.location), stage, self.plan.steps.get(k, {}))


class _Leaf:
    def __init__(self, tiler: _Tiler, tile: Tile) -> None:
        self.tiler = tiler
        self.nest = tiler.nest
        self.tile = tile
        self.locals: dict[SSAValue, SSAValue] = {}
        self.views: dict[tuple[Any, ...], SSAValue] = {}

    def stage(self, place: Place, stage: Stage, steps: Mapping[int, int]) -> None:
        tile = {d: self.tile[d] for d in stage.dims if d >= 0}
        steps = {d: n for d, n in {**self.tiler.plan.chunks, **steps}.items() if d in tile and n < tile[d].size}
        split = [d for d in steps if d in stage.reductions]
        if split:
            self.split_reduction(place, stage, tile, split[0])
        else:
            self.stepwise(place, stage, tile, list(steps.items()))

    def stepwise(self, place: Place, stage: Stage, tile: Tile, steps: Sequence[tuple[int, int]]) -> None:
        """Loops over parts of the tile that are computed at once."""
        if not steps:
            self.emit(place, stage, tile)
            return
        (d, step), *rest = steps
        self.tiler.steps(place, tile, d, step, lambda p, t: self.stepwise(p, stage, t, rest))

    def split_reduction(self, place: Place, stage: Stage, tile: Tile, d: int) -> None:
        """A reduction along contiguous memory keeps `chunk` partial results and combines them at the end.

        p = identity : [chunk];  for k: p[j] = combine(p[j], x[k + j]);  y = reduce(p)
        """
        width = self.tiler.plan.chunks[d]
        combiner = combiner_of(stage)
        identity = identity_of(stage, self.nest)
        if combiner is None or identity is None:
            raise UnsupportedError(f"chunks[d{d}]: the reduction has no combiner or identity to split it with")
        kept = [t for t in stage.dims if t >= 0 and t not in stage.reductions and tile[t].size > 1]
        out = stage.op.operands[-1]
        shape = (*(tile[t].size for t in kept), width)
        partial = place.alloca(memref_of(out).element_type, shape, "partial")
        _fill(place, identity, partial)

        def body(p: Place, t: Tile) -> None:
            window = p.subview(partial, [0] * len(shape), (*shape[:-1], t[d].size))
            self.emit(p, stage, t, partial=(window, [*kept, d]))

        self.tiler.steps(place, tile, d, width, body)
        target = self.operand(place, out, stage, len(stage.op.operands) - 1, tile)
        rank = len(kept) + 1
        maps = [AffineMap.identity(rank), AffineMap(rank, 0, tuple(AffineDimExpr(kept.index(d)) for d in target[1]))]
        region = Region(Block(arg_types=[memref_of(out).element_type] * 2))
        block = region.block
        result = combiner.clone({v: a for v, a in zip(combiner.operands, block.args, strict=True)})
        block.add_op(result)
        block.add_op(linalg.YieldOp(result.results[0]))
        _generic(place, [partial, target[0]], maps, [False] * len(kept) + [True], region)

    def emit(self, place: Place, stage: Stage, tile: Tile, partial: tuple[SSAValue, list[int]] | None = None) -> None:
        """The stage's op on the part of its operands that the tile touches; `partial` replaces the output."""
        dims = [d for d in stage.dims if d >= 0 and tile[d].size > 1]
        operands: list[SSAValue] = []
        maps: list[AffineMap] = []
        for k, operand in enumerate(stage.op.operands):
            if not isinstance(operand.type, MemRefType):
                operands.append(operand)
                maps.append(AffineMap(len(dims), 0, ()))
                continue
            if partial is not None and k == len(stage.op.operands) - 1:
                view, used = partial[0], partial[1]
                used = [d for d in used if tile[d].size > 1]
                view = _without_units(place, view)
            else:
                view, used = self.operand(place, operand, stage, k, tile)
            operands.append(view)
            maps.append(AffineMap(len(dims), 0, tuple(AffineDimExpr(dims.index(d)) for d in used)))
        if isinstance(stage.op, linalg.FillOp):
            _fill(place, operands[0], operands[1])
            return
        reduced = [d in stage.reductions and (partial is None or d not in partial[1]) for d in dims]
        region = _clone_body(place, stage, tile, dims)
        _generic(place, operands, maps, reduced, region)

    def operand(self, place: Place, operand: SSAValue, stage: Stage, k: int, tile: Tile) -> tuple[SSAValue, list[int]]:
        """The window of an operand under the tile, and the dimension that each of its axes of size > 1 follows."""
        a = stage.accesses[k]
        assert a is not None
        parts = [_part(place, expr, stage.dims, tile) for expr in operand_maps(stage.op)[k].results]
        if a.root in self.locals:
            # A local buffer has the register tile's own size, and no axis where that is 1.
            operand = self.locals[a.root]
            parts = [(d, Range(r.within, r.size)) for d, r in parts if self.tile[d].size > 1]
        offsets = [r.offset for _, r in parts]
        sizes = [r.size for _, r in parts]
        key = (operand, *offsets, *sizes, place.block)
        if key not in self.views:
            drop = [i for i, size in enumerate(sizes) if size == 1]
            self.views[key] = place.subview(operand, offsets, sizes, drop)
        return self.views[key], [d for d, r in parts if r.size > 1]

    def make_locals(self, place: Place) -> None:
        """The local buffers for one tile."""
        for stage in self.nest.stages:
            root = stage.output.root
            if root in self.locals or root not in self.nest.locals():
                continue
            dims = [_part(place, e, stage.dims, self.tile)[0] for e in operand_maps(stage.op)[-1].results]
            shape = tuple(self.tile[d].size for d in dims if self.tile[d].size > 1)
            self.locals[root] = place.alloca(memref_of(root).element_type, shape, root.name_hint)


def _part(place: Place, expr: AffineExpr, dims: Sequence[int], tile: Tile) -> tuple[int, Range]:
    """The dimension that a map result follows, and the part of the operand's axis that the tile covers."""
    match expr:
        case AffineDimExpr(i):
            return dims[i], tile[dims[i]]
        case AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, AffineDimExpr(i), AffineConstantExpr(panel)):
            # A tile lies inside one panel and starts where the panel does (TilePlan.check).
            return dims[i], Range(place.floordiv(tile[dims[i]].offset, panel), 1)
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mod, AffineDimExpr(i), AffineConstantExpr()):
            return dims[i], Range(0, tile[dims[i]].size)
        case _:
            raise UnsupportedError(f"tile-kernels: access by {expr}; run collapse-iterators before")


def combiner_of(stage: Stage) -> Operation | None:
    """The op that combines the accumulator with an element, if the body ends in one such op."""
    body = stage.op.regions[0].block
    accumulator = body.args[-1]
    last = body.last_op
    combined = last.operands[0].owner if last is not None and last.operands else None
    uses = list(accumulator.uses)
    if not isinstance(combined, Operation) or len(uses) != 1 or uses[0].operation is not combined:
        return None
    # Operands in the order (accumulator, element), as the final reduction passes them.
    return combined if len(combined.operands) == 2 and len(combined.results) == 1 else None


def identity_of(stage: Stage, nest: Nest) -> SSAValue | None:
    """The scalar that the accumulator was filled with."""
    for other in nest.stages:
        if isinstance(other.op, linalg.FillOp) and other.output.root is stage.output.root:
            return other.op.operands[0]
    return None


def _without_units(place: Place, view: SSAValue) -> SSAValue:
    shape = memref_of(view).get_shape()
    return place.subview(view, [0] * len(shape), shape, [i for i, size in enumerate(shape) if size == 1])


def _fill(place: Place, value: SSAValue, target: SSAValue) -> None:
    body = Block(arg_types=[value.type, value.type])
    body.add_op(linalg.YieldOp(body.args[0]))
    segments = {"operandSegmentSizes": _segments(1, 1)}
    place.insert(linalg.FillOp.create(operands=[value, target], properties=segments, regions=[Region(body)]))


def _generic(
    place: Place, operands: Sequence[SSAValue], maps: Sequence[AffineMap], reduced: Sequence[bool], region: Region
) -> None:
    kinds = {True: IteratorTypeAttr.reduction(), False: IteratorTypeAttr.parallel()}
    place.insert(
        linalg.GenericOp.create(
            operands=operands,
            properties={
                "indexing_maps": ArrayAttr([AffineMapAttr(m) for m in maps]),
                "iterator_types": ArrayAttr([kinds[r] for r in reduced]),
                "operandSegmentSizes": _segments(len(operands) - 1, 1),
            },
            regions=[region],
        )
    )


def _segments(inputs: int, outputs: int) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(IntegerType(32), [inputs, outputs])


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
