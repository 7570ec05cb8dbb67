"""Indexing: `x[key]`, and functions that gather elements by index.

Negative indices count from the end. An index out of bounds is an error: for a traced index when the function is called,
otherwise when it is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import (
    ArrayLike,
    Axes,
    Operand,
    apply,
    as_index,
    convert,
    is_less,
    is_traced,
    normalize_axis,
    operand,
    promote,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.data_dependent import dynamic_arange, true_indices
from dlc.numpy.functions.comparison import less, maximum, minimum
from dlc.numpy.functions.elementwise import add, floor_divide, multiply, remainder, subtract, where
from dlc.numpy.functions.shape_manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    moveaxis,
    reshape,
    slice_axis,
)
from dlc.shapes.dims import UndecidableError
from dlc.shapes.slices import forward_slice, max_count, slice_range, unclamped_span
from dlc.shapes.traced_dims import TracedDim, TracedSize, untraced

__all__ = ["choose", "ix_", "piecewise", "select", "sliding_window_view", "take", "take_along_axis"]


@dataclass(frozen=True)
class AxisSlice:
    """A slice of one axis: `count` elements from `start` by `step`. `dropped`: an integer index, whose axis is removed."""

    axis: int
    start: int
    step: int
    count: int
    dropped: bool = False

    @property
    def indices(self) -> Array:
        return self.start + self.step * np.arange(self.count)


# An entry of a key: a slice of an axis, an axis with an index array, or None for a new axis.
KeyEntry = AxisSlice | tuple[int, Operand] | None


@componentwise("x")
def getitem(x: ArrayLike, key: Any, /) -> Any:
    """Return `x[key]` for integers, slices, None, Ellipsis, integer arrays and boolean masks."""
    x = operand(x)
    if isinstance(key, Tracer) and _is_mask(key) and key.ndim:
        _require_mask(x, 0, key)
        return apply(
            dl.GatherOp, reshape(x, (key.size, *x.shape[key.ndim :])), true_indices(reshape(key, (key.size,)))[0], axis=0
        )
    is_separated = _is_separated(key)
    x, key = _apply_dynamic_slices(x, key)
    entries = key_entries(x, key)
    result = _apply_slices(x, [e for e in entries if isinstance(e, AxisSlice)])
    if not any(isinstance(e, tuple) for e in entries):
        return reshape(result, [entry_size(x, e) for e in entries if not is_dropped(e)])
    # After new axes are inserted and integer-indexed axes are removed, each entry is one axis of `result`.
    axis_entries = [e for e in entries if not is_dropped(e)]
    result = reshape(result, [entry_size(x, e) for e in axis_entries])
    axes = [a for a, e in enumerate(axis_entries) if isinstance(e, tuple)]
    source_axes, indices = zip(*(cast("tuple[int, Operand]", axis_entries[a]) for a in axes), strict=True)
    gathered = _gather(result, axes, indices, source_axes)
    # As in NumPy, the axes of the index arrays come where these were, or first if they were not adjacent.
    if is_separated or axes[0] == 0:
        return gathered
    num_new_axes = gathered.ndim - (result.ndim - len(axes))
    return moveaxis(gathered, list(range(num_new_axes)), list(range(axes[0], axes[0] + num_new_axes)))


def _is_separated(key: Any) -> bool:
    """Return whether the integers and arrays of a key are separated by a slice, None or an Ellipsis, even of zero axes."""
    keys = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    advanced = [p for p, k in enumerate(keys) if k is not None and not isinstance(k, EllipsisType | slice)]
    return bool(advanced) and advanced[-1] - advanced[0] + 1 > len(advanced)


def is_dropped(entry: KeyEntry) -> bool:
    return isinstance(entry, AxisSlice) and entry.dropped


def entry_size(x: Operand, entry: KeyEntry) -> int:
    """Return the size of an entry's axis, before an index array gathers along it."""
    return 1 if entry is None else entry.count if isinstance(entry, AxisSlice) else x.shape[entry[0]]


def _apply_slices(x: Operand, slices: Sequence[AxisSlice]) -> Operand:
    """Slice the axes of `x`; no axis is removed."""
    starts, limits, strides, reversed_axes = [0] * x.ndim, list(x.shape), [1] * x.ndim, list[int]()
    for e in slices:
        start, step = e.start, e.step
        if step < 0:
            reversed_axes.append(e.axis)
            start, step = start + (e.count - 1) * step, -step
        starts[e.axis], limits[e.axis], strides[e.axis] = start, start + (e.count - 1) * step + 1, step
        if untraced(e.count) == 0:
            starts[e.axis], limits[e.axis] = 0, 0
    if starts != [0] * x.ndim or untraced(limits) != untraced(x.shape) or set(strides) - {1}:
        x = apply(dl.SliceOp, x, starts=starts, limits=limits, strides=strides)
    return apply(dl.ReverseOp, x, axes=reversed_axes) if reversed_axes else x


