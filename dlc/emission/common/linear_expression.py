"""Index arithmetic as linear expressions."""

from __future__ import annotations

from typing import NamedTuple


class LinearExpression(NamedTuple):
    """`constant + Σ coefficient · name`. Each term is (depth of the name's scope, name, coefficient); terms are sorted."""

    constant: int
    terms: tuple[tuple[int, str, int], ...] = ()

    def plus(self, other: LinearExpression, scale: int = 1) -> LinearExpression:
        """Return `self + scale · other`."""
        if not other.terms or not scale:
            return LinearExpression(self.constant + other.constant * scale, self.terms)
        if not self.terms and scale == 1:
            return LinearExpression(self.constant + other.constant, other.terms)
        terms = {(d, n): c for d, n, c in self.terms}
        for d, n, c in other.terms:
            terms[d, n] = terms.get((d, n), 0) + c * scale
        return LinearExpression(
            self.constant + other.constant * scale, tuple((d, n, c) for (d, n), c in sorted(terms.items()) if c)
        )

    def times(self, other: LinearExpression) -> LinearExpression | None:
        """Return the product, or None if it is not linear."""
        if self.terms and other.terms:
            return None
        return LinearExpression(0).plus(self, other.constant) if self.terms else LinearExpression(0).plus(other, self.constant)
