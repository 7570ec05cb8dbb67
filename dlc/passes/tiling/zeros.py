"""Blocks of zeros, which a kernel sees when it runs: nothing is computed of what they hide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import (
    AffineDimExpr,
    AffineMap,
    Attribute,
    Block,
    BlockArgument,
    BoolAttr,
    IntegerType,
    Region,
    SSAValue,
    arith,
    i1,
    index,
    linalg,
    memref,
)
from dlc.passes.structured import Index, Place
from dlc.passes.tiling.leaf import Leaf
from dlc.passes.tiling.nests import Stage, choice_of
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.ranges import Range, Tile, steps
from dlc.passes.tiling.windows import Window, fill, generic
from dlc.passes.types import memref_of, zero_attribute

# Elements that are looked at together.
_LANES = 32
# Steps of what is reduced that are looked at together.
_STEPS = 8


def any_of(place: Place, window: Window) -> SSAValue:
    """Whether an element of a window is true, or no zero; of floats -0 counts as none."""
    view, axes = window
    element, shape = memref_of(view).element_type, memref_of(view).get_shape()
    bits = i1 if element == i1 else IntegerType(8 * numpy_dtype(element).itemsize)
    zero = place.constants.get(BoolAttr.from_bool(False) if bits == i1 else zero_attribute(bits), bits)
    if shape:
        partial, total = (place.alloca(bits, size, "partial") for size in ((min(_LANES, shape[-1]),), ()))
        fill(place, zero, partial)
        fill(place, zero, total)
        rank = len(axes)
        for at, part in steps(place, Range(0, shape[-1]), memref_of(partial).get_shape()[0], "j"):
            some = at.subview(view, [*(0 for _ in axes[1:]), part.offset], [*shape[:-1], part.size])
            into = at.subview(partial, [0], [part.size])
            maps = [AffineMap.identity(rank), AffineMap(rank, 0, (AffineDimExpr(rank - 1),))]
            generic(at, [some, into], maps, [*(True for _ in axes[1:]), False], _either(element, bits))
        generic(place, [partial, total], [AffineMap.identity(1), AffineMap(1, 0, ())], [True], _either(bits, bits))
        view = total
    found = place.op(memref.LoadOp.get(view, []))
    if not shape and element != bits:
        found = place.op(arith.BitcastOp(found, bits))
    return found if bits == i1 else place.op(arith.CmpiOp(found, zero, "ne"))


def _either(element: Attribute, bits: IntegerType[int]) -> Region:
    """The body of a reduction by `or` of what elements are made of."""
    block = Block(arg_types=[element, bits])
    x: SSAValue = block.args[0]
    if element != bits:
        block.add_op(cast := arith.BitcastOp(x, bits))
        x = cast.result
    block.add_op(both := arith.OrIOp(x, block.args[1]))
    block.add_op(linalg.YieldOp(both.result))
    return Region(block)


class Spans:
    """Where what a contraction reduces begins and ends to be no zeros in an operand, for each register tile of a task.

    They are looked for once for all tiles that read the same of it: %spans[t] = the first such step, and that behind the last.
    """

    def __init__(self, stage: Stage, k: int, plan: TilePlan, tile: Tile, place: Place) -> None:
        access = stage.accesses[k]
        assert access is not None
        self.stage = stage
        self.k = k
        (self.reduced,) = stage.reductions
        self.widths = {d: plan.tile(d) for d in plan.order if access.uses(d)}
        self.tile = tile
        counts = tuple(-(-tile[d].size // width) for d, width in self.widths.items())
        self.table = place.alloca(index, (*counts, 2), "spans")

    def look(self, place: Place, block: Range, leaf: Callable[[Tile], Leaf]) -> None:
        """Looks for them in a block of what is reduced."""
        self._look(place, {self.reduced: block}, list(self.widths), leaf)

    def _look(self, place: Place, part: Tile, dims: Sequence[int], leaf: Callable[[Tile], Leaf]) -> None:
        if dims:
            d, *rest = dims
            for at, some in steps(place, self.tile[d], self.widths[d], f"j{d}"):
                self._look(at, {**part, d: Range(some.offset, some.size, 0, some.within)}, rest, leaf)
            return
        own, whole = leaf(part), part[self.reduced]
        span: list[SSAValue] = [place.value(0), place.value(0)]

        def seen(at: Place, start: Index, size: int, span: Sequence[SSAValue]) -> list[SSAValue]:
            window = own.operand(at, self.stage, self.k, {**own.tile, self.reduced: whole.part(at, start, size)})
            found, none = any_of(at, window), at.compare(span[1], "eq", 0)
            first = at.op(arith.SelectOp(at.op(arith.AndIOp(found, none)), at.value(start), span[0]))
            return [first, at.op(arith.SelectOp(found, at.value(at.add(start, size)), span[1]))]

        main = whole.size - whole.size % _STEPS
        if main:
            loop = place.loop(0, main, _STEPS, span, "s")
            at, (start, *before) = place.inside(loop.body.block), loop.body.block.args
            at.yield_(*seen(at, start, _STEPS, before))
            span = list(loop.results)
        if whole.size > main:
            span = seen(place, main, whole.size - main, span)
        for k, end in enumerate(span):
            place.insert(memref.StoreOp.get(end, self.table, [*self._place(place, part), place.value(k)]))

    def _place(self, place: Place, tile: Tile) -> list[SSAValue]:
        return [place.value(place.floordiv(tile[d].grouped, width)) for d, width in self.widths.items()]

    def of(self, place: Place, tile: Tile) -> dict[int, tuple[SSAValue, SSAValue, int]]:
        """What of the reduced dimension counts in a register tile: from where, to where, in which steps."""
        at = self._place(place, tile)
        first, end = (place.op(memref.LoadOp.get(self.table, [*at, place.value(k)])) for k in range(2))
        return {self.reduced: (first, end, _STEPS)}


def hiding(stage: Stage) -> Iterator[tuple[int, SSAValue | None]]:
    """The operands whose zeros hide what a stage makes of its first one, and what it gives then; None for a zero.

    y = select(mask, f(x), c);  y = x · weight
    """
    if (choice := choice_of(stage)) is not None:
        yield from ((c.index, choice.otherwise) for c in choice.conditions if isinstance(c, BlockArgument))
    body = stage.op.regions[0].block
    last = body.last_op
    product = last.operands[0].owner if last is not None and last.operands else None
    for factor in product.operands if isinstance(product, arith.MulfOp) else ():
        if isinstance(factor, BlockArgument) and factor.owner is body:
            yield factor.index, None


def where_shown(place: Place, leaf: Leaf, k: int) -> Place:
    """Where to compute a register tile, which zeros of the last stage's operand `k` hide elsewhere; that is filled here."""
    last = leaf.nest.stages[-1]
    value = dict(hiding(last))[k]
    target, _ = leaf.operand(place, last, len(last.op.operands) - 1, leaf.tile)
    shown = any_of(place, leaf.operand(place, last, k, leaf.tile))
    element = memref_of(target).element_type
    hidden = place.branch(place.op(arith.XOrIOp(shown, place.constants.get(BoolAttr.from_bool(True), i1))))
    fill(hidden, place.constants.get(zero_attribute(element), element) if value is None else value, target)
    return place.branch(shown)
