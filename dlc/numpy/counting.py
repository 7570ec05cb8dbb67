"""Counting: the size of the result is for the elements to say.

On plain arrays these are NumPy's functions; of a traced array they are an error that says what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from dlc.numpy.absent import COUNTED
from dlc.numpy.apply import ArrayLike, has_tracer, operand, refuse

__all__ = [
    "argwhere", "bincount", "compress", "extract", "flatnonzero", "histogram", "intersect1d", "nonzero", "setdiff1d",
    "trim_zeros", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """The different elements, where each is first, which one is where, and how many there are of each."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The different elements, and how many there are of each."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The different elements, and which one is where."""

    values: Array
    inverse_indices: Array


def _counted(function: Callable[..., Any], *operands: Any, **settings: Any) -> Any:
    """NumPy's result; UnsupportedError for traced operands."""
    if has_tracer([*operands, *settings.values()]):
        refuse(UnsupportedError(f"{function.__name__}: {COUNTED[function.__name__]}"))
    return function(*operands, **settings)


def nonzero(x: ArrayLike, /) -> tuple[Array, ...]:
    """The places of the elements that are not 0: an array of indices per axis."""
    return _counted(np.nonzero, x)


def flatnonzero(x: ArrayLike, /) -> Array:
    """The places of the elements that are not 0 in the flattened array."""
    return _counted(np.flatnonzero, x)


def argwhere(x: ArrayLike, /) -> Array:
    """The places of the elements that are not 0: a row of indices for each."""
    return _counted(np.argwhere, x)


def extract(condition: ArrayLike, x: ArrayLike, /) -> Array:
    """The elements of the flattened array where the condition holds."""
    return _counted(np.extract, condition, x)


def compress(condition: ArrayLike, x: ArrayLike, /, axis: int | None = None) -> Array:
    """The parts along an axis where a vector holds; None: of the flattened array."""
    return _counted(np.compress, condition, x, axis=axis)


def unique(
    x: ArrayLike,
    /,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    """The different elements in ascending order; and, as asked for, where each is first, which one is where, how many."""
    settings = {"return_index": return_index, "return_inverse": return_inverse, "return_counts": return_counts}
    return _counted(np.unique, x, axis=axis, equal_nan=equal_nan, **settings)


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The different elements, where each is first, which one is where, and how many there are of each; NaN differs from NaN."""
    values, places, which, counts = unique(x, True, True, True, equal_nan=False)
    return UniqueAll(values, places, which.reshape(operand(x).shape), counts)


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The different elements, and how many there are of each; NaN differs from NaN."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The different elements, and which one is where; NaN differs from NaN."""
    values, which = unique(x, return_inverse=True, equal_nan=False)
    return UniqueInverse(values, which.reshape(operand(x).shape))


def unique_values(x: ArrayLike, /) -> Array:
    """The different elements; NaN differs from NaN."""
    return unique(x, equal_nan=False)


def union1d(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The different elements of two arrays, in ascending order."""
    return _counted(np.union1d, x, y)


def intersect1d(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The different elements that both arrays have, in ascending order."""
    return _counted(np.intersect1d, x, y)


def setdiff1d(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The different elements of the first array that the second has not, in ascending order."""
    return _counted(np.setdiff1d, x, y)


def trim_zeros(x: ArrayLike, /, trim: str = "fb") -> Array:
    """A vector without the zeros at its front ("f"), its back ("b") or both."""
    return _counted(np.trim_zeros, x, trim=trim)


def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Array:
    """How often each integer from 0 on is in a vector, or the sum of its weights."""
    return _counted(np.bincount, x, weights=weights, minlength=minlength)


def histogram(x: ArrayLike, /, bins: int | Sequence[float] = 10, range: tuple[float, float] | None = None) -> Any:
    """How many elements are in each of some intervals, and the edges of these."""
    return _counted(np.histogram, x, bins=bins, range=range)
