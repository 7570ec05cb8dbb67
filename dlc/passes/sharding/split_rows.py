"""Gathers from and scatters to arrays whose indexed axis is split: each rank accesses the rows that it has.

%y = dl.gather %table, %i        with 2 of 4 rows on each rank
→  %own = %i - 2 * position      is %own a row of this rank?
   %y = select %is_own, dl.gather %shard, %own, 0        a partial sum over the ranks
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.base import DlOp, element_type_of, flag, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.dialects.dl.movement.index_checks import fail_if_out_of_bounds
from dlc.ir import SSAValue, i64


def access_own_rows(build: DlBuilder, op: DlOp, operands: Sequence[SSAValue], position: SSAValue) -> SSAValue:
    """Return the result of a gather or scatter on shards; `position` is that of the rank along the split rows."""
    if isinstance(op, dl.GatherOp):
        shard, indices = operands
        return _gather(build, op, shard, indices, position)
    assert isinstance(op, dl.ScatterRowsOp), f"{op.name} has no rows"
    shard, indices, updates = operands
    return _scatter(build, op, shard, indices, updates, position)


def _gather(build: DlBuilder, op: dl.GatherOp, shard: SSAValue, indices: SSAValue, position: SSAValue) -> SSAValue:
    """Gather the rows of this rank; other elements of the result are 0."""
    axis = op.indexed_axis
    own, is_own = _own_indices(build, op, shard, indices, position, is_clamped=True)
    rows = build(dl.GatherOp, shard, own, axis=axis, in_bounds=True)
    before, after = (1,) * axis, (1,) * (rank_of(shard) - axis - 1)
    mask = build(dl.ReshapeOp, is_own, shape=(*before, *shape_of(is_own), *after))
    return build(dl.SelectOp, mask, rows, build.scalar(0, like=rows))


def _scatter(
    build: DlBuilder, op: dl.ScatterRowsOp, shard: SSAValue, indices: SSAValue, updates: SSAValue, position: SSAValue
) -> SSAValue:
    """Update the rows of this rank, and ignore the other updates."""
    own, is_own = _own_indices(build, op, shard, indices, position, is_clamped=flag(op.clamped))
    # A scatter ignores indices out of bounds.
    ignored = build.size(shape_of(shard)[0], like=own)
    return build(dl.ScatterRowsOp, shard, build(dl.SelectOp, is_own, own, ignored), updates, mode=op.mode)


def _own_indices(
    build: DlBuilder,
    op: dl.GatherOp | dl.ScatterRowsOp,
    shard: SSAValue,
    indices: SSAValue,
    position: SSAValue,
    *,
    is_clamped: bool,
) -> tuple[SSAValue, SSAValue]:
    """Return the indices counted from the first row of this rank, as i64, and which of them are rows of this rank."""
    (axis,) = op.indexed_axes
    size, local_size = shape_of(op.operands[0])[axis], shape_of(shard)[axis]
    if op.is_checked:
        fail_if_out_of_bounds(build, op, indices, 0)
    wide = cast_to(build, indices, i64)
    zero = build.scalar(0, like=wide)
    if not is_unsigned(element_type_of(indices)):
        from_end = build(dl.AddOp, wide, build.size(size, like=wide))
        wide = build(dl.SelectOp, build(dl.LessOp, wide, zero), from_end, wide)
    if is_clamped and not op.is_checked:
        wide = build(dl.MinimumOp, build(dl.MaximumOp, wide, zero), build.size(size - 1, like=wide))
    count = build.size(local_size, like=wide)
    own = build(dl.SubOp, wide, build(dl.MulOp, position, count))
    return own, build(dl.AndOp, build(dl.GreaterEqualOp, own, zero), build(dl.LessOp, own, count))
