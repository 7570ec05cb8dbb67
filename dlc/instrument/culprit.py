"""Which op of a changed program is at fault: the first of those that only wrong values lead on from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.instrument.capture import Step, Trace, Value
from dlc.instrument.compare import deviation, tolerance_of


def culprit(before: Trace, after: Trace, wrong: Iterable[int]) -> Step | None:
    """The earliest op of `after` from which values without a counterpart in `before` lead to one of the `wrong` outputs.

    Passes rearrange values: any array of `before` with the same elements is a counterpart, whatever its layout and padding.
    What depends on weights alone is not compared, since passes fold factors into weights.
    """
    makers = {value.number: step for step in after.steps for value in step.results}
    same, counterparts = {v.number for step in before.steps for v in step.results}, Counterparts(before.arrays)
    known: dict[int, bool] = {}

    def has_counterpart(value: Value) -> bool:
        if value.constant or value.number in same:
            return True
        if value.number not in known:
            known[value.number] = counterparts.has(value.array)
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
    """Arrays, among which others are looked for, whatever their layout and padding."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._by_size: dict[int, list[Array]] = {}
        self._contents: dict[int, list[Array]] = {}
        for array in arrays:
            self._by_size.setdefault(_size(array), []).append(array)

    def has(self, array: Array) -> bool:
        """Whether one has the same elements."""
        size, allowed = _size(array), tolerance_of([array])
        if size not in self._contents:
            self._contents[size] = list(map(_content, self._by_size.get(size, ())))
        own = _content(array)
        return any(deviation(own, other) <= allowed for other in self._contents[size])


def _size(array: Array) -> int:
    """The number of elements that are neither zero nor infinite."""
    flat = array.astype(np.float64)
    return int(np.count_nonzero(np.isfinite(flat) & (flat != 0)))


def _content(array: Array) -> Array:
    """The elements that are neither zero nor infinite, in order of size: what no layout and no padding changes."""
    flat = array.reshape(-1).astype(np.float64)
    return np.sort(flat[np.isfinite(flat) & (flat != 0)])
