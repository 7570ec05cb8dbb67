"""The domain of sizes that one compilation serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlc.shapes.guards import Guard, violated_guard
from dlc.shapes.ranges import SizeRange


@dataclass(frozen=True)
class SizeDomain:
    """Guards in solved form.

    Attributes:
        ranges: The range of each restricted symbol.
        guards: All other conditions; first, that symbols equal others, which represent them.
        requirements: The guards that were solved, with their origins, for messages.
    """

    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    guards: tuple[Guard, ...] = ()
    requirements: tuple[Guard, ...] = field(default=(), compare=False)

    @staticmethod
    def of_sizes(sizes: Mapping[str, int]) -> SizeDomain:
        """Return the domain of these sizes only."""
        return SizeDomain({symbol: SizeRange(size, size) for symbol, size in sizes.items()})

    @property
    def is_unrestricted(self) -> bool:
        """Return whether all sizes are in the domain."""
        return not self.ranges and not self.guards

    @property
    def static_sizes(self) -> dict[str, int]:
        """The sizes of the symbols that have one value only."""
        return {symbol: r.low for symbol, r in self.ranges.items() if r.low == r.high}

    @property
    def symbols(self) -> set[str]:
        """The symbols that the domain restricts."""
        return {*self.ranges, *(symbol for guard in self.guards for symbol in guard.size.symbols())}

    def may_hold(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the domain admits these sizes, which may be some of its symbols only."""
        in_ranges = all(sizes[symbol] in r for symbol, r in self.ranges.items() if symbol in sizes)
        return in_ranges and violated_guard(self.guards, sizes) is None

    def restricted_to(self, sizes: Mapping[str, int]) -> SizeDomain:
        """Return the domain with these symbols, which it does not restrict, having these sizes."""
        return replace(self, ranges={**self.ranges, **SizeDomain.of_sizes(sizes).ranges})

    def __str__(self) -> str:
        ranges = (
            f"{symbol} = {range_.low}" if range_.low == range_.high else f"{symbol} in {range_}"
            for symbol, range_ in self.ranges.items()
        )
        return ", ".join([*ranges, *map(str, self.guards)])
