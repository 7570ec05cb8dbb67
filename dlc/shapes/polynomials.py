"""Functions of sizes as polynomials: divisibility, degree and asymptotic order."""

from __future__ import annotations

from dlc.shapes.dims import Dim, Size, UndecidableError, is_nonnegative


def is_multiple(size: Size, divisor: int) -> bool:
    """Return whether a size is a multiple of an integer for all values of its symbols."""
    return all(c % divisor == 0 for c in Dim.lift(size).terms.values())


def quotient(size: Size, divisor: Size) -> Size | None:
    """Return the polynomial q with q · divisor = size; None if there is none."""
    if divisor == 0:
        return None
    result = size // divisor
    return result if result * divisor == size else None


def degree(size: Size) -> int:
    """Return the largest number of factors of a term."""
    return max(map(len, Dim.lift(size).terms), default=0)


def termwise_minimum(a: Size, b: Size) -> Size:
    """Return a polynomial that is at most `a` and at most `b`; raise UndecidableError if a factor of a term may be negative."""
    terms, other_terms = Dim.lift(a).terms, Dim.lift(b).terms
    monomials = {**terms, **other_terms}
    if not all(is_nonnegative(Dim({(atom,): 1})) for monomial in monomials for atom in monomial):
        raise UndecidableError(f"is {a} < {b}?")
    return Dim({m: min(terms.get(m, 0), other_terms.get(m, 0)) for m in monomials}).simplified()


def asymptotic_key(size: Size) -> tuple[tuple[int, int], ...]:
    """Return a key that orders sizes as for large values of all symbols."""
    return tuple(sorted(((len(m), c) for m, c in Dim.lift(size).terms.items()), reverse=True))