def _gather(x: Operand, axes: Sequence[int], indices: Sequence[Operand], source_axes: Sequence[int]) -> Any:
    """Gather along axes; the axes of the index arrays come first. Out-of-bounds errors name the axes `source_axes`."""
    if len(axes) == 1:
        gathered = _apply_checked_gather(dl.GatherOp, x, indices[0], source_axes, axis=axes[0])
        return moveaxis(gathered, range(axes[0], axes[0] + indices[0].ndim), range(indices[0].ndim))
    return _apply_checked_gather(dl.GatherNdOp, moveaxis(x, axes, range(len(axes))), stack_coordinates(indices), source_axes)


def stack_coordinates(indices: Sequence[Operand]) -> Operand:
    """Broadcast the index arrays of several axes and stack them along a new last axis."""
    columns = [convert(p, np.int64) for p in broadcast_arrays(*indices)]
    columns = [reshape(c, (*c.shape, 1)) for c in columns]
    return apply(dl.ConcatOp, *columns, axis=columns[0].ndim - 1)


def _apply_checked_gather(
    op: type[DlOp], x: Operand, indices: Operand, source_axes: Sequence[int] | None = None, **properties: int
) -> Any:
    """Apply a gather op whose traced indices are checked for bounds when the function is called."""
    if not isinstance(indices, Tracer):
        return apply(op, x, indices, **properties)
    return apply(op, x, indices, **properties, checked=True, reported_axes=source_axes)


def key_entries(x: Operand, key: Any) -> list[KeyEntry]:
    """Return the entries of a key; every axis of `x` is in one of them."""
    keys, axis_counts = split_key(x, key)
    entries: list[KeyEntry] = []
    axis = 0
    for k, width in zip(keys, axis_counts, strict=True):
        entries += [None] if k is None else _mask_entries(x, axis, k) if _is_mask(k) else [_entry(x, axis, k)]
        axis += width
    return entries


def split_key(x: Operand, key: Any) -> tuple[list[Any], list[int]]:
    """Return the components of a key, with the Ellipsis expanded, and the number of axes that each one indexes."""
    keys = [_key(k) for k in (cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,))]
    axis_counts = [_num_indexed_axes(k) for k in keys]
    if sum(axis_counts) > x.ndim:
        refuse(OutOfBoundsError(f"{sum(axis_counts)} indices for an array with {x.ndim} axes"))
    if sum(isinstance(k, EllipsisType) for k in keys) > 1:
        refuse(ShapeError("an index with more than one Ellipsis (...); expected at most one"))
    ellipsis_position = next((p for p, k in enumerate(keys) if isinstance(k, EllipsisType)), len(keys))
    num_ellipsis_axes = x.ndim - sum(axis_counts)
    ellipsis_slice = slice(ellipsis_position, ellipsis_position + 1)
    keys[ellipsis_slice], axis_counts[ellipsis_slice] = [slice(None)] * num_ellipsis_axes, [1] * num_ellipsis_axes
    return keys, axis_counts


def _apply_dynamic_slices(x: Operand, key: Any) -> tuple[Operand, Any]:
    """Apply the slices of a key that have a dynamic length; return the result and the remaining key."""
    keys, axis_counts = split_key(x, key)
    axis = 0
    for p, (k, width) in enumerate(zip(keys, axis_counts, strict=True)):
        if isinstance(k, slice) and has_dynamic_length(x.shape[axis], cast("slice[Any, Any, Any]", k)):
            x, keys[p] = dynamic_slice(x, axis, cast("slice[Any, Any, Any]", k)), slice(None)
        axis += width
    return x, tuple(keys)


def has_dynamic_length(size: int, k: slice[Any, Any, Any]) -> bool:
    """Return whether the length of a slice depends on a symbolic size or a traced bound; a slice of the whole axis does not."""
    if any(isinstance(bound, Tracer | TracedDim) for bound in (k.start, k.stop, k.step)):
        return True
    return isinstance(size, TracedDim) and k not in (slice(None), slice(None, None, -1))


