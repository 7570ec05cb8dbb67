"""Infer the domain of sizes for which one dynamic-shape program is valid.

Symbolic result types hold where the guards of shape inference hold: `x[2:5]` has three rows if `x` has at least five. So types
are inferred again, and every comparison of sizes that polynomials do not decide is recorded as a guard. The guards are solved
to ranges of single symbols and equal symbols as far as possible. A call with sizes outside of the domain gets a
specialization for them; that compilation also reports errors about them, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, permutations
from math import gcd

from dlc.compiler.program import Program
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.movement.index_checks import IndexedOp
from dlc.dialects.dl.programs.size_ranges import guards_of, set_guards, set_size_ranges, size_ranges
from dlc.dialects.entry import entry_of
from dlc.dialects.location_text import location_prefix
from dlc.errors import ShapeError
from dlc.ir import ModuleOp, func
from dlc.shapes.dims import Dim, Size, is_nonnegative, substitute
from dlc.shapes.domain import SizeDomain
from dlc.shapes.guards import Guard, SizeBounds, recording_guards
from dlc.shapes.input_sizes import solvable_axes
from dlc.shapes.polynomials import quotient
from dlc.shapes.ranges import SizeRange

# No symbol has larger sizes.
_MAX_SIZE = 1 << 40
# The maximum number of guards in a reason.
_MAX_DESCRIBED_GUARDS = 3


def infer_domain(program: Program) -> tuple[SizeDomain | None, str | None]:
    """Return the sizes that one compilation may serve, and the reason why not all sizes.

    The domain is None if no sizes satisfy the guards.

    Data-dependent sizes may turn out to be outside of the domain; the program checks them.
    """
    data_dependent = program.data_dependent_sizes
    determined = solvable_axes([info.shape for info in program.inputs])
    symbols = sorted({s for info in program.inputs for size in info.shape for s in Dim.lift(size).symbols()})
    missing = [s for s in symbols if s not in determined]
    if missing:
        return None, f"the size {missing[0]} is not determined by the size of any input axis"
    declared = {**dict.fromkeys((*symbols, *data_dependent), SizeRange()), **size_ranges(program.module)}
    solved = _SolvedGuards(declared, data_dependent)
    solved.add((*guards_of(entry_of(program.module)), *collect_guards(program.module)))
    if solved.contradiction is not None:
        return None, f"no sizes satisfy {solved.contradiction.description}"
    domain = solved.restrictions_beyond(declared)
    if domain.is_unrestricted:
        return domain, None
    descriptions = list(dict.fromkeys(guard.description for guard in domain.requirements))
    more = f" and {len(descriptions) - _MAX_DESCRIBED_GUARDS} more" if len(descriptions) > _MAX_DESCRIBED_GUARDS else ""
    reason = "; ".join(descriptions[:_MAX_DESCRIBED_GUARDS]) + more
    if not all(guard.size.symbols() <= set(symbols) for guard in solved.remaining):
        return None, reason
    return domain, reason


def collect_guards(module: ModuleOp) -> tuple[Guard, ...]:
    """Repeat shape inference and return its guards: the outcome of each comparison that depends on symbolic sizes."""
    with recording_guards() as recorder:
        # Kernels have separate symbols.
        for op in chain(*(f.walk() for f in module.ops if isinstance(f, func.FuncOp))):
            if isinstance(op, DlOp):
                recorder.origin = f"{location_prefix(op.location)}{op.name}"
                for size in chain(*map(shape_of, op.infer())):
                    if isinstance(size, Dim) and not is_nonnegative(size):
                        recorder.assume(size, ">=")
                if isinstance(op, IndexedOp) and op.has_empty_indexed_axis:
                    # Indices are checked after the access, which needs an element: no sizes satisfy this guard.
                    recorder.assume(Dim.lift(-1), ">=")
    return tuple(dict.fromkeys(recorder.guards))


def restrict_to_domain(program: Program, domain: SizeDomain) -> Program:
    """Return the program restricted to a domain: symbols with one value become static, and determined ones are replaced."""
    if domain.is_unrestricted and not guards_of(entry_of(program.module)):
        return program
    bindings = _bindings(domain)
    restricted = program.with_sizes(bindings)
    ranges = {**size_ranges(program.module), **domain.ranges}
    set_size_ranges(entry_of(restricted.module), {symbol: r for symbol, r in ranges.items() if symbol not in bindings})
    guards = (replace(guard, size=Dim.lift(substitute(guard.size, bindings))) for guard in domain.requirements)
    # Ranges imply some of the guards, which name the op in messages.
    set_guards(entry_of(restricted.module), [guard for guard in guards if guard.size.symbols()])
    return restricted


def _bindings(domain: SizeDomain) -> dict[str, Size]:
    """Return the sizes of symbols that have one value in a domain or are determined by others: N + M for `K == N + M`."""
    bindings: dict[str, Size] = {**domain.static_sizes}
    for guard in domain.guards:
        size = substitute(guard.size, bindings)
        if guard.relation != "==" or not isinstance(size, Dim):
            continue
        # Of two equal symbols, the second is replaced, as in the ranges of the domain.
        for symbol in sorted(size.symbols(), reverse=True):
            factor = size.terms.get((symbol,), 0)
            value = Dim.symbol(symbol) - factor * size
            if abs(factor) == 1 and symbol not in Dim.lift(value).symbols() and is_nonnegative(value):
                bindings = {s: substitute(bound, {symbol: value}) for s, bound in bindings.items()} | {symbol: value}
                break
    return bindings


class _SolvedGuards:
    """Guards solved to ranges of symbols, equal symbols, and remaining guards.

    Attributes:
        used: The guards that restrict sizes, as they were added, by their simplified forms.
        contradiction: A guard that no sizes satisfy together with the earlier ones.
    """

    def __init__(self, ranges: Mapping[str, SizeRange], max_sizes: Mapping[str, Size | None]) -> None:
        self.ranges = dict(ranges)
        self.equal: dict[str, str] = {}
        self.remaining: list[Guard] = []
        self.used: dict[Guard, Guard] = {}
        self.contradiction: Guard | None = None
        self._max_sizes = max_sizes

    def add(self, guards: Sequence[Guard]) -> None:
        """Add guards and simplify all of them until nothing changes, since solving one may decide others."""
        pending = [(guard, guard) for guard in guards]
        has_changed = True
        while has_changed and self.contradiction is None:
            has_changed, undecided = False, list[tuple[Guard, Guard]]()
            for original, guard in pending:
                simplified = self._simplify(guard)
                if simplified is True:
                    continue
                if simplified is False:
                    self.contradiction = original
                    return
                if original not in self.used.values():
                    self.used.setdefault(simplified, original)
                if self._narrow(simplified):
                    has_changed = True
                else:
                    undecided.append((original, simplified))
                if self.contradiction is not None:
                    return
            pending = undecided
        self.remaining = list(dict.fromkeys(guard for _, guard in pending))
        for guard in [*self.remaining]:
            # Of guards that imply each other, one remains.
            if any(_implies(other, guard) for other in self.remaining):
                self.remaining.remove(guard)

    def restrictions_beyond(self, declared: Mapping[str, SizeRange]) -> SizeDomain:
        """Return the domain of these guards, without the ranges that are declared."""
        ranges = {s: r for s, r in self.ranges.items() if r != declared.get(s) and s not in self.equal}
        equalities = (Guard(Dim.lift(Dim.symbol(a) - Dim.symbol(b)), "==") for a, b in self.equal.items())
        return SizeDomain(ranges, (*equalities, *self.remaining), tuple(self.used.values()))

    def _simplify(self, guard: Guard) -> Guard | bool:
        """Return a guard with equal and static symbols replaced and common factors divided out, or whether it holds."""
        static: dict[str, Size] = {s: r.low for s, r in self.ranges.items() if _is_static(r)}
        try:
            size = substitute(guard.size, {a: Dim.symbol(b) for a, b in self.equal.items()})
            size = substitute(size, static)
        except ShapeError:
            return False
        size = Dim.lift(size)
        if not size.symbols():
            return replace(guard, size=size).holds({})
        factors = [c for m, c in size.terms.items() if m]
        divisor, constant = reduce(gcd, map(abs, factors)), size.terms.get((), 0)
        if guard.relation != ">=" and constant % divisor:
            return guard.relation == "!="
        size = Dim({**{m: c // divisor for m, c in size.terms.items() if m}, (): constant // divisor})
        if guard.relation != ">=" and size.terms[max((m for m in size.terms if m), key=str)] < 0:
            size = Dim({m: -c for m, c in size.terms.items()})
        simplified = replace(guard, size=size)
        decided = SizeBounds(self.ranges).decide(simplified)
        if decided is None and guard.relation == ">=" and self._is_nonnegative_at_max(size):
            return True
        return simplified if decided is None else decided

    def _is_nonnegative_at_max(self, size: Dim) -> bool:
        """Return whether a size is nonnegative because its data-dependent sizes are at most their maximum.

        Each of them is replaced by its maximum minus a new symbol of the same name, which is not negative; as a factor of the
        size, which does not change its sign, by its maximum.
        """
        bound, ranges = size, dict(self.ranges)
        # A maximum may depend on earlier sizes.
        for symbol, maximum in reversed([*self._max_sizes.items()]):
            if maximum is None or symbol not in bound.symbols():
                continue
            factor = quotient(bound, Dim.symbol(symbol))
            if factor is None:
                bound = Dim.lift(substitute(bound, {symbol: maximum - Dim.symbol(symbol)}))
                ranges[symbol] = SizeRange()
            elif symbol not in Dim.lift(factor).symbols():
                bound = Dim.lift(factor * maximum)
            if SizeBounds(ranges).decide(Guard(bound, ">=")):
                return True
        return False

    def _narrow(self, guard: Guard) -> bool:
        """Solve a simplified guard for its symbols, if it has one or equates two; return whether it was solved."""
        symbols, size = sorted(guard.size.symbols()), guard.size
        if not self.ranges.keys() >= set(symbols):
            return False
        if guard.relation == "==" and size.terms in [{(a,): 1, (b,): -1} for a, b in permutations(symbols, 2)]:
            self._merge(symbols[1], symbols[0], guard)
            return True
        if guard.relation == ">=" and size.terms == {tuple(symbols): 1, (): -1}:
            # A product is positive if all of its factors are.
            for symbol in symbols:
                self._restrict(symbol, replace(self.ranges[symbol], low=max(self.ranges[symbol].low, 1)), guard)
            return True
        if len(symbols) != 1:
            return False
        (symbol,) = symbols
        bounds, value = self.ranges[symbol], -size.terms.get((), 0)
        if guard.relation == "==" and size + value == Dim.symbol(symbol):
            narrowed = SizeRange(value, value)
        else:
            narrowed = _satisfying_range(guard, symbol, bounds)
        if narrowed is None:
            return False
        self._restrict(symbol, narrowed, guard)
        return True

    def _merge(self, symbol: str, representative: str, guard: Guard) -> None:
        a, b = self.ranges[symbol], self.ranges[representative]
        highs = [high for high in (a.high, b.high) if high is not None]
        self.equal = {s: representative if r == symbol else r for s, r in self.equal.items()} | {symbol: representative}
        self._restrict(representative, SizeRange(max(a.low, b.low), min(highs, default=None)), guard)

    def _restrict(self, symbol: str, range_: SizeRange, guard: Guard) -> None:
        if range_.high is not None and range_.high < range_.low:
            self.contradiction = guard
        self.ranges[symbol] = range_


def _implies(guard: Guard, other: Guard) -> bool:
    """Return whether a guard implies a different one: `M >= N + 1` implies `M >= N`."""
    are_bounds = guard.relation == other.relation == ">="
    return are_bounds and guard != other and is_nonnegative(other.size - guard.size)


def _is_static(range_: SizeRange) -> bool:
    return range_.low == range_.high


def _satisfying_range(guard: Guard, symbol: str, bounds: SizeRange) -> SizeRange | None:
    """Return the values of the only symbol of a guard for which it holds if they are one end of its range; else None."""
    low, high = bounds.low, _MAX_SIZE if bounds.high is None else bounds.high
    holds_at_high = guard.holds({symbol: high})
    if guard.holds({symbol: low}) == holds_at_high:
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if guard.holds({symbol: middle}) == holds_at_high else (middle, high)
    parts = {not holds_at_high: SizeRange(bounds.low, low), holds_at_high: SizeRange(high, bounds.high)}
    is_proved = all(SizeBounds({symbol: part}).decide(guard) is holds for holds, part in parts.items())
    return parts[True] if is_proved else None
