"""Indexed updates: out of place, `y = x.at[key].set(value)`.

The methods are `set`, `add`, `subtract`, `multiply`, `divide`, `max` and `min`, and `get` for the elements themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import AbsentError, ShapeError
from dlc.frontend.trace import Trace, Tracer, current_trace
from dlc.ir import i64
from dlc.numpy.apply import ArrayLike, Operand, apply, convert, operand, refuse
from dlc.numpy.data_dependent import constant_if_empty, selected_count, true_indices
from dlc.numpy.functions.comparison import maximum, minimum
from dlc.numpy.functions.dynamic_slice_updates import (
    broadcasts_to,
    has_dynamic_slices,
    squeeze_leading_axes,
    update_dynamic_slices,
)
from dlc.numpy.functions.elementwise import add, divide, multiply, negative, where
from dlc.numpy.functions.indexing import (
    AxisSlice,
    KeyEntry,
    entry_size,
    getitem,
    is_dropped,
    key_entries,
    split_key,
    stack_coordinates,
)
from dlc.numpy.functions.shape_manipulation import broadcast_to, reshape
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = ["at"]


def at(x: ArrayLike, /) -> At:
    """Return `x.at`, also for plain arrays: `at(x)[key].set(value)`. (Not in NumPy.)"""
    return At(operand(x))


class At:
    """`x.at`: indexing it selects the elements to update."""

    def __init__(self, x: Operand) -> None:
        self.x = x

    def __getitem__(self, key: Any) -> Update:
        return Update(self.x, key)


class Update:
    """`x.at[key]`: the elements to update. The methods return a new array; `x` is unchanged.

    If an index occurs several times, its element is combined with each of the values; `set` keeps the last one. The key may
    also be a boolean mask with the shape of `x` or of its leading axes. Then the value broadcasts to the selected elements, or
    has one entry for each of them, in row-major order; a data-dependent count of them is checked when the function is called.
    """

    def __init__(self, x: Operand, key: Any) -> None:
        self.x = x
        self.key = key

    def __getattr__(self, name: str) -> NoReturn:
        raise AbsentError(f"x.at[…] has no {name!r}; it has get, set, add, subtract, multiply, divide, max and min")

    def get(self) -> Any:
        """Return the elements."""
        return getitem(self.x, self.key)

    def set(self, value: ArrayLike, /) -> Any:
        """Return `x` with the elements replaced by `value`."""
        return self._update(value, "none", lambda _, new: new)

    def add(self, value: ArrayLike, /) -> Any:
        """Return `x` with `value` added to the elements."""
        return self._update(value, "add", add)

    def subtract(self, value: ArrayLike, /) -> Any:
        """Return `x` with `value` subtracted from the elements."""
        return self._update(negative(convert(value, self.x.dtype)), "add", add)

    def multiply(self, value: ArrayLike, /) -> Any:
        """Return `x` with the elements multiplied by `value`."""
        return self._update(value, "mul", multiply)

    def divide(self, value: ArrayLike, /) -> Any:
        """Return `x`, an array of floats, with the elements divided by `value`."""
        return self._update(divide(1, convert(value, self.x.dtype)), "mul", multiply)

    def max(self, value: ArrayLike, /) -> Any:
        """Return `x` with the elements replaced by their maximum with `value`."""
        return self._update(value, "max", maximum)

    def min(self, value: ArrayLike, /) -> Any:
        """Return `x` with the elements replaced by their minimum with `value`."""
        return self._update(value, "min", minimum)

    def _update(self, value: ArrayLike, mode: str, combine: Callable[[Any, Any], Any]) -> Any:
        x, value = self.x, convert(value, self.x.dtype)
        mask = operand(cast(Operand, self.key)) if isinstance(self.key, Tracer | np.ndarray) else None
        if mask is not None and mask.dtype == np.bool_:
            if mask.shape != x.shape[: mask.ndim]:
                refuse(
                    ShapeError(
                        f"a mask of shape {mask.shape} for an array of shape {x.shape}; expected the sizes of its leading axes"
                    )
                )
            return self._update_masked(mask, value, mode, combine)
        keys, _ = split_key(x, self.key)
        if has_dynamic_slices(x, keys):
            return update_dynamic_slices(x, keys, value, combine)
        entries = key_entries(x, self.key)
        if not any(isinstance(e, tuple) for e in entries):
            return self._update_slices(value, entries, combine)
        index_arrays = [e[1] for e in entries if isinstance(e, tuple)]
        count = len(index_arrays)
        if not (all(isinstance(e, tuple) for e in entries[:count]) and all(map(self._is_whole, entries[count:]))):
            # Apply the key to the flat indices of `x`, and scatter to the flattened array.
            indices = getitem(np.arange(x.size).reshape(x.shape), self.key)
            return reshape(
                _scatter_rows(reshape(x, (x.size,)), indices, self._broadcast_value(value, indices.shape), mode), x.shape
            )
        if count == 1:
            return _scatter_rows(x, index_arrays[0], self._broadcast_value(value, (*index_arrays[0].shape, *x.shape[1:])), mode)
        indices = stack_coordinates(index_arrays)
        updates = self._broadcast_value(value, (*indices.shape[:-1], *x.shape[count:]))
        return apply(dl.ScatterNdOp, x, indices, updates, mode=mode, checked=isinstance(indices, Tracer) or None)

    def _update_masked(self, mask: Operand, value: Operand, mode: str, combine: Callable[[Any, Any], Any]) -> Any:
        """Update the elements selected by a mask of the leading axes, by a value that broadcasts or one for each of them."""
        x, trailing_shape, flags = self.x, self.x.shape[mask.ndim :], constant_if_empty(reshape(mask, (mask.size,)))
        value = squeeze_leading_axes(value, len(trailing_shape) + 1)
        if value.ndim <= len(trailing_shape) or untraced(value.shape[0]) == 1:
            value = self._broadcast_value(value, trailing_shape)
        elif not isinstance(flags, Tracer) or untraced(value.shape[0]) == selected_count(flags):
            (indices,) = true_indices(flags)
            updates = self._broadcast_value(value, (*indices.shape, *trailing_shape))
            return reshape(_scatter_rows(reshape(x, (mask.size, *trailing_shape)), indices, updates, mode), x.shape)
        else:
            # The k-th selected element takes the k-th value: an exclusive cumulative sum of the mask numbers the elements.
            count = apply(dl.ReduceSumOp, convert(flags, np.int64), axes=(0,), keepdims=False)
            _require_matching_count(flags.owner, value.shape[0], count)
            value = self._broadcast_value(value, (value.shape[0], *trailing_shape))
            indices = apply(dl.CumsumOp, convert(flags, np.int64), axis=0, exclusive=True, reverse=False)
            value = reshape(_gather_values(value, indices, 0), x.shape)
        update_mask = reshape(mask, mask.shape + (1,) * len(trailing_shape))
        if mode == "mul":
            # An infinite factor of an element that is not selected would make the derivative 0 · ∞.
            value = where(update_mask, value, np.ones((), value.dtype))
        return where(update_mask, combine(x, value), x)

    def _is_whole(self, entry: KeyEntry) -> bool:
        """Return whether an entry selects its whole axis in order."""
        return isinstance(entry, AxisSlice) and _is_whole_axis(self.x, entry) and not entry.dropped

    def _broadcast_value(self, value: Operand, shape: tuple[int, ...]) -> Any:
        """Broadcast `value` to the shape of the elements it replaces.

        Data-dependent sizes are checked when the function is called.
        """
        value = squeeze_leading_axes(value, len(shape))
        for axis, n, m in zip(range(-1, -1 - value.ndim, -1), value.shape[::-1], shape[::-1], strict=False):
            if not broadcasts_to(n, m) and (trace := current_trace()) is not None and trace.is_data_dependent(m):
                count = apply(dl.SizeOp, size=(m,), to=i64)
                _require_matching_count(trace, n, count)
                value = _gather_values(value, apply(dl.IotaOp, size=(m,), to=i64, start=0, step=1), axis % value.ndim)
        if value.ndim > len(shape) or not all(map(broadcasts_to, value.shape[::-1], shape[::-1])):
            refuse(ShapeError(f"a value of shape {value.shape} does not broadcast to the selected shape {shape}"))
        return broadcast_to(value, shape)

    def _update_slices(self, value: Operand, entries: Sequence[KeyEntry], combine: Callable[[Any, Any], Any]) -> Any:
        """Update slices: pad the value, and a mask of the updated elements, to the shape of `x`."""
        x, slices = self.x, [e for e in entries if isinstance(e, AxisSlice)]
        value = self._broadcast_value(value, tuple(entry_size(x, e) for e in entries if not is_dropped(e)))
        value = reshape(value, [e.count for e in slices])
        if 0 in untraced(value.shape):
            return x
        reversed_axes = [e.axis for e in slices if e.step < 0]
        value = apply(dl.ReverseOp, value, axes=reversed_axes) if reversed_axes else value
        if all(_is_whole_axis(x, e) for e in slices):
            return convert(combine(x, value), x.dtype)
        update_mask = _pad_to_slices(operand(broadcast_to(np.ones((), np.bool_), value.shape)), slices, x)
        return where(update_mask, convert(combine(x, _pad_to_slices(value, slices, x)), x.dtype), x)


def _pad_to_slices(values: Operand, slices: Sequence[AxisSlice], x: Operand) -> Any:
    """Return an array of the shape of `x` with the values in these slices, ascending, and 0 between and around them."""
    zero = np.zeros((), values.dtype)
    if any(abs(e.step) > 1 for e in slices):
        # Each element becomes a run of `step` elements, of which only the first is not 0.
        runs = reshape(values, [n for e in slices for n in (e.count, 1)])
        high = [n for e in slices for n in (0, abs(e.step) - 1)]
        runs = apply(dl.PadOp, runs, zero, low=[0] * len(high), high=high, pad_mode="constant")
        values = reshape(runs, [e.count * abs(e.step) for e in slices])
    widths = [(0, 0)] * len(slices)
    for k, e in enumerate(slices):
        if untraced((e.count,)) != untraced((x.shape[e.axis],)):
            first = min(e.start, e.start + (e.count - 1) * e.step)
            widths[k] = first, x.shape[e.axis] - first - e.count * abs(e.step)
    low, high = zip(*widths, strict=True)
    return apply(dl.PadOp, values, zero, low=low, high=high, pad_mode="constant") if any(low) or any(high) else values


def _is_whole_axis(x: Operand, entry: AxisSlice) -> bool:
    """Return whether a slice is its whole axis in order, for all values of symbolic sizes."""
    return untraced((entry.count, entry.step)) == untraced((x.shape[entry.axis], 1))


def _require_matching_count(trace: Trace, num_values: int, num_selected: Tracer) -> None:
    """Check at run time that the number of values is 1 or equals the number of selected elements."""
    count = trace.value(num_values if isinstance(num_values, TracedDim) else np.asarray(num_values, np.int64))
    is_match = trace.apply(dl.EqualOp, count, num_selected)
    if isinstance(num_values, TracedDim):
        # A single value broadcasts, as it does where the size is static.
        is_match = trace.apply(dl.OrOp, is_match, trace.apply(dl.EqualOp, count, trace.constant(np.asarray(1, np.int64))))
    message = "x.at[…]: {} values for {} selected elements; expected one for each, or a single value"
    trace.require(is_match, message, count, num_selected)


def _gather_values(value: Operand, indices: Operand, axis: int) -> Operand:
    """Gather values by index; an index out of bounds gives an arbitrary element."""
    count = value.shape[axis]
    if not isinstance(count, int) or count == 0:
        # There may be no elements to gather from: append one.
        indices = minimum(indices, count - 1)
        shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        value = apply(dl.ConcatOp, value, broadcast_to(np.zeros((), value.dtype), shape), axis=axis)
    return apply(dl.GatherOp, value, indices, axis=axis)


def _scatter_rows(x: Operand, indices: Operand, updates: Operand, mode: str) -> Any:
    """Scatter updates to the rows of `x`; traced indices are checked for bounds when the function is called."""
    if 0 in untraced((*x.shape[1:], *updates.shape)):
        return x
    checked = isinstance(indices, Tracer) or None
    return apply(dl.ScatterRowsOp, x, indices, updates, mode=mode, clamped=True, checked=checked)