def dynamic_slice(x: Operand, axis: int, k: slice[Any, Any, Any]) -> Any:
    """Return `x[k]` along one axis, for a symbolic size or traced bounds."""
    size = x.shape[axis]
    if (bounds := symbolic_slice_bounds(size, k)) is not None:
        step = slice_step(k)
        x = apply(dl.ReverseOp, x, axes=(axis,)) if step < 0 else x
        return slice_axis(x, axis, *bounds, abs(step))
    first, offsets = dynamic_slice_range(size, k)
    return apply(dl.GatherOp, x, operand(add(multiply(offsets, slice_step(k)), first)), axis=axis)


def slice_step(k: slice[Any, Any, Any]) -> int:
    """Return the step of a slice. Raises UnsupportedError for a traced step and for 0."""
    step = 1 if k.step is None else k.step
    if is_traced(step) or step == 0:
        refuse(UnsupportedError(f"a slice with step {step}; expected a static integer other than 0"))
    return step


def dynamic_slice_range(size: int, k: slice[Any, Any, Any]) -> tuple[Operand, Operand]:
    """Return the start of a slice, and the vector 0, 1, … with an entry for each selected element."""
    step = slice_step(k)

    def clamp(bound: Any, size: int, low: int, high: int) -> Any:
        bound = convert(operand(bound), np.int64)
        return minimum(maximum(where(less(bound, 0), add(bound, size), bound), low), high)

    first, last = slice_range(size, k.start, k.stop, step, clamp)
    span = unclamped_span(size, k.start, k.stop, step)
    if span is None:
        span = subtract(last, first) if step > 0 else subtract(first, last)
    # ⌈span / step⌉ without integer overflow.
    count = add(floor_divide(subtract(span, 1), abs(step)), 1)
    return operand(first), dynamic_arange(operand(count), max_count(size, step))


def symbolic_slice_bounds(size: int, k: slice[Any, Any, Any]) -> tuple[int, int] | None:
    """Return the bounds of a slice, clamped to the axis and ordered; None if they depend on data.

    For a negative step, they are bounds in the reversed axis. Comparisons of sizes may become guards of the trace.
    """
    if not all(bound is None or isinstance(bound, int | TracedDim) for bound in (k.start, k.stop)):
        return None
    try:
        first, last = forward_slice(size, k.start, k.stop, slice_step(k))
        is_empty = untraced(first) == untraced(size) or untraced(last) == 0
        return first, first if is_empty else max(last, first)
    except UndecidableError:
        return None


def _num_indexed_axes(k: Any) -> int:
    """Return the number of axes that a component of a key indexes; 0 for an Ellipsis."""
    return cast(Operand, k).ndim if _is_mask(k) else int(k is not None and not isinstance(k, EllipsisType))


def _key(k: Any) -> Any:
    """Normalize one component of a key to None, Ellipsis, a slice, an int, an integer array or a boolean array."""
    if k is None or isinstance(k, EllipsisType | slice):
        return cast("slice | EllipsisType | None", k)
    if isinstance(k, int | np.integer) and not isinstance(k, bool):
        return int(cast(int, k))
    indices = operand(k)
    if isinstance(k, list | tuple) and untraced(indices.size) == 0:
        indices = np.zeros(indices.shape, np.int64)
    if indices.dtype == np.bool_:
        return indices
    if indices.dtype.kind not in "iu":
        refuse(DTypeError(f"an index of dtype {indices.dtype}; expected integers, slices, or a boolean mask"))
    return indices


def _is_mask(k: Any) -> bool:
    return isinstance(k, np.ndarray | Tracer) and cast(Operand, k).dtype == np.bool_


def _mask_entries(x: Operand, axis: int, mask: Operand) -> list[KeyEntry]:
    """Return the index entries of a mask: one index array for each of its axes, which are the axes of `x` from `axis` on."""
    _require_mask(x, axis, mask)
    return [(axis + k, indices) for k, indices in enumerate(true_indices(mask))]


def _require_mask(x: Operand, axis: int, mask: Operand) -> None:
    if mask.ndim == 0:
        refuse(UnsupportedError("a bool of rank 0 as an index; use dlc.numpy.where"))
    if mask.shape != x.shape[axis : axis + mask.ndim]:
        refuse(
            ShapeError(
                f"a mask of shape {mask.shape} for the axes of shape {x.shape} from axis {axis} on; expected equal sizes"
            )
        )


