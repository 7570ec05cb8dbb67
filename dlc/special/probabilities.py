"""Logarithms and probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Axes, apply, axes_of, in_wide_type
from dlc.numpy.functions.comparing import equal, less, logical_and
from dlc.numpy.functions.elementwise import abs, log, log1p, where
from dlc.special.formulas import floats

__all__ = ["entr", "expit", "log_expit", "logit", "logsumexp", "xlog1py", "xlogy"]


def expit(x: ArrayLike, /) -> Any:
    """1 / (1 + e^-x)."""
    return apply(dl.SigmoidOp, *floats(x))


def log_expit(x: ArrayLike, /) -> Any:
    """ln(expit(x)), without overflow."""
    return _log_expit(*floats(x))


@in_wide_type
def _log_expit(x: Any) -> Any:
    return -apply(dl.SoftplusOp, -x)


def logit(x: ArrayLike, /) -> Any:
    """ln(x / (1 - x)), the inverse of expit."""
    (x,) = floats(x)
    return _logit(x)


@in_wide_type
def _logit(x: Any) -> Any:
    # Around 1/2, where the result is near 0, from the distance to it, which is exact.
    central = less(abs(x - 0.5), 0.25)
    twice = where(central, 2 * x - 1, 0)
    return where(central, log1p(twice) - log1p(-twice), log(x) - log1p(-x))


def xlogy(x: ArrayLike, y: ArrayLike, /) -> Any:
    """x · ln(y), 0 where x is 0."""
    x, y = floats(x, y)
    return _product(x, log, y)


def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Any:
    """x · ln(1 + y), 0 where x is 0."""
    x, y = floats(x, y)
    return _product(x, log1p, y)


def _product(x: Any, function: Callable[[Any], Any], y: Any) -> Any:
    # A nan in y goes on, as it does in SciPy.
    none = logical_and(equal(x, 0), equal(y, y))
    return where(none, 0, x * function(where(none, 1, y)))


def entr(x: ArrayLike, /) -> Any:
    """-x · ln(x); 0 at 0, -inf below."""
    (x,) = floats(x)
    below = less(x, 0)
    return where(below, -math.inf, -xlogy(x, where(below, 1, x)))


def logsumexp(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Any:
    """ln(Σ e^x) along `axis`, without overflow; all axes for None."""
    (x,) = floats(x)
    return apply(dl.ReduceLogSumExpOp, x, axes=axes_of("logsumexp", x, axis), keepdims=keepdims)
