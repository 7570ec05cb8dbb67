"""Logarithm of the beta function, and the regularized incomplete beta function, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.lax import while_loop
from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, greater, greater_equal, isnan, less, logical_and, logical_or
from dlc.numpy.functions.elementwise import abs, divide, exp, log, log1p, multiply, sqrt, square, subtract, where
from dlc.special.continued_fractions import has_not_converged, nonzero
from dlc.special.evaluation import MAX_DEFICIT_ARGUMENT, in_float64, log1p_deficit_ratio, promote_floats
from dlc.special.gamma import gammaln, stirling_correction
from dlc.traced_functions.derivatives import directional_derivative

__all__ = ["betainc", "betaln"]


def betaln(a: ArrayLike, b: ArrayLike, /) -> Any:
    """Return ln |B(a, b)| = ln |Γ(a) Γ(b) / Γ(a + b)|. Computed in float64."""
    return _betaln(*promote_floats(a, b))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the regularized incomplete beta function 1 / B(a, b) ∫ t^(a-1) (1-t)^(b-1) dt over t from 0 to x.

    nan for negative a or b and for x outside of [0, 1]. Computed in float64; the relative error is up to 1e-13 for arguments up
    to 10⁴. Differentiable with respect to all arguments; the derivatives with respect to `a` and `b` have no derivative in
    reverse mode.

    Algorithm: the continued fraction DLMF 8.17.22, in a number of steps that grows as the square root of the larger of a and b.
    """
    return _betainc(*promote_floats(a, b, x))


# From this argument on Stirling's series is accurate to float64 precision.
_MIN_STIRLING_ARGUMENT = 9


@in_float64
def _betaln(a: Any, b: Any) -> Any:
    smaller, larger = where(less(a, b), a, b), where(less(a, b), b, a)
    # ln Γ(q) - ln Γ(p + q) for large q by Stirling's series, without cancellation.
    is_large, q = greater_equal(larger, _MIN_STIRLING_ARGUMENT), where(less(larger, _MIN_STIRLING_ARGUMENT), 9.0, larger)
    is_positive = greater(smaller, 0)
    p = where(is_positive, smaller, 1.0)
    difference = p - p * log(q) - (p + q - 0.5) * log1p(divide(p, q)) + stirling_correction(q) - stirling_correction(p + q)
    by_gamma = gammaln(a) + gammaln(b) - gammaln(a + b)
    return where(logical_and(is_large, is_positive), gammaln(p) + difference, by_gamma)


def _tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    a, b, x = operands
    is_inside = logical_and(greater(x, 0), less(x, 1))
    inner = where(is_inside, x, 0.5)
    # At the ends, the density is a power of 0.
    at_end = exp(-betaln(a, b)) * where(equal(x, 0), _power_of_zero(subtract(a, 1)), _power_of_zero(subtract(b, 1)))
    density = where(is_inside, divide(_powers(a, b, inner), inner * (1 - inner)), at_end)
    slopes = (
        directional_derivative(lambda a: _regularized(a, b, x), a),
        directional_derivative(lambda b: _regularized(a, b, x), b),
        density,
    )
    a_term, b_term, x_term = (multiply(slope, tangent) for slope, tangent in zip(slopes, tangents, strict=True))
    return a_term + b_term + x_term


def _power_of_zero(exponent: Any) -> Any:
    return where(less(exponent, 0), math.inf, where(equal(exponent, 0), 1.0, 0.0))


@in_float64
@with_jvp_rule(_tangent)
def _betainc(a: Any, b: Any, x: Any) -> Any:
    return _regularized(a, b, x)


def _regularized(a: Any, b: Any, x: Any) -> Any:
    is_inside = logical_and(greater(x, 0), less(x, 1))
    is_ordinary = logical_and(is_inside, logical_and(greater(a, 0), greater(b, 0)))
    p, q, z = where(is_ordinary, a, 1.0), where(is_ordinary, b, 1.0), where(is_ordinary, x, 0.5)
    # The fraction converges fast below the mean; above, I(a, b, x) = 1 - I(b, a, 1 - x).
    is_swapped = greater(z, divide(p + 1, p + q + 2))
    powers = _powers(p, q, z)
    p, q, z = where(is_swapped, q, p), where(is_swapped, p, q), where(is_swapped, 1 - z, z)
    value = divide(powers * _fraction(p, q, z), p)
    value = where(is_swapped, 1 - value, value)
    is_one = logical_or(equal(x, 1), logical_and(equal(a, 0), greater(b, 0)))
    is_zero = logical_or(equal(x, 0), logical_and(equal(b, 0), greater(a, 0)))
    is_invalid = logical_or(logical_or(less(x, 0), greater(x, 1)), logical_or(less(a, 0), less(b, 0)))
    is_invalid = logical_or(is_invalid, logical_or(isnan(a + b + x), logical_and(equal(a, 0), equal(b, 0))))
    return where(is_invalid, math.nan, where(is_zero, 0.0, where(is_one, 1.0, value)))


def _powers(a: Any, b: Any, x: Any) -> Any:
    """Return x^a (1 - x)^b / B(a, b)."""
    is_large = logical_and(greater_equal(a, _MIN_STIRLING_ARGUMENT), greater_equal(b, _MIN_STIRLING_ARGUMENT))
    p, q = where(is_large, a, 9.0), where(is_large, b, 9.0)
    total = p + q
    # Relative to the mean p / total, the logarithms of the powers cancel to first order.
    deviation = x - divide(p, total)
    exponent = p * _deficit(divide(deviation * total, p)) + q * _deficit(divide(-deviation * total, q))
    correction = stirling_correction(total) - stirling_correction(p) - stirling_correction(q)
    by_mean = exp(correction - exponent) * sqrt(divide(p * divide(q, total), 2 * math.pi))
    return where(is_large, by_mean, exp(a * log(x) + b * log1p(-x) - betaln(a, b)))


def _deficit(u: Any) -> Any:
    """Return u - log(1 + u)."""
    is_small = less(abs(u), MAX_DEFICIT_ARGUMENT)
    small = where(is_small, u, 0.0)
    series = square(small) * log1p_deficit_ratio(small)
    large = where(is_small, 1.0, u)
    return where(is_small, series, large - log1p(large))


def _fraction(a: Any, b: Any, x: Any) -> Any:
    """Return the continued fraction of the incomplete beta function, evaluated by the modified Lentz algorithm."""

    def lentz(numerator: Any, c: Any, d: Any) -> tuple[Any, Any]:
        return nonzero(1 + divide(numerator, c)), divide(1, nonzero(1 + numerator * d))

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        m, c, d, value, _ = state
        even = a + 2 * m
        c, d = lentz(divide(m * (b - m) * x, (even - 1) * even), c, d)
        value = value * c * d
        c, d = lentz(divide(-(a + m) * (a + b + m) * x, even * (even + 1)), c, d)
        return m + 1, c, d, value * c * d, c * d

    first = divide(1, nonzero(1 - divide((a + b) * x, a + 1)))
    initial = (1.0, first * 0 + 1, first, first, first * 0 + 2)

    return while_loop(lambda s: has_not_converged(s[0], s[4], b), step, initial)[3]
