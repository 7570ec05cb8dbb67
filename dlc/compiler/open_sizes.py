"""The sizes for which one compilation may serve, of those that a program leaves open.

Types of symbolic sizes say what holds as long as nothing is clamped, repeated or refused: `x[2:5]` has three rows unless
`x` has fewer than five. So the types are inferred again for sizes from all over the ranges, small and large, with and
without common factors, equal and different. Where an op refuses one, or gives another type than the symbols promised, the
sizes around one that holds are looked for: those of a box, of which some may have to be equal. For others the program is
compiled when it is called with them, which says what is wrong with them, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dlc.compiler.program import Program
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.data_dependent.selection import Selection
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.ranges import ranges_of, state_ranges
from dlc.dialects.entry import entry_of
from dlc.dims import Dim, Range, Size, substitute
from dlc.errors import DlcError
from dlc.ir import TensorType, all_of
from dlc.runtime.sizes.domain import Domain

# Around what is small, what divides, and where a threshold is likely; the last is beyond any.
_SAMPLES = (0, 1, 2, 3, 5, 8, 31, 96, 1_000_003)


def domain_of(program: Program) -> tuple[Domain | None, str | None]:
    """The sizes that one compilation may serve, None if no more than one set of those of inputs; and why not all, if not.

    What data decides may turn out to be outside, which the program sees then.
    """
    decided = decided_sizes(program)
    named = {str(size) for info in program.inputs for size in info.shape}
    symbols = sorted({s for info in program.inputs for size in info.shape for s in Dim.lift(size).symbols()})
    missing = [s for s in symbols if s not in named]
    if missing:
        return None, f"the size {missing[0]} is none of an input by itself"
    search = _Search(program, symbols, decided)
    samples = [*_samples(search.ranges)]
    if program.conditions and not any(all(c.holds(sizes) for c in program.conditions) for sizes in samples):
        return None, "its code asks what sizes are that are seldom so"
    reasons = map(search.reason, samples)
    first = next((reason for reason in reasons if reason is not None), None)
    if first is None:
        return Domain(), None
    return search.domain(), first


def decided_sizes(program: Program) -> dict[str, Size | None]:
    """The sizes of a program that data decides, and what they are at most."""
    found: dict[str, Size | None] = {}
    for op in all_of(entry_of(program.module), DataDependent):
        most = op.most if isinstance(op, Selection) else None
        found |= {str(size): most for size in op.decided if isinstance(size, Dim)}
    return found


def within(program: Program, domain: Domain) -> Program:
    """The program for the sizes of a domain: of equal ones there is one symbol, and those that have one value are known."""
    known: dict[str, Size] = {symbol: r.low for symbol, r in domain.ranges.items() if r.low == r.high}
    narrowed = program.with_sizes({a: Dim.symbol(b) for a, b in domain.equal.items()}).with_sizes(known)
    ranges = {**ranges_of(program.module), **domain.ranges}
    left = {symbol: r for symbol, r in ranges.items() if symbol not in known and symbol not in domain.equal}
    state_ranges(entry_of(narrowed.module), left)
    return narrowed


class _Search:
    """Looks for sizes of a program's symbols that hold: those of its inputs, and those that data decides, which say the most
    that they can be."""

    def __init__(self, program: Program, inputs: Sequence[str], decided: Mapping[str, Size | None]) -> None:
        self.program = program
        self.symbols = symbols = [*inputs, *decided]
        self.decided = decided
        stated = ranges_of(program.module)
        self.ranges = {symbol: stated.get(symbol, Range()) for symbol in symbols}
        self._reasons: dict[tuple[int, ...], str | None] = {}

    def reason(self, sizes: Mapping[str, int]) -> str | None:
        """What is not as the symbols promise for these sizes, as far as data can decide them; nothing, if they never come."""
        sizes = self.possible(sizes)
        if not all(condition.holds(sizes) for condition in self.program.conditions):
            return None
        key = tuple(sizes[symbol] for symbol in self.symbols)
        if key not in self._reasons:
            self._reasons[key] = _difference(self.program, sizes)
        return self._reasons[key]

    def possible(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """These sizes, but the most that data can decide where it cannot decide as much."""
        sizes = dict(sizes)
        for symbol, most in self.decided.items():
            if most is not None:
                sizes[symbol] = min(sizes[symbol], int(substitute(most, sizes)))
        return sizes

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.reason(sizes) is None

    def domain(self) -> Domain | None:
        """Sizes around some that hold, from the smallest to the largest of each symbol."""
        equal = self.equal()
        ranges = {symbol: self.common_range(symbol, equal) for symbol in self.symbols if symbol not in equal}

        def all_of(sizes: Mapping[str, int]) -> dict[str, int]:
            return {**sizes, **{a: sizes[b] for a, b in equal.items()}}

        def holds(sizes: Mapping[str, int]) -> bool:
            return self.holds(all_of(sizes))

        possible = [self.possible(all_of(sizes)) for sizes in _samples(ranges) if holds(sizes)]
        if not possible:
            return None
        found = list(dict.fromkeys(tuple(sizes[symbol] for symbol in ranges) for sizes in possible))
        middle, box = dict(zip(ranges, found[len(found) // 2], strict=True)), dict[str, Range]()
        # Sizes of inputs come first; where they are large, data can decide any.
        for symbol, r in ranges.items():
            box[symbol] = _around(middle[symbol], r, lambda n, s=symbol: holds({**middle, s: n}))
            if symbol not in self.decided:
                middle[symbol] = _within(box[symbol])[-1]
        given = [r for symbol, r in box.items() if symbol not in self.decided]
        if (given and all(r.low == r.high for r in given)) or not all(map(holds, _samples(box))):
            return None
        return Domain({symbol: r for symbol, r in box.items() if r != self.ranges[symbol]}, equal)

    def equal(self) -> dict[str, str]:
        """Which sizes hold only if they are what others are, as far as that is seen: by which symbol each is known."""
        alike = [sizes for sizes in _samples(self.ranges) if len(set(sizes.values())) == 1 and self.holds(sizes)]
        if len(self.symbols) < 2 or len(alike) < 2:
            return {}
        middle = len(alike) // 2
        at, larger = alike[middle], middle + 1 if middle + 1 < len(alike) else middle - 1
        less, more = (next(iter(alike[k].values())) for k in (middle - 1, larger))

        def change(symbols: Sequence[str]) -> bool:
            # To more than there is data cannot change what it decides, nor to as much where there is less.
            other = less if all(symbol in self.decided for symbol in symbols) else more
            return self.holds({**at, **dict.fromkeys(symbols, other)})

        # Pairs that change together, or all that do not change alone or in pairs.
        bound = [symbol for symbol in self.symbols if not change([symbol])]
        equal = {b: a for k, a in enumerate(bound) for b in bound[k + 1 :] if change([a, b])}
        rest = [symbol for symbol in bound if symbol not in {*equal, *equal.values()}]
        return {**equal, **dict.fromkeys(rest[1:], rest[0])} if rest and change(rest) else equal

    def common_range(self, symbol: str, equal: Mapping[str, str]) -> Range:
        """The sizes that a symbol may have that others go by."""
        ranges = [self.ranges[symbol], *(self.ranges[a] for a, b in equal.items() if b == symbol)]
        ends = [r.high for r in ranges if r.high is not None]
        return Range(max(r.low for r in ranges), min(ends) if ends else None)


def _samples(ranges: Mapping[str, Range]) -> Iterator[dict[str, int]]:
    """Sizes of symbols, each in its range: those of several symbols once alike, and once not."""
    values = {symbol: _within(range_) for symbol, range_ in ranges.items()}
    count = max(map(len, values.values()), default=0)
    for apart in (0, 1) if len(values) > 1 else (0,):
        for k in range(count):
            yield {s: own[(k + apart * place) % len(own)] for place, (s, own) in enumerate(values.items())}


def _within(range_: Range) -> list[int]:
    ends = [range_.low, *([] if range_.high is None else [range_.high])]
    return sorted({*ends, *(n for n in _SAMPLES if n in range_)})


def _around(size: int, range_: Range, holds: Callable[[int], bool]) -> Range:
    """The sizes around one that holds which hold, if none does beyond one that does not."""
    values = _within(range_)
    low = _last([size, *(n for n in reversed(values) if n < size)], holds)
    high = _last([size, *(n for n in values if n > size)], holds)
    return Range(low, None if range_.high is None and high == values[-1] else high)


def _last(values: Sequence[int], holds: Callable[[int], bool]) -> int:
    """The last number on the way from the first of `values`, which holds, to the last one, before one that does not hold."""
    if len(values) > 1 and not holds(values[1]):
        at, beyond = 0, 1
    else:
        at, beyond = 0, len(values)
    while beyond - at > 1:
        middle = (at + beyond) // 2
        at, beyond = (middle, beyond) if holds(values[middle]) else (at, middle)
    if beyond == len(values):
        return values[at]
    good, bad = values[at], values[beyond]
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _difference(program: Program, sizes: Mapping[str, int]) -> str | None:
    """What is not as the symbols promise for these sizes."""
    said = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    try:
        bound = program.with_sizes(sizes)
    except DlcError as error:
        return f"it does not hold for all sizes: {error}"
    except (ArithmeticError, ValueError) as error:
        return f"it does not hold for all sizes: with {said}: {error}"
    for op, known in zip(program.module.walk(), bound.module.walk(), strict=True):
        for promised, result in zip(op.results, known.results, strict=True):
            if isinstance(promised.type, TensorType):
                expected = tuple(substitute(size, sizes) for size in shape_of(promised))
                if expected != shape_of(result):
                    return f"{op.name} at {op.location} gives {shape_of(result)} with {said}, where {expected} was expected"
        if isinstance(op, DlOp) and isinstance(known, DlOp) and (size := _repeated(op, known)) is not None:
            return f"{op.name} at {op.location} repeats one element with {said}, where {size} were expected"
    return None


def _repeated(promised: DlOp, known: DlOp) -> Size | None:
    """A size that is one element here, and repeated as one is, where a symbol promised the size that it is repeated to."""
    for (open_sizes, _), (own, whole) in zip(promised.broadcast(), known.broadcast(), strict=True):
        for size, n, wanted in zip(open_sizes[::-1], own[::-1], whole[::-1], strict=False):
            if isinstance(size, Dim) and n == 1 != wanted:
                return size
    return None
