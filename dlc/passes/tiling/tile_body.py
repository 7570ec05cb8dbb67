"""The body of a register tile: the ops of a nest, as structured ops on subviews of their operands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlc.ir import MemRefType, Operation, Region, SSAValue, UnitAttr, erase_op, linalg, memref
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.affine_access import AffineTerm
from dlc.passes.tiling.buffer_views import BufferView, combine, fill, generic, subview
from dlc.passes.tiling.constant_matrix_products import emit_constant_matrix_product, match_constant_matrix_product
from dlc.passes.tiling.iteration_ranges import (
    IterationRange,
    RangeSteps,
    Tile,
    TileSteps,
    dynamic_steps,
    nested,
    steps,
    steps_between,
)
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, can_split, identity_of
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.scatter_tiles import scatter_of
from dlc.passes.tiling.scatter_tiles import split as split_scatter
from dlc.passes.tiling.structured_ops import ONE_STEP
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size
from dlc.shapes.polynomials import is_multiple


@dataclass(frozen=True)
class LocalBuffer:
    """A local buffer and the dimensions of its axes; shared by the work-items of a group, or private to a work-item."""

    buffer: SSAValue
    dims: tuple[int, ...]
    is_shared: bool = False

    def offset_of(self, r: IterationRange) -> Index:
        """Return the offset of a range in the buffer."""
        return r.group_offset if self.is_shared else r.tile_offset


class TileBody:
    """All ops on one register tile, with local buffers of the tile's size.

    `dynamic_extents` are the symbolic extents of private dimensions. Each kind of plan whose code differs has a subclass.
    """

    def __init__(
        self, nest: SizedLoopNest, plan: TilePlan, tile: Tile, dynamic_extents: Mapping[int, Size] | None = None
    ) -> None:
        self.nest = nest
        self.op_steps = plan.op_steps
        self.dynamic_extents = dynamic_extents or {}
        full_ranges = {d: IterationRange(0, e) for d, e in nest.extents.items()}
        self.tile: Tile = {**full_ranges, **tile}
        self.local_buffers: dict[SSAValue, LocalBuffer] = {}
        # For operands (op, position) that are read from a packed copy: the function that returns the copy's view.
        self.copies: dict[tuple[Operation, int], Callable[[OpBuilder, Tile], BufferView]] = {}
        self.views: dict[tuple[Any, ...], SSAValue] = {}
        # For dimensions along which reductions are limited to a span: first index, end, step.
        self.spans: Mapping[int, tuple[Index, Index, int]] = {}
        # The initial value of reductions whose accumulator is filled immediately before.
        self.initial_values: dict[Operation, SSAValue] = {}

    def run(self, builder: OpBuilder) -> None:
        """Allocate the local buffers of the nest, and emit all of its ops."""
        self.make_locals(builder)
        self.emit_nest_ops(builder, self.nest.ops, self.tile)

    def make_locals(self, builder: OpBuilder, excluded: Collection[SSAValue] = ()) -> None:
        """Allocate the local buffers of the nest, except for `excluded` ones."""
        for root in self.local_roots():
            if root not in excluded:
                self.make_local(builder, root)

    def emit_nest_ops(self, builder: OpBuilder, nest_ops: Sequence[NestOp], tile: Tile) -> None:
        """Emit ops in order; an initial fill and its reduction become one op with an initial value."""
        for nest_op, next_op in zip(nest_ops, [*nest_ops, None][1:], strict=True):
            if next_op is not None and self.is_fill_for(nest_op, next_op, tile):
                self.initial_values[next_op.op] = nest_op.op.operands[0]
            else:
                self.emit_nest_op(builder.with_location(nest_op.op.location), nest_op, tile)

    def is_fill_for(self, nest_op: NestOp, next_op: NestOp, tile: Tile) -> bool:
        """Return whether an op only fills the accumulator of the following one, and both run in the same steps."""
        if not nest_op.is_fill or next_op.output.root is not nest_op.output.root:
            return False
        return next_op.scatter_dim is None and next_op.reductions.isdisjoint(
            [*self.requested_steps(next_op, tile), *self.spans]
        )

    def requested_steps(self, nest_op: NestOp, tile: Tile) -> dict[int, int]:
        """Return the step sizes that the plan requests for an op on a tile."""
        requested = {**dict.fromkeys(self.dynamic_extents, 1), **self.op_steps(self.nest.ops.index(nest_op))}
        op_dims = [d for d in requested if d in nest_op.dims and d != nest_op.scatter_dim]
        # A row that one step computes also has partial results.
        partial = {d for d in op_dims if d in nest_op.reductions and requested[d] > 1}
        return {d: requested[d] for d in op_dims if requested[d] < tile[d].size or d in self.dynamic_extents or d in partial}

    def step_ranges(self, builder: OpBuilder, tile: Tile, d: int, step: int) -> RangeSteps:
        """Yield the steps of a dimension of an op, and the remainder."""
        if d not in self.dynamic_extents:
            return steps(builder, tile[d], step, f"j{d}")
        extent = self.dynamic_extents[d]
        return dynamic_steps(builder, tile[d], builder.size(extent), step, is_multiple(extent, step), f"j{d}")

    def nested_steps(self, builder: OpBuilder, tile: Tile, step_sizes: Mapping[int, int]) -> TileSteps:
        """Yield the steps of an op along the dimensions of `step_sizes`, outermost first."""
        return nested(builder, tile, list(step_sizes), lambda b, outer, d: self.step_ranges(b, outer, d, step_sizes[d]))

    def emit_nest_op(self, builder: OpBuilder, nest_op: NestOp, tile: Tile) -> None:
        """Emit an op on a tile, in the steps that the plan requests; a reduction in steps has partial results."""
        if nest_op.scatter_dim is not None:
            self.emit_scatter(builder, nest_op, tile)
            return
        requested = self.requested_steps(nest_op, tile)
        span_dim = next((d for d in self.spans if d in nest_op.reductions), None)
        split_dim = next((d for d in requested if d in nest_op.reductions), None)
        if span_dim is not None:
            first, end, step = self.spans[span_dim]
            span_steps = steps_between(builder, tile[span_dim], step, first, end, f"k{span_dim}")
            self.split_reduction(builder, nest_op, tile, span_dim, span_steps)
        elif any(d in self.dynamic_extents for d in nest_op.reductions):
            # Partial results are along the last one of the reduced dimensions, which are innermost.
            *outer_dims, last = sorted(requested, key=lambda d: (d in nest_op.reductions, requested[d]))
            for body_builder, outer_tile in self.nested_steps(builder, tile, {d: requested[d] for d in outer_dims}):
                step_ranges = self.step_ranges(body_builder, outer_tile, last, requested[last])
                if can_split(nest_op, self.nest):
                    self.split_reduction(body_builder, nest_op, outer_tile, last, step_ranges)
                    continue
                for step_builder, step_range in step_ranges:
                    self.emit_op(step_builder, nest_op, {**outer_tile, last: step_range})
        elif split_dim is not None:
            step_ranges = steps(builder, tile[split_dim], requested[split_dim], f"j{split_dim}")
            self.split_reduction(builder, nest_op, tile, split_dim, step_ranges)
        else:
            for body_builder, step_tile in self.nested_steps(builder, tile, requested):
                self.emit_op(body_builder, nest_op, step_tile)

    def split_reduction(
        self,
        builder: OpBuilder,
        nest_op: NestOp,
        tile: Tile,
        d: int,
        step_ranges: RangeSteps,
        destination: BufferView | None = None,
    ) -> None:
        """Emit a reduction along contiguous memory with `chunk` partial results, which are combined at the end.

        p = identity : [chunk];  for k: p[j] = combine(p[j], x[k + j]);  y = reduce(p)

        A remainder has separate partial results, so that no vector of `p` is only partly written before it is read. The
        default `destination` is the op's output.
        """
        destination = destination or self.output_view(builder, nest_op, tile)
        width = min(self.num_partial_results(nest_op, d), tile[d].size)
        result_dims = [t for t in destination[1] if tile[t].size > 1]

        def axes(size: int) -> list[int]:
            return [*result_dims, d] if size > 1 else result_dims

        partial = self.allocate_partials(builder, nest_op, tile, result_dims, width)
        for body_builder, step_range in step_ranges:
            is_remainder = body_builder.block is builder.block and 1 < step_range.size < width
            step_partial = partial
            if is_remainder:
                step_partial = self.allocate_partials(body_builder, nest_op, tile, result_dims, step_range.size)
            elif width > 1:
                sizes = {**{t: tile[t].size for t in result_dims}, d: step_range.size}
                step_partial, _ = subview(body_builder, partial, [(t, IterationRange(0, n)) for t, n in sizes.items()])
            step_view = step_partial, axes(min(width, step_range.size))
            self.emit_op(body_builder, nest_op, {**tile, d: step_range}, {nest_op.output_position: step_view})
            if is_remainder:
                combine(body_builder, nest_op, step_view, destination)
        combine(builder, nest_op, (partial, axes(width)), destination)

    def num_partial_results(self, nest_op: NestOp, d: int) -> int:
        """Return the number of partial results per element along a reduced dimension."""
        return self.op_steps(self.nest.ops.index(nest_op)).get(d, 1)

    def allocate_partials(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, result_dims: Sequence[int], width: int
    ) -> SSAValue:
        """Allocate and initialize `width` partial results for each element along `result_dims`."""
        shape = (*(tile[t].size for t in result_dims), *([width] if width > 1 else []))
        partial = builder.alloca(memref_of(nest_op.op.operands[-1]).element_type, shape, "partial")
        fill(builder, identity_of(nest_op, self.nest), partial)
        return partial

    def emit_scatter(self, builder: OpBuilder, nest_op: NestOp, tile: Tile) -> None:
        """Emit a scatter, one reduction step at a time, on the row that the step's index selects."""
        scatter, row_dim = scatter_of(nest_op.op), nest_op.scatter_dim
        assert isinstance(nest_op.op, linalg.GenericOp) and scatter is not None and row_dim is not None
        unit_steps = dict.fromkeys(nest_op.reduced_dims, 1)
        for step_builder, step_tile in self.nested_steps(builder, tile, unit_steps):

            def load(k: int, b: OpBuilder = step_builder, step: Tile = step_tile) -> SSAValue:
                return b.op(memref.LoadOp.get(self.operand_view(b, nest_op, k, step)[0], []))

            row, body = split_scatter(nest_op.op, scatter, step_builder, load)
            op = linalg.GenericOp.create(operands=nest_op.op.operands, properties=nest_op.op.properties, regions=[body])
            row_tile = {**step_tile, row_dim: IterationRange(row, 1, row, row)}
            self.emit_op(step_builder, replace(nest_op, op=op, reductions=frozenset()), row_tile)
            op.erase()

    def emit_op(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView] | None = None
    ) -> None:
        """Emit the structured op on the tile's views of its operands; `operand_views` replaces some, by position."""
        operand_views = operand_views or {}
        dims = [d for d in nest_op.dims if tile[d].size > 1]
        views = [
            (operand, list[int]())
            if not isinstance(operand.type, MemRefType)
            else operand_views[k]
            if k in operand_views
            else self.operand_view(builder, nest_op, k, tile)
            for k, operand in enumerate(nest_op.operands)
            if nest_op.is_used(k)
        ]
        output, axes = views[-1]
        if nest_op.is_fill:
            fill(builder, views[0][0], output)
            return
        product = None if operand_views else match_constant_matrix_product(nest_op, self.nest)
        if product is not None and product.shape == (tile[product.row].size, tile[product.column].size):
            emit_constant_matrix_product(
                builder,
                product,
                tile,
                [d for d in axes if d != product.row],
                lambda t: self.operand_view(builder, nest_op, 0, t),
                lambda t: self.output_view(builder, nest_op, t),
            )
            return
        if nest_op.op in self.initial_values:
            fill(builder, self.initial_values[nest_op.op], output)
        op = generic(builder, views, dims, _clone_body(builder, nest_op, tile, dims))
        if nest_op.reductions and all(tile[d].size == 1 for d in nest_op.reductions):
            op.attributes[ONE_STEP] = UnitAttr()
        self.annotate(op, nest_op, tile, operand_views)

    def annotate(self, op: Operation, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView]) -> None:
        """Annotate or rewrite an emitted op; `operand_views` are its operands in other buffers than those of the nest."""

    def output_view(self, builder: OpBuilder, nest_op: NestOp, tile: Tile) -> BufferView:
        """Return the view of an op's output that a tile covers."""
        return self.operand_view(builder, nest_op, nest_op.output_position, tile)

    def operand_view(self, builder: OpBuilder, nest_op: NestOp, k: int, tile: Tile) -> BufferView:
        """Return the view of an operand that a tile covers, with the dimension of each axis of size > 1."""
        if (nest_op.op, k) in self.copies:
            return self.copies[nest_op.op, k](builder, tile)
        a = nest_op.accesses[k]
        assert a is not None
        if a.root not in self.local_buffers:
            return self.subview(builder, nest_op.operands[k], axis_ranges(builder, nest_op, k, tile))
        local = self.local_buffers[a.root]
        ranges = axis_ranges(builder, nest_op, k, tile)
        local_ranges = [(d, IterationRange(local.offset_of(r), r.size)) for d, r in ranges if d in local.dims]
        return self.subview(builder, local.buffer, local_ranges)

    def subview(self, builder: OpBuilder, buffer: SSAValue, ranges: Sequence[tuple[int, IterationRange]]) -> BufferView:
        """Return the memoized view of a buffer that covers a range of each axis."""
        key = (buffer, *((r.offset, r.size) for _, r in ranges), builder.block)
        if key not in self.views:
            self.views[key] = subview(builder, buffer, ranges)[0]
        return self.views[key], [d for d, r in ranges if r.size > 1]

    def local_roots(self) -> list[SSAValue]:
        """Return the buffers that are local to the nest, in the order of their first writes."""
        roots = self.nest.local_buffers()
        return list(dict.fromkeys(op.output.root for op in self.nest.ops if op.output.root in roots))

    def make_local(self, builder: OpBuilder, root: SSAValue, sizes: Mapping[int, int] | None = None) -> None:
        """Allocate a local buffer for one tile, without axes of size 1; `sizes` replaces some sizes of the tile."""
        tile_sizes = {d: r.size for d, r in self.tile.items()} | dict(sizes or {})
        dims = tuple(d for d in self.axes_of(root) if tile_sizes[d] > 1)
        shape = tuple(tile_sizes[d] for d in dims)
        self.local_buffers[root] = LocalBuffer(builder.alloca(memref_of(root).element_type, shape, root.name_hint), dims)

    def axes_of(self, root: SSAValue) -> list[int]:
        """Return the dimensions along which a buffer of the nest is written."""
        return next(op.axes() for op in self.nest.ops if op.output.root is root)


