"""Ranges of indices: intervals, and linear forms in loop variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.ir import SSAValue

# The coefficient of each variable of a linear form.
Terms: TypeAlias = "frozenset[tuple[SSAValue, int]]"


@dataclass(frozen=True)
class Interval:
    """The integers from `low` to `high`, both included; empty if low > high."""

    low: int
    high: int

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(products), max(products))

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __or__(self, other: Interval) -> Interval:
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def contains(self, other: Interval) -> bool:
        """Return whether all integers of another interval are in this one."""
        return other.is_empty or (self.low <= other.low and other.high <= self.high)

    def floor_divided(self, divisor: Interval) -> Interval:
        """Return the range of ⌊a / b⌋ for b of `divisor`, which is positive."""
        quotients = [a // b for a in (self.low, self.high) for b in (divisor.low, divisor.high)]
        return Interval(min(quotients), max(quotients))

    def remainder(self, divisor: Interval) -> Interval:
        """Return the range of a - b·⌊a / b⌋ for b of `divisor`, which is positive."""
        return Interval(0, min(self.high, divisor.high - 1) if self.low >= 0 else divisor.high - 1)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"


@dataclass(frozen=True)
class LinearForm:
    """`constant` plus the sum of coefficient · variable."""

    constant: int = 0
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
        return Fact(frozenset((v, -c) for v, c in self.terms), Interval(-self.range.high, -self.range.low))
