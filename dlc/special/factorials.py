"""The gamma function, and quotients of its values: factorials, binomial coefficients, the beta function.

Values are exponentials of `gammaln` computed in float64: their relative error is up to |gammaln| · 2⁻⁵², 1.6e-13 at most.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import ArgumentError
from dlc.numpy.apply import ArrayLike, Operand, apply, convert, refuse
from dlc.numpy.functions.comparison import equal, greater, isinf, less, logical_and, logical_or
from dlc.numpy.functions.elementwise import abs, divide, exp, floor, multiply, remainder, rint, where
from dlc.numpy.functions.floats import copysign
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shape_manipulation import expand_dims
from dlc.special.evaluation import in_float64, promote_floats
from dlc.special.gamma import gammaln

__all__ = ["beta", "binom", "comb", "factorial", "gamma", "gammasgn", "multigammaln", "perm", "poch", "rgamma"]


def gammasgn(x: ArrayLike, /) -> Any:
    """Return the sign of Γ(x): ±1 at ±0, nan at -1, -2, …"""
    (x,) = promote_floats(x)
    is_integer = equal(x, floor(x))
    is_odd = equal(remainder(floor(x), 2), 1)
    negative = where(is_integer, math.nan, where(is_odd, -1.0, 1.0))
    return convert(where(less(x, 0), where(isinf(x), 1.0, negative), copysign(1.0, x)), x.dtype)


def gamma(x: ArrayLike, /) -> Any:
    """Return Γ(x); ±inf at ±0, nan at -1, -2, … and -inf."""
    (x,) = promote_floats(x)
    return convert(where(equal(x, -math.inf), math.nan, _signed_exponential(x, 1)), x.dtype)


def rgamma(x: ArrayLike, /) -> Any:
    """Return 1 / Γ(x); 0 at 0, -1, -2, …"""
    (x,) = promote_floats(x)
    is_pole = logical_and(less(x, 0.5), equal(x, floor(x)))
    return convert(where(is_pole, 0, _signed_exponential(where(is_pole, 1.0, x), -1)), x.dtype)


def _signed_exponential(x: Operand, power: int) -> Any:
    wide = convert(x, np.float64)
    magnitude = exp(multiply(gammaln(wide), power))
    # Γ of a positive integer is an integer.
    is_factorial = logical_and(equal(wide, rint(wide)), logical_and(greater(wide, 0), less(wide, _MAX_EXACT_ARGUMENT)))
    exact = _round(exp(gammaln(where(is_factorial, wide, 1.0))))
    return multiply(where(is_factorial, exact if power == 1 else divide(1, exact), magnitude), gammasgn(wide))


def _round(x: Any) -> Any:
    """Return the nearest integer, with the derivative of x."""
    return x + apply(dl.StopGradientOp, rint(x) - x)


# Factorials below that of this number are rounded to integers.
_MAX_EXACT_ARGUMENT = 17
# Terms of the multivariate gamma function, which are summed along a temporary axis.
_MAX_TERMS = 1 << 16
# Integer quotients of factorials below this have an error below 1/2.
_MAX_EXACT_SIZE = 2.0**40


def beta(a: ArrayLike, b: ArrayLike, /) -> Any:
    """Return B(a, b) = Γ(a) Γ(b) / Γ(a + b)."""
    return _beta(*promote_floats(a, b))


@in_float64
def _beta(a: Any, b: Any) -> Any:
    sign = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    return exp(gammaln(a) + gammaln(b) - gammaln(a + b)) * sign


def factorial(n: ArrayLike, /) -> Any:
    """Return n! = Γ(n + 1); 0 for negative n."""
    (n,) = promote_floats(n)
    return where(less(n, 0), 0, gamma(where(less(n, 0), 0, n) + 1))


def binom(n: ArrayLike, k: ArrayLike, /) -> Any:
    """Return the binomial coefficient Γ(n + 1) / (Γ(k + 1) Γ(n - k + 1))."""
    return _binom(*promote_floats(n, k))


@in_float64
def _binom(n: Any, k: Any) -> Any:
    value = gammasgn(n + 1) * exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
    return _quotient(value * _reciprocal_sign(k + 1) * _reciprocal_sign(n - k + 1), n, k)


def _quotient(value: Any, n: Any, k: Any) -> Any:
    """Return a quotient of factorials, rounded if both arguments are integers and the quotient is exact."""
    is_integer = logical_and(equal(n, rint(n)), equal(k, rint(k)))
    return where(logical_and(is_integer, less(abs(value), _MAX_EXACT_SIZE)), _round(value), value)


def _reciprocal_sign(x: Any) -> Any:
    """Return the sign of 1 / Γ(x), 1 at its zeros."""
    is_pole = logical_and(less(x, 0.5), equal(x, floor(x)))
    return where(is_pole, 1.0, gammasgn(where(is_pole, 1.0, x)))


def comb(n: ArrayLike, k: ArrayLike, /) -> Any:
    """Return the number of combinations of k out of n; 0 for k < 0, n < 0 and k > n."""
    n, k = promote_floats(n, k)
    is_none = logical_or(logical_or(less(n, 0), less(k, 0)), greater(k, n))
    return where(is_none, 0, binom(where(is_none, 1, n), where(is_none, 1, k)))


def perm(n: ArrayLike, k: ArrayLike, /) -> Any:
    """Return the number of ordered selections of k out of n; 0 for k < 0, n < 0 and k > n."""
    n, k = promote_floats(n, k)
    is_none = logical_or(logical_or(less(n, 0), less(k, 0)), greater(k, n))
    first, count = where(is_none, 1, n), where(is_none, 1, k)
    return where(is_none, 0, poch(first - count + 1, count))


def poch(z: ArrayLike, m: ArrayLike, /) -> Any:
    """Return the rising factorial Γ(z + m) / Γ(z)."""
    return _poch(*promote_floats(z, m))


@in_float64
def _poch(z: Any, m: Any) -> Any:
    value = exp(gammaln(z + m) - gammaln(z)) * gammasgn(z + m) * _reciprocal_sign(z)
    return where(equal(m, 0), 1.0, _quotient(value, z, m))


def multigammaln(a: ArrayLike, d: int, /) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension `d`, from 1 to 65,536."""
    if not 1 <= d <= _MAX_TERMS:
        refuse(ArgumentError(f"multigammaln: d {d}; expected from 1 to {_MAX_TERMS}"))
    return in_float64(partial(_multigammaln, d))(*promote_floats(a))


def _multigammaln(d: int, a: Any) -> Any:
    return d * (d - 1) / 4 * math.log(math.pi) + sum(gammaln(expand_dims(a, -1) - np.arange(d) / 2), axis=-1)
