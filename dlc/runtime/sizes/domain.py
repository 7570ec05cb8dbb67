"""The domain of sizes that one compilation serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlc.dims import SizeRange
from dlc.guards import Guard


@dataclass(frozen=True)
class SizeDomain:
    """Guards in solved form.

    Attributes:
        ranges: The range of each restricted symbol.
        equal: The symbol that represents each symbol that must equal another one.
        guards: All other conditions.
        requirements: The guards that were solved, with their origins, for messages.
    """

    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    equal: Mapping[str, str] = field(default_factory=dict[str, str])
    guards: tuple[Guard, ...] = ()
    requirements: tuple[Guard, ...] = field(default=(), compare=False)

    @property
    def is_unrestricted(self) -> bool:
        """Return whether all sizes are in the domain."""
        return not self.ranges and not self.equal and not self.guards

    @property
    def symbols(self) -> set[str]:
        """The symbols that the domain restricts."""
        return {*self.ranges, *self.equal, *self.equal.values(), *(s for guard in self.guards for s in guard.size.symbols())}

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether these sizes are in the domain."""
        are_equal = all(sizes[a] == sizes[b] for a, b in self.equal.items())
        return are_equal and all(sizes[s] in r for s, r in self.ranges.items()) and all(g.holds(sizes) for g in self.guards)

    def violation(self, sizes: Mapping[str, int]) -> str | None:
        """Return a description of the first requirement that these sizes violate; None if there is none."""
        known = (guard for guard in self.requirements if guard.size.symbols() <= sizes.keys())
        return next((guard.description for guard in known if not guard.holds(sizes)), None)

    def without(self, symbols: Collection[str]) -> SizeDomain:
        """Return the domain without the restrictions of these symbols."""
        ranges = {symbol: r for symbol, r in self.ranges.items() if symbol not in symbols}
        equal = {a: b for a, b in self.equal.items() if a not in symbols and b not in symbols}
        return SizeDomain(ranges, equal, tuple(g for g in self.guards if g.size.symbols().isdisjoint(symbols)))

    def __str__(self) -> str:
        ranges = (f"{symbol} in {range_}" for symbol, range_ in self.ranges.items())
        return ", ".join([*ranges, *(f"{a} = {b}" for a, b in self.equal.items()), *map(str, self.guards)])
