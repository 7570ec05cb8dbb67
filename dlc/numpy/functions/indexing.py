"""Elements at places: `x[key]`, and the functions that take and choose.

Negative indices count from the end. What is out of bounds is an error: of a traced array when the function is called, of others
when it is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp
from dlc.dims import Dim, Size, UndecidableError, never_negative
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import ArrayLike, Operand, along, apply, convert, has_tracer, operand, promote, refuse
from dlc.numpy.by_parts import by_parts
from dlc.numpy.functions.comparing import less, maximum, minimum
from dlc.numpy.functions.elementwise import add, floor_divide, multiply, remainder, subtract, where
from dlc.numpy.functions.shaping import broadcast_arrays, broadcast_shapes, broadcast_to, expand_dims, moveaxis, part, reshape
from dlc.numpy.places import numbers_below, places_of

__all__ = ["choose", "select", "take", "take_along_axis"]


@dataclass(frozen=True)
class Along:
    """What a key says of one axis: `count` places from `start` by `step`; `dropped` for an integer."""

    axis: int
    start: int
    step: int
    count: int
    dropped: bool = False

    @property
    def places(self) -> Array:
        return self.start + self.step * np.arange(self.count)


# An entry of a key: an axis of the operand sliced, an array of places along one, or None for a new axis.
Entry = Along | tuple[int, Operand] | None


@by_parts("x")
def getitem(x: ArrayLike, key: Any, /) -> Any:
    """`x[key]` for integers, slices, None, Ellipsis, arrays of integers, and masks."""
    x = operand(x)
    if isinstance(key, Tracer) and _is_mask(key) and key.ndim:
        _require_mask(x, 0, key)
        return apply(dl.GatherOp, reshape(x, (key.size, *x.shape[key.ndim :])), places_of(reshape(key, (key.size,)))[0], axis=0)
    apart = _is_apart(key)
    x, key = _counted(x, key)
    entries = entries_of(x, key)
    result = _sliced(x, [e for e in entries if isinstance(e, Along)])
    if not any(isinstance(e, tuple) for e in entries):
        return reshape(result, [size_of(x, e) for e in entries if not is_dropped(e)])
    # With None and without what integers took, each entry is one axis of `result`.
    kept = [e for e in entries if not is_dropped(e)]
    result = reshape(result, [size_of(x, e) for e in kept])
    axes = [a for a, e in enumerate(kept) if isinstance(e, tuple)]
    said, places = zip(*(cast("tuple[int, Operand]", kept[a]) for a in axes), strict=True)
    taken = _taken(result, axes, places, said)
    # NumPy: the new axes stand where the places stood, or first if those were apart.
    if apart or axes[0] == 0:
        return taken
    new = taken.ndim - (result.ndim - len(axes))
    return moveaxis(taken, list(range(new)), list(range(axes[0], axes[0] + new)))


def _is_apart(key: Any) -> bool:
    """Whether anything stands between the integers and arrays of a key: an Ellipsis does, for however many axes."""
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    advanced = [p for p, k in enumerate(parts) if k is not None and not isinstance(k, EllipsisType | slice)]
    return bool(advanced) and advanced[-1] - advanced[0] + 1 > len(advanced)


def is_dropped(entry: Entry) -> bool:
    return isinstance(entry, Along) and entry.dropped


def size_of(x: Operand, entry: Entry) -> int:
    """The size of an entry's axis, before places are taken along it."""
    return 1 if entry is None else entry.count if isinstance(entry, Along) else x.shape[entry[0]]


def _sliced(x: Operand, along: Sequence[Along]) -> Operand:
    """`x` with its axes sliced; all axes stay."""
    starts, limits, strides, reversed_axes = [0] * x.ndim, list(x.shape), [1] * x.ndim, list[int]()
    for e in along:
        start, step = e.start, e.step
        if step < 0:
            reversed_axes.append(e.axis)
            start, step = start + (e.count - 1) * step, -step
        starts[e.axis], limits[e.axis], strides[e.axis] = start, start + (e.count - 1) * step + 1, step
        if e.count == 0:
            starts[e.axis], limits[e.axis] = 0, 0
    if starts != [0] * x.ndim or limits != list(x.shape) or set(strides) - {1}:
        x = apply(dl.SliceOp, x, starts=starts, limits=limits, strides=strides)
    return apply(dl.ReverseOp, x, axes=reversed_axes) if reversed_axes else x


