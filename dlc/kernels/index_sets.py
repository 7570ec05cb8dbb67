"""Sets of points of loop variables: unions of boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.ir import SSAValue
from dlc.kernels.index_ranges import Interval, LinearForm

# An interval of each loop variable that is limited.
Box: TypeAlias = "Mapping[SSAValue, Interval]"
_MAX_INDEX = 1 << 190
# The range of a - b, by predicate.
RANGES = {
    "lt": Interval(-_MAX_INDEX, -1),
    "le": Interval(-_MAX_INDEX, 0),
    "gt": Interval(1, _MAX_INDEX),
    "ge": Interval(0, _MAX_INDEX),
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
        interval = RANGES[predicate] + Interval(-difference.constant, -difference.constant)
        return IndexSet([{variable: interval * Interval(sign, sign)}])

    def __and__(self, other: IndexSet) -> IndexSet:
        joined = ({v: _limit(a, v) & _limit(b, v) for v in (*a, *b)} for a in self.boxes for b in other.boxes)
        return IndexSet([box for box in joined if not any(interval.is_empty for interval in box.values())])

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet([*self.boxes, *other.boxes])

    def complement(self) -> IndexSet:
        """Return the set where the condition does not hold."""
        result = IndexSet([{}])
        for box in self.boxes:
            outside = [
                {v: side}
                for v, interval in box.items()
                for side in (Interval(-_MAX_INDEX, interval.low - 1), Interval(interval.high + 1, _MAX_INDEX))
            ]
            result &= IndexSet(outside)
        return result


def _limit(box: Box, variable: SSAValue) -> Interval:
    return box.get(variable, Interval(-_MAX_INDEX, _MAX_INDEX))
