"""Distributions: floats are float32 and integers int32 unless told otherwise."""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError
from dlc.frontend.trace import is_number
from dlc.numpy import (
    add,
    bitwise_or,
    bitwise_right_shift,
    broadcast_shapes,
    clip,
    divide,
    equal,
    less,
    less_equal,
    log,
    maximum,
    multiply,
    negative,
    nextafter,
    remainder,
    subtract,
    where,
)
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, apply, convert, is_floating, operand, refuse
from dlc.numpy.functions.creation import Shape
from dlc.random.keys import bits_of, keys_of, shape_of, used

__all__ = ["bernoulli", "bits", "gumbel", "normal", "randint", "truncated_normal", "uniform"]


def bits(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.uint32, *, reuse: bool = False) -> Any:
    """Unsigned integers of which every bit is random."""
    if np.dtype(dtype).kind != "u":
        refuse(DTypeError(f"dlc.random.bits: dtype {np.dtype(dtype)}; expected an unsigned integer"))
    return bits_of(used("bits", key, reuse), shape_of(shape), dtype)


def uniform(
    key: ArrayLike,
    shape: Shape = (),
    dtype: AnyDType = np.float32,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    reuse: bool = False,
) -> Any:
    """Floats of [minval, maxval), all equally likely; the bounds broadcast to `shape`."""
    return uniform_of(used("uniform", key, reuse), shape_of(shape), dtype, minval, maxval)


def normal(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Floats of the normal distribution of mean 0 and variance 1."""
    one = np.ones((), dtype)
    return _normal(used("normal", key, reuse), shape_of(shape), dtype, np.nextafter(-one, np.zeros((), dtype)), one)


def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: Shape | None = None,
    dtype: AnyDType = np.float32,
    *,
    reuse: bool = False,
) -> Any:
    """Floats of the normal distribution between bounds, which broadcast to `shape`; without it to each other."""
    low, high = convert(lower, dtype), convert(upper, dtype)
    root = np.asarray(math.sqrt(2), dtype)
    below, above = (apply(dl.ErfOp, divide(bound, root)) for bound in (low, high))
    size = broadcast_shapes(low.shape, high.shape) if shape is None else shape_of(shape)
    numbers = _normal(used("truncated_normal", key, reuse), size, dtype, below, above)
    return clip(numbers, nextafter(low, np.asarray(np.inf, dtype)), nextafter(high, np.asarray(-np.inf, dtype)))


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Shape | None = None, *, reuse: bool = False) -> Any:
    """Bools that are true with the probability `p`, which broadcasts to `shape`; without it of the shape of `p`."""
    p = convert(p, np.float32) if is_number(p) else operand(p)
    return less(uniform_of(used("bernoulli", key, reuse), p.shape if shape is None else shape_of(shape), p.dtype), p)


def gumbel(key: ArrayLike, shape: Shape = (), dtype: AnyDType = np.float32, *, reuse: bool = False) -> Any:
    """Floats of Gumbel's distribution: -log(-log(u)) for uniform `u`."""
    return gumbel_of(used("gumbel", key, reuse), shape_of(shape), dtype)


def randint(
    key: ArrayLike, shape: Shape, minval: ArrayLike, maxval: ArrayLike, dtype: AnyDType = np.int32, *, reuse: bool = False
) -> Any:
    """Integers of [minval, maxval), which broadcast to `shape`; minval where that is empty.

    `maxval` may be one above the largest of `dtype`. For n bits of the dtype, probabilities differ by one part in 2ⁿ.
    """
    if np.dtype(dtype).kind not in "iu":
        refuse(DTypeError(f"dlc.random.randint: dtype {np.dtype(dtype)}; expected an integer"))
    return randint_of(used("randint", key, reuse), shape_of(shape), minval, maxval, np.dtype(dtype))


def uniform_of(key: Operand, shape: tuple[int, ...], dtype: AnyDType, minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0) -> Any:
    """`uniform` of a key that is checked."""
    dtype = np.dtype(dtype)
    if not is_floating(dtype):
        refuse(DTypeError(f"dlc.random: floats of dtype {dtype}; expected a float"))
    limits = cast(Any, ml_dtypes.finfo)(dtype)
    word, digits = np.dtype(f"uint{limits.bits}"), int(limits.nmant)
    # Fewer than 8 digits are taken of 8 bits; it is part of the format.
    width = limits.bits if digits >= 8 else 8
    drawn = convert(bits_of(key, shape, f"uint{width}"), word)
    # The numbers of [1, 2): any digits after the exponent of 1.
    one = np.ones((), dtype)
    pattern = bitwise_or(bitwise_right_shift(drawn, np.asarray(width - digits, word)), one.view(word))
    fraction = subtract(apply(dl.BitcastOp, operand(pattern), to=element_type(dtype)), one)
    low, high = convert(minval, dtype), convert(maxval, dtype)
    return maximum(low, add(multiply(fraction, subtract(high, low)), low))


def gumbel_of(key: Operand, shape: tuple[int, ...], dtype: AnyDType) -> Any:
    """`gumbel` of a key that is checked."""
    least = cast(Any, ml_dtypes.finfo)(np.dtype(dtype)).smallest_normal
    return negative(log(negative(log(uniform_of(key, shape, dtype, least)))))


def randint_of(key: Operand, shape: tuple[int, ...], minval: ArrayLike, maxval: ArrayLike, dtype: np.dtype[Any]) -> Any:
    """`randint` of a key that is checked."""
    limits, largest = np.iinfo(dtype), np.iinfo(np.int64).max
    low = clip(convert(operand(minval), np.int64), limits.min, min(limits.max, largest))
    high = clip(convert(operand(maxval), np.int64), limits.min, min(limits.max + 1, largest))
    unsigned = np.dtype(f"uint{8 * max(dtype.itemsize, 4)}")
    # All numbers of the unsigned dtype are a span of 0.
    span = where(less_equal(high, low), np.ones((), unsigned), convert(subtract(high, low), unsigned))
    # The remainder of a number of twice as many bits, by those of its halves: fewer bits would prefer small remainders.
    keys = keys_of(key, (2,))
    upper, lower = (bits_of(operand(keys[k]), shape, unsigned) for k in range(2))
    half = remainder(np.asarray(1 << (4 * unsigned.itemsize), unsigned), span)
    shift = remainder(multiply(half, half), span)
    offset = remainder(add(multiply(remainder(upper, span), shift), remainder(lower, span)), span)
    return convert(add(convert(low, unsigned), where(equal(span, 0), lower, offset)), dtype)


def _normal(key: Operand, shape: tuple[int, ...], dtype: Any, below: ArrayLike, above: ArrayLike) -> Any:
    """Normal numbers of which √½ has an error function between these."""
    return multiply(apply(dl.ErfinvOp, operand(uniform_of(key, shape, dtype, below, above))), np.asarray(math.sqrt(2), dtype))