def _taken(x: Operand, axes: Sequence[int], places: Sequence[Operand], said: Sequence[int]) -> Any:
    """The elements at these places along these axes, which errors count as `said`: the axes of the places, then the others."""
    if len(axes) == 1:
        taken = _checked(dl.GatherOp, x, places[0], said, axis=axes[0])
        return moveaxis(taken, range(axes[0], axes[0] + places[0].ndim), range(places[0].ndim))
    return _checked(dl.GatherNdOp, moveaxis(x, axes, range(len(axes))), columns_of(places), said)


def columns_of(places: Sequence[Operand]) -> Operand:
    """Places on several axes, broadcast, with one integer for each along a last axis."""
    columns = [convert(p, np.int64) for p in broadcast_arrays(*places)]
    columns = [reshape(c, (*c.shape, 1)) for c in columns]
    return apply(dl.ConcatOp, *columns, axis=columns[0].ndim - 1)


def _checked(op: type[DlOp], x: Operand, places: Operand, said: Sequence[int] | None = None, **properties: int) -> Any:
    """The elements at these places, of which those that are traced are checked when the function is called."""
    if not isinstance(places, Tracer):
        return apply(op, x, places, **properties)
    return apply(op, x, places, **properties, checked=True, said_axes=said)


def entries_of(x: Operand, key: Any) -> list[Entry]:
    """What the key says, entry by entry; every axis of `x` is in one."""
    keys, widths = keys_of(x, key)
    entries: list[Entry] = []
    axis = 0
    for k, width in zip(keys, widths, strict=True):
        entries += [None] if k is None else _of_mask(x, axis, k) if _is_mask(k) else [_entry(x, axis, k)]
        axis += width
    return entries


def keys_of(x: Operand, key: Any) -> tuple[list[Any], list[int]]:
    """The parts of a key, without Ellipsis, for all axes of `x`; and for how many each is."""
    keys = [_key(k) for k in (cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,))]
    widths = [_width(k) for k in keys]
    if sum(widths) > x.ndim:
        refuse(ShapeError(f"{sum(widths)} indices for an array of rank {x.ndim}"))
    if sum(isinstance(k, EllipsisType) for k in keys) > 1:
        refuse(ShapeError("an index with more than one Ellipsis (...); the axes it stands for are not known"))
    at = next((p for p, k in enumerate(keys) if isinstance(k, EllipsisType)), len(keys))
    missing = x.ndim - sum(widths)
    keys[at : at + 1], widths[at : at + 1] = [slice(None)] * missing, [1] * missing
    return keys, widths


def _counted(x: Operand, key: Any) -> tuple[Operand, Any]:
    """`x` after the slices of a key of which data says how much they take, and what is left of the key."""
    keys, widths = keys_of(x, key)
    axis = 0
    for p, (k, width) in enumerate(zip(keys, widths, strict=True)):
        if isinstance(k, slice) and is_counted(x.shape[axis], cast("slice[Any, Any, Any]", k)):
            x, keys[p] = cut(x, axis, cast("slice[Any, Any, Any]", k)), slice(None)
        axis += width
    return x, tuple(keys)


def is_counted(size: int, k: slice[Any, Any, Any]) -> bool:
    """Whether a size that is not known, or a bound, says how much a slice takes: not if it is all of the axis."""
    return has_tracer(k) or (isinstance(size, Dim) and k not in (slice(None), slice(None, None, -1)))


def cut(x: Operand, axis: int, k: slice[Any, Any, Any]) -> Any:
    """`x[k]` along one axis, as much as the size of the axis, or bounds that are traced, turn out to say."""
    size, step = x.shape[axis], step_of(k)
    if step > 0 and (between := between_sizes(size, k.start, k.stop)) is not None:
        return part(x, axis, *between, step)
    first, numbers = counted_places(size, k)
    return apply(dl.GatherOp, x, operand(add(multiply(numbers, step), first)), axis=axis)


