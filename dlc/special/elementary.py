"""Elementary functions without cancellation, Box-Cox transformations, losses, and softmax over any axes."""

from __future__ import annotations

import math
from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Axes, apply, in_float32_or_wider
from dlc.numpy.functions.comparison import equal, greater, greater_equal, less, logical_and, logical_or
from dlc.numpy.functions.elementwise import abs, add, divide, exp, expm1, log, log1p, multiply, power, sin, sqrt, square, where
from dlc.special.evaluation import polynomial, promote_floats
from dlc.special.probabilities import logsumexp, xlogy

__all__ = [
    "boxcox", "boxcox1p", "cosm1", "exp10", "exprel", "huber", "inv_boxcox", "inv_boxcox1p", "kl_div", "log_softmax",
    "pseudo_huber", "rel_entr", "softmax", "softplus",
]  # fmt: skip


def exp10(x: ArrayLike, /) -> Any:
    """Return 10^x."""
    (x,) = promote_floats(x)
    return power(10.0, x)


@in_float32_or_wider
def _cosm1(x: Any) -> Any:
    return multiply(square(sin(multiply(x, 0.5))), -2)


def cosm1(x: ArrayLike, /) -> Any:
    """Return cos(x) - 1."""
    return _cosm1(*promote_floats(x))


# The terms x^k / (k + 1)! that count in float64 up to this argument, from the highest power.
_MAX_SERIES_ARGUMENT = 0.1
_EXPREL_SERIES = [1 / math.factorial(k + 1) for k in range(10, -1, -1)]


def exprel(x: ArrayLike, /) -> Any:
    """Return (e^x - 1) / x; 1 at 0."""
    (x,) = promote_floats(x)
    # Near 0 a series, whose derivative does not cancel. The square root of a large e^x does not overflow.
    is_small, is_large = less(abs(x), _MAX_SERIES_ARGUMENT), logical_and(greater(x, 50), less(x, math.inf))
    moderate, root = where(logical_or(is_small, is_large), 1, x), exp(where(is_large, x, 0) / 2)
    large = multiply(divide(root, where(is_large, x, 1)), root)
    beyond_series = where(is_large, large, where(equal(x, math.inf), math.inf, divide(expm1(moderate), moderate)))
    return where(is_small, polynomial(where(is_small, x, 0), _EXPREL_SERIES), beyond_series)


def softplus(x: ArrayLike, /) -> Any:
    """Return ln(1 + e^x) without overflow."""
    return apply(dl.SoftplusOp, *promote_floats(x))


def boxcox(x: ArrayLike, lmbda: ArrayLike, /) -> Any:
    """Return (x^lmbda - 1) / lmbda; ln(x) for a lmbda of 0."""
    x, lmbda = promote_floats(x, lmbda)
    return _box_cox(log(x), lmbda)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike, /) -> Any:
    """Return ((1 + x)^lmbda - 1) / lmbda; ln(1 + x) for a lmbda of 0."""
    x, lmbda = promote_floats(x, lmbda)
    return _box_cox(log1p(x), lmbda)


def _box_cox(logarithm: Any, lmbda: Any) -> Any:
    is_zero = equal(lmbda, 0)
    safe = where(is_zero, 1, lmbda)
    return where(is_zero, logarithm, divide(expm1(safe * logarithm), safe))


def inv_boxcox(y: ArrayLike, lmbda: ArrayLike, /) -> Any:
    """Return the x whose `boxcox` is y."""
    y, lmbda = promote_floats(y, lmbda)
    return exp(_inverse_box_cox(y, lmbda))


def inv_boxcox1p(y: ArrayLike, lmbda: ArrayLike, /) -> Any:
    """Return the x whose `boxcox1p` is y."""
    y, lmbda = promote_floats(y, lmbda)
    return expm1(_inverse_box_cox(y, lmbda))


def _inverse_box_cox(y: Any, lmbda: Any) -> Any:
    is_zero = equal(lmbda, 0)
    safe = where(is_zero, 1, lmbda)
    return where(is_zero, y, divide(log1p(safe * y), safe))


def rel_entr(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Return x · ln(x / y); 0 for x of 0 and y ≥ 0, inf outside of positive x and y."""
    x, y = promote_floats(x, y)
    is_positive = logical_and(greater(x, 0), greater(y, 0))
    is_zero = logical_and(equal(x, 0), greater_equal(y, 0))
    safe_x, safe_y = where(is_positive, x, 1), where(is_positive, y, 1)
    is_nan = logical_and(equal(x, x), equal(y, y))
    outside = where(is_nan, math.inf, add(x, y))
    return where(is_positive, xlogy(safe_x, divide(safe_x, safe_y)), where(is_zero, 0, outside))


def kl_div(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Return x · ln(x / y) - x + y; y for x of 0 and y ≥ 0, inf outside of positive x and y."""
    x, y = promote_floats(x, y)
    value = rel_entr(x, y)
    return where(equal(value, math.inf), math.inf, value - x + y)


def huber(delta: ArrayLike, r: ArrayLike, /) -> Any:
    """Return r² / 2 for |r| ≤ delta, delta · (|r| - delta / 2) beyond; inf for a negative delta."""
    delta, r = promote_floats(delta, r)
    size = abs(r)
    return where(less(delta, 0), math.inf, where(greater(size, delta), delta * (size - divide(delta, 2)), square(r) / 2))


def pseudo_huber(delta: ArrayLike, r: ArrayLike, /) -> Any:
    """Return delta² · (√(1 + (r / delta)²) - 1); 0 if delta or r is 0, inf for a negative delta."""
    delta, r = promote_floats(delta, r)
    is_zero = equal(delta, 0)
    squared = square(r / where(is_zero, 1, delta))
    value = square(delta) * squared / (sqrt(1 + squared) + 1)
    return where(less(delta, 0), math.inf, where(is_zero, 0, value))


def softmax(x: ArrayLike, axis: Axes = None) -> Any:
    """Return e^x divided by its sum over `axis`; over all axes if None."""
    return exp(log_softmax(x, axis))


def log_softmax(x: ArrayLike, axis: Axes = None) -> Any:
    """Return the logarithm of `softmax`."""
    return _log_softmax(promote_floats(x)[0], axis)


def _log_softmax(x: Any, axis: Axes) -> Any:
    return x - logsumexp(x, axis, keepdims=True)
