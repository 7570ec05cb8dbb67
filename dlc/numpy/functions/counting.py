"""Counting: the size of the result is for the elements to say.

Of a traced array it is an open size, decided by the elements when the compiled function has come there. `bincount` and
`histogram` are for plain arrays alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.errors import ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.absent import COUNTED
from dlc.numpy.apply import ArrayLike, along, apply, convert, has_tracer, operand, promote, refuse
from dlc.numpy.functions.comparing import greater, logical_and
from dlc.numpy.functions.creation import ones
from dlc.numpy.functions.indexing import getitem, take
from dlc.numpy.functions.joining import append, stack
from dlc.numpy.functions.running import cumsum
from dlc.numpy.functions.shaping import flip, ravel, reshape
from dlc.numpy.functions.sorting import isin, sort
from dlc.numpy.places import known_if_empty, places_of

__all__ = [
    "argwhere", "bincount", "compress", "extract", "flatnonzero", "histogram", "intersect1d", "nonzero", "setdiff1d",
    "setxor1d", "trim_zeros", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
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


def nonzero(x: ArrayLike, /) -> tuple[Any, ...]:
    """The places of the elements that are not 0: an array of indices per axis."""
    x = operand(x)
    if not x.ndim:
        refuse(ShapeError("nonzero of an array of rank 0; there are no axes to have places along; use atleast_1d"))
    return tuple(places_of(convert(x, np.bool_)))


def flatnonzero(x: ArrayLike, /) -> Any:
    """The places of the elements that are not 0 in the flattened array."""
    return places_of(convert(ravel(x), np.bool_))[0]


def argwhere(x: ArrayLike, /) -> Any:
    """The places of the elements that are not 0: a row of indices for each."""
    x = operand(x)
    return stack(nonzero(x), 1) if x.ndim else reshape(flatnonzero(x), (-1, 1))[:, :0]


def extract(condition: ArrayLike, x: ArrayLike, /) -> Any:
    """The elements of the flattened array where the condition holds."""
    return compress(ravel(condition), x)


def compress(condition: ArrayLike, x: ArrayLike, /, axis: int | None = None) -> Any:
    """The parts along an axis where a vector holds; None: of the flattened array."""
    places = operand(condition)
    if places.ndim != 1:
        refuse(ShapeError(f"compress: a condition of shape {places.shape}; expected a vector"))
    (x, axis), places = along("compress", x, axis), flatnonzero(places)
    return take(x, places, axis=axis)


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
    x = known_if_empty(operand(x))
    if not isinstance(x, Tracer):
        by_numpy = cast("Callable[..., Any]", np.unique)
        return by_numpy(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    rows, along_axis = along("unique", x, axis)
    # Which elements differ does not follow a small step; what they are does.
    fixed: Tracer = apply(dl.StopGradientOp, rows)
    # As in NumPy, slices with a NaN are never equal.
    chosen, differs = (None, not equal_nan) if axis is None else (along_axis, True)
    _, first, inverse, counts = fixed.owner.select(dl.UniqueOp, fixed, axis=chosen, nan_differs=differs or None)
    values = apply(dl.GatherOp, rows, first, axis=along_axis)
    inverse = reshape(inverse, x.shape) if axis is None else inverse
    asked = [(return_index, first), (return_inverse, inverse), (return_counts, counts)]
    results = (values, *(result for is_asked, result in asked if is_asked))
    return results if len(results) > 1 else values


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


def union1d(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The different elements of two arrays, in ascending order."""
    return unique(append(x, y))


def intersect1d(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The different elements that both arrays have, in ascending order."""
    x, y = promote(x, y)
    values = unique(x)
    return getitem(values, isin(values, y))


def setdiff1d(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The different elements of the first array that the second has not, in ascending order."""
    values = unique(x)
    return getitem(values, isin(values, y, invert=True))


def setxor1d(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The different elements that one of two arrays has and the other has not, in ascending order."""
    x, y = promote(x, y)
    return sort(append(setdiff1d(x, y), setdiff1d(y, x)))


def trim_zeros(x: ArrayLike, /, trim: str = "fb") -> Any:
    """A vector without the zeros at its front ("f"), its back ("b") or both."""
    x = operand(x)
    if x.ndim != 1:
        refuse(ShapeError(f"trim_zeros: an array of shape {x.shape}; expected a vector"))
    counts = convert(convert(x, np.bool_), np.int64)
    kept = ones(x.shape, np.bool_)
    if "f" in trim.lower():
        kept = logical_and(kept, greater(cumsum(counts), 0))
    if "b" in trim.lower():
        kept = logical_and(kept, flip(greater(cumsum(flip(counts)), 0)))
    return compress(kept, x)


def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Array:
    """How often each integer from 0 on is in a vector, or the sum of its weights."""
    return _of_plain(np.bincount, x, weights=weights, minlength=minlength)


def histogram(x: ArrayLike, /, bins: int | Sequence[float] = 10, range: tuple[float, float] | None = None) -> Any:
    """How many elements are in each of some intervals, and the edges of these."""
    return _of_plain(np.histogram, x, bins=bins, range=range)


def _of_plain(function: Callable[..., Any], *operands: Any, **settings: Any) -> Any:
    """NumPy's result; UnsupportedError for traced operands."""
    if has_tracer([*operands, *settings.values()]):
        refuse(UnsupportedError(f"{function.__name__}: {COUNTED[function.__name__]}"))
    return function(*operands, **settings)
