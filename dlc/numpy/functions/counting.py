"""Counting: the size of the result is for the elements to say.

Of a traced array it is an open size, decided by the elements when the compiled function has come there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.errors import ShapeError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import (
    ArrayLike,
    Operand,
    along,
    apply,
    axis_of,
    by_numpy,
    convert,
    has_tracer,
    operand,
    promote,
    promote_to_float,
    refuse,
)
from dlc.numpy.functions.comparing import equal, greater, greater_equal, less, less_equal, logical_and, maximum
from dlc.numpy.functions.creation import linspace, ones, zeros
from dlc.numpy.functions.elementwise import add, multiply, subtract, where
from dlc.numpy.functions.indexing import getitem, take
from dlc.numpy.functions.joining import append, stack
from dlc.numpy.functions.reductions import max, min
from dlc.numpy.functions.running import cumsum
from dlc.numpy.functions.shaping import flip, ravel, reshape
from dlc.numpy.functions.sorting import isin, searchsorted, sort
from dlc.numpy.functions.updating import At
from dlc.numpy.places import known_if_empty, numbers_below, places_of

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
        if axis is not None:
            axis = axis_of("unique", x, axis)
        find = cast("Callable[..., Any]", np.unique)
        return find(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
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


def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Any:
    """How often each integer from 0 on is in a vector, or the sum of its weights; one below 0 is an error."""
    x = known_if_empty(operand(x))
    if x.ndim != 1 or (x.dtype.kind not in "iub" and x.size):
        refuse(ShapeError(f"bincount: an array of shape {x.shape} and dtype {x.dtype}; expected a vector of integers"))
    if not has_tracer([x, weights]):
        return by_numpy(
            "bincount", np.bincount, cast(Array, x).astype(np.int64), None if weights is None else operand(weights), minlength
        )
    x = convert(x, np.int64)
    end = operand(maximum(add(max(x, initial=-1), 1), minlength))
    added = operand(1) if weights is None else convert(operand(weights), np.float64)
    # One more than there are, so that there is one. Counted from the end, a number below 0 would be a place.
    empty = zeros(operand(numbers_below(end)).shape[0] + 1, np.int64 if weights is None else np.float64)
    places = where(less(x, 0), subtract(x, add(end, 1)), x)
    return getitem(At(empty)[places].add(added), slice(None, -1))


def histogram(x: ArrayLike, /, bins: int | Sequence[float] = 10, range: tuple[float, float] | None = None) -> Any:
    """How many elements are in each of some intervals, the last of which has its end, and the edges of these."""
    x = known_if_empty(operand(x))
    if not has_tracer([x, bins, range]):
        return by_numpy(
            "histogram", np.histogram, x, bins if isinstance(bins, int) else operand(cast("ArrayLike", bins)), range
        )
    x = ravel(x)
    edges = _edges(operand(x), bins, range) if isinstance(bins, int) else operand(cast("ArrayLike", bins))
    last = getitem(edges, -1)
    places = subtract(searchsorted(edges, x, side="right"), 1)
    places = where(equal(x, last), edges.shape[0] - 2, places)
    inside = logical_and(greater_equal(x, getitem(edges, 0)), less_equal(x, last))
    counts = At(zeros(edges.shape[0] - 1, np.int64))[where(inside, places, 0)].add(convert(inside, np.int64))
    return counts, edges


def _edges(x: Operand, bins: int, range: tuple[float, float] | None) -> Operand:
    """The ends of so many intervals of one width, from the smallest element to the largest; around one value, of width 1."""
    dtype = promote_to_float(x)[0].dtype
    low, high = (min(x), max(x)) if range is None else (np.asarray(end, dtype) for end in range)
    around = multiply(convert(equal(low, high), dtype), 0.5)
    return operand(linspace(subtract(low, around), add(high, around), bins + 1))
