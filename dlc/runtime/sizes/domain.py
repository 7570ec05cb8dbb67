"""The domain of sizes for which a compiled program is valid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlc.dims import SizeRange


@dataclass(frozen=True)
class SizeDomain:
    """Ranges of sizes, and equalities: `equal` maps a symbol to the symbol that it must equal."""

    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    equal: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_unrestricted(self) -> bool:
        """Return whether all sizes are in the domain."""
        return not self.ranges and not self.equal

    @property
    def symbols(self) -> set[str]:
        """The symbols that the domain restricts."""
        return {*self.ranges, *self.equal, *self.equal.values()}

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether these sizes are in the domain."""
        return all(sizes[a] == sizes[b] for a, b in self.equal.items()) and all(sizes[s] in r for s, r in self.ranges.items())

    def without(self, symbols: Collection[str]) -> SizeDomain:
        """Return the domain without the restrictions of these symbols."""
        ranges = {symbol: r for symbol, r in self.ranges.items() if symbol not in symbols}
        return SizeDomain(ranges, {a: b for a, b in self.equal.items() if a not in symbols and b not in symbols})

    def __str__(self) -> str:
        equal = (f"{a} = {b}" for a, b in self.equal.items())
        return ", ".join([*(f"{symbol} in {range_}" for symbol, range_ in self.ranges.items()), *equal])
