"""Skip the products of a blocked task with zeros: at both ends of a reduction, and in masked register tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlc.ir import BlockArgument, BoolAttr, SSAValue, arith, i1, index, memref
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.buffer_views import any_nonzero, fill
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, fold_steps, nested_steps
from dlc.passes.tiling.loop_nests import NestOp, masked_select_of
from dlc.passes.tiling.tile_body import TileBody
from dlc.passes.types import memref_of, zero_attribute

# k iterations per test.
_STEPS_PER_TEST = 8


class NonzeroSpans:
    """For each register tile of a task: the span of k iterations that includes all nonzero elements of an operand.

    Tiles that read the same elements share a span: %spans[t] = (first nonzero iteration, end after the last one).
    """

    def __init__(self, nest_op: NestOp, k: int, plan: BlockedTiles, tile: Tile, builder: OpBuilder) -> None:
        access = nest_op.input_accesses[k]
        self.nest_op = nest_op
        self.k = k
        (self.reduced,) = nest_op.reductions
        self.widths = {d: plan.tile(d) for d in plan.order if access.uses(d)}
        self.tile = tile
        counts = tuple(-(-tile[d].size // width) for d, width in self.widths.items())
        self.table = builder.alloca(index, (*counts, 2), "spans")

    def find_spans(self, builder: OpBuilder, block: IterationRange, tile_body: Callable[[Tile], TileBody]) -> None:
        """Emit the computation of the spans in a block of the reduction, in loops over the tiles of the operand."""
        for body_builder, ranges in nested_steps(builder, self.tile, self.widths):
            operand_tile = {d: IterationRange(ranges[d].offset, ranges[d].size, 0, ranges[d].tile_offset) for d in self.widths}
            self._find_span(body_builder, {self.reduced: block, **operand_tile}, tile_body)

    def _find_span(self, builder: OpBuilder, ranges: Tile, tile_body: Callable[[Tile], TileBody]) -> None:
        """Emit the scan of a tile, and store its span in the table."""
        body, reduced_range = tile_body(ranges), ranges[self.reduced]

        def extended_span(body_builder: OpBuilder, start: Index, size: int, span: Sequence[SSAValue]) -> list[SSAValue]:
            step_view = body.operand_view(
                body_builder,
                self.nest_op,
                self.k,
                {**body.tile, self.reduced: reduced_range.subrange(body_builder, start, size)},
            )
            is_nonzero, is_first = any_nonzero(body_builder, step_view), body_builder.compare(span[1], "eq", 0)
            new_first = body_builder.op(
                arith.SelectOp(body_builder.op(arith.AndIOp(is_nonzero, is_first)), body_builder.value(start), span[0])
            )
            return [
                new_first,
                body_builder.op(arith.SelectOp(is_nonzero, body_builder.value(body_builder.add(start, size)), span[1])),
            ]

        bounds = (0, reduced_range.size, _STEPS_PER_TEST)
        span = fold_steps(builder, bounds, [builder.value(0), builder.value(0)], extended_span, "s")
        for k, end in enumerate(span):
            builder.insert(memref.StoreOp.get(end, self.table, [*self._table_indices(builder, ranges), builder.value(k)]))

    def _table_indices(self, builder: OpBuilder, tile: Tile) -> list[SSAValue]:
        """Return the indices of a register tile in the table of spans."""
        return [builder.value(builder.floordiv(tile[d].group_offset, width)) for d, width in self.widths.items()]

    def of(self, builder: OpBuilder, tile: Tile) -> dict[int, tuple[SSAValue, SSAValue, int]]:
        """Return the k iterations that a register tile needs, for `TileBody.spans`: first, end, step size."""
        table_indices = self._table_indices(builder, tile)
        first, end = (builder.op(memref.LoadOp.get(self.table, [*table_indices, builder.value(k)])) for k in range(2))
        return {self.reduced: (first, end, _STEPS_PER_TEST)}


def mask_operands(nest_op: NestOp) -> Iterator[tuple[int, SSAValue | None]]:
    """Yield the operands of an op whose zeros make its first operand irrelevant.

    Each is paired with the value of the result where it is zero; None means 0.

    y = select(mask, f(x), c);  y = x · weight
    """
    if (masked_select := masked_select_of(nest_op)) is not None:
        yield from ((c.index, masked_select.masked_value) for c in masked_select.conditions if isinstance(c, BlockArgument))
    body = nest_op.body
    yield_op = body.last_op
    product = yield_op.operands[0].owner if yield_op is not None and yield_op.operands else None
    for factor in product.operands if isinstance(product, arith.MulfOp) else ():
        if isinstance(factor, BlockArgument) and factor.owner is body:
            yield factor.index, None


def branch_unless_masked(builder: OpBuilder, tile_body: TileBody, k: int) -> OpBuilder:
    """Skip a register tile if the last op's operand `k` is all zeros; return the builder inside the guard.

    A skipped output is filled with the masked value.
    """
    nest_op = tile_body.nest.ops[-1]
    value = dict(mask_operands(nest_op))[k]
    output, _ = tile_body.output_view(builder, nest_op, tile_body.tile)
    is_unmasked = any_nonzero(builder, tile_body.operand_view(builder, nest_op, k, tile_body.tile))
    element = memref_of(output).element_type
    masked_builder = builder.branch(builder.op(arith.XOrIOp(is_unmasked, builder.constants.get(BoolAttr.from_bool(True), i1))))
    fill(masked_builder, builder.constants.get(zero_attribute(element), element) if value is None else value, output)
    return builder.branch(is_unmasked)
