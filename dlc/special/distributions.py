"""Cumulative distribution functions (CDF) and their complements, by incomplete gamma and beta functions."""

from __future__ import annotations

from typing import Any

from dlc.numpy.apply import ArrayLike
from dlc.numpy.functions.comparison import less
from dlc.numpy.functions.elementwise import divide, floor, negative, sqrt, square, where
from dlc.special.error_functions import ndtri
from dlc.special.evaluation import promote_floats
from dlc.special.incomplete_beta import betainc
from dlc.special.incomplete_gamma import gammainc, gammaincc

__all__ = [
    "bdtr",
    "bdtrc",
    "betaincc",
    "chdtr",
    "chdtrc",
    "erfcinv",
    "fdtr",
    "fdtrc",
    "gdtr",
    "gdtrc",
    "pdtr",
    "pdtrc",
    "stdtr",
]


def betaincc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - betainc(a, b, x)."""
    return _betaincc(*promote_floats(a, b, x))


def _betaincc(a: Any, b: Any, x: Any) -> Any:
    return betainc(b, a, 1 - x)


def chdtr(v: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the CDF at x of the chi-square distribution with `v` degrees of freedom."""
    return _chdtr(*promote_floats(v, x))


def _chdtr(v: Any, x: Any) -> Any:
    return where(less(x, 0), 0, gammainc(v / 2, where(less(x, 0), 0, x) / 2))


def chdtrc(v: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - chdtr(v, x)."""
    return _chdtrc(*promote_floats(v, x))


def _chdtrc(v: Any, x: Any) -> Any:
    return where(less(x, 0), 1, gammaincc(v / 2, where(less(x, 0), 0, x) / 2))


def gdtr(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the CDF at x of the gamma distribution with rate `a` and shape `b`."""
    return _gdtr(*promote_floats(a, b, x))


def _gdtr(a: Any, b: Any, x: Any) -> Any:
    return gammainc(b, a * x)


def gdtrc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - gdtr(a, b, x)."""
    return _gdtrc(*promote_floats(a, b, x))


def _gdtrc(a: Any, b: Any, x: Any) -> Any:
    return gammaincc(b, a * x)


def pdtr(k: ArrayLike, m: ArrayLike, /) -> Any:
    """Return the CDF at k of the Poisson distribution with mean `m`."""
    return _pdtr(*promote_floats(k, m))


def _pdtr(k: Any, m: Any) -> Any:
    return gammaincc(floor(k) + 1, m)


def pdtrc(k: ArrayLike, m: ArrayLike, /) -> Any:
    """Return 1 - pdtr(k, m)."""
    return _pdtrc(*promote_floats(k, m))


def _pdtrc(k: Any, m: Any) -> Any:
    return gammainc(floor(k) + 1, m)


def bdtr(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Any:
    """Return the CDF at k, from 0 to n, of the binomial distribution of `n` trials with probability `p`."""
    return _bdtr(*promote_floats(k, n, p))


def _bdtr(k: Any, n: Any, p: Any) -> Any:
    k = floor(k)
    is_certain = less(n - k, 0.5)
    return where(is_certain, 1, betainc(where(is_certain, 1, n - k), k + 1, 1 - p))


def bdtrc(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Any:
    """Return 1 - bdtr(k, n, p)."""
    return _bdtrc(*promote_floats(k, n, p))


def _bdtrc(k: Any, n: Any, p: Any) -> Any:
    k = floor(k)
    is_certain = less(n - k, 0.5)
    return where(is_certain, 0, betainc(k + 1, where(is_certain, 1, n - k), p))


def fdtr(dfn: ArrayLike, dfd: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the CDF at x of the F distribution with `dfn` and `dfd` degrees of freedom."""
    return _fdtr(*promote_floats(dfn, dfd, x))


def _fdtr(dfn: Any, dfd: Any, x: Any) -> Any:
    return betainc(dfn / 2, dfd / 2, divide(dfn * x, dfn * x + dfd))


def fdtrc(dfn: ArrayLike, dfd: ArrayLike, x: ArrayLike, /) -> Any:
    """Return 1 - fdtr(dfn, dfd, x)."""
    return _fdtrc(*promote_floats(dfn, dfd, x))


def _fdtrc(dfn: Any, dfd: Any, x: Any) -> Any:
    return betainc(dfd / 2, dfn / 2, divide(dfd, dfn * x + dfd))


def stdtr(df: ArrayLike, t: ArrayLike, /) -> Any:
    """Return the CDF at t of Student's t distribution with `df` degrees of freedom."""
    return _stdtr(*promote_floats(df, t))


def _stdtr(df: Any, t: Any) -> Any:
    # Near 0 the distance from 1/2 is small, far from it the tail is.
    total = df + square(t)
    is_central = less(square(t), df)
    center = betainc(0.5, df / 2, divide(square(where(is_central, t, 0)), total)) / 2
    tail = where(is_central, 0.5 - center, betainc(df / 2, 0.5, divide(df, total)) / 2)
    return where(less(t, 0), tail, 1 - tail)


def erfcinv(x: ArrayLike, /) -> Any:
    """Return the y with erfc(y) = x, from 0 to 2."""
    return _erfcinv(*promote_floats(x))


def _erfcinv(x: Any) -> Any:
    return negative(ndtri(x / 2)) / sqrt(2.0)
