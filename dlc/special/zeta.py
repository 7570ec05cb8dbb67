"""Hurwitz zeta function and polygamma functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.numpy.apply import ArrayLike, is_traced
from dlc.numpy.functions.comparison import equal, greater, less
from dlc.numpy.functions.elementwise import divide, exp, power, remainder, rint, square, tan, where
from dlc.special.evaluation import in_float64, polynomial, promote_floats
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
# n! overflows float64 above.
_MAX_FACTORIAL_ARGUMENT = 170


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
    """Return the n-th derivative of `digamma` for integers n; nan for negative x if a traced n is neither 0 nor 1.

    Computed in float64.
    """
    return _polygamma(*promote_floats(n, x))


@in_float64
def _polygamma(n: Any, x: Any) -> Any:
    is_reflected, is_even = less(x, 0), equal(remainder(n, 2), 0)
    value = exp(gammaln(n + 1)) * _zeta(n + 1, where(is_reflected, 1 - x, x))
    value = where(is_even, -value, value)
    # Reflection: (-1)ⁿ ψₙ(1 - x) - ψₙ(x) is the n-th derivative of π cot πx, which has the period 1.
    cotangent = divide(1, tan(where(is_reflected, x - rint(x), 0.25) * math.pi))
    orders = [0, 1] if is_traced(n) else [int(k) for k in np.unique(n) if 0 <= k <= _MAX_FACTORIAL_ARGUMENT]
    result = where(is_reflected, x * math.nan, value)
    for order in orders:
        order_value = digamma(x)
        if order:
            derivative = polynomial(cotangent, _cotangent_derivative(order))
            order_value = where(is_reflected, where(is_even, value, -value) - derivative, value)
        result = where(equal(n, order), order_value, result)
    return result


def _cotangent_derivative(order: int) -> Sequence[float]:
    """Return the polynomial in cot πx, highest power first, that is a derivative of π cot πx: cot' = -π (1 + cot²)."""
    derivative = np.polynomial.Polynomial([0, math.pi])
    for _ in range(order):
        derivative = derivative.deriv() * np.polynomial.Polynomial([-math.pi, 0, -math.pi])
    return [float(c) for c in derivative.coef[::-1]]