def axis_ranges(builder: OpBuilder, nest_op: NestOp, k: int, tile: Tile) -> list[tuple[int, IterationRange]]:
    """Return the dimension of each axis of an operand, and the range of the axis that a tile covers."""
    access = nest_op.accesses[k]
    return [] if access is None else [(t.iterator, _axis_range(builder, t, tile[t.iterator])) for t in access.terms]


def _axis_range(builder: OpBuilder, term: AffineTerm, r: IterationRange) -> IterationRange:
    """Return the range of the axis of a term that a range of its dimension covers."""
    if term.is_plain:
        return r
    # A tile is inside one panel, or covers whole panels (see TilePlan.check).
    if term.modulus:
        return IterationRange(builder.remainder(r.offset, term.modulus) if r.size < term.modulus else 0, r.size)
    return IterationRange(builder.floordiv(r.offset, term.divisor), max(1, r.size // term.divisor))


def _clone_body(builder: OpBuilder, nest_op: NestOp, tile: Tile, dims: Sequence[int]) -> Region:
    """Clone the op's scalar body, with iteration indices offset by those of the tile."""
    region = nest_op.op.regions[0].clone()
    for k in reversed(range(nest_op.output_position)):
        if not nest_op.is_used(k):
            region.block.erase_arg(region.block.args[k])
    for op in list(region.block.ops):
        if not isinstance(op, linalg.IndexOp):
            continue
        d = nest_op.iterators[op.dim.value.data]
        inner = OpBuilder(builder.constants, region.block, op.location, anchor=op)
        index: Index = inner.op(linalg.IndexOp(dims.index(d))) if d in dims else 0
        op.result.replace_all_uses_with(inner.value(index if d is None else inner.add(tile[d].offset, index)))
        erase_op(op)
    return region
