"""Meshes: named axes over the ranks of a distributed program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod


@dataclass(frozen=True)
class RankGroup:
    """The ranks that take part in one collective: they differ in the coordinates along some mesh axes only.

    Attributes:
        ranks: The ranks, by position: row-major over these mesh axes, the first one outermost.
        position: The position of the calling rank.
    """

    ranks: tuple[int, ...]
    position: int

    @property
    def size(self) -> int:
        return len(self.ranks)


@dataclass(frozen=True)
class Mesh:
    """Named axes and their sizes; ranks are numbered row-major, the last axis innermost."""

    axes: tuple[tuple[str, int], ...]

    @staticmethod
    def of(sizes: Mapping[str, int]) -> Mesh:
        return Mesh(tuple(sizes.items()))

    @staticmethod
    def of_text(text: str) -> Mesh:
        """Return the mesh that is formatted as `data=4,model=2`."""
        pairs = (entry.split("=") for entry in text.split(","))
        return Mesh(tuple((name, int(size)) for name, size in pairs))

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis, by name."""
        return dict(self.axes)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return prod(size for _, size in self.axes)

    def shard_count(self, axes: Sequence[str]) -> int:
        """Return the number of ranks along some axes together."""
        sizes = self.sizes
        return prod(sizes[axis] for axis in axes)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the coordinate of a rank along each axis."""
        result: dict[str, int] = {}
        for name, size in reversed(self.axes):
            rank, result[name] = divmod(rank, size)
        return {name: result[name] for name, _ in self.axes}

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """Return the rank with these coordinates."""
        rank = 0
        for name, size in self.axes:
            rank = rank * size + coordinates[name]
        return rank

    def position(self, rank: int, axes: Sequence[str]) -> int:
        """Return the position of a rank within its group along `axes`, the first one outermost."""
        sizes, coordinates, position = self.sizes, self.coordinates(rank), 0
        for axis in axes:
            position = position * sizes[axis] + coordinates[axis]
        return position

    def group(self, rank: int, axes: Sequence[str]) -> RankGroup:
        """Return the group of a rank along `axes`."""
        sizes, own = self.sizes, self.coordinates(rank)
        members = product(*(range(sizes[axis]) for axis in axes))
        ranks = tuple(self.rank(own | dict(zip(axes, member, strict=True))) for member in members)
        return RankGroup(ranks, self.position(rank, axes))

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


@dataclass(frozen=True)
class RankPlacement:
    """The mesh of a program that each rank runs on its shards.

    Attributes:
        rank: The rank whose parts of constants the program contains; None: the program is the same for all ranks.
        shardings: The shardings of inputs and outputs, as the arguments of `dlc.P`; empty without any.
    """

    mesh: Mesh
    rank: int | None
    shardings: tuple[str, ...]