def _entry(x: Operand, axis: int, k: int | slice[Any, Any, Any] | Operand) -> KeyEntry:
    size = x.shape[axis]
    if isinstance(k, int):
        min_size = k + 1 if k >= 0 else -k
        if isinstance(size, TracedDim):
            # The gather checks a data-dependent size.
            if not cast(Tracer, x).owner.is_data_dependent(size):
                is_less(x, size.dim, min_size, "index")
            return axis, cast(Tracer, x).owner.constant(np.asarray(k))
        if size < min_size:
            refuse(OutOfBoundsError(f"index {k} is out of bounds for axis {axis} of shape {x.shape}"))
        return AxisSlice(axis, k % size, 1, 1, dropped=True)
    if isinstance(k, slice):
        if is_traced(k):
            refuse(UnsupportedError("an update of a slice with traced bounds combined with index arrays; use dlc.numpy.where"))
        if k == slice(None):
            # The whole axis, also of symbolic size.
            return AxisSlice(axis, 0, 1, size)
        if k == slice(None, None, -1):
            return AxisSlice(axis, size - 1, -1, size)
        if isinstance(size, TracedDim):
            hint = "use an index array, as in x.at[dlc.numpy.arange(x.shape[0])[:2]]"
            raise UndecidableError(f"an update of the slice {k} of axis {axis}, whose size {size} is symbolic; {hint}")
        start, stop, step = slice(k.start, k.stop, slice_step(k)).indices(size)
        count = len(range(start, stop, step))
        # A step beyond the axis takes one element; it may not fit in i64.
        return AxisSlice(axis, start, step if count > 1 else 1, count)
    return axis, _checked_indices(k, x, axis)


def _checked_indices(indices: Operand, x: Operand, axis: int, *, is_from_end_allowed: bool = True) -> Operand:
    """Return indices of an axis; raise OutOfBoundsError if a static one is out of bounds.

    The gather checks traced indices, and those of an axis of data-dependent size, which become traced.
    """
    size = x.shape[axis]
    if not isinstance(indices, np.ndarray) or indices.dtype.kind not in "iu" or not indices.size:
        return indices
    if isinstance(size, TracedDim) and (trace := cast(Tracer, x).owner).is_data_dependent(size):
        return trace.constant(indices)
    low, high = int(indices.min()), int(indices.max())
    if not (-size if is_from_end_allowed else 0) <= low <= high < size:
        refuse(OutOfBoundsError(f"indices from {low} to {high} are out of bounds for axis {axis} of shape {x.shape}"))
    return indices


@componentwise("x")
def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None, *, mode: str = "raise") -> Any:
    """Gather slices of `x` along `axis` by index; axis None: of the flattened array. `mode`: "clip" or "wrap" the indices."""
    (x, axis), indices = with_axis_or_flattened("take", x, axis), operand(indices)
    indices = _checked_indices(_indices_by_mode("take", indices, x.shape[axis], mode), x, axis)
    return _apply_checked_gather(dl.GatherOp, x, indices, axis=axis)


def _indices_by_mode(name: str, indices: Operand, size: TracedSize, mode: str) -> Operand:
    """Return indices of an axis after applying `mode`: "raise" leaves those out of bounds, "clip" and "wrap" change them."""
    match mode:
        case "raise":
            return indices
        case "clip":
            return operand(maximum(minimum(as_index(indices), size - 1), 0))
        case "wrap":
            return operand(remainder(as_index(indices), size))
        case _:
            return refuse(ArgumentError(f'{name}: mode {mode!r}; expected "raise", "clip" or "wrap"'))


@componentwise("x")
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int | None = -1) -> Any:
    """Gather elements along `axis` by index, each from its own row; axis None: of the flattened array."""
    (x, axis), indices = with_axis_or_flattened("take_along_axis", x, axis), operand(indices)
    if indices.ndim != x.ndim:
        refuse(ShapeError(f"take_along_axis: indices of shape {indices.shape} for x of shape {x.shape}; expected as many axes"))
    indices = _checked_indices(indices, x, axis)
    broadcast_shape = broadcast_shapes(*(tuple(1 if a == axis else s for a, s in enumerate(v.shape)) for v in (x, indices)))
    rows = [broadcast_to(v, (*broadcast_shape[:axis], v.shape[axis], *broadcast_shape[axis + 1 :])) for v in (x, indices)]
    return _apply_checked_gather(dl.GatherElementsOp, *rows, axis=axis)


