"""Hurwitz zeta function and polygamma functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.numpy.apply import ArrayLike, has_tracer
from dlc.numpy.functions.comparison import equal, greater, less, logical_and
from dlc.numpy.functions.elementwise import divide, exp, power, remainder, rint, sin, square, where
from dlc.special.evaluation import in_float64, promote_floats
from dlc.special.gamma import digamma, gammaln

__all__ = ["polygamma", "zeta"]

# Euler–Maclaurin summation: the number of terms that are summed directly, and B(2j) / (2j)! for j from 1 to 12 for the
# remainder.
_NUM_DIRECT_TERMS = 9
_REMAINDER_COEFFICIENTS = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000, -174611 / 802857662698291200000, 77683 / 14101100039391805440000,
    -236364091 / 1693824136731743669452800000,
)  # fmt: skip


def zeta(x: ArrayLike, q: ArrayLike, /) -> Any:
    """Return Σ 1 / (q + k)^x over k ≥ 0; inf at x = 1 and at q = 0, -1, -2, …; nan for x < 1 and for other negative q.

    Computed in float64.
    """
    return _zeta(*promote_floats(x, q))


@in_float64
def _zeta(x: Any, q: Any) -> Any:
    is_positive = greater(q, 0)
    shifted_q = where(is_positive, q, 1) + _NUM_DIRECT_TERMS
    value = sum(power(shifted_q - k, -x) for k in range(_NUM_DIRECT_TERMS, 0, -1))
    last = power(shifted_q, -x)
    # Not shifted_q · shifted_q⁻ˣ: the second factor underflows for large x.
    value = value + divide(power(shifted_q, 1 - x), x - 1) + 0.5 * last
    term = last * divide(x, shifted_q)
    for j, coefficient in enumerate(_REMAINDER_COEFFICIENTS):
        value = value + coefficient * term
        term = term * divide((x + (2 * j + 1)) * (x + (2 * j + 2)), square(shifted_q))
    value = where(is_positive, value, where(equal(q, rint(q)), math.inf, math.nan))
    return where(greater(x, 1), value, where(equal(x, 1), math.inf, math.nan))


def polygamma(n: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the n-th derivative of `digamma` for integers n; for negative x only n = 0 and 1, else nan.

    Computed in float64.
    """
    return _polygamma(*promote_floats(n, x))


@in_float64
def _polygamma(n: Any, x: Any) -> Any:
    # Reflection: ψ'(x) + ψ'(1 - x) = (π / sin πx)², which depends on the distance from the nearest integer.
    is_reflected = logical_and(equal(n, 1), less(x, 0))
    value = exp(gammaln(n + 1)) * _zeta(n + 1, where(is_reflected, 1 - x, x))
    value = where(is_reflected, square(divide(math.pi, sin((x - rint(x)) * math.pi))) - value, value)
    value = where(equal(remainder(n, 2), 0), -value, value)
    is_derived = not has_tracer(n) and np.all(n)
    return value if is_derived else where(equal(n, 0), digamma(x), value)
