"""Guards: conditions on symbolic sizes under which a program is valid.

Shape inference and traced Python code compare sizes. Where polynomials do not decide a comparison, its assumed result becomes
a guard of the program: `N >= 5` for the slice `x[2:5]` of N rows, `N % 2 == 0` for a reshape to rows of two elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from math import gcd

from dlc.errors import ShapeError
from dlc.shapes.dims import Atom, Dim, Relation, Size, guard_recorder, is_nonnegative, substitute
from dlc.shapes.ranges import SizeRange


@dataclass(frozen=True)
class Guard:
    """The condition `size relation 0`; `origin` is the op that requires it, with its location."""

    size: Dim
    relation: Relation
    origin: str = field(default="", compare=False)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the condition holds for these values of the symbols; False if the size is undefined for them."""
        try:
            return self.accepts(int(substitute(self.size, sizes)))
        except ShapeError:
            return False

    def accepts(self, value: int) -> bool:
        """Return whether the condition holds for this value of the size."""
        match self.relation:
            case "==":
                return value == 0
            case "!=":
                return value != 0
            case _:
                return value >= 0

    @property
    def description(self) -> str:
        """The condition and what requires it."""
        return f"{self.origin} requires {self}" if self.origin else str(self)

    def __str__(self) -> str:
        common = gcd(*self.size.terms.values())
        size = Dim({m: c // common for m, c in self.size.terms.items()})
        if self.relation != ">=" and (division := _as_divisibility(size)) is not None:
            dividend, divisor = (f"({x})" if " " in str(x) else str(x) for x in division)
            return f"{dividend} % {divisor} {self.relation} 0"
        left = Dim({m: c for m, c in size.terms.items() if c > 0})
        right = Dim({m: -c for m, c in size.terms.items() if c < 0})
        if left.terms.keys() <= {()}:
            left, right, relation = right, left, "<=" if self.relation == ">=" else self.relation
        else:
            relation = self.relation
        return f"{left} {relation} {right}"


def _as_divisibility(size: Dim) -> tuple[Dim, Size] | None:
    """Return (a, b) if the size is zero where b divides a: a multiple of `a - a // b * b` or its negation."""
    for atom in size.atoms():
        if isinstance(atom, tuple):
            dividend, divisor = atom
            remainder = Dim.lift(dividend - Dim({(atom,): 1}) * divisor.simplified())
            if size.terms in (remainder.terms, {m: -c for m, c in remainder.terms.items()}):
                # Common factors of both were divided out: an integer divisor divides 3 * N if it divides N.
                factor = gcd(*dividend.terms.values()) if isinstance(divisor.simplified(), int) else 1
                return Dim({m: c // factor for m, c in dividend.terms.items()}), divisor.simplified()
    return None


def violated_guard(guards: Iterable[Guard], sizes: Mapping[str, int]) -> Guard | None:
    """Return the first guard that these sizes violate, of those whose symbols all have sizes; None if there is none."""
    known = (guard for guard in guards if guard.size.symbols() <= sizes.keys())
    return next((guard for guard in known if not guard.holds(sizes)), None)


def guards_by_last_symbol(guards: Iterable[Guard], symbols: Sequence[str]) -> dict[str, list[Guard]]:
    """Return the guards by the last of their symbols, in the order of `symbols`; leave out guards with other symbols."""
    order = {symbol: k for k, symbol in enumerate(symbols)}
    by_symbol: dict[str, list[Guard]] = {symbol: [] for symbol in symbols}
    for guard in guards:
        if guard.size.symbols() <= order.keys():
            by_symbol[max(guard.size.symbols(), key=order.__getitem__)].append(guard)
    return by_symbol


class RecordedGuards:
    """Records what shape inference assumes as guards, whose origin is `origin`."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.origin = ""

    def assume(self, size: Dim, relation: Relation) -> None:
        """Record that a size is assumed to have this relation to 0."""
        self.guards.append(Guard(size, relation, self.origin))


@contextmanager
def recording_guards() -> Generator[RecordedGuards]:
    """Record the assumptions of shape inference in a `with` block."""
    recorder = RecordedGuards()
    token = guard_recorder.set(recorder.assume)
    try:
        yield recorder
    finally:
        guard_recorder.reset(token)


def assume_comparison(comparison: Callable[[Size, Size], bool], a: Size, b: Size, origin: str, guards: list[Guard]) -> bool:
    """Return the result of `is_known_different` or `is_known_less`; append the guard that it assumes to `guards`."""
    with recording_guards() as recorder:
        recorder.origin = origin
        result = comparison(a, b)
    guards += recorder.guards
    return result


@dataclass(frozen=True)
class SizeBounds:
    """Bounds of sizes, from the ranges of their symbols by interval arithmetic."""

    ranges: Mapping[str, SizeRange]

    def of(self, size: Size) -> tuple[int | None, int | None]:
        """Return the lower and upper bound of a size; None where there is no bound, or none was found."""
        low: int | None = 0
        high: int | None = 0
        for monomial, factor in Dim.lift(size).terms.items():
            lower, upper = self._product_bounds(monomial)
            if factor < 0:
                lower, upper = upper, lower
            low = None if low is None or lower is None else low + factor * lower
            high = None if high is None or upper is None else high + factor * upper
        return low, high

    def decide(self, guard: Guard) -> bool | None:
        """Return whether a guard holds for all sizes in the ranges (True), for none (False), or for an unknown part (None)."""
        low, high = self.of(guard.size)
        if guard.relation == ">=":
            return True if self._is_never_negative(guard.size) else False if high is not None and high < 0 else None
        is_zero = True if low == high == 0 else None
        if (low is not None and low > 0) or (high is not None and high < 0):
            is_zero = False
        return is_zero if guard.relation == "==" or is_zero is None else not is_zero

    def _is_never_negative(self, size: Dim) -> bool:
        low, _ = self.of(size)
        # With symbols counted from their lower bounds: N * M - M >= 0 for N >= 1.
        shifted = substitute(size, {s: Dim.symbol(s) + r.low for s, r in self.ranges.items()})
        if (low is not None and low >= 0) or is_nonnegative(shifted):
            return True
        # A product with nonnegative factors that all terms share has the sign of the other factor, or is 0.
        shared = reduce(lambda a, b: a & b, map(Counter, size.terms), Counter(next(iter(size.terms), ())))
        if not shared or not is_nonnegative(Dim({tuple(shared.elements()): 1})):
            return False
        return self._is_never_negative(Dim({tuple((Counter(m) - shared).elements()): c for m, c in size.terms.items()}))

    def _product_bounds(self, monomial: tuple[Atom, ...]) -> tuple[int | None, int | None]:
        """Return the bounds of a product of nonnegative factors; (None, None) if a factor may be negative."""
        if len(monomial) == 1:
            return self._atom_bounds(monomial[0])
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
            stated = self.ranges.get(atom, SizeRange())
            return stated.low, stated.high
        divisor = atom[1].simplified()
        if not isinstance(divisor, int) or divisor <= 0:
            return None, None
        low, high = self.of(atom[0])
        return None if low is None else low // divisor, None if high is None else high // divisor
