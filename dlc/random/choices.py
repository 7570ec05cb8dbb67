"""Choices: orders, elements of an array, places by their probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.errors import ShapeError
from dlc.numpy import add, argmax, argsort, cumsum, log, multiply, reshape, searchsorted, subtract, take, take_along_axis, top_k
from dlc.numpy.apply import ArrayLike, Operand, axis_of, by_numpy, convert, operand, promote_to_float, refuse
from dlc.numpy.functions.creation import Shape
from dlc.random.draws import gumbel_of, randint_of, uniform_of
from dlc.random.keys import bits_of, keys_of, shape_of, used

__all__ = ["categorical", "choice", "permutation"]


def permutation(key: ArrayLike, x: int | ArrayLike, /, axis: int = 0, *, independent: bool = False, reuse: bool = False) -> Any:
    """The entries of `x` along `axis` in a random order, each row by itself if `independent`; of an int, those of arange."""
    array = operand(x)
    if not array.ndim:
        return _shuffled(used("permutation", key, reuse), by_numpy("permutation", np.arange, _count("permutation", x)), 0)
    axis = axis_of("dlc.random.permutation", array, axis)
    key = used("permutation", key, reuse)
    if independent or array.ndim == 1:
        return _shuffled(key, array, axis)
    return take(array, _shuffled(key, np.arange(array.shape[axis]), 0), axis=axis)


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
    """Entries of `a` along `axis`, or numbers below the int `a`, as many as `shape` says, with probabilities `p`.

    Without `replace` each is taken once at most. Raises ShapeError for more than there are then, and for another number of
    probabilities.
    """
    array, shape = operand(a), shape_of(shape)
    axis = axis_of("dlc.random.choice", array, axis) if array.ndim else 0
    size, count = array.shape[axis] if array.ndim else _count("choice", a), math.prod(shape)
    if count and (size < 1 or (not replace and count > size)):
        refuse(ShapeError(f"dlc.random.choice: {count} of {size} entries{'' if replace else ', each of them once at most'}"))
    places = reshape(_places(used("choice", key, reuse), size, count, replace, p), shape)
    return take(array, places, axis=axis) if array.ndim else places


def categorical(
    key: ArrayLike, logits: ArrayLike, /, axis: int = -1, shape: Shape | None = None, *, reuse: bool = False
) -> Any:
    """Places along `axis`, with probabilities softmax(logits); of `shape`, which ends with the other axes of `logits`.

    Raises ShapeError for a shape that does not.
    """
    (array,) = promote_to_float(logits)
    axis = axis_of("dlc.random.categorical", array, axis)
    others = (*array.shape[:axis], *array.shape[axis + 1 :])
    shape = others if shape is None else shape_of(shape)
    before = shape[: len(shape) - len(others)]
    if (*before, *others) != shape:
        refuse(ShapeError(f"dlc.random.categorical: shape {shape} does not end with {others}, the axes beside axis {axis}"))
    noise = gumbel_of(used("categorical", key, reuse), (*before, *array.shape), array.dtype)
    return argmax(add(noise, array), axis=axis + len(before))


def _places(key: Operand, size: int, count: int, replace: bool, p: ArrayLike | None) -> Any:
    """So many places of an axis."""
    if p is None:
        return (
            convert(randint_of(key, (count,), 0, size, np.dtype(np.int32)), np.int64)
            if replace
            else _shuffled(key, np.arange(size), 0)[:count]
        )
    (p,) = promote_to_float(p)
    if p.shape != (size,):
        refuse(ShapeError(f"dlc.random.choice: p of shape {p.shape}; expected ({size},), one probability for each entry"))
    if not replace:
        # The largest of noisy logarithms: Vieira, "Gumbel-max trick and weighted reservoir sampling" (2014).
        return top_k(add(gumbel_of(key, (size,), p.dtype), log(p)), count)[1]
    sums = cumsum(p)
    return searchsorted(sums, multiply(sums[-1], subtract(1.0, uniform_of(key, (count,), p.dtype))))


def _shuffled(key: Operand, x: Operand, axis: int) -> Any:
    """The entries of each row along `axis` by random keys of 32 bits, so often that equal ones are unlikely to matter."""
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        keys = keys_of(key, (2,))
        key = operand(keys[0])
        x = operand(take_along_axis(x, argsort(bits_of(operand(keys[1]), x.shape, np.uint32), axis), axis))
    return x


def _count(name: str, x: Any) -> int:
    if not isinstance(x, int):
        refuse(ShapeError(f"dlc.random.{name}: {x!r}; expected an array with an axis, or how many numbers there are"))
    return x
