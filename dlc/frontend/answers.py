"""What a function that is traced is told of open sizes, where it asks: `if x.shape[0] > 4`.

What the ranges say that sizes were said to have holds for all of them. Where they do not, a trace may go by the sizes of a
call: the answer is that of these, and a condition that others have to meet for whom the trace is to be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.dims import Atom, Dim, Range, Size, substitute


@dataclass(frozen=True)
class Condition:
    """Whether a difference of sizes is below 0 (`is_below`), or is 0, is `answer`."""

    size: Dim
    is_below: bool
    answer: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        number = int(substitute(self.size, sizes))
        return (number < 0 if self.is_below else number == 0) is self.answer


class Answers:
    """Answers by the `ranges` of sizes, and by the `sizes` of a call if there is one: `conditions` are those that hold then."""

    def __init__(self, ranges: Mapping[str, Range], sizes: Mapping[str, int] | None = None) -> None:
        self._ranges = ranges
        self._sizes = sizes
        self._conditions: dict[tuple[Dim, bool], Condition] = {}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(self._conditions.values())

    def is_below_zero(self, size: Dim) -> bool | None:
        """Whether a size is below 0; None if that is not known."""
        low, high = self._ends(size)
        if high is not None and high < 0:
            return True
        return False if low is not None and low >= 0 else self._taken(size, is_below=True)

    def is_zero(self, size: Dim) -> bool | None:
        """Whether a size is 0; None if that is not known."""
        low, high = self._ends(size)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        return True if low == high == 0 else self._taken(size, is_below=False)

    def _taken(self, size: Dim, *, is_below: bool) -> bool | None:
        if self._sizes is None or not size.symbols() <= self._sizes.keys():
            return None
        if (size, is_below) not in self._conditions:
            number = int(substitute(size, self._sizes))
            answer = number < 0 if is_below else number == 0
            self._conditions[size, is_below] = Condition(size, is_below, answer)
        return self._conditions[size, is_below].answer

    def _ends(self, size: Size) -> tuple[int | None, int | None]:
        """The least that a size is and the most; None where there is no end, or none is seen."""
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in Dim.lift(size).terms.items():
            least, most = self._product(monomial)
            if factor < 0:
                least, most = most, least
            low = None if low is None or least is None else low + factor * least
            high = None if high is None or most is None else high + factor * most
        return low, high

    def _product(self, monomial: tuple[Atom, ...]) -> tuple[int | None, int | None]:
        """The ends of a product of what is never negative; None where one of its factors may be."""
        low, high = 1, 1
        for atom in monomial:
            least, most = self._factor(atom)
            if least is None or least < 0:
                return None, None
            low *= least
            high = None if high is None or most is None else high * most
        return low, high

    def _factor(self, atom: Atom) -> tuple[int | None, int | None]:
        if isinstance(atom, str):
            stated = self._ranges.get(atom, Range())
            return stated.low, stated.high
        divisor = atom[1].simplified()
        if not isinstance(divisor, int) or divisor < 0:
            return None, None
        low, high = self._ends(atom[0])
        return None if low is None else low // divisor, None if high is None else high // divisor
