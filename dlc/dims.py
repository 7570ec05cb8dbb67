"""Symbolic dimensions: polynomials over named sizes, with floor division.

A dimension is a Python `int` or a `Dim`. Arithmetic on either gives an `int` whenever the result is known, so shape code
is written once: `(h + 2 * pad - k) // stride + 1` serves a static and a symbolic `h`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, isfinite, isqrt
from numbers import Integral, Number
from typing import Literal, Protocol, TypeAlias

from dlc.errors import ShapeError, UnsupportedError
from dlc.user_lines import is_asked_by_user

Size: TypeAlias = "int | Dim"
# A factor of a monomial: a symbol's name, or a floor division of two polynomials that has no closed form.
Atom: TypeAlias = "str | tuple[Dim, Dim]"
Monomial: TypeAlias = "tuple[Atom, ...]"

# Whether a function of the user's is being traced: what its Python decides by a size must be so for every size. dlc itself asks
# which sizes are the same one, and does right by those that are not.
deciding: ContextVar[bool] = ContextVar("deciding", default=False)
# Who is asked where a polynomial alone does not say.
answering: ContextVar[Answering | None] = ContextVar("answering", default=None)

# A batch for which plans are good where nothing is said: several samples, and not so many that few do badly.
_SEVERAL = 4


class Answering(Protocol):
    """Knows more of sizes than that they are never negative."""

    def is_below_zero(self, size: Dim) -> bool | None:
        """Whether a size is below 0; None if that is not known."""
        ...

    def is_zero(self, size: Dim) -> bool | None:
        """Whether a size is 0; None if that is not known."""
        ...


class UndecidableError(UnsupportedError):
    """A question about symbolic sizes, such as `n < 4`, that has no answer for every value of the symbols.

    Where compiling asks one, a program is compiled for each set of sizes that it is called with.
    """


def _key(atom: Atom) -> str:
    return atom if isinstance(atom, str) else f"({atom[0]}) // ({atom[1]})"


def _is_size(value: object) -> bool:
    """Whether it is one; what is none, such as an array that is traced, does arithmetic with sizes itself."""
    return isinstance(value, int | Dim | Integral)


class Dim:
    """An immutable polynomial with integer coefficients: `{monomial: coefficient}`.

    A function that is traced may not ask what is not known of it: UndecidableError.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {m: c for m, c in terms.items() if c != 0}

    @staticmethod
    def symbol(name: str) -> Dim:
        """The size called `name`."""
        return Dim({(name,): 1})

    @staticmethod
    def lift(size: Size) -> Dim:
        """`size` as a polynomial."""
        return size if isinstance(size, Dim) else Dim({(): int(size)})

    def simplified(self) -> Size:
        """An `int` when the polynomial is constant, else itself."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return self

    def __pos__(self) -> Size:
        return self

    def __round__(self, digits: int | None = None) -> Size:
        return self

    def __add__(self, other: Size) -> Size:
        if not _is_size(other):
            return NotImplemented
        terms = dict(self.terms)
        for m, c in Dim.lift(other).terms.items():
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
            for m2, c2 in Dim.lift(other).terms.items():
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
        if isinstance(other, Dim):
            size = other
        elif isinstance(other, Integral) or (isinstance(other, float) and other.is_integer()):
            size = int(other)
        elif isinstance(other, Number):
            return False
        else:
            return NotImplemented
        same = self.terms == Dim.lift(size).terms
        if not same and deciding.get() and is_asked_by_user() and not self._differs_from(size):
            return _answered("is_zero", self - size, f"is {self} == {other}?")
        return same

    def _differs_from(self, other: Size) -> bool:
        """Whether no symbols make this size equal to a number or another size."""
        difference = Dim.lift(self - other)
        signs = {c > 0 for c in difference.terms.values()}
        return () in difference.terms and len(signs) == 1 and all(never_negative(Dim({m: 1})) for m in difference.terms)

    def __bool__(self) -> bool:
        if deciding.get() and is_asked_by_user() and not self._differs_from(0):
            return not _answered("is_zero", self, f"is {self} == 0?")
        return True

    def __hash__(self) -> int:
        if deciding.get() and is_asked_by_user():
            raise UndecidableError(f"the size {self} is not known")
        return hash(frozenset(self.terms.items()))

    def __lt__(self, other: Size) -> bool:
        if not _is_size(other):
            return self._beside("<", other)
        difference = self - other
        if isinstance(difference, int):
            return difference < 0
        # Sizes are never negative: a polynomial without negative coefficients is at least its constant.
        if all(c >= 0 for c in difference.terms.values()):
            return False
        return _answered("is_below_zero", difference, f"is {self} < {other}?")

    def __ge__(self, other: Size) -> bool:
        return not self < other if _is_size(other) else self._beside(">=", other)

    def __gt__(self, other: Size) -> bool:
        return not self <= other if _is_size(other) else self._beside(">", other)

    def __le__(self, other: Size) -> bool:
        if not _is_size(other):
            return self._beside("<=", other)
        difference = self - other
        if isinstance(difference, int):
            return difference <= 0
        if all(c >= 0 for c in difference.terms.values()) and difference.terms.get((), 0) > 0:
            return False
        # Of whole numbers what is at most 0 is less than 1.
        return _answered("is_below_zero", difference - 1, f"is {self} <= {other}?")

    def _beside(self, comparison: str, other: object) -> bool:
        """The order beside what is no size: an array knows it; a fraction stands between whole numbers."""
        if not isinstance(other, float):
            return NotImplemented
        if not isfinite(other):
            raise UndecidableError(f"is {self} {comparison} {other}?")
        match comparison:
            case "<":
                return self < ceil(other)
            case "<=":
                return self <= floor(other)
            case ">":
                return self > floor(other)
            case _:
                return self >= ceil(other)

    def __int__(self) -> int:
        raise UndecidableError(f"the size {self} is not known")

    __index__ = __int__

    def __str__(self) -> str:
        text = ""
        for m, c in sorted(self.terms.items(), key=lambda t: (-len(t[0]), [_key(a) for a in t[0]])):
            factors = [a if isinstance(a, str) else f"(({a[0]}) // ({a[1]}))" for a in m]
            if abs(c) != 1 or not factors:
                factors.insert(0, str(abs(c)))
            term = " * ".join(factors)
            text += (f" - {term}" if text else f"-{term}") if c < 0 else (f" + {term}" if text else term)
        return text or "0"

    __repr__ = __str__

    def substitute(self, sizes: Mapping[str, Size]) -> Size:
        """This polynomial with each named symbol replaced by its size."""
        total: Size = 0
        for m, c in self.terms.items():
            product: Size = c
            for atom in m:
                if isinstance(atom, str):
                    product = product * (sizes[atom] if atom in sizes else Dim.symbol(atom))
                else:
                    product = product * (substitute(atom[0], sizes) // substitute(atom[1], sizes))
            total = total + product
        return total

    def atoms(self) -> list[Atom]:
        """The factors of its monomials, each once, in a fixed order."""
        return sorted({atom for m in self.terms for atom in m}, key=_key)

    def renamed(self, names: Mapping[Atom, str]) -> Size:
        """This polynomial with other names for its factors."""
        return Dim({tuple(sorted((names[a] for a in m), key=_key)): c for m, c in self.terms.items()}).simplified()

    @property
    def is_divided(self) -> bool:
        """Whether a floor division is in it."""
        return any(isinstance(atom, tuple) for m in self.terms for atom in m)

    def symbols(self) -> set[str]:
        """The names that this polynomial depends on."""
        names: set[str] = set()
        for m in self.terms:
            for atom in m:
                names |= {atom} if isinstance(atom, str) else atom[0].symbols() | atom[1].symbols()
        return names


def _answered(question: Literal["is_below_zero", "is_zero"], of: Size, asked: str) -> bool:
    """What is known of a size by who is asked for it. Raises UndecidableError where nobody knows."""
    knows = answering.get()
    answer = getattr(knows, question)(Dim.lift(of)) if knows is not None else None
    if answer is None:
        raise UndecidableError(asked)
    return bool(answer)


@dataclass(frozen=True)
class Range:
    """The sizes from `low` to `high`, both included; `high` is None where there is no largest."""

    low: int = 0
    high: int | None = None

    @property
    def representative(self) -> int:
        """The size that plans are made for: between the ends, nearer to the lower one."""
        if self.high is None:
            return max(self.low, _SEVERAL)
        return max(self.low, min(self.high, isqrt(max(self.low, 1) * self.high)), 1)

    def __contains__(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


def _floordiv(a: Dim, b: Dim) -> Size:
    # p // c = q + r // c where every coefficient of q·c is divisible by c: exact parts leave the floor.
    divisor = b.simplified()
    if divisor == 0:
        raise ZeroDivisionError(f"{a} // {b}")
    if isinstance(divisor, int):
        exact = Dim({m: c // divisor for m, c in a.terms.items() if c % divisor == 0})
        rest = Dim({m: c for m, c in a.terms.items() if c % divisor != 0})
        remainder = rest.simplified()
        if isinstance(remainder, int):
            return exact + remainder // divisor
        return exact + Dim({((remainder, b),): 1})
    if a == b:
        return 1
    # A monomial divisor that divides every term: (n·c) // n = c.
    if len(b.terms) == 1:
        (bm, bc), quotient = next(iter(b.terms.items())), dict[Monomial, int]()
        for m, c in a.terms.items():
            rest_atoms = list(m)
            for atom in bm:
                if atom not in rest_atoms:
                    break
                rest_atoms.remove(atom)
            else:
                if c % bc == 0:
                    quotient[tuple(rest_atoms)] = c // bc
                    continue
            break
        else:
            return Dim(quotient).simplified()
    return Dim({((a, b),): 1}).simplified()


def substitute(size: Size, sizes: Mapping[str, Size]) -> Size:
    """`size` with the named symbols replaced."""
    return size.substitute(sizes) if isinstance(size, Dim) else size


def is_symbol(size: Size) -> bool:
    """Whether a size is a symbol by itself, called `str(size)`."""
    return isinstance(size, Dim) and size == Dim.symbol(str(size))


def bind_sizes(shape: Sequence[Size], sizes: Sequence[int], bindings: dict[str, int]) -> None:
    """Notes what each symbol that is a size of `shape` by itself is in `sizes`, the shape of an array."""
    for size, value in zip(shape, sizes, strict=True):
        if is_symbol(size):
            bindings[str(size)] = value


def require_in_range(where: str, shape: Sequence[Size], sizes: Mapping[str, int], ranges: Mapping[str, Range]) -> None:
    """Raises ShapeError, saying `where`, for a symbol of `shape` whose size is not in its range."""
    for name in {name for size in shape if isinstance(size, Dim) for name in size.symbols()} & sizes.keys():
        if sizes[name] not in ranges.get(name, Range()):
            raise ShapeError(f"{where}: {name} = {sizes[name]}, which was said to be {ranges[name]}")


def is_static(sizes: Iterable[Size]) -> bool:
    """Whether every size is a known integer."""
    # A list: a generator takes twice as long.
    return all([isinstance(s, int) for s in sizes])


def product(sizes: Iterable[Size]) -> Size:
    """The number of elements of a shape."""
    total: Size = 1
    for s in sizes:
        total = total * s
    return total


def row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of a dense row-major array."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def is_multiple(size: Size, divisor: int) -> bool:
    """Whether a size is a multiple of a number, whatever its symbols are."""
    return all(c % divisor == 0 for c in Dim.lift(size).terms.values())


def quotient(size: Size, divisor: Size) -> Size | None:
    """The polynomial q with q · divisor = size; None if there is none."""
    if divisor == 0:
        return None
    result = size // divisor
    return result if result * divisor == size else None


def never_negative(size: Size) -> bool:
    """Whether a size is seen to be 0 or more, whatever its symbols are: no more is subtracted than a part of what is there."""

    def positive(atom: Atom) -> bool:
        return isinstance(atom, str) or all(map(never_negative, atom))

    terms = Dim.lift(size).terms
    if not all(all(map(positive, monomial)) for monomial in terms):
        return False
    for monomial, factor in terms.items():
        divided = next((atom for atom in monomial if isinstance(atom, tuple)), None)
        if factor < 0 and divided is not None and isinstance(divisor := divided[1].simplified(), int):
            # a // c is at most a / c: the size is at least this one, c times as large.
            others = list(monomial)
            others.remove(divided)
            rest = Dim({m: f * divisor for m, f in terms.items() if m != monomial})
            return never_negative(rest + divided[0] * Dim({tuple(others): factor}))
    return all(factor >= 0 for factor in terms.values())


def growth(size: Size) -> tuple[tuple[int, int], ...]:
    """A key that orders sizes as they are when all symbols are large."""
    return tuple(sorted(((len(m), c) for m, c in Dim.lift(size).terms.items()), reverse=True))


@lru_cache(maxsize=4096)  # types are read again and again, and a size says the same each time
def parse(text: str) -> Size:
    """The size that `text` denotes: `3`, `batch`, `past + 1`, `(n * 2) // 3`.

    Text that is no such expression (dimension names may hold any character) is one symbol.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _evaluate(tree)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError):
        return Dim.symbol(text)


def parse_ranged(text: str) -> tuple[str, Range | None]:
    """A size and its range, as people write them: `N`, `N:1..32`, `N:4..`.

    Raises ValueError for a range that is none.
    """
    size, colon, ends = text.partition(":")
    if not colon:
        return text, None
    low, dots, high = ends.partition("..")
    stated = Range(int(low or 0), int(high) if high else None) if dots else Range(int(ends), int(ends))
    if stated.low < 0 or (stated.high is not None and stated.high < stated.low):
        raise ValueError(f"the range {ends!r} of {size} holds no size")
    return size.strip(), stated


def _evaluate(node: ast.expr) -> Size:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return Dim.symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left), _evaluate(right)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case _:
                    raise ValueError(f"operator in the dimension {ast.unparse(node)!r}")
        case _:
            raise ValueError(f"dimension {ast.unparse(node)!r}")
