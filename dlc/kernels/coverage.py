"""Prove that the stores of a kernel write every element of an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias, cast

from dlc.ir import SSAValue
from dlc.kernels.index_ranges import Interval, LinearForm, floor_divide
from dlc.kernels.index_sets import Box
from dlc.kernels.kernel_trace import LoopVariable, Scope
from dlc.shapes.traced_dims import TracedSize

# A box of elements: an interval per axis.
Elements: TypeAlias = "tuple[Interval, ...]"
# The elements that no store covers are a union of at most this many parts; a kernel with more needs an initial value.
_MAX_PARTS = 256


class Coverage:
    """The elements of an array that no store is known to write, as disjoint boxes.

    A store covers a box if it runs for all combinations of its loop variables, no variable is an index of two axes, and the
    variables of each axis are the digits of a mixed-radix number:

        y[i, 8 * j + l] of shape (4, 32), for i in range(4), j in range(4), l in range(8)

    Conditions of `k.when` on single loop variables limit their digits; stores under other conditions are not counted.
    """

    def __init__(self) -> None:
        # The indices, widths and scopes of each store.
        self._stores: list[tuple[Sequence[LinearForm], Sequence[int], Sequence[Scope]]] = []

    def is_complete(self, shape: Sequence[TracedSize], scopes: Sequence[Scope] = ()) -> bool:
        """Return whether all elements of an array of this shape are written before a point inside `scopes`, or at the end."""
        uncovered: list[Elements] = [] if 0 in shape else [tuple(Interval(0, n - 1) for n in shape)]
        for indices, widths, scopes_of_store in self._stores:
            closed = [scope for scope in scopes_of_store if not any(scope is s for s in scopes)]
            for box in _stored_boxes(indices, widths, closed):
                remaining = [piece for piece in uncovered for piece in _subtract(piece, box)]
                if len(remaining) <= _MAX_PARTS:
                    uncovered = remaining
        return not uncovered

    def add(self, indices: Sequence[LinearForm], widths: Sequence[int], scopes: Sequence[Scope]) -> None:
        """Record a store at `indices`, of `widths` elements along the axes; elements outside of the array are masked."""
        self._stores.append((indices, widths, list(scopes)))


def _stored_boxes(indices: Sequence[LinearForm], widths: Sequence[int], scopes: Sequence[Scope]) -> Iterator[Elements]:
    """Yield boxes of elements that a store certainly writes."""
    conditions = [scope.index_set for scope in scopes if scope.kind == "when"]
    variables = {v.value: v for scope in scopes for v in scope.variables}
    used = [v for form in indices for v in form.coefficients]
    if not all(scope.runs_once_or_more for scope in scopes if scope.kind != "when") or None in conditions:
        return
    if len(set(used)) < len(used) or any(v not in variables for v in used):
        return
    for boxes in product(*(condition.boxes for condition in conditions if condition is not None)):
        trips = _trip_ranges(variables, boxes)
        if trips is None:
            continue
        intervals = [_interval(form, width, variables, trips) for form, width in zip(indices, widths, strict=True)]
        known = tuple(interval for interval in intervals if interval is not None)
        if len(known) == len(intervals):
            yield known


def _trip_ranges(variables: Mapping[SSAValue, LoopVariable], boxes: Sequence[Box]) -> dict[SSAValue, Interval] | None:
    """Return the iterations of each loop inside all boxes; None if a loop has none, or a box limits another variable."""
    trips = {v: Interval(0, variable.trip_count - 1) for v, variable in variables.items()}
    for box in boxes:
        for v, interval in box.items():
            if v not in variables:
                return None
            first, step = variables[v].first, variables[v].step
            offsets = interval - first
            trips[v] &= Interval(-floor_divide(-offsets.low, step), floor_divide(offsets.high, step))
    return None if any(interval.is_empty for interval in trips.values()) else trips


def _interval(
    form: LinearForm, width: int, variables: Mapping[SSAValue, LoopVariable], trips: Mapping[SSAValue, Interval]
) -> Interval | None:
    """Return the elements of an axis that an index reaches, `width` at a time; None if they are not consecutive."""
    first, digits = form.constant, list[tuple[int, TracedSize]]()
    for v, coefficient in form.coefficients.items():
        step, trip = coefficient * variables[v].step, trips[v]
        # A negative coefficient counts from the end.
        first += coefficient * variables[v].first + trip.scaled(step).low
        count = cast(TracedSize, trip.high - trip.low + 1)
        if not (isinstance(count, int) and count == 1):
            digits.append((abs(step), count))
    reached = width
    for step, count in sorted(digits):
        if step > reached:
            return None
        reached = step * (count - 1) + reached
    return Interval(first, first + reached - 1)


def _subtract(piece: Elements, box: Elements) -> Iterator[Elements]:
    """Yield disjoint boxes of the elements of `piece` outside of `box`."""
    if any((a & b).is_empty for a, b in zip(piece, box, strict=True)):
        yield piece
        return
    rest = piece
    for axis, (a, b) in enumerate(zip(piece, box, strict=True)):
        for side in (Interval(a.low, b.low - 1), Interval(b.high + 1, a.high)):
            if not side.is_empty:
                yield (*rest[:axis], side, *rest[axis + 1 :])
        rest = (*rest[:axis], a & b, *rest[axis + 1 :])
