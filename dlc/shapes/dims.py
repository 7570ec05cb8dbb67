"""Symbolic dimensions: polynomials over named sizes, with floor division.

A dimension is a Python `int` or a `Dim`. Arithmetic returns an `int` if the result is constant, so that the same shape code
serves static and symbolic sizes: `(h + 2 * pad - k) // stride + 1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from math import gcd, lcm
from numbers import Integral
from typing import Literal, TypeAlias, cast

from dlc.errors import ShapeError, UnsupportedError

Size: TypeAlias = "int | Dim"
# A factor of a monomial: a symbol's name, or a floor division of two polynomials that does not simplify.
Atom: TypeAlias = "str | tuple[Dim, Dim]"
Monomial: TypeAlias = "tuple[Atom, ...]"
# A relation of a size to 0.
Relation: TypeAlias = Literal["==", "!=", ">="]

# Proofs replace at most this many floor divisions by bounds: the number of combinations doubles with each.
_MAX_BOUNDED_QUOTIENTS = 4
# Proofs distinguish the remainders of a symbol by a divisor up to this one.
_MAX_REMAINDER_DIVISOR = 12

# Returns whether a size has a relation to 0; None if that depends on the values of symbols, and cannot be decided.
SizeDecisions: TypeAlias = "Callable[[Dim, Relation], bool | None]"
# Decides comparisons of sizes in Python, while a model is imported for the sizes of a call.
size_decisions: ContextVar[SizeDecisions | None] = ContextVar("size_decisions", default=None)
# Records the relation to 0 that shape inference assumes of a size where polynomials do not decide it, if guards are collected.
guard_recorder: ContextVar[Callable[[Dim, Relation], None] | None] = ContextVar("guard_recorder", default=None)


class UndecidableError(UnsupportedError):
    """A comparison of symbolic sizes, such as `n < 4`, whose result depends on the values of the symbols.

    If compilation needs the result, the program is specialized for each set of sizes that it is called with.
    """


def _key(atom: Atom) -> str:
    """Return the text of an atom, by which atoms are ordered."""
    return atom if isinstance(atom, str) else " // ".join(f"({x})" if " " in str(x) else str(x) for x in atom)


def _terms(size: Size) -> Mapping[Monomial, int]:
    """Return the terms of a size, which has none if it is 0."""
    return size.terms if isinstance(size, Dim) else {(): int(size)} if size else {}


def _is_size(value: object) -> bool:
    """Return whether a value is a size; other operands, such as sizes of a trace, implement arithmetic with sizes."""
    return isinstance(value, int | Dim | Integral)


class Dim:
    """An immutable polynomial with integer coefficients, `{monomial: coefficient}`.

    Equality is that of polynomials. An order comparison whose result depends on the values of symbols raises UndecidableError.
    """

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: Mapping[Monomial, int] = {m: c for m, c in terms.items() if c != 0}
        # Computed once: quotients of quotients are long, and monomials are sorted by their texts.
        self._hash: int | None = None
        self._text: str | None = None

    def __reduce__(self) -> tuple[type[Dim], tuple[Mapping[Monomial, int]]]:
        # Hashes of strings differ between processes.
        return Dim, (self.terms,)

    @staticmethod
    def symbol(name: str) -> Dim:
        """Return the symbolic size `name`."""
        return Dim({(name,): 1})

    @staticmethod
    def lift(size: Size) -> Dim:
        """Return `size` as a polynomial."""
        return size if isinstance(size, Dim) else Dim({(): int(size)})

    def simplified(self) -> Size:
        """Return an `int` if the polynomial is constant, else the polynomial."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return self

    def __add__(self, other: Size) -> Size:
        if not _is_size(other):
            return NotImplemented
        terms = dict(self.terms)
        for m, c in _terms(other).items():
            terms[m] = terms.get(m, 0) + c
        return Dim(terms).simplified()

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Dim({m: -c for m, c in self.terms.items()}).simplified()

    def __sub__(self, other: Size) -> Size:
        if not _is_size(other):
            return NotImplemented
        return self + (-other)

    def __rsub__(self, other: Size) -> Size:
        return (-self) + other

    def __mul__(self, other: Size) -> Size:
        if not _is_size(other):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in _terms(other).items():
                m = tuple(sorted(m1 + m2, key=_key))
                terms[m] = terms.get(m, 0) + c1 * c2
        return Dim(terms).simplified()

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return _floordiv(self, Dim.lift(other)) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: Size) -> Size:
        return _floordiv(Dim.lift(other), self) if _is_size(other) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return self - (self // other) * other if _is_size(other) else NotImplemented

    def __rmod__(self, other: Size) -> Size:
        return other - (other // self) * self if _is_size(other) else NotImplemented

    def __divmod__(self, other: Size) -> tuple[Size, Size]:
        return (self // other, self % other) if _is_size(other) else NotImplemented

    def __rdivmod__(self, other: Size) -> tuple[Size, Size]:
        return (other // self, other % self) if _is_size(other) else NotImplemented

    def __pow__(self, other: Size) -> Size:
        if not isinstance(other, int) or other < 0:
            return NotImplemented
        power: Size = 1
        for _ in range(other):
            power = power * self
        return power

    def __eq__(self, other: object) -> bool:
        return is_same(self, cast(Size, other)) if _is_size(other) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            size = self.simplified()
            self._hash = hash(size) if isinstance(size, int) else hash(frozenset(self.terms.items()))
        return self._hash

    def __lt__(self, other: Size) -> bool:
        return _decide_negative(self - other, f"is {self} < {other}?") if _is_size(other) else NotImplemented

    def __le__(self, other: Size) -> bool:
        # For integers, `a <= b` is `a - b - 1 < 0`.
        return _decide_negative(self - other - 1, f"is {self} <= {other}?") if _is_size(other) else NotImplemented

    def __gt__(self, other: Size) -> bool:
        return not self <= other if _is_size(other) else NotImplemented

    def __ge__(self, other: Size) -> bool:
        return not self < other if _is_size(other) else NotImplemented

    def __int__(self) -> int:
        raise UndecidableError(f"the size {self} is symbolic: it has no integer value at compile time")

    __index__ = __int__

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._to_text()
        return self._text

    def _to_text(self) -> str:
        text = ""
        for m, c in sorted(self.terms.items(), key=lambda t: (-len(t[0]), [_key(a) for a in t[0]])):
            factors = [*([str(abs(c))] if abs(c) != 1 or not m else []), *map(_key, m)]
            if len(factors) > 1 or (c < 0 and not text):
                # Unary minus and products bind as tightly as the division.
                factors = [f"({factor})" if " " in factor else factor for factor in factors]
            term = " * ".join(factors)
            text += (f" - {term}" if text else f"-{term}") if c < 0 else (f" + {term}" if text else term)
        return text or "0"

    __repr__ = __str__

    def substitute(self, sizes: Mapping[str, Size]) -> Size:
        """Return this polynomial with each named symbol replaced by its size."""
        total: Size = 0
        for m, c in self.terms.items():
            product: Size = c
            for atom in m:
                if isinstance(atom, str):
                    product = product * (sizes[atom] if atom in sizes else Dim.symbol(atom))
                else:
                    divisor = substitute(atom[1], sizes)
                    if divisor == 0:
                        raise ShapeError(f"the size {self} divides by {atom[1]}, which is 0")
                    product = product * (substitute(atom[0], sizes) // divisor)
            total = total + product
        return total

    def atoms(self) -> list[Atom]:
        """Return the distinct factors of the monomials, in a fixed order."""
        return sorted({atom for m in self.terms for atom in m}, key=_key)

    def rename_atoms(self, names: Mapping[Atom, str]) -> Size:
        """Return this polynomial with its factors replaced by symbols."""
        return Dim({tuple(sorted((names[a] for a in m), key=_key)): c for m, c in self.terms.items()}).simplified()

    @property
    def is_divided(self) -> bool:
        """Return whether the polynomial contains a floor division."""
        return any(isinstance(atom, tuple) for m in self.terms for atom in m)

    def symbols(self) -> set[str]:
        """Return the names that this polynomial depends on."""
        names: set[str] = set()
        for m in self.terms:
            for atom in m:
                names |= {atom} if isinstance(atom, str) else atom[0].symbols() | atom[1].symbols()
        return names


def decided_negative(size: Size) -> bool | None:
    """Return whether a size is negative, by polynomials or by the decisions for the sizes of a call; None if unknown."""
    if is_nonnegative(size) or is_nonnegative(-size - 1):
        return not is_nonnegative(size)
    decide = size_decisions.get()
    return None if decide is None else decide(Dim.lift(-size - 1), ">=")


def decided_zero(size: Size) -> bool | None:
    """Return whether a size is 0, by polynomials or by the decisions for the sizes of a call; None if unknown."""
    if isinstance(size, int) or is_nonnegative(size - 1) or is_nonnegative(-size - 1):
        return size == 0
    decide = size_decisions.get()
    return None if decide is None else decide(size, "==")


def _decide_negative(size: Size, question: str) -> bool:
    answer = decided_negative(size)
    if answer is None:
        raise UndecidableError(question)
    return answer


def _floordiv(a: Dim, b: Dim) -> Size:
    # p // c = q + r // c, where q·c consists of the terms whose coefficients are divisible by c.
    divisor = b.simplified()
    if divisor == 0:
        raise ZeroDivisionError(f"{a} // {b}")
    if isinstance(divisor, int):
        quotient_terms = Dim({m: c // divisor for m, c in a.terms.items() if c % divisor == 0})
        remaining_terms = Dim({m: c for m, c in a.terms.items() if c % divisor != 0})
        remainder = remaining_terms.simplified()
        if isinstance(remainder, int):
            return quotient_terms + remainder // divisor
        # (g·r) // (g·c) = r // c.
        common = gcd(divisor, *remainder.terms.values())
        dividend, divisor = Dim({m: c // common for m, c in remainder.terms.items()}), divisor // common
        if divisor > 0 and all(c < 0 for m, c in dividend.terms.items() if m):
            # -r // c = -((r + c - 1) // c): equal ceiling divisions are equal polynomials, and dividends are not negative.
            return quotient_terms - (divisor - 1 - dividend) // divisor
        return quotient_terms + Dim({((dividend, Dim.lift(divisor)),): 1})
    if a == b:
        return 1
    # A monomial divisor that divides every term: (n·c) // n = c.
    if len(b.terms) == 1:
        (bm, bc), quotient = next(iter(b.terms.items())), dict[Monomial, int]()
        for m, c in a.terms.items():
            remaining_atoms = list(m)
            for atom in bm:
                if atom not in remaining_atoms:
                    break
                remaining_atoms.remove(atom)
            else:
                if c % bc == 0:
                    quotient[tuple(remaining_atoms)] = c // bc
                    continue
            break
        else:
            return Dim(quotient).simplified()
    return Dim({((a, b),): 1}).simplified()


def substitute(size: Size, sizes: Mapping[str, Size]) -> Size:
    """Return `size` with the named symbols replaced."""
    return size.substitute(sizes) if isinstance(size, Dim) else size


def is_same(a: Size, b: Size) -> bool:
    """Return whether two sizes are the same polynomial."""
    return _terms(a) == _terms(b)


def is_known_different(a: Size, b: Size) -> bool:
    """Return whether two sizes differ for all values of the symbols; if that is undecidable, equality becomes a guard."""
    difference = a - b
    if isinstance(difference, int):
        return difference != 0
    _assume(difference, "==")
    return False


def is_known_less(a: Size, b: Size) -> bool:
    """Return whether `a < b` for all values of the symbols; if that is undecidable, `a >= b` becomes a guard."""
    difference = a - b
    if isinstance(difference, int):
        return difference < 0
    if not is_nonnegative(difference):
        _assume(difference, ">=")
    return False


def are_equal(a: Size, b: Size) -> bool:
    """Return whether two sizes are equal, by polynomials or by the decisions for the sizes of a call.

    Raises UndecidableError if that depends on the values of the symbols otherwise.
    """
    answer = decided_zero(a - b)
    if answer is None:
        raise UndecidableError(f"is {a} == {b}?")
    return answer


def _assume(size: Size, relation: Relation) -> None:
    record = guard_recorder.get()
    if record is not None and isinstance(size, Dim):
        record(size, relation)


def is_symbol(size: Size) -> bool:
    """Return whether a size is a single symbol, named `str(size)`."""
    return isinstance(size, Dim) and is_same(size, Dim.symbol(str(size)))


def is_static(sizes: Iterable[object]) -> bool:
    """Return whether every size is an integer."""
    # A list comprehension takes half the time of a generator.
    return all([isinstance(s, int) for s in sizes])


def product(sizes: Iterable[Size]) -> Size:
    """Return the number of elements of a shape."""
    total: Size = 1
    for s in sizes:
        total = total * s
    return total


def row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Return the strides of a dense row-major array, in elements."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def is_nonnegative(size: Size) -> bool:
    """Return whether a size is provably nonnegative for all values of its symbols."""
    if isinstance(size, int):
        return size >= 0
    terms = _terms(size)
    if all(factor >= 0 and all(map(_is_atom_nonnegative, monomial)) for monomial, factor in terms.items()):
        return True
    quotients = [(m, atom) for m in terms for atom in m if isinstance(atom, tuple) and _divisor(atom) is not None]
    if quotients and len(quotients) <= _MAX_BOUNDED_QUOTIENTS:
        # Bounds of negative terms first: their only alternative is none.
        monomial, atom = min(quotients, key=lambda quotient: terms[quotient[0]] > 0)
        # Else a positive term and the sum of the others are nonnegative on their own.
        is_term_nonnegative = terms[monomial] > 0 and all(map(_is_atom_nonnegative, monomial))
        rest = Dim({m: factor for m, factor in terms.items() if m != monomial})
        if _is_bound_nonnegative(size, monomial, atom) or (is_term_nonnegative and is_nonnegative(rest)):
            return True
    if quotients and _are_remainders_nonnegative(size, lcm(*(cast(int, _divisor(atom)) for _, atom in quotients))):
        return True
    if not all(all(map(_is_atom_nonnegative, monomial)) for monomial in terms):
        return False
    # n · n · m >= n · m: a product with further powers of its factors is at least as large.
    for monomial in [monomial for monomial, factor in terms.items() if factor < 0]:
        factor, factors = terms[monomial], Counter(monomial)
        powers = (m for m in terms if terms[m] >= -factor and {*m} == {*monomial} and not factors - Counter(m))
        power = next(powers, None)
        if power is not None:
            return is_nonnegative(size + Dim({power: factor, monomial: -factor}))
    return all(factor >= 0 for factor in terms.values())


def _divisor(atom: tuple[Dim, Dim]) -> int | None:
    """Return the divisor of a floor division if it is a positive integer."""
    divisor = atom[1].simplified()
    return divisor if isinstance(divisor, int) and divisor > 0 else None


def _is_bound_nonnegative(size: Size, monomial: Monomial, atom: tuple[Dim, Dim]) -> bool:
    """Return whether a size is nonnegative if a floor division is replaced by a bound: (a - c + 1) / c ≤ a // c ≤ a / c."""
    terms, divisor = _terms(size), cast(int, _divisor(atom))
    other_atoms, factor = list(monomial), terms[monomial]
    other_atoms.remove(atom)
    if not all(map(_is_atom_nonnegative, other_atoms)):
        return False
    # A lower bound of the size times c. The size is an integer: it is nonnegative if the product is above -c.
    other_terms = Dim({m: f * divisor for m, f in terms.items() if m != monomial})
    bound = atom[0] - (divisor - 1 if factor > 0 else 0)
    return is_nonnegative(other_terms + bound * Dim({tuple(other_atoms): factor}) + divisor - 1)


def _are_remainders_nonnegative(size: Dim, divisor: int) -> bool:
    """Return whether a size of one symbol is nonnegative for each remainder of the symbol: n = divisor · q + remainder.

    False if a substitution leaves divisions, such as nested ones.
    """
    if divisor > _MAX_REMAINDER_DIVISOR or len(symbols := size.symbols()) != 1:
        return False
    (symbol,) = symbols
    cases = (Dim.lift(size.substitute({symbol: divisor * Dim.symbol(symbol) + r})) for r in range(divisor))
    return all(not case.is_divided and is_nonnegative(case) for case in cases)


def _is_atom_nonnegative(atom: Atom) -> bool:
    return isinstance(atom, str) or all(map(is_nonnegative, atom))
