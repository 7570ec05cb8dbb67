"""Sets of points of loop variables: unions of boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from dlc.ir import SSAValue
from dlc.kernels.index_ranges import Interval, LinearForm

# An interval of each loop variable that is limited.
Box: TypeAlias = "Mapping[SSAValue, Interval]"
# The range of a - b, by predicate.
RANGES = {
    "lt": Interval(-inf, -1),
    "le": Interval(-inf, 0),
    "gt": Interval(1, inf),
    "ge": Interval(0, inf),
    "eq": Interval(0, 0),
}


@dataclass(frozen=True)
class IndexSet:
    """The points of loop variables where a condition holds: a union of boxes."""

    boxes: Sequence[Box]

    @staticmethod
    def of_comparison(predicate: str, difference: LinearForm) -> IndexSet | None:
        """Return the set where a comparison of a linear form with 0 holds; None unless its only variable has coefficient ±1."""
        if list(map(abs, difference.coefficients.values())) != [1]:
            return None
        if predicate == "ne":
            equal = IndexSet.of_comparison("eq", difference)
            return None if equal is None else equal.complement()
        ((variable, sign),) = difference.coefficients.items()
        interval = RANGES[predicate] - difference.constant
        return IndexSet([{variable: interval if sign > 0 else -interval}])

    def __and__(self, other: IndexSet) -> IndexSet:
        joined = ({v: _limit(a, v) & _limit(b, v) for v in (*a, *b)} for a in self.boxes for b in other.boxes)
        return IndexSet([box for box in joined if not any(interval.is_empty for interval in box.values())])

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet([*self.boxes, *other.boxes])

    def complement(self) -> IndexSet:
        """Return the set where the condition does not hold."""
        result = IndexSet([{}])
        for box in self.boxes:
            result &= IndexSet([{v: side} for v, interval in box.items() for side in interval.complement()])
        return result


def _limit(box: Box, variable: SSAValue) -> Interval:
    return box.get(variable, Interval())
