"""Updates that leave the array as it is: `y = x.at[key].set(value)`.

Beside `set` there are `add`, `subtract`, `multiply`, `divide`, `max` and `min`, and `get` for the elements themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from dlc.dialects import dl
from dlc.dims import Dim, Size
from dlc.errors import AbsentError, ShapeError
from dlc.frontend.trace import Trace, Tracer, current_trace
from dlc.ir import i64
from dlc.numpy.apply import ArrayLike, Operand, apply, convert, operand, refuse
from dlc.numpy.functions.comparing import maximum, minimum
from dlc.numpy.functions.elementwise import add, divide, multiply, negative, where
from dlc.numpy.functions.indexing import Along, Entry, columns_of, entries_of, getitem, is_dropped, keys_of, size_of
from dlc.numpy.functions.shaping import broadcast_to, reshape
from dlc.numpy.functions.updating_between import is_between, updated_between
from dlc.numpy.places import known_count, known_if_empty, places_of

__all__ = ["at"]


def at(x: ArrayLike, /) -> At:
    """`x.at`, for plain arrays as well: `at(x)[key].set(value)`. (NumPy has no such function.)"""
    return At(operand(x))


class At:
    """`x.at[key]`: where an update goes. Its methods return a new array; `x` stays as it is."""

    def __init__(self, x: Operand) -> None:
        self.x = x

    def __getitem__(self, key: Any) -> Update:
        return Update(self.x, key)


class Update:
    """The elements `x[key]`, to be replaced. Places named several times are combined with each value; `set` keeps the last.

    The key may also be a mask of the shape of `x`, or of its first axes; then the value broadcasts to the rest, or has one for
    each element that is selected, in row-major order. That there are as many, where data decides it, is checked when the
    function is called.
    """

    def __init__(self, x: Operand, key: Any) -> None:
        self.x = x
        self.key = key

    def __getattr__(self, name: str) -> NoReturn:
        raise AbsentError(f"x.at[…] has no {name!r}; it has get, set, add, subtract, multiply, divide, max and min")

    def get(self) -> Any:
        """The elements themselves."""
        return getitem(self.x, self.key)

    def set(self, value: ArrayLike, /) -> Any:
        """`x` with `value` there."""
        return self._updated(value, "none", lambda _, new: new)

    def add(self, value: ArrayLike, /) -> Any:
        """`x` with `value` added there."""
        return self._updated(value, "add", add)

    def subtract(self, value: ArrayLike, /) -> Any:
        """`x` with `value` subtracted there."""
        return self._updated(negative(convert(value, self.x.dtype)), "add", add)

    def multiply(self, value: ArrayLike, /) -> Any:
        """`x` multiplied by `value` there."""
        return self._updated(value, "mul", multiply)

    def divide(self, value: ArrayLike, /) -> Any:
        """`x`, of floats, divided by `value` there."""
        return self._updated(divide(1, convert(value, self.x.dtype)), "mul", multiply)

    def max(self, value: ArrayLike, /) -> Any:
        """`x` with the larger of itself and `value` there."""
        return self._updated(value, "max", maximum)

    def min(self, value: ArrayLike, /) -> Any:
        """`x` with the smaller of itself and `value` there."""
        return self._updated(value, "min", minimum)

    def _updated(self, value: ArrayLike, mode: str, combine: Callable[[Any, Any], Any]) -> Any:
        x, value = self.x, convert(value, self.x.dtype)
        mask = operand(cast(Operand, self.key)) if isinstance(self.key, Tracer | np.ndarray) else None
        if mask is not None and mask.dtype == np.bool_:
            if mask.shape != x.shape[: mask.ndim]:
                refuse(ShapeError(f"a mask of shape {mask.shape} for {x.shape}; expected one for its first axes"))
            return self._updated_selected(mask, value, mode, combine)
        keys, _ = keys_of(x, self.key)
        if is_between(x, keys):
            return updated_between(x, keys, value, combine)
        entries = entries_of(x, self.key)
        if not any(isinstance(e, tuple) for e in entries):
            return self._updated_slices(value, entries, combine)
        named = [e[1] for e in entries if isinstance(e, tuple)]
        count = len(named)
        if not (all(isinstance(e, tuple) for e in entries[:count]) and all(map(self._is_whole, entries[count:]))):
            # Every place of `x` has a number: the numbers that the key selects are where the values go.
            places = getitem(np.arange(x.size).reshape(x.shape), self.key)
            return reshape(_written(reshape(x, (x.size,)), places, self._fitting(value, places.shape), mode), x.shape)
        if count == 1:
            return _written(x, named[0], self._fitting(value, (*named[0].shape, *x.shape[1:])), mode)
        places = columns_of(named)
        updates = self._fitting(value, (*places.shape[:-1], *x.shape[count:]))
        return apply(dl.ScatterNdOp, x, places, updates, mode=mode, checked=isinstance(places, Tracer) or None)

    def _updated_selected(self, mask: Operand, value: Operand, mode: str, combine: Callable[[Any, Any], Any]) -> Any:
        """`x` with a value for all elements that are true in a mask of its first axes, or one for each of them."""
        x, rest, flags = self.x, self.x.shape[mask.ndim :], known_if_empty(reshape(mask, (mask.size,)))
        while value.ndim > len(rest) + 1 and value.shape[0] == 1:
            value = reshape(value, value.shape[1:])
        if value.ndim <= len(rest) or value.shape[0] == 1:
            value = self._fitting(value, rest)
        elif not isinstance(flags, Tracer) or value.shape[0] == known_count(flags):
            (places,) = places_of(flags)
            updates = self._fitting(value, (*places.shape, *rest))
            return reshape(_written(reshape(x, (mask.size, *rest)), places, updates, mode), x.shape)
        else:
            # Each selected element has a number among them, which names its value.
            count = apply(dl.ReduceSumOp, convert(flags, np.int64), axes=(0,), keepdims=False)
            _require_as_many(flags.owner, value.shape[0], count)
            value = self._fitting(value, (value.shape[0], *rest))
            numbers = apply(dl.CumsumOp, convert(flags, np.int64), axis=0, exclusive=True, reverse=False)
            value = reshape(_numbered(value, numbers, 0), x.shape)
        chosen = reshape(mask, mask.shape + (1,) * len(rest))
        if mode == "mul":
            # An infinite factor of what is not selected would make a derivative of 0 · ∞.
            value = where(chosen, value, np.ones((), value.dtype))
        return where(chosen, combine(x, value), x)

    def _is_whole(self, entry: Entry) -> bool:
        """Whether an entry takes all of its axis as it stands."""
        return isinstance(entry, Along) and (entry.count, entry.step) == (self.x.shape[entry.axis], 1) and not entry.dropped

    def _fitting(self, value: Operand, shape: tuple[int, ...]) -> Any:
        """`value` in the shape of what it replaces, as large as which data may show it to be."""
        while value.ndim > len(shape) and value.shape[0] == 1:
            value = reshape(value, value.shape[1:])
        for axis, n, m in zip(range(-1, -1 - value.ndim, -1), value.shape[::-1], shape[::-1], strict=False):
            if n not in (1, m) and (trace := current_trace()) is not None and trace.counts.decide(m):
                count = apply(dl.SizeOp, size=(m,), to=i64)
                _require_as_many(trace, n, count)
                value = _numbered(value, apply(dl.IotaOp, size=(m,), to=i64, start=0, step=1), axis % value.ndim)
        if value.ndim > len(shape) or any(n not in (1, m) for n, m in zip(value.shape[::-1], shape[::-1], strict=False)):
            refuse(ShapeError(f"a value of shape {value.shape} for a place of shape {shape}; they do not broadcast"))
        return broadcast_to(value, shape)

    def _updated_slices(self, value: Operand, entries: Sequence[Entry], combine: Callable[[Any, Any], Any]) -> Any:
        """Each element of `x` looks up along each axis which element of the value is for it, if one is."""
        x = self.x
        value = self._fitting(value, tuple(size_of(x, e) for e in entries if not is_dropped(e)))
        value = reshape(value, [e.count for e in entries if isinstance(e, Along)])
        if 0 in value.shape:
            return x
        inside: Any = None
        for e in (e for e in entries if isinstance(e, Along)):
            if e.count == x.shape[e.axis] and e.step == 1:
                continue
            source = np.full(x.shape[e.axis], -1)
            source[e.places] = np.arange(e.count)
            value = apply(dl.GatherOp, value, np.maximum(source, 0), axis=e.axis)
            hit = (source >= 0).reshape([-1 if a == e.axis else 1 for a in range(x.ndim)])
            inside = hit if inside is None else inside & hit
        new = combine(x, value)
        return convert(new, x.dtype) if inside is None else where(inside, new, x)


def _require_as_many(trace: Trace, given: Size, selected: Tracer) -> None:
    """Fails when the function is called, unless as many values are given as elements are selected."""
    number = trace.value(given if isinstance(given, Dim) else np.asarray(given, np.int64))
    fits = trace.apply(dl.EqualOp, number, selected)
    if isinstance(given, Dim):
        # One value is for all, as where that is known.
        fits = trace.apply(dl.OrOp, fits, trace.apply(dl.EqualOp, number, trace.constant(np.asarray(1, np.int64))))
    message = "x.at[…]: {} values for {} elements that are selected; give one for each, or one for all"
    trace.require(fits, message, number, selected)


def _numbered(value: Operand, numbers: Operand, axis: int) -> Operand:
    """The values of these numbers; of a single one, and beyond the last, whatever there is."""
    count = value.shape[axis]
    if not isinstance(count, int) or count == 0:
        # There may be none to read: one more is behind them.
        numbers = minimum(numbers, count - 1)
        shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        value = apply(dl.ConcatOp, value, broadcast_to(np.zeros((), value.dtype), shape), axis=axis)
    return apply(dl.GatherOp, value, numbers, axis=axis)


def _written(x: Operand, places: Operand, updates: Operand, mode: str) -> Any:
    """`x` with rows combined with updates; places that are traced are checked when the function is called."""
    if x.shape[0] == 0 and places.size:
        refuse(ShapeError(f"an index on axis 0 of {x.shape}, which has no elements"))
    if 0 in x.shape or 0 in updates.shape:
        return x
    checked = isinstance(places, Tracer) or None
    return apply(dl.ScatterRowsOp, x, places, updates, mode=mode, clamped=True, checked=checked)
