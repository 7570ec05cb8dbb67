"""Transpose rules of gathers, scatters and non-constant padding: cotangent rows are scatter-added at the gathered indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc.dialects import dl
from dlc.dialects.dl.base import flag, ints, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import i64
from dlc.passes.autodiff.term import Term, where
from dlc.passes.dl.rewriting import inverse
from dlc.shapes.dims import Size, product


def first_in_windows(op: dl.MaxPoolOp | dl.MaxPoolGradientOp, x: Term, y: Term, values: Term) -> Term:
    """Return, for each window of `x` with maximum `y`, the element of `values` at the position of the first maximum.

    In a window with NaN that is the first element, as for `dl.max_pool_gradient`.
    """
    kernel = ints(op.kernel)
    window_extents = [(k - 1) * d + 1 for k, d in zip(kernel, ints(op.dilations), strict=True)]
    taps = prod(kernel)

    def windows_of(value: Term) -> Term:
        """Return the windows, with their elements along the first axis."""
        windows = value.op(
            dl.SlidingWindowsOp, axes=tuple(range(1, len(kernel) + 1)), sizes=window_extents, strides=ints(op.strides)
        )
        steps = (*ints(op.dilations), *(1 for _ in value.shape))
        if any(step > 1 for step in steps):
            windows = windows.op(dl.SliceOp, starts=(0,) * len(steps), limits=windows.shape, strides=steps)
        return windows.reshape(taps, *y.shape)

    linear_indices = Term(x.build, x.build(dl.IotaOp, size=(taps,), to=i64, start=0, step=1)).reshape(
        taps, *(1 for _ in y.shape)
    )
    other_index = where(y.equals(y), taps, linear_indices.like(0))
    first = where(windows_of(x).equals(y), linear_indices, other_index).op(dl.ReduceMinOp, axes=(0,), keepdims=True)
    return where(linear_indices.equals(first), windows_of(values), 0).op(dl.ReduceSumOp, axes=(0,))


def max_pool_gradient(op: dl.MaxPoolGradientOp, cotangent: Term, index: int) -> Term:
    return first_in_windows(op, Term(cotangent.build, op.x), Term(cotangent.build, op.y), cotangent)


def gather(op: dl.GatherOp, cotangent: Term, index: int) -> Term:
    axis, shape, depth = op.indexed_axis, shape_of(op.x), rank_of(op.indices)
    permutation = [*range(axis, axis + depth), *range(axis), *range(axis + depth, len(cotangent.shape))]
    rows = cotangent.transpose(*permutation)
    axes_to_front = [axis, *(a for a in range(len(shape)) if a != axis)]
    initial = Term(cotangent.build, cotangent.build.scalar(0, like=op.x)).broadcast(*(shape[a] for a in axes_to_front))
    is_in_bounds = op.is_checked or flag(op.in_bounds)
    scattered = _scatter_add(initial, Term(cotangent.build, op.indices), rows, is_in_bounds=is_in_bounds)
    return scattered.transpose(*inverse(axes_to_front))


def gather_nd(op: dl.GatherNdOp, cotangent: Term, index: int) -> Term:
    """Flatten batch and indexed axes to one axis with linear indices, and scatter-add rows."""
    shape, indices_shape, batch, depth = shape_of(op.x), shape_of(op.indices), op.batch, op.num_indexed_axes
    indices = Term(cotangent.build, op.indices).op(dl.CastOp, to=i64)
    flat = _linear_indices(cotangent.build, indices_shape[:batch], len(indices_shape) - 1) if batch else indices.like(0)
    for k in range(depth):
        starts, limits = [0] * len(indices_shape), list(indices_shape)
        starts[-1], limits[-1] = k, k + 1
        column = indices.op(dl.SliceOp, starts=starts, limits=limits, strides=(1,) * len(indices_shape)).reshape(
            *indices_shape[:-1]
        )
        flat = flat * _size_term(cotangent.build, shape[batch + k]) + _normalize_indices(column, shape[batch + k])
    flat = flat.broadcast(*indices_shape[:-1])
    rows, row_shape = product(shape[: batch + depth]), shape[batch + depth :]
    initial = Term(cotangent.build, cotangent.build.scalar(0, like=op.x)).broadcast(rows, *row_shape)
    return _scatter_add(initial, flat, cotangent).reshape(*shape)


def gather_elements(op: dl.GatherElementsOp, cotangent: Term, index: int) -> Term:
    """Flatten to one axis with linear indices, and scatter-add single elements."""
    shape, indices_shape, axis = shape_of(op.x), shape_of(op.indices), op.indexed_axis
    gathered = _normalize_indices(Term(cotangent.build, op.indices).op(dl.CastOp, to=i64), shape[axis])
    flat = gathered.like(0)
    for a, size in enumerate(shape):
        axis_index = (
            gathered if a == axis else _linear_indices(cotangent.build, indices_shape[a : a + 1], len(indices_shape) - a)
        )
        flat = flat * _size_term(cotangent.build, size) + axis_index
    initial = Term(cotangent.build, cotangent.build.scalar(0, like=op.x)).broadcast(product(shape))
    return _scatter_add(initial, flat.broadcast(*indices_shape), cotangent).reshape(*shape)


def _size_term(build: DlBuilder, size: Size) -> Term | int:
    """Return a size as an int, or a symbolic size as an i64 term."""
    return size if isinstance(size, int) else Term(build, build(dl.SizeOp, size=(size,), to=i64))


def _normalize_indices(indices: Term, size: Size) -> Term:
    """Normalize indices like a gather: negative ones count from the end, the rest is clamped."""
    wrapped = where(indices < 0, indices + _size_term(indices.build, size), indices)
    return wrapped.op(dl.MinimumOp, _size_term(indices.build, size - 1)).op(dl.MaximumOp, 0)


def _linear_indices(build: DlBuilder, shape: Sequence[Size], rank: int) -> Term:
    """Return the linear index of each element of an array of this shape, with trailing unit axes up to `rank`."""
    count = product(shape)
    linear_indices = Term(build, build(dl.IotaOp, size=(count,), to=i64, start=0, step=1))
    return linear_indices.reshape(*shape, *(1 for _ in range(rank - len(shape))))


def _scatter_add(x: Term, indices: Term, rows: Term, *, is_in_bounds: bool = False) -> Term:
    """Scatter-add rows into `x` at the indices that a gather reads; without rows there is nothing to add to."""
    in_bounds = True if is_in_bounds else None
    return x if x.shape[0] == 0 else x.op(dl.ScatterRowsOp, indices, rows, mode="add", clamped=True, in_bounds=in_bounds)


def scatter_rows(op: dl.ScatterRowsOp, cotangent: Term, index: int) -> Term:
    """Return the cotangent of an operand of a scatter of rows.

    For `x`: the rows that no update replaces. For the updates: those in bounds that no later one replaces.
    """
    build, replaces, indices = cotangent.build, op.mode.data == "none", Term(cotangent.build, op.indices)
    zeros = Term(build, build.scalar(0, like=cotangent.value)).broadcast(*shape_of(op.updates))
    in_bounds = True if op.is_checked or flag(op.in_bounds) else None
    if shape_of(op.x)[0] == 0:
        return cotangent if index == 0 else zeros
    if index == 0:
        if not replaces:
            return cotangent
        return cotangent.op(dl.ScatterRowsOp, indices, zeros, mode="none", clamped=op.clamped, in_bounds=in_bounds)
    rows = cotangent.op(dl.GatherOp, indices, axis=0, in_bounds=in_bounds)
    # A single update in bounds is not replaced by a later one.
    has_one_update = product(shape_of(op.indices)) == 1
    if (replaces and not has_one_update) or not (in_bounds or flag(op.clamped)):
        return where(_is_update_visible(op, indices), rows, 0)
    return rows


def _is_update_visible(op: dl.ScatterRowsOp, indices: Term) -> Term:
    """Return a mask of the updates that are in the result, with the axes of the updates."""
    rows, linear_indices = shape_of(op.x)[0], _linear_indices(indices.build, indices.shape, len(indices.shape))
    # With mode add every update in bounds counts; with mode none, each row records the linear index of its last update.
    if op.mode.data == "add":
        indices_i64 = indices.op(dl.CastOp, to=i64)
        is_visible = ~(indices_i64 > _size_term(indices.build, rows - 1)) & ~(indices_i64 < _size_term(indices.build, -rows))
    else:
        last = (
            linear_indices.like(-1)
            .broadcast(rows)
            .op(dl.ScatterRowsOp, indices, linear_indices, mode="none", clamped=op.clamped)
        )
        is_visible = last.op(dl.GatherOp, indices, axis=0).equals(linear_indices)
    return is_visible.reshape(*indices.shape, *(1 for _ in shape_of(op.x)[1:]))


def nonconstant_pad(op: dl.PadOp, cotangent: Term) -> Term:
    """Scatter-add cotangents of padding elements to the elements that these copy, one axis after another."""
    build = cotangent.build
    for axis, size in reversed(list(enumerate(shape_of(op.x)))):
        low, high = op.padding[axis]
        if low == 0 == high:
            continue
        if isinstance(size, int):
            indices = Term(build, build.constant(dl.padding_source_indices(op.mode, size, size + low + high, low), i64))
        else:
            indices = _linear_indices(build, (size,), 1).op(dl.PadOp, 0, low=(low,), high=(high,), pad_mode=op.mode)
        cotangent = _scatter_along_axis(cotangent, axis, indices, size)
    return cotangent


def scatter_slice(cotangent: Term, axis: int, start: Size, step: int, size: Size) -> Term:
    """Return zeros with the cotangent of a slice of one axis at the elements that the slice reads."""
    indices = _linear_indices(cotangent.build, (cotangent.shape[axis],), 1) * step + _size_term(cotangent.build, start)
    return _scatter_along_axis(cotangent, axis, indices, size)


def _scatter_along_axis(cotangent: Term, axis: int, indices: Term, size: Size) -> Term:
    """Scatter-add the slices of a cotangent along one axis to an axis of this size."""
    permutation = [axis, *(a for a in range(len(cotangent.shape)) if a != axis)]
    rows = cotangent.transpose(*permutation)
    initial = Term(cotangent.build, cotangent.build.scalar(0, like=cotangent.value)).broadcast(size, *rows.shape[1:])
    return _scatter_add(initial, indices, rows).transpose(*inverse(permutation))
