"""Distributions.

The default dtypes are float32 and int32.
"""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.frontend.trace import is_python_scalar
from dlc.numpy import (
    abs,
    add,
    bitwise_or,
    bitwise_right_shift,
    broadcast_shapes,
    clip,
    divide,
    equal,
    exp,
    expm1,
    greater,
    less,
    less_equal,
    log,
    log1p,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    remainder,
    sign,
    sqrt,
    square,
    subtract,
    tan,
    where,
)
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, apply, convert, in_float32_or_wider, is_floating, operand, refuse
from dlc.numpy.functions.creation import Shape
from dlc.random.keys import as_int_shape, checked_key, derive_keys, random_bits
from dlc.special import log_ndtr

__all__ = [
    "bernoulli", "bits", "cauchy", "exponential", "gumbel", "laplace", "logistic", "normal", "randint", "truncated_normal",
    "uniform",
]  # fmt: skip


def bits(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.uint32, *, reuse: bool = False) -> Any:
    """Draw uniformly distributed unsigned integers."""
    if np.dtype(dtype).kind != "u":
        refuse(DTypeError(f"dlc.random.bits: dtype {np.dtype(dtype)}; expected an unsigned integer"))
    return random_bits(checked_key("bits", key, reuse), as_int_shape(shape), dtype)


def uniform(
    key: ArrayLike,
    shape: Shape = (),
    dtype: AnyDType = np.float32,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    reuse: bool = False,
) -> Any:
    """Draw floats uniformly from [minval, maxval); the bounds broadcast to `shape`."""
    return uniform_from_key(checked_key("uniform", key, reuse), as_int_shape(shape), dtype, minval, maxval)


