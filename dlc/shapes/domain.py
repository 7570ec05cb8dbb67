"""The domain of sizes that one compilation serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlc.shapes.guards import Guard
from dlc.shapes.ranges import SizeRange


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

    @staticmethod
    def of_sizes(sizes: Mapping[str, int]) -> SizeDomain:
        """Return the domain of these sizes only."""
        return SizeDomain({symbol: SizeRange(size, size) for symbol, size in sizes.items()})

    @property
    def is_unrestricted(self) -> bool:
        """Return whether all sizes are in the domain."""
        return not self.ranges and not self.equal and not self.guards

    @property
    def static_sizes(self) -> dict[str, int]:
        """The sizes of the symbols that have one value only."""
        return {symbol: r.low for symbol, r in self.ranges.items() if r.low == r.high}

    @property
    def symbols(self) -> set[str]:
        """The symbols that the domain restricts."""
        return {*self.ranges, *self.equal, *self.equal.values(), *(s for guard in self.guards for s in guard.size.symbols())}

    def may_hold(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the domain admits these sizes, which may be some of its symbols only."""
        return (
            all(sizes[a] == sizes[b] for a, b in self.equal.items() if a in sizes and b in sizes)
            and all(sizes[symbol] in r for symbol, r in self.ranges.items() if symbol in sizes)
            and all(guard.holds(sizes) for guard in self.guards if guard.size.symbols() <= sizes.keys())
        )

    def violation(self, sizes: Mapping[str, int]) -> str | None:
        """Return a description of the first requirement that these sizes violate; None if there is none."""
        known = (guard for guard in self.requirements if guard.size.symbols() <= sizes.keys())
        return next((guard.description for guard in known if not guard.holds(sizes)), None)

    def restricted_to(self, sizes: Mapping[str, int]) -> SizeDomain:
        """Return the domain with these symbols, which it does not restrict, having these sizes."""
        return replace(self, ranges={**self.ranges, **SizeDomain.of_sizes(sizes).ranges})

    def __str__(self) -> str:
        ranges = (
            f"{symbol} = {range_.low}" if range_.low == range_.high else f"{symbol} in {range_}"
            for symbol, range_ in self.ranges.items()
        )
        return ", ".join([*ranges, *(f"{a} = {b}" for a, b in self.equal.items()), *map(str, self.guards)])
