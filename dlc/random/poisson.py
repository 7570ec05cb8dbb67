"""The Poisson distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.errors import DTypeError
from dlc.lax import while_loop
from dlc.numpy import (
    abs,
    add,
    any,
    broadcast_to,
    floor,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    sqrt,
    subtract,
    where,
)
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, convert, operand, refuse
from dlc.numpy.functions.creation import Shape
from dlc.random.distributions import uniform_from_key
from dlc.random.keys import as_int_shape, checked_key, derive_keys
from dlc.special import gammaln

__all__ = ["poisson"]

# Below this rate, products of uniform numbers take few steps; the rejection method is valid from it on.
_MIN_REJECTION_ARGUMENT = 10.0


def poisson(
    key: ArrayLike, lam: ArrayLike, shape: Shape | None = None, dtype: AnyDType = np.int32, *, reuse: bool = False
) -> Any:
    """Draw integers from the Poisson distribution of rate `lam`, which broadcasts to `shape`.

    The default shape is that of `lam`. Rates are taken in float32; a negative one or nan gives -1.

    Algorithm: products of uniform numbers (Knuth) for small rates, else transformed rejection (Hörmann, The transformed
    rejection method for generating Poisson random variables, 1993).
    """
    if np.dtype(dtype).kind not in "iu":
        refuse(DTypeError(f"dlc.random.poisson: dtype {np.dtype(dtype)}; expected an integer"))
    rate = convert(lam, np.dtype(np.float32))
    rate = rate if shape is None else broadcast_to(rate, as_int_shape(shape))
    key = checked_key("poisson", key, reuse)
    is_small = logical_not(greater_equal(rate, _MIN_REJECTION_ARGUMENT))
    small = _by_products(key, where(is_small, rate, 0.0), np.dtype(dtype))
    large = _by_rejection(key, where(is_small, 1e5, rate))
    return where(rate == 0, convert(np.asarray(0), np.dtype(dtype)), where(is_small, small, convert(large, np.dtype(dtype))))


def _by_products(key: Operand, rate: Any, dtype: np.dtype[Any]) -> Any:
    """Count how many uniform numbers can be multiplied until the product is below e^-rate."""

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        count, key, logarithm = state
        keys = derive_keys(operand(key), (2,))
        u = uniform_from_key(operand(keys[1]), rate.shape, np.float32)
        return where(greater(logarithm, -rate), count + 1, count), keys[0], add(logarithm, log(u))

    zero = rate * 0
    initial = (convert(where(zero == 0, zero, 0), dtype), key, zero)
    count, _, _ = while_loop(lambda s: any(greater(s[2], -rate)), step, initial)
    return count - np.asarray(1, dtype)


def _by_rejection(key: Operand, rate: Any) -> Any:
    """Draw by transformed rejection with squeeze, for rates of at least 10."""
    log_rate = log(rate)
    b = 0.931 + 2.53 * sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2)

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        count, is_accepted, key = state
        keys = derive_keys(operand(key), (3,))
        u = subtract(uniform_from_key(operand(keys[1]), rate.shape, np.float32), 0.5)
        v = uniform_from_key(operand(keys[2]), rate.shape, np.float32)
        distance = 0.5 - abs(u)
        k = floor((2 * a / distance + b) * u + rate + 0.43)
        s = log(v * inverse_alpha / (a / (distance * distance) + b))
        is_inside = logical_and(greater_equal(distance, 0.07), less_equal(v, limit))
        is_outside = logical_or(less(k, 0), logical_and(less(distance, 0.013), greater(v, distance)))
        is_below = less_equal(s, -rate + k * log_rate - gammaln(k + 1))
        accepts = logical_or(is_inside, logical_and(logical_not(is_outside), is_below))
        return where(accepts, k, count), logical_or(is_accepted, accepts), keys[0]

    initial = (rate * 0 - 1, less(rate, -math.inf), key)
    return while_loop(lambda s: any(logical_not(s[1])), step, initial)[0]
