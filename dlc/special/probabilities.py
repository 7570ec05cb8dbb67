"""Logistic functions, entropy and logarithms of sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Axes, apply, in_float32_or_wider, normalize_axes
from dlc.numpy.functions.comparison import equal, less, logical_and
from dlc.numpy.functions.elementwise import abs, log, log1p, where
from dlc.special.evaluation import promote_floats

__all__ = ["entr", "expit", "log_expit", "logit", "logsumexp", "xlog1py", "xlogy"]


def expit(x: ArrayLike, /) -> Any:
    """Return the logistic sigmoid 1 / (1 + e^-x)."""
    return apply(dl.SigmoidOp, *promote_floats(x))


def log_expit(x: ArrayLike, /) -> Any:
    """Return ln(expit(x)) without overflow."""
    return _log_expit(*promote_floats(x))


@in_float32_or_wider
def _log_expit(x: Any) -> Any:
    return -apply(dl.SoftplusOp, -x)


def logit(x: ArrayLike, /) -> Any:
    """Return ln(x / (1 - x)), the inverse of expit."""
    (x,) = promote_floats(x)
    return _logit(x)


@in_float32_or_wider
def _logit(x: Any) -> Any:
    # Near 1/2 the result is near 0: compute it from x - 1/2, which is exact.
    is_central = less(abs(x - 0.5), 0.25)
    twice = where(is_central, 2 * x - 1, 0)
    return where(is_central, log1p(twice) - log1p(-twice), log(x) - log1p(-x))


def xlogy(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Return x · ln(y); 0 where x is 0."""
    x, y = promote_floats(x, y)
    return _product(x, log, y)


def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Return x · ln(1 + y); 0 where x is 0."""
    x, y = promote_floats(x, y)
    return _product(x, log1p, y)


def _product(x: Any, function: Callable[[Any], Any], y: Any) -> Any:
    # NaN in y propagates, as in SciPy.
    is_zero = logical_and(equal(x, 0), equal(y, y))
    return where(is_zero, 0, x * function(where(is_zero, 1, y)))


def entr(x: ArrayLike, /) -> Any:
    """Return -x · ln(x); 0 at 0, -inf for negative x."""
    (x,) = promote_floats(x)
    is_negative = less(x, 0)
    return where(is_negative, -math.inf, -xlogy(x, where(is_negative, 1, x)))


def logsumexp(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Any:
    """Return ln(Σ e^x) along `axis` without overflow; over all axes if None."""
    (x,) = promote_floats(x)
    return apply(dl.ReduceLogSumExpOp, x, axes=normalize_axes("logsumexp", x, axis), keepdims=keepdims)
