"""Ranges of symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from dlc.errors import ShapeError
from dlc.shapes.dims import Dim, Size

# The representative size of a symbol without a range: large enough to use batching, small enough to suit small batches.
_DEFAULT_REPRESENTATIVE_SIZE = 4


@dataclass(frozen=True)
class SizeRange:
    """The sizes from `low` to `high`, both included; a `high` of None means unbounded."""

    low: int = 0
    high: int | None = None

    @property
    def representative(self) -> int:
        """The size that tile plans are optimized for: the geometric mean of the ends."""
        if self.high is None:
            return max(self.low, _DEFAULT_REPRESENTATIVE_SIZE)
        return max(self.low, min(self.high, isqrt(max(self.low, 1) * self.high)), 1)

    def __contains__(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


def require_in_range(where: str, shape: Sequence[Size], sizes: Mapping[str, int], ranges: Mapping[str, SizeRange]) -> None:
    """Raise ShapeError, with the prefix `where`, if a symbol of `shape` has a size outside its range."""
    for name in {name for size in shape if isinstance(size, Dim) for name in size.symbols()} & sizes.keys():
        if sizes[name] not in ranges.get(name, SizeRange()):
            raise ShapeError(f"{where}: {name} = {sizes[name]}; expected a size in the declared range {ranges[name]}")
