"""Find the op at fault in a changed program: the first op with wrong results that affect a wrong output."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.instrument.capture import ArrayWithOrigins, CapturedValue, EvaluationTrace, OpEvaluation, Origins
from dlc.instrument.compare import deviation, tolerance_of

# An array with at most this many distinct finite nonzero values is compared by position too.
_MIN_DISTINCT_ELEMENTS = 2


def locate_fault(before: EvaluationTrace, after: EvaluationTrace, wrong: Iterable[int]) -> OpEvaluation | None:
    """Return the earliest op of `after` whose results have no counterpart in `before` and affect one of the `wrong` outputs.

    Passes change layouts and padding, so any array of `before` with the same elements is a counterpart. For masks, it must also
    have the same origin. Values that depend only on weights are not compared, since passes fold factors into weights.
    """
    producers = after.producers
    unchanged_values, counterparts = before.producers.keys(), Counterparts(before.arrays_with_origins)
    verdicts: dict[int, bool] = {}

    def has_counterpart(value: CapturedValue) -> bool:
        if value.constant or value.value_id in unchanged_values:
            return True
        if value.value_id not in verdicts:
            verdicts[value.value_id] = counterparts.has(value.array, producers[value.value_id].origins)
        return verdicts[value.value_id]

    reached_ops: dict[int, OpEvaluation] = {}
    pending = [after.outputs[k] for k in wrong]
    while pending:
        step = producers.get(pending.pop().value_id)
        if step is None or id(step) in reached_ops:
            continue
        reached_ops[id(step)] = step
        pending += [v for v in step.operands if v.value_id in producers and not has_counterpart(v)]
    return next((step for step in after.steps if id(step) in reached_ops), None)


class Counterparts:
    """A set of arrays, with or without origins, in which equal arrays are found regardless of layout and padding.

    Arrays with few distinct values, such as masks, can have the same elements by chance. They are also compared by position
    with the arrays of the same origin that have the same sizes or are flat.
    """

    def __init__(self, arrays_with_origins: Iterable[ArrayWithOrigins], arrays: Iterable[Array] = ()) -> None:
        self._by_size: dict[int, list[Array]] = {}
        self._contents: dict[int, list[Array]] = {}
        self._by_origin: dict[tuple[frozenset[str], int], list[Array]] = {}
        for origins, array in (*arrays_with_origins, *(((), array) for array in arrays)):
            self._by_size.setdefault(_size(array), []).append(array)
            if origins:
                self._by_origin.setdefault((frozenset(origins), array.size), []).append(array)

    def has(self, array: Array, origins: Origins = ()) -> bool:
        """Return whether the set contains the elements of an array with these origins."""
        elements, tolerance = _content(array), tolerance_of([array])
        candidates = [
            a
            for a in self._by_origin.get((frozenset(origins), array.size), ())
            if _sizes(a) == _sizes(array) or _is_flat(a, array)
        ]
        if candidates and len(np.unique(elements)) <= _MIN_DISTINCT_ELEMENTS:
            return any(_is_transposed(array, other, tolerance) for other in candidates)
        size = elements.size
        if size not in self._contents:
            self._contents[size] = list(map(_content, self._by_size.get(size, ())))
        return any(deviation(elements, other) <= tolerance for other in self._contents[size])

    def has_all(self, arrays: Iterable[Array], origins: Origins) -> bool:
        """Return whether the set contains all of these arrays, with these origins."""
        return all(self.has(array, origins) for array in arrays)


def _is_transposed(array: Array, other: Array, tolerance: float) -> bool:
    """Return whether one array is a transposition of the other, possibly flattened."""
    b, a = sorted((array.squeeze(), other.squeeze()), key=np.ndim)
    orders = (order for order in permutations(range(a.ndim)) if b.ndim < a.ndim or tuple(a.shape[k] for k in order) == b.shape)
    return any(deviation(a.transpose(order).reshape(b.shape), b) <= tolerance for order in orders)


def _is_flat(*arrays: Array) -> bool:
    """Return whether one of the arrays has at most one axis of size > 1."""
    return min(len(_sizes(a)) for a in arrays) <= 1


def _sizes(array: Array) -> tuple[int, ...]:
    """Return the sorted sizes other than 1."""
    return tuple(sorted(size for size in array.shape if size != 1))


def _size(array: Array) -> int:
    """Return the number of finite nonzero elements."""
    flat = array.astype(np.float64)
    return int(np.count_nonzero(np.isfinite(flat) & (flat != 0)))


def _content(array: Array) -> Array:
    """Return the sorted finite nonzero elements, which do not depend on layout and padding."""
    flat = array.reshape(-1).astype(np.float64)
    return np.sort(flat[np.isfinite(flat) & (flat != 0)])
