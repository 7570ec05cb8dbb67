"""Batching rules of gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, SelectOp
from dlc.dialects.dl.arithmetic.logic import AndOp, GreaterEqualOp, LessOp
from dlc.dialects.dl.base import element_type_of, flag, rank_of, shape_of
from dlc.dialects.dl.contractions.contraction import static_shapes
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.index_checks import IndexedOp, fail_if_out_of_bounds
from dlc.dialects.dl.movement.indexing import GatherElementsOp, GatherNdOp, GatherOp, ScatterRowsOp
from dlc.dialects.dl.movement.scatter import ScatterElementsOp, ScatterNdOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp
from dlc.dialects.dl.scalar import bits, limits
from dlc.ir import SSAValue, i64
from dlc.passes.batching.batching_context import BatchingContext
from dlc.passes.batching.rules import Rule


def gather(context: BatchingContext, op: GatherOp) -> Sequence[SSAValue]:
    """Batch a gather: from an unbatched array by a larger index array, from a batched array by a batch axis."""
    axis, x, indices = op.indexed_axis, op.x, op.indices
    if not context.is_batched(indices):
        return context.clone_op(op, context.lookup(x), context.lookup(indices), axis=axis + 1, reported_axes=reported_axes(op))
    if not context.is_batched(x):
        (y,) = context.clone_op(op, context.lookup(x), context.lookup(indices), axis=axis)
        return [context.move_axis(y, axis, 0)]
    # [L, indexed axis, leading…, trailing…] at [L, i…] → [L, i…, leading…, trailing…]
    rows = context.move_axis(context.lookup(x), axis + 1, 1)
    batched_indices = context.reshape(context.lookup(indices), context.size, *shape_of(indices), 1)
    y = context.build(GatherNdOp, rows, batched_indices, batch_dims=1, checked=op.checked, reported_axes=reported_axes(op))
    index_rank = rank_of(indices)
    leading = range(1 + index_rank, 1 + index_rank + axis)
    trailing = range(1 + index_rank + axis, rank_of(y))
    return [context.transpose(y, (0, *leading, *range(1, 1 + index_rank), *trailing))]


def gather_nd(context: BatchingContext, op: GatherNdOp) -> Sequence[SSAValue]:
    """Add a batch axis; batched indices into an unbatched array form a larger index array."""
    if context.is_batched(op.x):
        return context.clone_op(
            op,
            context.lookup(op.x),
            context.with_batch_axis(op.indices),
            batch_dims=op.batch + 1,
            reported_axes=reported_axes(op),
        )
    (y,) = context.clone_op(op, context.lookup(op.x), context.move_axis(context.lookup(op.indices), 0, op.batch))
    return [context.move_axis(y, op.batch, 0)]


def reported_axes(op: IndexedOp) -> tuple[int, ...] | None:
    """Return the axis numbers for error messages of a batched op: those of the unbatched op."""
    return tuple(op.reported_axis(k) for k in range(len(op.indexed_axes))) if op.is_checked else None


def gather_elements(context: BatchingContext, op: GatherElementsOp) -> Sequence[SSAValue]:
    """Merge the batch into the gathered axis of an unbatched array; else add a batch axis to all operands."""
    if context.is_batched(op.x):
        return elements(context, op)
    axis, shape = op.indexed_axis, shape_of(op.indices)
    leading, count, trailing = shape[:axis], shape[axis], shape[axis + 1 :]
    batched_indices = context.reshape(
        context.move_axis(context.lookup(op.indices), 0, axis), *leading, context.size * count, *trailing
    )
    (y,) = context.clone_op(op, context.lookup(op.x), batched_indices)
    return [context.move_axis(context.reshape(y, *leading, context.size, count, *trailing), axis, 0)]


def elements(context: BatchingContext, op: GatherElementsOp | ScatterElementsOp) -> Sequence[SSAValue]:
    """Add a batch axis to all operands."""
    return context.clone_op(
        op, *map(context.with_batch_axis, op.operands), axis=op.indexed_axes[0] + 1, reported_axes=reported_axes(op)
    )


def scatter_rows(context: BatchingContext, op: ScatterRowsOp) -> Sequence[SSAValue]:
    """Batch a scatter of rows.

    Unbatched indices scatter rows that contain the batch; batched indices refer to rows of the flattened array.
    """
    if not context.is_batched(op.indices):
        x, updates = (
            context.move_axis(context.with_batch_axis(op.x), 0, 1),
            context.move_axis(context.with_batch_axis(op.updates), 0, rank_of(op.indices)),
        )
        (y,) = context.clone_op(op, x, context.lookup(op.indices), updates)
        return [context.move_axis(y, 1, 0)]
    if op.is_checked:
        fail_if_out_of_bounds(context.build, op, context.lookup(op.indices), 0)
    ((count, *row),) = static_shapes(op, op.x)
    x = context.reshape(context.with_batch_axis(op.x), context.size * count, *row)
    (y,) = context.clone_op(op, x, _flat_rows(context, op, count), context.with_batch_axis(op.updates), checked=None)
    return [context.reshape(y, context.size, count, *row)]


def scatter_nd(context: BatchingContext, op: ScatterNdOp) -> Sequence[SSAValue]:
    """Prepend the batch index to each index tuple."""
    build, indices = context.build, context.with_batch_axis(op.indices)
    element = element_type_of(indices)
    if bits(element) < 64:
        indices = cast_to(build, indices, i64)
    *rows, _ = shape_of(op.indices)
    batch_index = build(IotaOp, size=(context.size,), to=element_type_of(indices), start=0, step=1)
    batch_index = build(
        BroadcastToOp, context.reshape(batch_index, context.size, *(1 for _ in rows), 1), shape=(context.size, *rows, 1)
    )
    batched_indices = build(ConcatOp, batch_index, indices, axis=len(rows) + 1)
    # The batch index is always in bounds.
    axes_in_errors = reported_axes(op)
    return context.clone_op(
        op,
        context.with_batch_axis(op.x),
        batched_indices,
        context.with_batch_axis(op.updates),
        reported_axes=(0, *axes_in_errors) if axes_in_errors else None,
    )


def _flat_rows(context: BatchingContext, op: ScatterRowsOp, count: int) -> SSAValue:
    """Return row indices into the flattened array, `count` rows per batch element. Out-of-bounds indices stay out of bounds."""
    build, indices = context.build, context.lookup(op.indices)
    element = element_type_of(indices)
    if is_unsigned(element):
        # Clamp, so that the value fits the cast to i64.
        indices = build(MinimumOp, indices, build.scalar(min(count, int(limits(element)[1])), like=indices))
    row = cast_to(build, indices, i64)
    zero, end = (build.scalar(n, like=row) for n in (0, count))
    row = build(SelectOp, build(LessOp, row, zero), build(AddOp, row, end), row)
    if flag(op.clamped):
        row = build(MinimumOp, build(MaximumOp, row, zero), build.scalar(count - 1, like=row))
    row_offsets = build(IotaOp, size=(context.size,), to=i64, start=0, step=count)
    flat_index = build(AddOp, row, context.reshape(row_offsets, context.size, *(1 for _ in shape_of(op.indices))))
    if flag(op.clamped):
        return flat_index
    in_bounds = build(AndOp, build(GreaterEqualOp, row, zero), build(LessOp, row, end))
    return build(SelectOp, in_bounds, flat_index, build.size(context.size * count, like=flat_index))


def mask_inactive_indices(context: BatchingContext, indices: SSAValue, is_batched: bool) -> SSAValue:
    """Return indices with 0 for inactive elements, batched like `indices`: see Note [Inactive batch elements].

    Unbatched indices are 0 if no element is active.
    """
    is_active = context.active_mask()
    if not is_batched:
        is_active = context.build(ReduceAnyOp, is_active, axes=(0,))
    else:
        is_active = context.reshape(is_active, context.size, *(1 for _ in shape_of(indices)))
    original_indices = context.with_batch_axis(indices) if is_batched else context.lookup(indices)
    return context.build(SelectOp, is_active, original_indices, context.build.scalar(0, like=indices))


RULES: dict[type, Rule] = {
    GatherOp: gather,
    GatherNdOp: gather_nd,
    GatherElementsOp: gather_elements,
    ScatterElementsOp: elements,
    ScatterRowsOp: scatter_rows,
    ScatterNdOp: scatter_nd,
}
