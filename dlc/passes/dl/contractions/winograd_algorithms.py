"""Winograd's algorithms for windows of 3×3: the matrices, and which integers they are exact for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm, prod

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.passes.dl.index_ranges import Interval


@dataclass(frozen=True)
class Algorithm:
    """F(m×m, 3×3): what images, weights and products are multiplied with from both sides, matrices of integers.

    After Toom and Cook: an image's row i are the coefficients of Πⱼ (x - pⱼ) without j = i, a weight's the powers of pᵢ, which
    are divided by the value of that product at pᵢ. The last rows stand for a point at infinity. `points` are m + 1 numbers.
    """

    points: tuple[int, ...]

    @property
    def step(self) -> int:
        """m, the results that a tile gives along each axis."""
        return len(self.points) - 1

    @property
    def tile(self) -> int:
        """m + 2, the numbers that a tile has along each axis."""
        return len(self.points) + 1

    @cached_property
    def input(self) -> Array:
        others = [*([q for q in self.points if q != p] for p in self.points), self.points]
        rows = [np.poly(roots)[::-1] for roots in others]
        return np.rint([np.pad(row, (0, self.tile - len(row))) for row in rows]).astype(np.int64)

    @cached_property
    def weights(self) -> Array:
        return np.array([*([1, p, p * p] for p in self.points), [0, 0, 1]])

    @cached_property
    def divisors(self) -> Array:
        return np.array([*(prod(p - q for q in self.points if q != p) for p in self.points), 1])

    @cached_property
    def output(self) -> Array:
        return np.array([[*(p**k for p in self.points), k == self.step - 1] for k in range(self.step)], np.int64)

    @property
    def divisor(self) -> int:
        """What `output` is multiplied by, for all divisors to be taken there."""
        return lcm(*map(int, self.divisors))

    def fits(self, x: Interval, w: Interval) -> bool:
        """Whether integers stay within i16 when they are transformed."""
        return all(
            int(np.abs(matrix).sum(1).max()) ** 2 * max(map(abs, of)) < 1 << 15
            for matrix, of in ((self.input, x), (self.weights, w))
        )

    def centre(self, x: Interval, w: Interval, terms: int) -> int | None:
        """What numbers are taken less, 0 if it can be, for sums to be told from their residues; None if they cannot.

        A sum is known times the divisor squared, modulo 2³²: odd numbers have an inverse, of twos a bit is lost for each.
        """
        times = twos(self.divisor) ** 2 * terms * max(map(abs, w))
        return next((c for c in (0, (x[0] + x[1] + 1) // 2) if max(x[1] - c, c - x[0]) * times < 1 << 31), None)


def twos(n: int) -> int:
    """The largest power of two that divides `n`."""
    return n & -n


# Interpolation at 0, ±1, ∞, and ±2 for the larger ones: Lavin and Gray, 2015.
ALGORITHMS = Algorithm((0, 1, -1)), Algorithm((0, 1, -1, 2)), Algorithm((0, 1, -1, 2, -2))
# Of floats, those whose error was measured.
OF_FLOATS = ALGORITHMS[::2]
