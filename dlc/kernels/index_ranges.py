"""Ranges of indices: intervals, and linear forms in loop variables.

The ends of an interval may be sizes of the trace, whose comparisons are decided by guards (dlc/shapes/traced_dims.py), or by
proofs. Ranges remain valid, but become wider, if a comparison is not decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from typing import TypeAlias, cast

from dlc.ir import SSAValue
from dlc.shapes.dims import UndecidableError, is_nonnegative, is_same
from dlc.shapes.polynomials import asymptotic_key, termwise_minimum
from dlc.shapes.traced_dims import TracedDim, TracedSize, untraced

# An end of an interval: an integer, a size, or ±infinity.
Bound: TypeAlias = "TracedSize | float"
# The coefficient of each variable of a linear form.
Terms: TypeAlias = "frozenset[tuple[SSAValue, int]]"


@dataclass(frozen=True)
class Interval:
    """The integers from `low` to `high`, both included; empty if low > high."""

    low: Bound = -inf
    high: Bound = inf

    @property
    def is_empty(self) -> bool:
        """True if low > high; false if that is not decided."""
        return self.low == inf or self.high == -inf or is_less(self.high, self.low) is True

    @property
    def is_finite(self) -> bool:
        return not isinstance(self.low, float) and not isinstance(self.high, float)

    @property
    def value(self) -> TracedSize | None:
        """The only integer, if both ends are the same size; None otherwise."""
        return cast(TracedSize, self.low) if is_same(untraced(self.low), untraced(self.high)) else None

    def __add__(self, other: Interval) -> Interval:
        return Interval(_sum(self.low, other.low), _sum(self.high, other.high))

    def __sub__(self, offset: TracedSize) -> Interval:
        return self + Interval(-offset, -offset)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        products = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(reduce(_lower_bound, products), reduce(_upper_bound, products))

    def scaled(self, factor: int) -> Interval:
        """Return the range of the integers times a factor."""
        low, high = _product(self.low, factor), _product(self.high, factor)
        return Interval(low, high) if factor >= 0 else Interval(high, low)

    def __and__(self, other: Interval) -> Interval:
        """Return the integers in both; raise UndecidableError if that depends on a comparison that is not decided."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def limited(self, other: Interval) -> Interval:
        """Return an interval that contains the integers in both."""
        return Interval(_larger(self.low, other.low), _smaller(self.high, other.high))

    def __or__(self, other: Interval) -> Interval:
        """Return an interval that contains the integers of both."""
        return Interval(_lower_bound(self.low, other.low), _upper_bound(self.high, other.high))

    def maximum(self, other: Interval) -> Interval:
        """Return the range of the larger of two integers."""
        return Interval(_larger(self.low, other.low), _upper_bound(self.high, other.high))

    def minimum(self, other: Interval) -> Interval:
        """Return the range of the smaller of two integers."""
        return Interval(_lower_bound(self.low, other.low), _smaller(self.high, other.high))

    def complement(self) -> tuple[Interval, Interval]:
        """Return the integers below and above."""
        return Interval(high=_sum(self.low, -1)), Interval(low=_sum(self.high, 1))

    def contains(self, other: Interval) -> bool:
        """Return whether all integers of another interval are in this one."""
        return other.is_empty or (self.low <= other.low and other.high <= self.high)

    def contains_for_all_sizes(self, other: Interval) -> bool:
        """Return whether all integers of another interval are in this one for all sizes; does not add guards."""
        margins = (_sum(other.low, -self.low), _sum(self.high, -other.high))
        return all(m == inf if isinstance(m, float) else is_nonnegative(untraced(m)) for m in margins)

    def floor_divided(self, divisor: Interval) -> Interval:
        """Return the range of ⌊a / b⌋ for b of `divisor`, which is positive."""
        by_low, by_high = ([floor_divide(a, b) for b in (divisor.low, divisor.high)] for a in (self.low, self.high))
        return Interval(reduce(_lower_bound, by_low), reduce(_upper_bound, by_high))

    def remainder(self, divisor: Interval) -> Interval:
        """Return the range of a - b·⌊a / b⌋ for b of `divisor`, which is positive."""
        last = _sum(divisor.high, -1)
        return Interval(0, _smaller(self.high, last) if is_less(self.low, 0) is False else last)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"


