"""Winograd's algorithms for 3×3 kernels: their matrices, and the integer ranges in which they are exact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm, prod

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.passes.dl.index_ranges import Interval


@dataclass(frozen=True)
class WinogradAlgorithm:
    """F(m×m, 3×3): the integer matrices that multiply images, weights and products from both sides.

    After Toom and Cook: row i of the input matrix has the coefficients of Πⱼ (x - pⱼ) without j = i. Row i of the weight matrix
    has the powers of pᵢ, to be divided by the value of that product at pᵢ. The last rows belong to the point at infinity.
    `points` has m + 1 integers.
    """

    points: tuple[int, ...]

    @property
    def step(self) -> int:
        """m, the results per tile along each axis."""
        return len(self.points) - 1

    @property
    def tile(self) -> int:
        """m + 2, the input elements per tile along each axis."""
        return len(self.points) + 1

    @cached_property
    def input(self) -> Array:
        roots_of_rows = [*([q for q in self.points if q != p] for p in self.points), self.points]
        rows = [np.poly(roots)[::-1] for roots in roots_of_rows]
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
        """The factor of `output` that turns the division by each of `divisors` into an integer factor."""
        return lcm(*map(int, self.divisors))

    def fits(self, x: Interval, weight_interval: Interval) -> bool:
        """Return whether transformed integers stay within i16."""
        return all(
            int(np.abs(matrix).sum(1).max()) ** 2 * max(map(abs, interval)) < 1 << 15
            for matrix, interval in ((self.input, x), (self.weights, weight_interval))
        )

    def input_offset(self, x: Interval, weight_interval: Interval, terms: int) -> int | None:
        """Return an offset to subtract from inputs, 0 if possible, to make sums recoverable modulo 2³²; None if there is none.

        Sums are multiples of the squared divisor modulo 2³²: odd factors have an inverse, each factor of two costs one bit.
        """
        scale = largest_power_of_two_divisor(self.divisor) ** 2 * terms * max(map(abs, weight_interval))
        return next((c for c in (0, (x[0] + x[1] + 1) // 2) if max(x[1] - c, c - x[0]) * scale < 1 << 31), None)


def largest_power_of_two_divisor(n: int) -> int:
    """Return the largest power of two that divides `n`."""
    return n & -n


# Interpolation at 0, ±1, ∞, and ±2 for the larger ones: Lavin and Gray, 2015.
ALGORITHMS = WinogradAlgorithm((0, 1, -1)), WinogradAlgorithm((0, 1, -1, 2)), WinogradAlgorithm((0, 1, -1, 2, -2))
# The algorithms for floats: only those whose error was measured.
FLOAT_ALGORITHMS = ALGORITHMS[::2]
