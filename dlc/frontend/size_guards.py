"""Evaluate comparisons of symbolic sizes while a function is traced: `if x.shape[0] > 4`.

A comparison is decided by the declared ranges of the sizes if possible. Otherwise a trace may use the sizes of a concrete call:
the outcome is recorded as a guard, which other calls must satisfy to reuse the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.dims import Atom, Dim, Size, SizeRange, substitute


@dataclass(frozen=True)
class SizeCondition:
    """A guard: `size < 0` (`is_less`) or `size == 0` evaluates to `expected`."""

    size: Dim
    is_less: bool
    expected: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        number = int(substitute(self.size, sizes))
        return (number < 0 if self.is_less else number == 0) is self.expected


class SizeGuards:
    """Decide comparisons by the `ranges` of sizes, else by the `sizes` of a call, recording guards in `conditions`."""

    def __init__(self, ranges: Mapping[str, SizeRange], sizes: Mapping[str, int] | None = None) -> None:
        self._ranges = ranges
        self._sizes = sizes
        self._conditions: dict[tuple[Dim, bool], SizeCondition] = {}

    @property
    def conditions(self) -> tuple[SizeCondition, ...]:
        return tuple(self._conditions.values())

    def is_negative(self, size: Dim) -> bool | None:
        """Return whether a size is below 0; None if it cannot be decided."""
        low, high = self._bounds(size)
        if high is not None and high < 0:
            return True
        return False if low is not None and low >= 0 else self._guarded(size, is_less=True)

    def is_zero(self, size: Dim) -> bool | None:
        """Return whether a size is 0; None if it cannot be decided."""
        low, high = self._bounds(size)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        return True if low == high == 0 else self._guarded(size, is_less=False)

    def _guarded(self, size: Dim, *, is_less: bool) -> bool | None:
        if self._sizes is None or not size.symbols() <= self._sizes.keys():
            return None
        if (size, is_less) not in self._conditions:
            number = int(substitute(size, self._sizes))
            expected = number < 0 if is_less else number == 0
            self._conditions[size, is_less] = SizeCondition(size, is_less, expected)
        return self._conditions[size, is_less].expected

    def _bounds(self, size: Size) -> tuple[int | None, int | None]:
        """Return the lower and upper bound of a size; None for an unknown bound."""
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in Dim.lift(size).terms.items():
            lower, upper = self._product_bounds(monomial)
            if factor < 0:
                lower, upper = upper, lower
            low = None if low is None or lower is None else low + factor * lower
            high = None if high is None or upper is None else high + factor * upper
        return low, high

    def _product_bounds(self, monomial: tuple[Atom, ...]) -> tuple[int | None, int | None]:
        """Return the bounds of a product of nonnegative factors; (None, None) if a factor may be negative."""
        low, high = 1, 1
        for atom in monomial:
            lower, upper = self._atom_bounds(atom)
            if lower is None or lower < 0:
                return None, None
            low *= lower
            high = None if high is None or upper is None else high * upper
        return low, high

    def _atom_bounds(self, atom: Atom) -> tuple[int | None, int | None]:
        if isinstance(atom, str):
            declared = self._ranges.get(atom, SizeRange())
            return declared.low, declared.high
        divisor = atom[1].simplified()
        if not isinstance(divisor, int) or divisor < 0:
            return None, None
        low, high = self._bounds(atom[0])
        return None if low is None else low // divisor, None if high is None else high // divisor
