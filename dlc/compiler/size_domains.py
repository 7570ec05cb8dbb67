"""Infer the domain of sizes for which one dynamic-shape program is valid.

Symbolic result types hold unless an op clamps, broadcasts or rejects a size: `x[2:5]` has three rows unless `x` has fewer
than five. So types are inferred again for sample sizes: small and large ones, equal and different ones, with and without
common factors. If an op rejects a sample, or its type differs from the symbolic one, the search looks for a box of sizes
around a valid sample, in which some symbols may have to be equal. Sizes outside of the domain are specialized when a call
has them; that compilation also reports errors about them, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dlc.compiler.program import Program
from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.size_ranges import set_size_ranges, size_ranges
from dlc.dialects.entry import entry_of
from dlc.dims import Dim, Size, SizeRange, substitute
from dlc.errors import DlcError
from dlc.ir import TensorType, walk_ops
from dlc.runtime.sizes.domain import SizeDomain

# Small sizes, sizes with many and few divisors, likely thresholds, and one beyond all thresholds.
_SAMPLE_SIZES = (0, 1, 2, 3, 5, 8, 31, 96, 1_000_003)


def infer_domain(program: Program) -> tuple[SizeDomain | None, str | None]:
    """Return the domain of one dynamic-shape program, and the first reason why it does not contain all sizes.

    The domain is None if only one set of input sizes is valid. The program itself checks data-dependent sizes at run time.
    """
    data_dependent = data_dependent_sizes(program)
    axis_sizes = {str(size) for info in program.inputs for size in info.shape}
    symbols = sorted({s for info in program.inputs for size in info.shape for s in Dim.lift(size).symbols()})
    missing = [s for s in symbols if s not in axis_sizes]
    if missing:
        return None, f"the size {missing[0]} is not the size of any input axis"
    search = _DomainSearch(program, symbols, data_dependent)
    samples = [*_samples(search.ranges)]
    if program.conditions and not any(all(c.holds(sizes) for c in program.conditions) for sizes in samples):
        return None, "its guards hold for none of the sampled sizes"
    violations = map(search.reason, samples)
    reason = next((reason for reason in violations if reason is not None), None)
    if reason is None:
        return SizeDomain(), None
    return search.domain(), reason


def data_dependent_sizes(program: Program) -> dict[str, Size | None]:
    """Return the data-dependent sizes of a program, with their upper bounds if known."""
    upper_bounds: dict[str, Size | None] = {}
    for op in walk_ops(entry_of(program.module), DataDependent):
        max_size = op.max_size if isinstance(op, SelectionOp) else None
        upper_bounds |= {str(size): max_size for size in op.data_dependent_sizes if isinstance(size, Dim)}
    return upper_bounds


def restrict_to_domain(program: Program, domain: SizeDomain) -> Program:
    """Return the program restricted to a domain: equal symbols are merged, symbols with one value become static."""
    static: dict[str, Size] = {symbol: r.low for symbol, r in domain.ranges.items() if r.low == r.high}
    restricted = program.with_sizes({a: Dim.symbol(b) for a, b in domain.equal.items()}).with_sizes(static)
    ranges = {**size_ranges(program.module), **domain.ranges}
    remaining = {symbol: r for symbol, r in ranges.items() if symbol not in static and symbol not in domain.equal}
    set_size_ranges(entry_of(restricted.module), remaining)
    return restricted


class _DomainSearch:
    """Search for a domain over the input symbols of a program and its data-dependent sizes, which have upper bounds."""

    def __init__(self, program: Program, inputs: Sequence[str], data_dependent: Mapping[str, Size | None]) -> None:
        self.program = program
        self.symbols = symbols = [*inputs, *data_dependent]
        self.data_dependent = data_dependent
        declared = size_ranges(program.module)
        self.ranges = {symbol: declared.get(symbol, SizeRange()) for symbol in symbols}
        self._reasons: dict[tuple[int, ...], str | None] = {}

    def reason(self, sizes: Mapping[str, int]) -> str | None:
        """Return the first violation of the symbolic types for these sizes.

        None if there is none or a guard excludes the sizes.
        """
        sizes = self.clamp_to_maximum(sizes)
        if not all(condition.holds(sizes) for condition in self.program.conditions):
            return None
        key = tuple(sizes[symbol] for symbol in self.symbols)
        if key not in self._reasons:
            self._reasons[key] = _find_violation(self.program, sizes)
        return self._reasons[key]

    def clamp_to_maximum(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return these sizes, with data-dependent ones clamped to their upper bounds."""
        sizes = dict(sizes)
        for symbol, upper_bound in self.data_dependent.items():
            if upper_bound is not None:
                sizes[symbol] = min(sizes[symbol], int(substitute(upper_bound, sizes)))
        return sizes

    def is_valid(self, sizes: Mapping[str, int]) -> bool:
        return self.reason(sizes) is None

    def domain(self) -> SizeDomain | None:
        """Return a box of sizes around a valid sample, as large as possible in each symbol."""
        equal = self.equal()
        ranges = {symbol: self.shared_range(symbol, equal) for symbol in self.symbols if symbol not in equal}

        def with_equal_symbols(sizes: Mapping[str, int]) -> dict[str, int]:
            return {**sizes, **{a: sizes[b] for a, b in equal.items()}}

        def is_valid(sizes: Mapping[str, int]) -> bool:
            return self.is_valid(with_equal_symbols(sizes))

        valid = [self.clamp_to_maximum(with_equal_symbols(sizes)) for sizes in _samples(ranges) if is_valid(sizes)]
        if not valid:
            return None
        distinct = list(dict.fromkeys(tuple(sizes[symbol] for symbol in ranges) for sizes in valid))
        middle, box = dict(zip(ranges, distinct[len(distinct) // 2], strict=True)), dict[str, SizeRange]()
        # Input sizes come first: they are upper bounds of data-dependent ones.
        for symbol, r in ranges.items():
            box[symbol] = _widen_around(middle[symbol], r, lambda n, s=symbol: is_valid({**middle, s: n}))
            if symbol not in self.data_dependent:
                middle[symbol] = _sample_range(box[symbol])[-1]
        input_ranges = [r for symbol, r in box.items() if symbol not in self.data_dependent]
        if (input_ranges and all(r.low == r.high for r in input_ranges)) or not all(map(is_valid, _samples(box))):
            return None
        return SizeDomain({symbol: r for symbol, r in box.items() if r != self.ranges[symbol]}, equal)

    def equal(self) -> dict[str, str]:
        """Return the symbols that must be equal, according to samples: a map from each symbol to its representative."""
        uniform = [sizes for sizes in _samples(self.ranges) if len(set(sizes.values())) == 1 and self.is_valid(sizes)]
        if len(self.symbols) < 2 or len(uniform) < 2:
            return {}
        middle = len(uniform) // 2
        base, next_index = uniform[middle], middle + 1 if middle + 1 < len(uniform) else middle - 1
        smaller, larger = (next(iter(uniform[k].values())) for k in (middle - 1, next_index))

        def can_change(symbols: Sequence[str]) -> bool:
            # A data-dependent size cannot exceed its upper bound, so try a smaller one.
            other = smaller if all(symbol in self.data_dependent for symbol in symbols) else larger
            return self.is_valid({**base, **dict.fromkeys(symbols, other)})

        # Symbols are equal if they can only change in pairs, or only all at once.
        fixed = [symbol for symbol in self.symbols if not can_change([symbol])]
        equal = {b: a for k, a in enumerate(fixed) for b in fixed[k + 1 :] if can_change([a, b])}
        unpaired = [symbol for symbol in fixed if symbol not in {*equal, *equal.values()}]
        return {**equal, **dict.fromkeys(unpaired[1:], unpaired[0])} if unpaired and can_change(unpaired) else equal

    def shared_range(self, symbol: str, equal: Mapping[str, str]) -> SizeRange:
        """Return the intersection of the ranges of a symbol and of those that equal it."""
        ranges = [self.ranges[symbol], *(self.ranges[a] for a, b in equal.items() if b == symbol)]
        ends = [r.high for r in ranges if r.high is not None]
        return SizeRange(max(r.low for r in ranges), min(ends) if ends else None)


def _samples(ranges: Mapping[str, SizeRange]) -> Iterator[dict[str, int]]:
    """Yield sample sizes of symbols within their ranges, first with equal and then with different sizes."""
    values = {symbol: _sample_range(range_) for symbol, range_ in ranges.items()}
    count = max(map(len, values.values()), default=0)
    for shift in (0, 1) if len(values) > 1 else (0,):
        for k in range(count):
            yield {s: samples[(k + shift * axis) % len(samples)] for axis, (s, samples) in enumerate(values.items())}


def _sample_range(range_: SizeRange) -> list[int]:
    ends = [range_.low, *([] if range_.high is None else [range_.high])]
    return sorted({*ends, *(n for n in _SAMPLE_SIZES if n in range_)})


def _widen_around(size: int, range_: SizeRange, is_valid: Callable[[int], bool]) -> SizeRange:
    """Return the range of valid sizes around a valid one, if all sizes beyond an invalid one are invalid."""
    values = _sample_range(range_)
    low = _last_valid([size, *(n for n in reversed(values) if n < size)], is_valid)
    high = _last_valid([size, *(n for n in values if n > size)], is_valid)
    return SizeRange(low, None if range_.high is None and high == values[-1] else high)


def _last_valid(values: Sequence[int], is_valid: Callable[[int], bool]) -> int:
    """Return the last valid size between the first of `values`, which is valid, and the last one, by bisection."""
    if len(values) > 1 and not is_valid(values[1]):
        last_valid, first_invalid = 0, 1
    else:
        last_valid, first_invalid = 0, len(values)
    while first_invalid - last_valid > 1:
        middle = (last_valid + first_invalid) // 2
        last_valid, first_invalid = (middle, first_invalid) if is_valid(values[middle]) else (last_valid, middle)
    if first_invalid == len(values):
        return values[last_valid]
    valid, invalid = values[last_valid], values[first_invalid]
    while abs(invalid - valid) > 1:
        middle = (valid + invalid) // 2
        valid, invalid = (middle, invalid) if is_valid(middle) else (valid, middle)
    return valid


def _find_violation(program: Program, sizes: Mapping[str, int]) -> str | None:
    """Return a description of the first op whose type differs from the symbolic one for these sizes."""
    bindings = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    try:
        bound = program.with_sizes(sizes)
    except DlcError as error:
        return f"it does not hold for all sizes: {error}"
    except (ArithmeticError, ValueError) as error:
        return f"it does not hold for all sizes: with {bindings}: {error}"
    for op, static_op in zip(program.module.walk(), bound.module.walk(), strict=True):
        for symbolic, result in zip(op.results, static_op.results, strict=True):
            if isinstance(symbolic.type, TensorType):
                expected = tuple(substitute(size, sizes) for size in shape_of(symbolic))
                if expected != shape_of(result):
                    return f"{op.name} at {op.location} gives {shape_of(result)} with {bindings}, expected {expected}"
        if isinstance(op, DlOp) and isinstance(static_op, DlOp) and (size := _unexpected_broadcast(op, static_op)) is not None:
            return f"{op.name} at {op.location} broadcasts one element with {bindings}, expected {size} elements"
    return None


def _unexpected_broadcast(op: DlOp, static_op: DlOp) -> Size | None:
    """Return a symbolic size that is 1 in the static op and therefore broadcast, unlike in the symbolic op."""
    for (symbolic_sizes, _), (sizes, result_sizes) in zip(op.broadcast(), static_op.broadcast(), strict=True):
        for symbolic, size, result_size in zip(symbolic_sizes[::-1], sizes[::-1], result_sizes[::-1], strict=False):
            if isinstance(symbolic, Dim) and size == 1 != result_size:
                return symbolic
    return None
