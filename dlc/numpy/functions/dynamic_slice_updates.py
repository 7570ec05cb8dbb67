"""Updates of slices with symbolic sizes or traced bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import OutOfBoundsError, ShapeError
from dlc.numpy.apply import Operand, apply, convert, iota, operand, refuse
from dlc.numpy.functions.comparison import equal, greater_equal, less, logical_and
from dlc.numpy.functions.elementwise import floor_divide, multiply, remainder, subtract, where
from dlc.numpy.functions.indexing import dynamic_slice_range, has_dynamic_length, slice_step, symbolic_slice_bounds
from dlc.numpy.functions.shape_manipulation import reshape
from dlc.shapes.dims import is_static
from dlc.shapes.traced_dims import untraced

__all__: list[str] = []


@dataclass(frozen=True)
class _AxisSelection:
    """The `count` elements of an axis that a key selects.

    `is_selected` is a mask over the axis, and `value_indices` has the index of each element's new value; both are None if the
    whole axis is selected.
    """

    count: int
    is_selected: Operand | None = None
    value_indices: Operand | None = None


def has_dynamic_slices(x: Operand, keys: Sequence[Any]) -> bool:
    """Return whether a key has slices of dynamic length.

    All other entries must be slices with positive steps, or integers that index static axes.
    """
    axis_keys = [k for k in keys if k is not None]
    if not all(isinstance(k, slice) or type(k) is int for k in axis_keys):
        return False
    axes = list(zip(axis_keys, x.shape, strict=True))
    slices = [(cast("slice[Any, Any, Any]", k), size) for k, size in axes if isinstance(k, slice)]
    is_supported = is_static([size for k, size in axes if type(k) is int]) and all(slice_step(k) > 0 for k, _ in slices)
    return is_supported and any(has_dynamic_length(size, k) for k, size in slices)


def update_dynamic_slices(x: Operand, keys: Sequence[Any], value: Operand, combine: Callable[[Any, Any], Any]) -> Any:
    """Return `x` with the selected elements replaced by `combine(x, value)`.

    Along each axis, `value` is gathered to the size of `x`; a mask selects the updated elements.
    """
    axis_keys = [k for k in keys if k is not None]
    selections = [_select_along_axis(k, axis, x) for axis, k in enumerate(axis_keys)]
    value = _align_value(value, keys, [selection.count for selection in selections])
    update_mask: Any = None
    for axis, selection in enumerate(selections):
        if selection.is_selected is None or selection.value_indices is None:
            continue
        if untraced(value.shape[axis]) != 1:
            # Append a zero, so that there is an element to gather if the slice is empty.
            shape = [1 if a == axis else size for a, size in enumerate(value.shape)]
            padding = apply(dl.BroadcastToOp, np.zeros((), value.dtype), shape=shape)
            value = apply(dl.GatherOp, apply(dl.ConcatOp, value, padding, axis=axis), selection.value_indices, axis=axis)
        is_selected = reshape(selection.is_selected, [x.shape[axis] if a == axis else 1 for a in range(x.ndim)])
        update_mask = is_selected if update_mask is None else logical_and(update_mask, is_selected)
    return where(update_mask, convert(combine(x, value), x.dtype), x)


def _select_along_axis(key: Any, axis: int, x: Operand) -> _AxisSelection:
    size = x.shape[axis]
    axis_indices = operand(iota(size))
    if isinstance(key, int):
        if not -size <= key < size:
            refuse(OutOfBoundsError(f"index {key} is out of bounds for axis {axis} of shape {x.shape}"))
        return _AxisSelection(1, operand(equal(axis_indices, key % size)), operand(multiply(axis_indices, 0)))
    step, first, count = slice_step(key), 0, 0
    if not has_dynamic_length(size, key):
        if key == slice(None):
            return _AxisSelection(size)
        first, last, step = key.indices(size)
        count = len(range(first, last, step))
    elif (bounds := symbolic_slice_bounds(size, key)) is not None:
        first, last = bounds
        count = (last - first + step - 1) // step
    else:
        first, indices = dynamic_slice_range(size, key)
        count = indices.shape[0]
    offsets = subtract(axis_indices, first)
    is_selected = logical_and(greater_equal(offsets, 0), less(offsets, multiply(count, step)))
    is_selected = is_selected if step == 1 else logical_and(is_selected, equal(remainder(offsets, step), 0))
    return _AxisSelection(count, operand(is_selected), operand(where(is_selected, floor_divide(offsets, step), 0)))


def _align_value(value: Operand, keys: Sequence[Any], counts: Sequence[int]) -> Operand:
    """Reshape `value` to the rank of the array; each axis has size 1 or the number of updated elements."""
    remaining = iter(counts)
    selected = [(k, 1 if k is None else next(remaining)) for k in keys]
    target = [count for k, count in selected if not isinstance(k, int)]
    value = squeeze_leading_axes(value, len(target))
    if value.ndim > len(target) or not all(map(broadcasts_to, value.shape[::-1], target[::-1])):
        refuse(ShapeError(f"a value of shape {value.shape} does not broadcast to the selected shape {tuple(target)}"))
    sizes = iter([1] * (len(target) - value.ndim) + list(value.shape))
    key_sizes = [(k, 1 if isinstance(k, int) else next(sizes)) for k in keys]
    return operand(reshape(value, [size for k, size in key_sizes if k is not None]))


def broadcasts_to(size: int, target: int) -> bool:
    """Return whether an axis broadcasts to a target size, for all values of symbolic sizes."""
    return untraced(size) in (1, untraced(target))


def squeeze_leading_axes(value: Operand, rank: int) -> Operand:
    """Return a value without leading axes of size 1 as long as it has more than `rank` axes."""
    while value.ndim > rank and untraced(value.shape[0]) == 1:
        value = operand(reshape(value, value.shape[1:]))
    return value