def normal(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from the standard normal distribution."""
    return normal_from_key(checked_key("normal", key, reuse), as_int_shape(shape), dtype)


def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: Shape | None = None,
    dtype: AnyDType = np.float32,
    *,
    reuse: bool = False,
) -> Any:
    """Draw floats from the standard normal distribution truncated to [lower, upper]; the bounds broadcast to `shape`."""
    low, high = convert(lower, dtype), convert(upper, dtype)
    sqrt_2 = np.asarray(math.sqrt(2), dtype)
    lower_erf, upper_erf = (apply(dl.ErfOp, divide(limit, sqrt_2)) for limit in (low, high))
    size = broadcast_shapes(low.shape, high.shape) if shape is None else as_int_shape(shape)
    fraction = _fraction_from_key(checked_key("truncated_normal", key, reuse), size, dtype)
    samples = multiply(apply(dl.ErfinvOp, _between(fraction, lower_erf, upper_erf)), sqrt_2)
    if not _is_central(lower, upper):
        # In a tail, erf rounds to ±1: sample it by the logarithm of its probability instead.
        is_upper = greater(low, _MIN_TAIL_ARGUMENT)
        is_tail = logical_or(is_upper, less(high, -_MIN_TAIL_ARGUMENT))
        near, far = where(is_upper, low, negative(high)), where(is_upper, high, negative(low))
        tail = _upper_tail(fraction, where(is_tail, near, _MIN_TAIL_ARGUMENT), where(is_tail, far, math.inf))
        samples = where(is_tail, where(is_upper, tail, negative(tail)), samples)
    return clip(samples, nextafter(low, np.asarray(np.inf, dtype)), nextafter(high, np.asarray(-np.inf, dtype)))


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Shape | None = None, *, reuse: bool = False) -> Any:
    """Draw bools that are true with probability `p`, which broadcasts to `shape`; the default shape is that of `p`."""
    p = convert(p, np.float32) if is_python_scalar(p) else operand(p)
    return less(
        uniform_from_key(checked_key("bernoulli", key, reuse), p.shape if shape is None else as_int_shape(shape), p.dtype), p
    )


def gumbel(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from the standard Gumbel distribution: -log(-log(u)) for uniform u."""
    return gumbel_from_key(checked_key("gumbel", key, reuse), as_int_shape(shape), dtype)


def exponential(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from the exponential distribution of rate 1."""
    return exponential_from_key(checked_key("exponential", key, reuse), as_int_shape(shape), dtype)


def laplace(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from the Laplace distribution of location 0 and scale 1."""
    lowest = cast(Any, ml_dtypes.finfo)(np.dtype(dtype)).epsneg - 1.0
    u = uniform_from_key(checked_key("laplace", key, reuse), as_int_shape(shape), dtype, lowest, 1.0)
    return multiply(sign(u), log1p(negative(abs(u))))


def logistic(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from the logistic distribution of location 0 and scale 1."""
    smallest = cast(Any, ml_dtypes.finfo)(np.dtype(dtype)).smallest_normal
    u = uniform_from_key(checked_key("logistic", key, reuse), as_int_shape(shape), dtype, smallest, 1.0)
    return subtract(log(u), log1p(negative(u)))


def cauchy(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Draw floats from the Cauchy distribution of location 0 and scale 1."""
    lowest = cast(Any, ml_dtypes.finfo)(np.dtype(dtype)).eps
    u = uniform_from_key(checked_key("cauchy", key, reuse), as_int_shape(shape), dtype, lowest, 1.0)
    return tan(multiply(np.asarray(math.pi, dtype), subtract(u, 0.5)))


def randint(
    key: ArrayLike, shape: Shape, minval: ArrayLike, maxval: ArrayLike, dtype: AnyDType = np.int32, *, reuse: bool = False
) -> Any:
    """Draw integers uniformly from [minval, maxval); the bounds broadcast to `shape`; minval if the range is empty.

    `maxval` may be one above the maximum of `dtype`. For a dtype of n bits, probabilities deviate by at most 2⁻ⁿ, relatively.
    """
    if np.dtype(dtype).kind not in "iu":
        refuse(DTypeError(f"dlc.random.randint: dtype {np.dtype(dtype)}; expected an integer"))
    return randint_from_key(checked_key("randint", key, reuse), as_int_shape(shape), minval, maxval, np.dtype(dtype))


def uniform_from_key(
    key: Operand, shape: tuple[int, ...], dtype: AnyDType, minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0
) -> Any:
    """Draw as `uniform` does from a validated key."""
    return _between(_fraction_from_key(key, shape, dtype), convert(minval, dtype), convert(maxval, dtype))


def _fraction_from_key(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Any:
    """Draw floats uniformly from [0, 1): multiples of the spacing of floats in [1, 2)."""
    dtype = np.dtype(dtype)
    if not is_floating(dtype):
        refuse(DTypeError(f"dlc.random: dtype {dtype}; expected a float"))
    limits = cast(Any, ml_dtypes.finfo)(dtype)
    word, digits = np.dtype(f"uint{limits.bits}"), int(limits.nmant)
    # Formats with fewer than 8 mantissa bits use 8 random bits, as in JAX.
    width = limits.bits if digits >= 8 else 8
    random_word = convert(random_bits(key, shape, f"uint{width}"), word)
    # Random mantissa bits with the exponent of 1.0 are uniform in [1, 2).
    one = np.ones((), dtype)
    pattern = bitwise_or(bitwise_right_shift(random_word, np.asarray(width - digits, word)), one.view(word))
    return subtract(apply(dl.BitcastOp, operand(pattern), to=element_type(dtype)), one)


def _between(fraction: Operand, low: Operand, high: Operand) -> Any:
    """Map [0, 1) to [low, high); to low if that is empty."""
    scaled = add(multiply(fraction, subtract(high, low)), low)
    # The sum may round to the upper bound.
    return maximum(low, minimum(scaled, nextafter(high, np.asarray(-np.inf, high.dtype))))


# Limit from which an interval is a tail. 1 - erf(2 / √2) is 0.05, so erf has 4 bits fewer there.
_MIN_TAIL_ARGUMENT = 2.0
_TAIL_NEWTON_STEPS = 4


def _is_central(*limits: ArrayLike) -> bool:
    """Return whether limits are static and not beyond the start of a tail."""
    return all(isinstance(v, int | float | np.ndarray) and bool((np.abs(v) <= _MIN_TAIL_ARGUMENT).all()) for v in limits)


@in_float32_or_wider
def _upper_tail(fraction: Operand, near: Operand, far: Operand) -> Any:
    """Map [0, 1) to normal floats between two positive limits: solve ln Q(x) = ln(Q(near) - fraction·(Q(near) - Q(far))).

    Q is the upper tail probability. ln Q is concave, and its derivative is the ratio of the density to Q.
    """
    log_near = log_ndtr(negative(near))
    relative = log1p(multiply(fraction, expm1(subtract(log_ndtr(negative(far)), log_near))))
    target = add(log_near, relative)
    x = sqrt(subtract(square(near), multiply(relative, 2)))
    for _ in range(_TAIL_NEWTON_STEPS):
        log_x = log_ndtr(negative(x))
        log_density = subtract(multiply(square(x), -0.5), 0.5 * math.log(2 * math.pi))
        x = add(x, multiply(subtract(log_x, target), exp(subtract(log_x, log_density))))
    return x


def exponential_from_key(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Any:
    """Draw as `exponential` does from a validated key."""
    return negative(log1p(negative(uniform_from_key(key, shape, dtype))))


def gumbel_from_key(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Any:
    """Draw as `gumbel` does from a validated key."""
    smallest = cast(Any, ml_dtypes.finfo)(np.dtype(dtype)).smallest_normal
    return negative(log(negative(log(uniform_from_key(key, shape, dtype, smallest)))))


def randint_from_key(key: Operand, shape: tuple[int, ...], minval: ArrayLike, maxval: ArrayLike, dtype: np.dtype[Any]) -> Any:
    """Draw as `randint` does from a validated key."""
    limits, largest = np.iinfo(dtype), np.iinfo(np.int64).max
    low = clip(convert(operand(minval), np.int64), limits.min, min(limits.max, largest))
    high = clip(convert(operand(maxval), np.int64), limits.min, min(limits.max + 1, largest))
    unsigned = np.dtype(f"uint{8 * max(dtype.itemsize, 4)}")
    # A span of 0 denotes the full range of the unsigned dtype.
    span = where(less_equal(high, low), np.ones((), unsigned), convert(subtract(high, low), unsigned))
    # Reduce a random number of twice the width modulo the span, by halves: a single word would be biased to small values.
    keys = derive_keys(key, (2,))
    upper, lower = (random_bits(operand(keys[k]), shape, unsigned) for k in range(2))
    half_range = remainder(np.asarray(1 << (4 * unsigned.itemsize), unsigned), span)
    shift = remainder(multiply(half_range, half_range), span)
    offset = remainder(add(multiply(remainder(upper, span), shift), remainder(lower, span)), span)
    return convert(add(convert(low, unsigned), where(equal(span, 0), lower, offset)), dtype)


def normal_from_key(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Any:
    """Draw as `normal` does from a validated key."""
    one = np.ones((), dtype)
    return _normal(key, shape, dtype, np.nextafter(-one, np.zeros((), dtype)), one)


def _normal(key: Operand, shape: tuple[int, ...], dtype: Any, lower_erf: ArrayLike, upper_erf: ArrayLike) -> Any:
    """Draw normal floats whose erf(x / √2) is uniform between `lower_erf` and `upper_erf`."""
    return multiply(
        apply(dl.ErfinvOp, operand(uniform_from_key(key, shape, dtype, lower_erf, upper_erf))), np.asarray(math.sqrt(2), dtype)
    )
