"""The body of a register tile: the ops of a nest, as structured ops on subviews of their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dlc.dialects.sizes import strides_of
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
    linalg,
    memref,
)
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, combine, drop_unit_dims, fill, generic, slice_at
from dlc.passes.tiling.constant_matrix_products import emit_constant_matrix_product, match_constant_matrix_product
from dlc.passes.tiling.iteration_ranges import IterationRange, Tile, dynamic_steps, steps, steps_between
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, can_split, identity_of
from dlc.passes.tiling.plan import TilePlan
from dlc.passes.tiling.scatter_tiles import scatter_of
from dlc.passes.tiling.scatter_tiles import split as split_scatter
from dlc.passes.tiling.structured_ops import ONE_STEP, operand_maps
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size, is_multiple


@dataclass(frozen=True)
class LocalBuffer:
    """A local buffer and the dimensions of its axes; shared by the work-items of a group, or private to a work-item."""

    buffer: SSAValue
    dims: tuple[int, ...]
    is_shared: bool = False

    def offset_of(self, r: IterationRange) -> Index:
        """Return the offset of a range in the buffer."""
        return r.group_offset if self.is_shared else r.tile_offset


Continuation: TypeAlias = Callable[[OpBuilder, Tile], None]


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
        for root in self.local_roots():
            self.make_local(builder, root, {d: r.size for d, r in self.tile.items()})
        self.emit_nest_ops(builder, self.nest.ops, self.tile)

    def emit_nest_ops(self, builder: OpBuilder, nest_ops: Sequence[NestOp], tile: Tile) -> None:
        """Emit ops in order; an initial fill and its reduction become one op with an initial value."""
        for nest_op, next_op in zip(nest_ops, [*nest_ops, None][1:], strict=True):
            if next_op is not None and self.is_fill_for(nest_op, next_op, tile):
                self.initial_values[next_op.op] = nest_op.op.operands[0]
            else:
                self.emit_nest_op(
                    builder.with_location(nest_op.op.location), nest_op, {d: tile[d] for d in nest_op.dims if d >= 0}
                )

    def is_fill_for(self, nest_op: NestOp, next_op: NestOp, tile: Tile) -> bool:
        """Return whether an op only fills the accumulator of the following one, and both run in the same steps."""
        if not isinstance(nest_op.op, linalg.FillOp) or next_op.output.root is not nest_op.output.root:
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

    def step_ranges(self, builder: OpBuilder, tile: Tile, d: int, step: int) -> Iterator[tuple[OpBuilder, IterationRange]]:
        """Yield the steps of a dimension of an op, and the remainder."""
        if d not in self.dynamic_extents:
            return steps(builder, tile[d], step, f"j{d}")
        extent = self.dynamic_extents[d]
        return dynamic_steps(builder, tile[d], builder.size(extent), step, is_multiple(extent, step), f"j{d}")

    def emit_nest_op(self, builder: OpBuilder, nest_op: NestOp, tile: Tile) -> None:
        """Emit an op on a tile, in the steps that the plan requests."""
        requested_steps = self.requested_steps(nest_op, tile)
        if nest_op.scatter_dim is not None:
            self.emit_scatter(builder, nest_op, tile, [d for d in nest_op.dims if d in nest_op.reductions])
            return
        span_dim = next((d for d in self.spans if d in nest_op.reductions), None)
        split_dim = next((d for d in requested_steps if d in nest_op.reductions), None)
        if span_dim is not None:
            destination = self.operand_view(builder, nest_op, len(nest_op.op.operands) - 1, tile)
            first, end, step = self.spans[span_dim]
            step_ranges = steps_between(builder, tile[span_dim], step, first, end, f"k{span_dim}")
            self.split_reduction(builder, nest_op, tile, span_dim, destination, step_ranges)
        elif any(d in self.dynamic_extents for d in nest_op.reductions):
            in_order = sorted(requested_steps.items(), key=lambda w: (w[0] in nest_op.reductions, w[1]))
            self.reduce_dynamic_extents(builder, nest_op, tile, in_order)
        elif split_dim is not None:
            destination = self.operand_view(builder, nest_op, len(nest_op.op.operands) - 1, tile)
            self.split_reduction(
                builder,
                nest_op,
                tile,
                split_dim,
                destination,
                steps(builder, tile[split_dim], requested_steps[split_dim], f"j{split_dim}"),
            )
        else:
            self.emit_in_steps(builder, nest_op, tile, list(requested_steps.items()))

    def emit_in_steps(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, requested_steps: Sequence[tuple[int, int]]
    ) -> None:
        """Emit nested loops over the steps of a tile, with the op inside."""
        if not requested_steps:
            self.emit_op(builder, nest_op, tile)
            return
        (d, step), *inner_steps = requested_steps
        for body_builder, step_range in self.step_ranges(builder, tile, d, step):
            self.emit_in_steps(body_builder, nest_op, {**tile, d: step_range}, inner_steps)

    def reduce_dynamic_extents(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, requested_steps: Sequence[tuple[int, int]]
    ) -> None:
        """Emit a reduction with dynamic extents: loops over parallel dimensions, and partial results along the last one."""
        (d, step), *inner_steps = requested_steps
        if not inner_steps and can_split(nest_op, self.nest):
            destination = self.operand_view(builder, nest_op, len(nest_op.op.operands) - 1, tile)
            self.split_reduction(builder, nest_op, tile, d, destination, self.step_ranges(builder, tile, d, step))
            return
        for body_builder, step_range in self.step_ranges(builder, tile, d, step):
            if inner_steps:
                self.reduce_dynamic_extents(body_builder, nest_op, {**tile, d: step_range}, inner_steps)
            else:
                self.emit_op(body_builder, nest_op, {**tile, d: step_range})

    def split_reduction(
        self,
        builder: OpBuilder,
        nest_op: NestOp,
        tile: Tile,
        d: int,
        destination: BufferView,
        step_ranges: Iterator[tuple[OpBuilder, IterationRange]],
    ) -> None:
        """Emit a reduction along contiguous memory with `chunk` partial results, which are combined at the end.

        p = identity : [chunk];  for k: p[j] = combine(p[j], x[k + j]);  y = reduce(p)

        A remainder has separate partial results, so that no vector of `p` is only partly written before it is read.
        """
        width = min(self.num_partial_results(nest_op, d), tile[d].size)
        result_dims = [t for t in destination[1] if tile[t].size > 1]
        partial = self.allocate_partials(builder, nest_op, tile, result_dims, width)
        for body_builder, step_range in step_ranges:
            if body_builder.block is builder.block and 1 < step_range.size < width:
                remainder_partial = self.allocate_partials(body_builder, nest_op, tile, result_dims, step_range.size)
                self.emit_op(
                    body_builder,
                    nest_op,
                    {**tile, d: step_range},
                    {len(nest_op.op.operands) - 1: (remainder_partial, [*result_dims, d])},
                )
                combine(body_builder, nest_op, (remainder_partial, [*result_dims, d]), destination)
                continue
            step_view, axes = partial, result_dims
            if width > 1:
                sizes = (*(tile[t].size for t in result_dims), step_range.size)
                step_view = drop_unit_dims(body_builder, body_builder.subview(partial, [0] * len(sizes), sizes))
                axes = [*result_dims, d] if step_range.size > 1 else result_dims
            self.emit_op(body_builder, nest_op, {**tile, d: step_range}, {len(nest_op.op.operands) - 1: (step_view, axes)})
        combine(builder, nest_op, (partial, [*result_dims, d] if width > 1 else result_dims), destination)

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

    def emit_scatter(self, builder: OpBuilder, nest_op: NestOp, tile: Tile, dims: Sequence[int]) -> None:
        """Emit a scatter, one reduction step at a time, on the row that the step's index selects."""
        for d in dims[:1]:
            for body_builder, step_range in self.step_ranges(builder, tile, d, 1):
                self.emit_scatter(body_builder, nest_op, {**tile, d: step_range}, dims[1:])
            return
        scatter, row_dim = scatter_of(nest_op.op), nest_op.scatter_dim
        assert isinstance(nest_op.op, linalg.GenericOp) and scatter is not None and row_dim is not None

        def load(k: int) -> SSAValue:
            view, _ = self.operand_view(builder, nest_op, k, tile)
            return builder.op(memref.LoadOp.get(view, []))

        row, body = split_scatter(nest_op.op, scatter, builder, load)
        op = linalg.GenericOp.create(operands=nest_op.op.operands, properties=nest_op.op.properties, regions=[body])
        self.emit_op(
            builder, replace(nest_op, op=op, reductions=frozenset()), {**tile, row_dim: IterationRange(row, 1, row, row)}
        )
        op.erase()

    def emit_op(
        self, builder: OpBuilder, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView] | None = None
    ) -> None:
        """Emit the structured op on the tile's views of its operands; `operand_views` replaces some, by position."""
        operand_views = operand_views or {}
        dims = [d for d in nest_op.dims if d >= 0 and tile[d].size > 1]
        operands: list[SSAValue] = []
        maps: list[AffineMap] = []
        axes: Sequence[int] = ()
        for k, operand in enumerate(nest_op.op.operands):
            view, axes = operand, list[int]()
            if isinstance(operand.type, MemRefType):
                view, axes = operand_views[k] if k in operand_views else self.operand_view(builder, nest_op, k, tile)
            operands.append(view)
            sizes = memref_of(view).get_shape() if isinstance(view.type, MemRefType) else ()
            repeat_counts = (tile[d].size // size for d, size in zip(axes, sizes, strict=True))
            maps.append(
                AffineMap(
                    len(dims), 0, tuple(_repeated_index(dims.index(d), n) for d, n in zip(axes, repeat_counts, strict=True))
                )
            )
        lane = axes[-1] if axes else None
        if lane is not None and any(_has_dynamic_stride(v, m, dims.index(lane)) for v, m in zip(operands, maps, strict=True)):
            for body_builder, index in steps(builder, IterationRange(0, tile[lane].size), 1, f"j{lane}"):
                element_views = {k: slice_at(body_builder, view, lane, index.offset) for k, view in operand_views.items()}
                self.emit_op(
                    body_builder, nest_op, {**tile, lane: tile[lane].subrange(body_builder, index.offset, 1)}, element_views
                )
            return
        if isinstance(nest_op.op, linalg.FillOp):
            fill(builder, operands[0], operands[1])
            return
        product = None if operand_views else match_constant_matrix_product(nest_op, self.nest)
        if product is not None and product.shape == (tile[product.row].size, tile[product.column].size):
            emit_constant_matrix_product(
                builder,
                product,
                tile,
                [d for d in axes if d != product.row],
                lambda t: self.operand_view(builder, nest_op, 0, t),
                lambda t: self.operand_view(builder, nest_op, len(nest_op.op.operands) - 1, t),
            )
            return
        if nest_op.op in self.initial_values:
            fill(builder, self.initial_values[nest_op.op], operands[-1])
        # A dimension along which the output has partial results is not reduced here.
        is_reduced = [d in nest_op.reductions and d not in axes for d in dims]
        body = _clone_body(builder, nest_op, tile, dims)
        op = generic(builder, operands, maps, is_reduced, body)
        if nest_op.reductions and all(tile[d].size == 1 for d in nest_op.reductions):
            op.attributes[ONE_STEP] = UnitAttr()
        self.annotate(op, nest_op, tile, operand_views)

    def annotate(self, op: Operation, nest_op: NestOp, tile: Tile, operand_views: Mapping[int, BufferView]) -> None:
        """Attach attributes to an emitted op; `operand_views` are its operands in other buffers than those of the nest."""

    def operand_view(self, builder: OpBuilder, nest_op: NestOp, k: int, tile: Tile) -> BufferView:
        """Return the view of an operand that a tile covers, with the dimension of each axis of size > 1."""
        if (nest_op.op, k) in self.copies:
            return self.copies[nest_op.op, k](builder, tile)
        a = nest_op.accesses[k]
        assert a is not None
        operand = nest_op.op.operands[k]
        axis_ranges = [axis_range(builder, expr, nest_op.dims, tile) for expr in operand_maps(nest_op.op)[k].results]
        if a.root in self.local_buffers:
            local = self.local_buffers[a.root]
            operand = local.buffer
            axis_ranges = [(d, IterationRange(local.offset_of(r), r.size)) for d, r in axis_ranges if d in local.dims]
        return self.subview(builder, operand, axis_ranges)

    def subview(self, builder: OpBuilder, buffer: SSAValue, axis_ranges: Sequence[tuple[int, IterationRange]]) -> BufferView:
        """Return the subview of a buffer that covers a range of each axis; axes of size 1 are dropped."""
        offsets = [r.offset for _, r in axis_ranges]
        sizes = [r.size for _, r in axis_ranges]
        key = (buffer, *offsets, *sizes, builder.block)
        if key not in self.views:
            drop = [i for i, size in enumerate(sizes) if size == 1]
            self.views[key] = builder.subview(buffer, offsets, sizes, drop)
        return self.views[key], [d for d, r in axis_ranges if r.size > 1]

    def local_roots(self) -> list[SSAValue]:
        """Return the buffers that are local to the nest, in the order of their first writes."""
        roots = self.nest.local_buffers()
        return list(dict.fromkeys(op.output.root for op in self.nest.ops if op.output.root in roots))

    def make_local(self, builder: OpBuilder, root: SSAValue, sizes: Mapping[int, int]) -> None:
        """Allocate a local buffer for one tile, without axes of size 1."""
        dims = tuple(d for d in self.axes_of(root) if sizes[d] > 1)
        shape = tuple(sizes[d] for d in dims)
        self.local_buffers[root] = LocalBuffer(builder.alloca(memref_of(root).element_type, shape, root.name_hint), dims)

    def axes_of(self, root: SSAValue) -> list[int]:
        """Return the dimensions along which a buffer of the nest is written."""
        nest_op = next(op for op in self.nest.ops if op.output.root is root)
        return [axis_range(None, e, nest_op.dims, self.tile)[0] for e in operand_maps(nest_op.op)[-1].results]


def _has_dynamic_stride(operand: SSAValue, map_: AffineMap, iterator: int) -> bool:
    """Return whether an operand's stride along an iterator is dynamic."""
    if not isinstance(operand.type, MemRefType):
        return False
    strides = zip(map_.results, strides_of(operand), strict=True)
    return any(e == AffineDimExpr(iterator) and not isinstance(stride, int) for e, stride in strides)


def _repeated_index(iterator: int, times: int) -> AffineExpr:
    """Return the index expression of an operand that repeats each element `times` along an iterator."""
    expr = AffineDimExpr(iterator)
    return expr if times == 1 else AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, expr, AffineConstantExpr(times))


