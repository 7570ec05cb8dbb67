"""The sizes that one compilation serves, where it does not serve all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlc.dims import Range


@dataclass(frozen=True)
class Domain:
    """Sizes that are in ranges, and of which some are equal: `equal` says by which other symbol each of them is known."""

    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    equal: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_whole(self) -> bool:
        """Whether all sizes are in it."""
        return not self.ranges and not self.equal

    @property
    def symbols(self) -> set[str]:
        """The sizes that it speaks of."""
        return {*self.ranges, *self.equal, *self.equal.values()}

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes are in it."""
        return all(sizes[a] == sizes[b] for a, b in self.equal.items()) and all(sizes[s] in r for s, r in self.ranges.items())

    def without(self, symbols: Collection[str]) -> Domain:
        """What it says of other sizes."""
        ranges = {symbol: r for symbol, r in self.ranges.items() if symbol not in symbols}
        return Domain(ranges, {a: b for a, b in self.equal.items() if a not in symbols and b not in symbols})

    def __str__(self) -> str:
        equal = (f"{a} = {b}" for a, b in self.equal.items())
        return ", ".join([*(f"{symbol} in {range_}" for symbol, range_ in self.ranges.items()), *equal])
