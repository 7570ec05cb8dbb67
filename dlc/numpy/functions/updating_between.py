"""Updates between bounds that are not known: slices of axes whose sizes come with a call, and slices with traced bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dims import Size, is_static
from dlc.errors import ShapeError
from dlc.numpy.apply import Operand, apply, convert, has_tracer, operand, places, refuse
from dlc.numpy.functions.comparing import equal, greater_equal, less, logical_and
from dlc.numpy.functions.elementwise import floor_divide, multiply, remainder, subtract, where
from dlc.numpy.functions.indexing import between_sizes, counted_places, is_counted, step_of
from dlc.numpy.functions.shaping import reshape

__all__: list[str] = []


@dataclass(frozen=True)
class _Taken:
    """What a key takes of an axis: `count` places, where `inside`, each of which has a number, `source`; None if it is all."""

    count: Size
    inside: Operand | None = None
    source: Operand | None = None


def is_between(x: Operand, keys: Sequence[Any]) -> bool:
    """Whether a key has slices of which sizes or data say how much they take; others go forward, and places are known."""
    parts = [k for k in keys if k is not None]
    if not all(isinstance(k, slice) or type(k) is int for k in parts):
        return False
    axes = list(zip(parts, x.shape, strict=True))
    slices = [(cast("slice[Any, Any, Any]", k), size) for k, size in axes if isinstance(k, slice)]
    known = is_static([size for k, size in axes if type(k) is int]) and all(step_of(k) > 0 for k, _ in slices)
    return known and any(is_counted(size, k) for k, size in slices)


def updated_between(x: Operand, keys: Sequence[Any], value: Operand, combine: Callable[[Any, Any], Any]) -> Any:
    """`x`, and at the places that the key names what `combine` makes of it and of `value`.

    Each element looks up along each axis which element of the value is for it, if one is.
    """
    parts = [k for k in keys if k is not None]
    along = [_taken(k, axis, x) for axis, k in enumerate(parts)]
    value = _fitting(value, keys, [taken.count for taken in along])
    inside: Any = None
    for axis, taken in enumerate(along):
        if taken.inside is None or taken.source is None:
            continue
        if value.shape[axis] != 1:
            # One more, which is there to be read where the slice takes nothing.
            shape = [1 if a == axis else size for a, size in enumerate(value.shape)]
            beside = apply(dl.BroadcastToOp, np.zeros((), value.dtype), shape=shape)
            value = apply(dl.GatherOp, apply(dl.ConcatOp, value, beside, axis=axis), taken.source, axis=axis)
        hit = reshape(taken.inside, [x.shape[axis] if a == axis else 1 for a in range(x.ndim)])
        inside = hit if inside is None else logical_and(inside, hit)
    return where(inside, convert(combine(x, value), x.dtype), x)


def _taken(key: Any, axis: int, x: Operand) -> _Taken:
    size = x.shape[axis]
    numbers = operand(places(size))
    if isinstance(key, int):
        if not -size <= key < size:
            refuse(ShapeError(f"index {key} is out of bounds for axis {axis} of {x.shape}"))
        return _Taken(1, operand(equal(numbers, key % size)), operand(multiply(numbers, 0)))
    if not has_tracer(key) and key == slice(None):
        return _Taken(size)
    step, first, count = step_of(key), 0, 0
    if not is_counted(size, key):
        first, last, step = key.indices(size)
        count = len(range(first, last, step))
    elif (between := between_sizes(size, key.start, key.stop)) is not None:
        first, last = between
        count = (last - first + step - 1) // step
    else:
        first, found = counted_places(size, key)
        count = found.shape[0]
    far = subtract(numbers, first)
    inside = logical_and(greater_equal(far, 0), less(far, multiply(count, step)))
    inside = inside if step == 1 else logical_and(inside, equal(remainder(far, step), 0))
    return _Taken(count, operand(inside), operand(where(inside, floor_divide(far, step), 0)))


def _fitting(value: Operand, keys: Sequence[Any], counts: Sequence[Size]) -> Operand:
    """`value` with an axis for each of what is updated, of as many places as are updated or of one."""
    parts = iter(counts)
    taken = [(k, 1 if k is None else next(parts)) for k in keys]
    place = [count for k, count in taken if not isinstance(k, int)]
    while value.ndim > len(place) and value.shape[0] == 1:
        value = operand(reshape(value, value.shape[1:]))
    if value.ndim > len(place) or any(n not in (1, m) for n, m in zip(value.shape[::-1], place[::-1], strict=False)):
        refuse(ShapeError(f"a value of shape {value.shape} for a place of shape {tuple(place)}; they do not broadcast"))
    sizes = iter([1] * (len(place) - value.ndim) + list(value.shape))
    found = [(k, 1 if isinstance(k, int) else next(sizes)) for k in keys]
    return operand(reshape(value, [size for k, size in found if k is not None]))
