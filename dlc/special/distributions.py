"""Cumulative distribution functions (CDF) and their complements, by incomplete gamma and beta functions."""

from __future__ import annotations

from typing import Any

from dlc.numpy.apply import ArrayLike
from dlc.numpy.functions.comparison import less
from dlc.numpy.functions.elementwise import divide, floor, multiply, negative, sqrt, square, subtract, where
from dlc.special.error_functions import ndtri
from dlc.special.evaluation import promote_floats
from dlc.special.incomplete_beta import betainc
from dlc.special.incomplete_gamma import gammainc, gammaincc

__all__ = [
    "bdtr", "bdtrc", "betaincc", "chdtr", "chdtrc", "erfcinv", "fdtr", "fdtrc", "gdtr", "gdtrc", "pdtr", "pdtrc", "stdtr",
]  # fmt: skip


def betaincc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - betainc(a, b, x)."""
    a, b, x = promote_floats(a, b, x)
    return betainc(b, a, subtract(1, x))


def chdtr(v: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the CDF at x of the chi-square distribution with `v` degrees of freedom."""
    v, x = promote_floats(v, x)
    return where(less(x, 0), 0, gammainc(divide(v, 2), where(less(x, 0), 0, x) / 2))


def chdtrc(v: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - chdtr(v, x)."""
    v, x = promote_floats(v, x)
    return where(less(x, 0), 1, gammaincc(divide(v, 2), where(less(x, 0), 0, x) / 2))


def gdtr(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the CDF at x of the gamma distribution with rate `a` and shape `b`."""
    a, b, x = promote_floats(a, b, x)
    return gammainc(b, multiply(a, x))


def gdtrc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - gdtr(a, b, x)."""
    a, b, x = promote_floats(a, b, x)
    return gammaincc(b, multiply(a, x))


def pdtr(k: ArrayLike, m: ArrayLike, /) -> Any:
    """Return the CDF at k of the Poisson distribution with mean `m`."""
    k, m = promote_floats(k, m)
    return gammaincc(floor(k) + 1, m)


def pdtrc(k: ArrayLike, m: ArrayLike, /) -> Any:
    """Return 1 - pdtr(k, m)."""
    k, m = promote_floats(k, m)
    return gammainc(floor(k) + 1, m)


def bdtr(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Any:
    """Return the CDF at k, from 0 to n, of the binomial distribution of `n` trials with probability `p`."""
    k, n, p = promote_floats(k, n, p)
    whole_k, missing = floor(k), subtract(n, floor(k))
    is_certain = less(missing, 0.5)
    return where(is_certain, 1, betainc(where(is_certain, 1, missing), whole_k + 1, subtract(1, p)))


def bdtrc(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Any:
    """Return 1 - bdtr(k, n, p)."""
    k, n, p = promote_floats(k, n, p)
    whole_k, missing = floor(k), subtract(n, floor(k))
    is_certain = less(missing, 0.5)
    return where(is_certain, 0, betainc(whole_k + 1, where(is_certain, 1, missing), p))


def fdtr(dfn: ArrayLike, dfd: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the CDF at x of the F distribution with `dfn` and `dfd` degrees of freedom."""
    dfn, dfd, x = promote_floats(dfn, dfd, x)
    return betainc(divide(dfn, 2), divide(dfd, 2), divide(multiply(dfn, x), multiply(dfn, x) + dfd))


def fdtrc(dfn: ArrayLike, dfd: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - fdtr(dfn, dfd, x)."""
    dfn, dfd, x = promote_floats(dfn, dfd, x)
    return betainc(divide(dfd, 2), divide(dfn, 2), divide(dfd, multiply(dfn, x) + dfd))


def stdtr(df: ArrayLike, t: ArrayLike, /) -> Any:
    """Return the CDF at t of Student's t distribution with `df` degrees of freedom."""
    df, t = promote_floats(df, t)
    # Near 0 the distance from 1/2 is small, far from it the tail is.
    total = df + square(t)
    is_central = less(square(t), df)
    center = betainc(0.5, divide(df, 2), divide(square(where(is_central, t, 0)), total)) / 2
    tail = where(is_central, 0.5 - center, betainc(divide(df, 2), 0.5, divide(df, total)) / 2)
    return where(less(t, 0), tail, 1 - tail)


def erfcinv(x: ArrayLike, /) -> Any:
    """Return the y with erfc(y) = x, from 0 to 2."""
    (x,) = promote_floats(x)
    return negative(ndtri(divide(x, 2))) / sqrt(2.0)
