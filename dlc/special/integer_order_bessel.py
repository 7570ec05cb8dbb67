"""Bessel functions of integer order by recurrences in the order, computed in float64."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dlc.errors import ArgumentError
from dlc.numpy.apply import ArrayLike, Operand, refuse
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, greater, greater_equal, isinf, less
from dlc.numpy.functions.elementwise import abs, divide, multiply, power, square, where
from dlc.special.decaying_bessel import k0, k1
from dlc.special.evaluation import in_float64, promote_floats
from dlc.special.oscillating_bessel import j0, j1, y0, y1

__all__ = ["jn", "kn", "yn"]

# Each order takes a step of straight-line code.
_MAX_ORDER_STEPS = 200
# Terms of the downward recurrence are divided by this when they exceed it.
_RESCALING_FACTOR = 2.0**300
# Below this argument, two terms of the power series are exact to float64 precision.
_MAX_SERIES_ARGUMENT = 1e-5


def _order(name: str, n: int) -> int:
    if builtins.abs(n) > _MAX_ORDER_STEPS:
        refuse(ArgumentError(f"{name}: order {n}; expected from {-_MAX_ORDER_STEPS} to {_MAX_ORDER_STEPS}"))
    return n


def jn(n: int, x: ArrayLike, /) -> Any:
    """Return the Bessel function of the first kind of order `n`."""
    order, (x,) = _order("jn", n), promote_floats(x)

    def tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
        return multiply((jn(order - 1, operands[0]) - jn(order + 1, operands[0])) / 2, tangents[0])

    return in_float64(with_jvp_rule(tangent)(partial(_first_kind, order)))(x)


def _first_kind(order: int, x: Any) -> Any:
    if order in (0, 1):
        return (j0, j1)[order](x)
    n, z = builtins.abs(order), abs(x)
    is_upward, is_tiny = greater_equal(z, n), less(z, _MAX_SERIES_ARGUMENT)
    upward = _raise_order(n, where(is_upward, z, n), (j0, j1), -1)
    downward = _lower_order(n, where(is_upward, n / 2, where(is_tiny, _MAX_SERIES_ARGUMENT, z)))
    half = where(is_tiny, z, 0) / 2
    series = power(half, float(n)) * math.exp(-math.lgamma(n + 1)) * (1 - square(half) / (n + 1))
    value = where(is_upward, upward, where(is_tiny, series, downward))
    value = where(isinf(z), 0, where(equal(x, x), value, x))
    # Odd orders are odd functions, and the negatives of those of the opposite order.
    return value if n % 2 == 0 else where(less(x, 0), -value, value) * (1 if order > 0 else -1)


def _raise_order(n: int, z: Any, functions: Sequence[Callable[[Any], Any]], sign: int) -> Any:
    """Return the function of order n by f(k + 1) = 2k/z · f(k) ± f(k - 1); an infinite value stays."""
    previous, value = (f(z) for f in functions)
    if n == 0:
        return previous
    for k in range(1, n):
        previous, value = value, where(isinf(value), value, 2 * k / z * value + sign * previous)
    return value


def _lower_order(n: int, z: Any) -> Any:
    """Return J(n) at z < n by Miller's algorithm: J(k - 1) = 2k/z · J(k) - J(k + 1) from a high order on.

    The sum J(0) + 2 J(2) + 2 J(4) + … is 1.
    """
    first = n + 2 * math.isqrt(10 * n) + 30
    following, value, total, result = 0 * z, 0 * z + 1.0, 0 * z, 0 * z
    for k in range(first, 0, -1):
        total = total + 2 * value if k % 2 == 0 else total
        result = value if k == n else result
        following, value = value, 2 * k / z * value - following
        scale = where(greater(abs(value), _RESCALING_FACTOR), 1 / _RESCALING_FACTOR, 1.0)
        following, value, total, result = (v * scale for v in (following, value, total, result))
    return divide(result, total + value)


def yn(n: int, x: ArrayLike, /) -> Any:
    """Return the Bessel function of the second kind of order `n`; nan for negative x."""
    order, (x,) = _order("yn", n), promote_floats(x)

    def tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
        return multiply((yn(order - 1, operands[0]) - yn(order + 1, operands[0])) / 2, tangents[0])

    def value(x: Any) -> Any:
        return _raise_order(builtins.abs(order), x, (y0, y1), -1) * (-1 if order < 0 and order % 2 else 1)

    return in_float64(with_jvp_rule(tangent)(value))(x)


def kn(n: int, x: ArrayLike, /) -> Any:
    """Return the modified Bessel function of the second kind of order `n`; nan for negative x."""
    order, (x,) = builtins.abs(_order("kn", n)), promote_floats(x)

    def tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
        return multiply((kn(order - 1, operands[0]) + kn(order + 1, operands[0])) / -2, tangents[0])

    def value(x: Any) -> Any:
        return _raise_order(order, x, (k0, k1), 1)

    return in_float64(with_jvp_rule(tangent)(value))(x)
