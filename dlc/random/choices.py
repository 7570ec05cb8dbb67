"""Random permutations, choices and categorical samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.errors import ShapeError
from dlc.numpy import add, argmax, argsort, cumsum, log, multiply, reshape, searchsorted, subtract, take, take_along_axis, top_k
from dlc.numpy.apply import ArrayLike, Operand, call_numpy, convert, normalize_axis, operand, promote_to_float, refuse
from dlc.numpy.functions.creation import Shape
from dlc.random.distributions import gumbel_from_key, randint_from_key, uniform_from_key
from dlc.random.keys import as_int_shape, checked_key, derive_keys, random_bits

__all__ = ["categorical", "choice", "permutation"]


def permutation(key: ArrayLike, x: int | ArrayLike, /, axis: int = 0, *, independent: bool = False, reuse: bool = False) -> Any:
    """Permute the entries of `x` along `axis` at random, each row separately if `independent`; an int n means arange(n)."""
    array = operand(x)
    if not array.ndim:
        return _shuffle(
            checked_key("permutation", key, reuse), call_numpy("permutation", np.arange, _count("permutation", x)), 0
        )
    axis = normalize_axis("dlc.random.permutation", array, axis)
    key = checked_key("permutation", key, reuse)
    if independent or array.ndim == 1:
        return _shuffle(key, array, axis)
    return take(array, _shuffle(key, np.arange(array.shape[axis]), 0), axis=axis)


def choice(
    key: ArrayLike,
    a: int | ArrayLike,
    /,
    shape: Shape = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    *,
    reuse: bool = False,
) -> Any:
    """Choose `shape` entries of `a` along `axis`, or integers below an int `a`, with probabilities `p`.

    Without `replace` each entry is chosen at most once. Raises ShapeError for more choices than entries then, and for a wrong
    number of probabilities.
    """
    array, shape = operand(a), as_int_shape(shape)
    axis = normalize_axis("dlc.random.choice", array, axis) if array.ndim else 0
    size, count = array.shape[axis] if array.ndim else _count("choice", a), math.prod(shape)
    if count and (size < 1 or (not replace and count > size)):
        refuse(ShapeError(f"dlc.random.choice: {count} of {size} entries{'' if replace else ' without replacement'}"))
    indices = reshape(_sample_indices(checked_key("choice", key, reuse), size, count, replace, p), shape)
    return take(array, indices, axis=axis) if array.ndim else indices


def categorical(
    key: ArrayLike, logits: ArrayLike, /, axis: int = -1, shape: Shape | None = None, *, reuse: bool = False
) -> Any:
    """Sample indices along `axis` with probabilities softmax(logits); `shape` ends with the other axes of `logits`.

    Raises ShapeError for a shape that does not.
    """
    (array,) = promote_to_float(logits)
    axis = normalize_axis("dlc.random.categorical", array, axis)
    batch_shape = (*array.shape[:axis], *array.shape[axis + 1 :])
    shape = batch_shape if shape is None else as_int_shape(shape)
    sample_shape = shape[: len(shape) - len(batch_shape)]
    if (*sample_shape, *batch_shape) != shape:
        refuse(
            ShapeError(
                f"dlc.random.categorical: shape {shape} does not end with {batch_shape}, the other axes than axis {axis}"
            )
        )
    noise = gumbel_from_key(checked_key("categorical", key, reuse), (*sample_shape, *array.shape), array.dtype)
    return argmax(add(noise, array), axis=axis + len(sample_shape))


def _sample_indices(key: Operand, size: int, num_samples: int, replace: bool, p: ArrayLike | None) -> Any:
    """Sample `num_samples` indices of an axis of this size."""
    if p is None:
        return (
            convert(randint_from_key(key, (num_samples,), 0, size, np.dtype(np.int32)), np.int64)
            if replace
            else _shuffle(key, np.arange(size), 0)[:num_samples]
        )
    (p,) = promote_to_float(p)
    if p.shape != (size,):
        refuse(ShapeError(f"dlc.random.choice: p of shape {p.shape}; expected ({size},), one for each entry"))
    if not replace:
        # Gumbel top-k trick. Source: Vieira, "Gumbel-max trick and weighted reservoir sampling" (2014).
        return top_k(add(gumbel_from_key(key, (size,), p.dtype), log(p)), num_samples)[1]
    sums = cumsum(p)
    return searchsorted(sums, multiply(sums[-1], subtract(1.0, uniform_from_key(key, (num_samples,), p.dtype))))


def _shuffle(key: Operand, x: Operand, axis: int) -> Any:
    """Shuffle each row along `axis` by sorting with random 32-bit keys, in enough rounds to make ties irrelevant."""
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        keys = derive_keys(key, (2,))
        key = operand(keys[0])
        x = operand(take_along_axis(x, argsort(random_bits(operand(keys[1]), x.shape, np.uint32), axis), axis))
    return x


def _count(name: str, x: Any) -> int:
    if not isinstance(x, int):
        refuse(ShapeError(f"dlc.random.{name}: {x!r}; expected an array with at least one axis, or an integer"))
    return x
