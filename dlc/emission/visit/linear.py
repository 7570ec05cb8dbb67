"""Index arithmetic as linear forms, for emitters."""

from __future__ import annotations

from typing import NamedTuple


class Linear(NamedTuple):
    """`constant + Σ coefficient · name`; the terms are (depth of the name's scope, name, coefficient), in order."""

    constant: int
    terms: tuple[tuple[int, str, int], ...] = ()

    def plus(self, other: Linear, scale: int = 1) -> Linear:
        if not other.terms or not scale:
            return Linear(self.constant + other.constant * scale, self.terms)
        if not self.terms and scale == 1:
            return Linear(self.constant + other.constant, other.terms)
        terms = {(d, n): c for d, n, c in self.terms}
        for d, n, c in other.terms:
            terms[d, n] = terms.get((d, n), 0) + c * scale
        return Linear(self.constant + other.constant * scale, tuple((d, n, c) for (d, n), c in sorted(terms.items()) if c))

    def times(self, other: Linear) -> Linear | None:
        """The product, if it is linear."""
        if self.terms and other.terms:
            return None
        return Linear(0).plus(self, other.constant) if self.terms else Linear(0).plus(other, self.constant)