def choose(x: ArrayLike, choices: Sequence[ArrayLike] | Operand, /, *, mode: str = "raise") -> Any:
    """Return for each element of `x` the element of the choice with that index; `mode`: "clip" or "wrap" the indices."""
    if not len(choices):
        refuse(ShapeError("choose: no choices; expected at least one"))
    selectors, *rows = broadcast_arrays(as_index(operand(x)), *promote(*cast("Sequence[ArrayLike]", choices)))
    selectors = _indices_by_mode("choose", selectors, len(rows), mode)
    table = apply(dl.ConcatOp, *(expand_dims(row) for row in rows), axis=0)
    selectors = _checked_indices(selectors, table, 0, is_from_end_allowed=False)
    if isinstance(selectors, Tracer):
        # A choice is not counted from the end: a negative index is out of bounds as well.
        selectors = where(less(selectors, 0), len(rows), selectors)
    chosen = _apply_checked_gather(dl.GatherElementsOp, table, expand_dims(selectors), axis=0)
    return reshape(chosen, selectors.shape)


@componentwise("choices", "default")
def select(conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], /, default: ArrayLike = 0) -> Any:
    """Return elements of the choice whose condition is the first true one; `default` if none is true."""
    if len(conditions) != len(choices) or not len(conditions):
        refuse(ShapeError(f"select: {len(conditions)} conditions for {len(choices)} choices; expected one for each"))
    result, *options = promote(default, *choices)
    for condition, choice in zip(reversed(conditions), reversed(options), strict=True):
        result = where(condition, choice, result)
    return result


@componentwise("x")
def sliding_window_view(x: ArrayLike, /, window_shape: int | Sequence[int], axis: Axes = None) -> Any:
    """Return all windows of this shape along axes; their elements are the last axes. The result is a copy.

    axis None: `window_shape` has a size for each axis. An axis that occurs twice has windows of windows.
    """
    x = operand(x)
    sizes = (window_shape,) if isinstance(window_shape, int | np.integer) else tuple(window_shape)
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, Sequence) else (axis,)
    if len(sizes) != len(axes):
        refuse(ShapeError(f"sliding_window_view: window_shape {window_shape} for {len(axes)} axes; expected a size for each"))
    for size, along in zip(sizes, [normalize_axis("sliding_window_view", x, a) for a in axes], strict=True):
        length = x.shape[along]
        if size < 0 or is_less(x, untraced(length), size, "sliding_window_view", "a window longer than its axis"):
            refuse(ShapeError(f"sliding_window_view: a window of {size} along axis {along} of shape {x.shape}"))
        starts = dynamic_arange(operand(length - size + 1))
        windows = take(x, operand(add(expand_dims(starts, -1), np.arange(size))), axis=along)
        x = operand(moveaxis(windows, along + 1, -1))
    return x


def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], /, *args: Any) -> Any:
    """Return for each element the value of the function whose condition is true, the last one of several.

    Functions are called with the whole array and `args`; numbers are values. One more of them than conditions is used
    where none is true, else 0. The result has the dtype of `x`.
    """
    x = operand(x)
    is_sequence = isinstance(cast("object", condlist), list | tuple)
    conditions = [operand(c) for c in condlist] if is_sequence else [operand(condlist)]
    if len(conditions) == 1 and conditions[0].ndim > x.ndim:
        conditions = [getitem(conditions[0], k) for k in range(conditions[0].shape[0])]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        expected = f"{len(conditions)} or {len(conditions) + 1}"
        refuse(ShapeError(f"piecewise: {len(funclist)} functions for {len(conditions)} conditions; expected {expected}"))
    results: list[Any] = [f(x, *args) if callable(f) else f for f in funclist]
    values = [convert(result, x.dtype) for result in results]
    result = values[-1] if len(values) > len(conditions) else convert(0, x.dtype)
    for condition, value in zip(conditions, values, strict=False):
        result = where(condition, value, result)
    return broadcast_to(result, x.shape)


def ix_(*args: ArrayLike) -> tuple[Any, ...]:
    """Return vectors of indices along different axes, which select their outer product: `x[ix_(rows, columns)]`."""
    vectors = [operand(x) for x in args]
    if any(v.ndim != 1 for v in vectors):
        refuse(ShapeError(f"ix_: arrays of shapes {', '.join(str(v.shape) for v in vectors)}; expected vectors"))
    vectors = [true_indices(v)[0] if v.dtype == np.bool_ else convert(v, np.int64) if v.size == 0 else v for v in vectors]
    return tuple(reshape(v, (*(1,) * k, -1, *(1,) * (len(vectors) - k - 1))) for k, v in enumerate(vectors))