INT64_RANGE = Interval(-(1 << 63), (1 << 63) - 1)


def _sum(a: Bound, b: Bound) -> Bound:
    return a if isinstance(a, float) else b if isinstance(b, float) else a + b


def _product(a: Bound, b: Bound) -> Bound:
    if isinstance(a, float) or isinstance(b, float):
        return 0 if a == 0 or b == 0 else inf if (a > 0) == (b > 0) else -inf
    return a * b


def floor_divide(a: Bound, b: Bound) -> Bound:
    """Return ⌊a / b⌋ for b > 0."""
    return a if isinstance(a, float) else 0 if isinstance(b, float) else a // b


def is_less(a: Bound, b: Bound) -> bool | None:
    """Return whether a < b; None if that is not decided."""
    try:
        return a < b
    except UndecidableError:
        return None


def _decided_minimum(a: Bound, b: Bound) -> Bound | None:
    """Return the smaller bound; None if that is not decided."""
    for x, y in ((a, b), (b, a)):
        if (is_y_less := is_less(y, x)) is not None:
            return y if is_y_less else x
    return None


def _smaller(a: Bound, b: Bound) -> Bound:
    """Return the smaller bound; if that is not decided, the one that is smaller for large sizes."""
    smaller = _decided_minimum(a, b)
    return min(a, b, key=lambda bound: asymptotic_key(untraced(bound))) if smaller is None else smaller


def _larger(a: Bound, b: Bound) -> Bound:
    """Return the larger bound; if that is not decided, the one that is larger for large sizes."""
    return -_smaller(-a, -b)


def _lower_bound(a: Bound, b: Bound) -> Bound:
    """Return the smaller bound; if that is not decided, a bound below both."""
    smaller = _decided_minimum(a, b)
    if smaller is not None:
        return smaller
    size = a if isinstance(a, TracedDim) else cast(TracedDim, b)
    return size.in_scope(termwise_minimum(untraced(a), untraced(b)))


def _upper_bound(a: Bound, b: Bound) -> Bound:
    """Return the larger bound; if that is not decided, a bound above both."""
    return -_lower_bound(-a, -b)


@dataclass(frozen=True)
class LinearForm:
    """`constant` plus the sum of coefficient · variable."""

    constant: TracedSize = 0
    coefficients: Mapping[SSAValue, int] = field(default_factory=dict[SSAValue, int])

    @staticmethod
    def of(variable: SSAValue) -> LinearForm:
        return LinearForm(0, {variable: 1})

    @property
    def terms(self) -> Terms:
        return frozenset(self.coefficients.items())

    def __add__(self, other: LinearForm) -> LinearForm:
        variables = [*self.coefficients, *(v for v in other.coefficients if v not in self.coefficients)]
        sums = {v: self.coefficients.get(v, 0) + other.coefficients.get(v, 0) for v in variables}
        return LinearForm(self.constant + other.constant, {v: c for v, c in sums.items() if c})

    def scaled(self, factor: int) -> LinearForm:
        """Return the form times a constant."""
        scaled_coefficients = {v: c * factor for v, c in self.coefficients.items()} if factor else {}
        return LinearForm(self.constant * factor, scaled_coefficients)

    def __sub__(self, other: LinearForm) -> LinearForm:
        return self + other.scaled(-1)


@dataclass(frozen=True)
class Fact:
    """A condition on indices that holds in a scope: the sum of `terms` is in `range`."""

    terms: Terms
    range: Interval

    def negated(self) -> Fact:
        """Return the same condition on the negated sum."""
        return Fact(frozenset((v, -c) for v, c in self.terms), -self.range)
