"""Which op of a changed program is at fault: the first of those that only wrong values lead on from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.instrument.capture import Made, Origins, Step, Trace, Value
from dlc.instrument.compare import deviation, tolerance_of

# Of so many values but zero and infinity the elements alone, without their places, say little.
_HARDLY_ANY = 2


def culprit(before: Trace, after: Trace, wrong: Iterable[int]) -> Step | None:
    """The earliest op of `after` from which values without a counterpart in `before` lead to one of the `wrong` outputs.

    Passes rearrange values: any array of `before` with the same elements is a counterpart, whatever its layout and padding;
    of masks it is the one of the same origin. What depends on weights alone is not compared, since passes fold factors into
    weights.
    """
    makers = after.makers
    same, counterparts = before.makers.keys(), Counterparts(before.made)
    known: dict[int, bool] = {}

    def has_counterpart(value: Value) -> bool:
        if value.constant or value.number in same:
            return True
        if value.number not in known:
            known[value.number] = counterparts.has(value.array, makers[value.number].origins)
        return known[value.number]

    reached: dict[int, Step] = {}
    pending = [after.outputs[k] for k in wrong]
    while pending:
        step = makers.get(pending.pop().number)
        if step is None or id(step) in reached:
            continue
        reached[id(step)] = step
        pending += [v for v in step.operands if v.number in makers and not has_counterpart(v)]
    return next((step for step in after.steps if id(step) in reached), None)


class Counterparts:
    """Arrays, among which others are looked for, whatever their layout and padding; of what was `made` origins are known.

    Arrays of hardly any values, masks above all, have the same elements as others by chance: of such it counts where they are,
    as far as there are arrays of the same origin that have the same sizes, or one of them just a number of elements.
    """

    def __init__(self, made: Iterable[Made], given: Iterable[Array] = ()) -> None:
        self._by_size: dict[int, list[Array]] = {}
        self._contents: dict[int, list[Array]] = {}
        self._by_origin: dict[tuple[frozenset[str], int], list[Array]] = {}
        for places, array in (*made, *(((), array) for array in given)):
            self._by_size.setdefault(_size(array), []).append(array)
            if places:
                self._by_origin.setdefault((frozenset(places), array.size), []).append(array)

    def has(self, array: Array, places: Origins = ()) -> bool:
        """Whether one has the same elements as an array that comes from `places`."""
        own, allowed = _content(array), tolerance_of([array])
        alike = [
            a
            for a in self._by_origin.get((frozenset(places), array.size), ())
            if _sizes(a) == _sizes(array) or _is_flat(a, array)
        ]
        if alike and len(np.unique(own)) <= _HARDLY_ANY:
            return any(_is_laid_out(array, other, allowed) for other in alike)
        size = own.size
        if size not in self._contents:
            self._contents[size] = list(map(_content, self._by_size.get(size, ())))
        return any(deviation(own, other) <= allowed for other in self._contents[size])

    def has_all(self, arrays: Iterable[Array], places: Origins) -> bool:
        """Whether it has each of some arrays that come from `places`."""
        return all(self.has(array, places) for array in arrays)


def _is_laid_out(array: Array, other: Array, allowed: float) -> bool:
    """Whether an array is another one, of the same sizes or flat, with its axes in some order."""
    b, a = sorted((array.squeeze(), other.squeeze()), key=np.ndim)
    orders = (order for order in permutations(range(a.ndim)) if b.ndim < a.ndim or tuple(a.shape[k] for k in order) == b.shape)
    return any(deviation(a.transpose(order).reshape(b.shape), b) <= allowed for order in orders)


def _is_flat(*arrays: Array) -> bool:
    """Whether one of some arrays has one axis at most."""
    return min(len(_sizes(a)) for a in arrays) <= 1


def _sizes(array: Array) -> tuple[int, ...]:
    return tuple(sorted(size for size in array.shape if size != 1))


def _size(array: Array) -> int:
    """The number of elements that are neither zero nor infinite."""
    flat = array.astype(np.float64)
    return int(np.count_nonzero(np.isfinite(flat) & (flat != 0)))


def _content(array: Array) -> Array:
    """The elements that are neither zero nor infinite, in order of size: what no layout and no padding changes."""
    flat = array.reshape(-1).astype(np.float64)
    return np.sort(flat[np.isfinite(flat) & (flat != 0)])
