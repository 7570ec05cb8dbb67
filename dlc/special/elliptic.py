"""Complete elliptic integrals by the arithmetic-geometric mean, computed in float64."""

from __future__ import annotations

import math
from typing import Any

from dlc.numpy.apply import ArrayLike
from dlc.numpy.functions.comparison import equal
from dlc.numpy.functions.elementwise import divide, sqrt, square, where
from dlc.special.evaluation import in_float64, promote_floats

__all__ = ["ellipe", "ellipk", "ellipkm1"]

# The ratio of the means is squared in each step, from 2^-537, the root of the smallest float64, to 1.
_NUM_MEAN_STEPS = 15


def ellipk(m: ArrayLike, /) -> Any:
    """Return the complete elliptic integral of the first kind of parameter m ≤ 1; inf at 1, nan beyond."""
    return _first_kind(*promote_floats(m))


def ellipkm1(p: ArrayLike, /) -> Any:
    """Return ellipk(1 - p)."""
    return _first_kind_of_complement(*promote_floats(p))


def ellipe(m: ArrayLike, /) -> Any:
    """Return the complete elliptic integral of the second kind of parameter m ≤ 1; 1 at 1, nan beyond."""
    return _second_kind(*promote_floats(m))


def _means(complement: Any) -> tuple[Any, Any]:
    """Return the arithmetic-geometric mean of 1 and √complement, and Σ 2^(k - 1) c(k)² over its steps from the second on."""
    a, b, total = 0 * complement + 1.0, sqrt(complement), 0.0
    for k in range(_NUM_MEAN_STEPS):
        total = total + 2.0**k * square((a - b) / 2)
        a, b = (a + b) / 2, sqrt(a * b)
    return a, total


@in_float64
def _first_kind_of_complement(p: Any) -> Any:
    is_pole = equal(p, 0)
    return where(is_pole, math.inf, divide(math.pi / 2, _means(where(is_pole, 1.0, p))[0]))


@in_float64
def _first_kind(m: Any) -> Any:
    return _first_kind_of_complement(1 - m)


@in_float64
def _second_kind(m: Any) -> Any:
    is_one = equal(m, 1)
    mean, total = _means(where(is_one, 1.0, 1 - m))
    return where(is_one, 1.0, divide(math.pi / 2, mean) * (1 - m / 2 - total))