def step_of(k: slice[Any, Any, Any]) -> int:
    """The step of a slice."""
    step = 1 if k.step is None else k.step
    if has_tracer(step) or step == 0:
        refuse(UnsupportedError(f"a slice with the step {step}; expected a known number other than 0"))
    return step


def counted_places(size: Size, k: slice[Any, Any, Any]) -> tuple[Operand, Operand]:
    """Where a slice of an axis begins, and 0, 1, … for the places that it takes from there."""
    step = step_of(k)
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def clamped(bound: Any, default: Any) -> Any:
        if bound is None:
            return default
        bound = convert(operand(bound), np.int64)
        return minimum(maximum(where(less(bound, 0), add(bound, size), bound), low), high)

    first, last = (clamped(k.start, low), clamped(k.stop, high)) if step > 0 else (clamped(k.start, high), clamped(k.stop, low))
    span = subtract(last, first) if step > 0 else subtract(first, last)
    if step > 0 and _counts_from(k.start, 0) and _counts_from(k.stop, 1):
        # As many for each way of saying it: x[1:] and x[:-1].
        span = size + (k.stop or 0) - (k.start or 0)
    # ⌈span / step⌉, where nothing goes beyond the largest number.
    count = add(floor_divide(subtract(span, 1), abs(step)), 1)
    return operand(first), numbers_below(operand(count), -(-size // abs(step)))


def between_sizes(size: Size, start: Any, stop: Any) -> tuple[Size, Size] | None:
    """The ends of a slice from the front, if they are sizes that are seen to lie in their order within an axis of `size`."""

    def from_front(bound: Any, default: Size) -> Size | None:
        if not isinstance(bound, int | Dim):
            return default if bound is None else None
        place = size + bound if isinstance(bound, int) and bound < 0 else bound
        return place if never_negative(place) and never_negative(size - place) else None

    first, last = from_front(start, 0), from_front(stop, size)
    return (first, last) if first is not None and last is not None and never_negative(last - first) else None


def _counts_from(bound: Any, end: int) -> bool:
    """Whether a bound is a number of places from the front (0), or the back (1)."""
    return bound is None or (isinstance(bound, int) and (bound < 0 if end else bound >= 0))


def _width(k: Any) -> int:
    """How many axes a part of a key is for, as far as that is known: 0 for Ellipsis."""
    return cast(Operand, k).ndim if _is_mask(k) else int(k is not None and not isinstance(k, EllipsisType))


def _key(k: Any) -> Any:
    """One part of a key: None, Ellipsis, a slice, an int, an array of integers, or a mask that is an array."""
    if k is None or isinstance(k, EllipsisType | slice):
        return cast("slice | EllipsisType | None", k)
    if isinstance(k, int | np.integer) and not isinstance(k, bool):
        return int(cast(int, k))
    places = operand(k)
    if places.size == 0 and isinstance(k, list | tuple):
        places = np.zeros(places.shape, np.int64)
    if places.dtype == np.bool_:
        return places
    if places.dtype.kind not in "iu":
        refuse(DTypeError(f"an index of dtype {places.dtype}; expected integers, slices, or a mask of bools"))
    return places


def _is_mask(k: Any) -> bool:
    return isinstance(k, np.ndarray | Tracer) and cast(Operand, k).dtype == np.bool_


def _of_mask(x: Operand, axis: int, mask: Operand) -> list[Entry]:
    """The places where a mask is true: one array for each of its axes, which are those of `x` from `axis` on."""
    _require_mask(x, axis, mask)
    return [(axis + k, places) for k, places in enumerate(places_of(mask))]


def _require_mask(x: Operand, axis: int, mask: Operand) -> None:
    if mask.ndim == 0:
        refuse(UnsupportedError("an index that is one bool; use dlc.numpy.where"))
    if mask.shape != x.shape[axis : axis + mask.ndim]:
        refuse(ShapeError(f"a mask of shape {mask.shape} for the axes from {axis} of {x.shape}"))


def _entry(x: Operand, axis: int, k: int | slice[Any, Any, Any] | Operand) -> Entry:
    size = x.shape[axis]
    if isinstance(k, int):
        if isinstance(size, Dim):
            # Whether there is such an element a call says.
            return axis, cast(Tracer, x).owner.constant(np.asarray(k))
        if not -size <= k < size:
            refuse(ShapeError(f"index {k} is out of bounds for axis {axis} of {x.shape}"))
        return Along(axis, k % size, 1, 1, dropped=True)
    if isinstance(k, slice):
        if has_tracer(k):
            refuse(UnsupportedError("places to write between traced bounds and at other places; use dlc.numpy.where"))
        if k == slice(None):
            # All of an axis, how many it ever has.
            return Along(axis, 0, 1, size)
        if k == slice(None, None, -1):
            return Along(axis, size - 1, -1, size)
        if isinstance(size, Dim):
            repair = "name the places, as in x.at[dlc.numpy.arange(x.shape[0])[:2]]"
            raise UndecidableError(f"places to write, the slice {k} of an axis of size {size}, which is not known; {repair}")
        start, stop, step = slice(k.start, k.stop, step_of(k)).indices(size)
        return Along(axis, start, step, len(range(start, stop, step)))
    _require_inside(k, x, axis)
    return axis, k


def _require_inside(places: Operand, x: Operand, axis: int) -> None:
    """Raises ShapeError for known places out of bounds."""
    size = x.shape[axis]
    if not isinstance(places, np.ndarray) or places.dtype.kind not in "iu" or not places.size:
        return
    if not -size <= int(places.min()) <= int(places.max()) < size:
        refuse(ShapeError(f"indices from {places.min()} to {places.max()} are out of bounds for axis {axis} of {x.shape}"))


@by_parts("x")
def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None, *, mode: str | None = None) -> Any:
    """The slices of `x` along `axis` that `indices` name; None: of the flattened array. `mode`: "clip" or "wrap"."""
    (x, axis), places = along("take", x, axis), operand(indices)
    if mode == "wrap":
        places = operand(remainder(places, x.shape[axis]))
    elif mode == "clip":
        places = operand(maximum(minimum(places, x.shape[axis] - 1), 0))
    elif mode not in (None, "raise"):
        refuse(UnsupportedError(f'take: mode {mode!r}; expected "raise", "clip" or "wrap"'))
    _require_inside(places, x, axis)
    return _checked(dl.GatherOp, x, places, axis=axis)


@by_parts("x")
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int | None = -1) -> Any:
    """The elements that `indices` name along `axis`, each from its own row; None: of the flattened array."""
    (x, axis), places = along("take_along_axis", x, axis), operand(indices)
    if places.ndim != x.ndim:
        refuse(ShapeError(f"take_along_axis: indices of shape {places.shape} for {x.shape}; expected as many axes"))
    _require_inside(places, x, axis)
    others = broadcast_shapes(*(tuple(1 if a == axis else s for a, s in enumerate(v.shape)) for v in (x, places)))
    rows = [broadcast_to(v, (*others[:axis], v.shape[axis], *others[axis + 1 :])) for v in (x, places)]
    return _checked(dl.GatherElementsOp, *rows, axis=axis)


def choose(x: ArrayLike, choices: Sequence[ArrayLike] | Operand, /, *, mode: str = "clip") -> Any:
    """For each element of `x` the element of the choice of that number; numbers are moved inside, or wrapped by "wrap"."""
    if not len(choices):
        refuse(ShapeError("choose: no choices"))
    numbers, *rows = broadcast_arrays(x, *promote(*cast("Sequence[ArrayLike]", choices)))
    numbers = remainder(numbers, len(rows)) if mode == "wrap" else maximum(minimum(numbers, len(rows) - 1), 0)
    table = apply(dl.ConcatOp, *(expand_dims(row) for row in rows), axis=0)
    return reshape(apply(dl.GatherElementsOp, table, expand_dims(numbers), axis=0), numbers.shape)


@by_parts("choices", "default")
def select(conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], /, default: ArrayLike = 0) -> Any:
    """For each element the choice of the first condition that is true, `default` if none is."""
    if len(conditions) != len(choices) or not len(conditions):
        refuse(ShapeError(f"select: {len(conditions)} conditions for {len(choices)} choices; give one for each"))
    result, *options = promote(default, *choices)
    for condition, choice in zip(reversed(conditions), reversed(options), strict=True):
        result = where(condition, choice, result)
    return result