def axis_range(builder: OpBuilder | None, expr: AffineExpr, dims: Sequence[int], tile: Tile) -> tuple[int, IterationRange]:
    """Return the dimension of an indexing expression, and the range of the operand's axis that a tile covers."""
    match expr:
        case AffineDimExpr(i):
            return dims[i], tile[dims[i]]
        case AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, AffineDimExpr(i), AffineConstantExpr(panel)) if builder:
            # A tile is inside one panel, or covers whole panels (see TilePlan.check).
            r = tile[dims[i]]
            return dims[i], IterationRange(builder.floordiv(r.offset, panel), max(1, r.size // panel))
        case AffineBinaryOpExpr(AffineBinaryOpKind.Mod, AffineDimExpr(i), AffineConstantExpr(panel)) if builder:
            r = tile[dims[i]]
            return dims[i], IterationRange(builder.remainder(r.offset, panel) if r.size < panel else 0, r.size)
        case _:
            raise UnsupportedError(f"tile-kernels: access by {expr}; run collapse-iterators first")


def _clone_body(builder: OpBuilder, nest_op: NestOp, tile: Tile, dims: Sequence[int]) -> Region:
    """Clone the op's scalar body, with iteration indices offset by those of the tile."""
    region = nest_op.op.regions[0].clone()
    for op in list(region.block.ops):
        if not isinstance(op, linalg.IndexOp):
            continue
        d = nest_op.dims[op.dim.value.data]
        inner = OpBuilder(builder.constants, region.block, op.location, anchor=op)
        index: Index = inner.op(linalg.IndexOp(dims.index(d))) if d in dims else 0
        op.result.replace_all_uses_with(inner.value(inner.add(tile[d].offset, index)))
        op.detach()
        op.erase()
    return region
