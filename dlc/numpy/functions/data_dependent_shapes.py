"""Data-dependent shapes: selection, unique elements, set operations and counts.

For a traced array, the size of the result is a data-dependent size: it is known once the compiled function has computed the
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.errors import ArgumentError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, from_parts
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import (
    ArrayLike,
    Axes,
    Operand,
    apply,
    call_numpy,
    convert,
    is_less,
    is_traced,
    normalize_axes,
    normalize_axis,
    operand,
    operand_in_scope,
    promote,
    promote_to_float,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.data_dependent import constant_if_empty, dynamic_arange, true_indices
from dlc.numpy.functions.comparison import equal, greater, greater_equal, less, less_equal, logical_and, maximum
from dlc.numpy.functions.creation import asarray, linspace, ones, zeros
from dlc.numpy.functions.cumulative import cumsum, diff
from dlc.numpy.functions.elementwise import add, divide, multiply, subtract, where
from dlc.numpy.functions.indexed_updates import At
from dlc.numpy.functions.indexing import getitem, take
from dlc.numpy.functions.joining import append, stack
from dlc.numpy.functions.reductions import max, min, sum
from dlc.numpy.functions.shape_manipulation import flip, ravel, reshape
from dlc.numpy.functions.sorting import isin, searchsorted, sort
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = [
    "argwhere", "bincount", "compress", "extract", "flatnonzero", "histogram", "histogram2d", "histogram_bin_edges",
    "histogramdd", "intersect1d", "nonzero", "setdiff1d", "setxor1d", "trim_zeros", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """Result of unique_all: unique values, first indices, inverse indices and counts."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Result of unique_counts: unique values and counts."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Result of unique_inverse: unique values and inverse indices."""

    values: Array
    inverse_indices: Array


def nonzero(x: ArrayLike, /) -> tuple[Any, ...]:
    """Return the indices of the nonzero elements, one array for each axis."""
    x = operand(x)
    if not x.ndim:
        refuse(ShapeError("nonzero of an array of rank 0, which has no axes to index; use atleast_1d"))
    return tuple(true_indices(convert(x, np.bool_)))


def flatnonzero(x: ArrayLike, /) -> Any:
    """Return the indices of the nonzero elements of the flattened array."""
    return true_indices(convert(ravel(x), np.bool_))[0]


def argwhere(x: ArrayLike, /) -> Any:
    """Return the indices of the nonzero elements, one row for each element."""
    x = operand(x)
    return stack(nonzero(x), 1) if x.ndim else reshape(flatnonzero(x), (-1, 1))[:, :0]


def extract(condition: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the elements of the flattened array where the condition is true."""
    return compress(ravel(condition), x)


def compress(condition: ArrayLike, x: ArrayLike, /, axis: int | None = None) -> Any:
    """Return the slices along an axis where a vector is true; axis None: of the flattened array."""
    mask = operand(condition)
    if mask.ndim != 1:
        refuse(ShapeError(f"compress: condition of shape {mask.shape}; expected a vector"))
    x, axis = with_axis_or_flattened("compress", x, axis)
    return take(x, flatnonzero(mask), axis=axis)


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
    """Return the unique elements in ascending order and, if requested, first indices, inverse indices and counts."""
    if isinstance(x, Complex):
        return _unique_complex(x, (return_index, return_inverse, return_counts), axis)
    x = constant_if_empty(operand(x))
    if not isinstance(x, Tracer):
        if axis is not None:
            axis = normalize_axis("unique", x, axis)
        numpy_unique = cast("Callable[..., Any]", np.unique)
        return numpy_unique(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    rows, along_axis = with_axis_or_flattened("unique", x, axis)
    # The derivative is that of the selected elements; the selection itself is constant.
    constant_rows: Tracer = apply(dl.StopGradientOp, rows)
    # As in NumPy, slices that contain NaN are never equal.
    unique_axis, differs = (None, not equal_nan) if axis is None else (along_axis, True)
    _, first, inverse, counts = constant_rows.owner.select(
        dl.UniqueOp, constant_rows, axis=unique_axis, nan_differs=differs or None
    )
    values = apply(dl.GatherOp, rows, first, axis=along_axis)
    inverse = reshape(inverse, x.shape) if axis is None else inverse
    optional = [(return_index, first), (return_inverse, inverse), (return_counts, counts)]
    results = (values, *(result for is_requested, result in optional if is_requested))
    return results if len(results) > 1 else values


def _unique_complex(x: Complex, requested: tuple[bool, bool, bool], axis: int | None) -> Any:
    """Return the unique elements of a traced complex array: the unique rows of real and imaginary parts."""
    if axis is not None:
        refuse(UnsupportedError(f"unique: axis {axis} of a traced complex array; expected None"))
    parts = ravel(x.real), ravel(x.imag)
    _, first, inverse, counts = unique(stack(parts, -1), True, True, True, axis=0)
    values = from_parts(*(take(part, first) for part in parts))
    optional = zip(requested, (first, reshape(inverse, x.shape), counts), strict=True)
    results = (values, *(result for is_requested, result in optional if is_requested))
    return results if len(results) > 1 else values


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """Return the unique elements, first indices, inverse indices and counts; every NaN is unique."""
    values, first, inverse, counts = unique(x, True, True, True, equal_nan=False)
    return UniqueAll(values, first, inverse.reshape(asarray(x).shape), counts)


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Return the unique elements and their counts; every NaN is unique."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Return the unique elements and the inverse indices; every NaN is unique."""
    values, inverse = unique(x, return_inverse=True, equal_nan=False)
    return UniqueInverse(values, inverse.reshape(asarray(x).shape))


def unique_values(x: ArrayLike, /) -> Array:
    """Return the unique elements; every NaN is unique."""
    return unique(x, equal_nan=False)


def union1d(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Return the sorted unique elements of either array."""
    return unique(append(x, y))


def intersect1d(x: ArrayLike, y: ArrayLike, /, *, return_indices: bool = False) -> Any:
    """Return the sorted unique elements that are in both arrays, and with `return_indices` their first indices in each."""
    x, y = promote(x, y)
    values, first = unique(x, return_index=True)
    common = isin(values, y)
    if not return_indices:
        return getitem(values, common)
    other_values, other_first = unique(y, return_index=True)
    return getitem(values, common), getitem(first, common), getitem(other_first, isin(other_values, x))


def setdiff1d(x: ArrayLike, y: ArrayLike, /, assume_unique: bool = False) -> Any:
    """Return the sorted unique elements of the first array that are not in the second; with `assume_unique` in their order."""
    values = ravel(x) if assume_unique else unique(x)
    return getitem(values, isin(values, y, invert=True))


def setxor1d(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Return the sorted unique elements that are in exactly one of the arrays."""
    x, y = promote(x, y)
    return sort(append(setdiff1d(x, y), setdiff1d(y, x)))


def trim_zeros(x: ArrayLike, /, trim: str = "fb", axis: Axes = None) -> Any:
    """Trim leading ("f") or trailing ("b") zeros along axes, or both; a traced array must be a vector."""
    x = operand(x)
    if trim.lower() not in ("f", "b", "fb", "bf"):
        refuse(ArgumentError(f"trim_zeros: trim {trim!r}; expected 'f', 'b' or 'fb'"))
    normalize_axes("trim_zeros", x, axis)
    if not isinstance(x, Tracer):
        return call_numpy("trim_zeros", np.trim_zeros, x, trim, axis)
    if x.ndim != 1:
        refuse(ShapeError(f"trim_zeros: array of shape {x.shape}; expected a vector"))
    counts = convert(convert(x, np.bool_), np.int64)
    keep_mask = ones(x.shape, np.bool_)
    if "f" in trim.lower():
        keep_mask = logical_and(keep_mask, greater(cumsum(counts), 0))
    if "b" in trim.lower():
        keep_mask = logical_and(keep_mask, flip(greater(cumsum(flip(counts)), 0)))
    return compress(keep_mask, x)


def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Any:
    """Count the occurrences of each integer ≥ 0 in a vector, or sum their weights. A negative element is an error."""
    x = constant_if_empty(operand(x))
    if x.ndim != 1 or (x.dtype.kind not in "iub" and x.size):
        refuse(ShapeError(f"bincount: array of shape {x.shape} and dtype {x.dtype}; expected a vector of integers"))
    if not is_traced([x, weights, minlength]):
        return call_numpy(
            "bincount", np.bincount, cast(Array, x).astype(np.int64), None if weights is None else operand(weights), minlength
        )
    x = convert(operand_in_scope(x, minlength), np.int64)
    if isinstance(minlength, TracedDim) and is_less(x, untraced(minlength), 0, "bincount", "a negative minlength"):
        refuse(ArgumentError(f"bincount: minlength {minlength}; expected at least 0"))
    end = operand(maximum(add(max(x, initial=-1), 1), minlength))
    increments = operand(1) if weights is None else convert(operand(weights), np.float64)
    # One more element, so that there is at least one. A negative element is mapped out of bounds, not wrapped.
    empty = zeros(operand(dynamic_arange(end)).shape[0] + 1, np.int64 if weights is None else np.float64)
    bins = where(less(x, 0), subtract(x, add(end, 1)), x)
    return getitem(At(empty)[bins].add(increments), slice(None, -1))


def histogram(
    x: ArrayLike,
    /,
    bins: int | str | Sequence[float] = 10,
    range: tuple[float, float] | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the number of elements in each bin, or the sum of their weights, and the bin edges.

    The last bin includes its upper edge. `density`: divide by the total and the widths of the bins. The names of NumPy's
    estimators are `bins` for arrays that are not traced, since the number of bins depends on the elements.
    """
    x = constant_if_empty(operand(x))
    if not is_traced([x, bins, range, weights]):
        edges = bins if isinstance(bins, int | str) else operand(cast("ArrayLike", bins))
        return call_numpy("histogram", np.histogram, x, edges, range, density, None if weights is None else operand(weights))
    if isinstance(bins, str):
        problem = f"bins {bins!r} of a traced array: the number of bins depends on its elements"
        refuse(UnsupportedError(f"histogram: {problem}; pass their number, or edges of numpy.histogram_bin_edges"))
    x = operand_in_scope(x, bins)
    if isinstance(bins, int | TracedDim) and is_less(x, untraced(bins), 1, "histogram", "no bins"):
        refuse(ArgumentError(f"histogram: {bins} bins; expected at least 1"))
    if weights is not None and untraced(operand(weights).shape) != untraced(x.shape):
        refuse(ShapeError(f"histogram: weights of shape {operand(weights).shape} for shape {x.shape}; expected equal shapes"))
    x = ravel(x)
    edges = _edges(operand(x), bins, range) if isinstance(bins, int | TracedDim) else operand(cast("ArrayLike", bins))
    last = getitem(edges, -1)
    indices = subtract(searchsorted(edges, x, side="right"), 1)
    indices = where(equal(x, last), edges.shape[0] - 2, indices)
    is_in_range = logical_and(greater_equal(x, getitem(edges, 0)), less_equal(x, last))
    increments = convert(is_in_range, np.int64) if weights is None else where(is_in_range, ravel(weights), 0)
    counts = At(zeros(edges.shape[0] - 1, increments.dtype))[where(is_in_range, indices, 0)].add(increments)
    return divide(divide(counts, diff(edges)), sum(counts)) if density else counts, edges


def _edges(x: Operand, bins: int, range: tuple[float, float] | None) -> Operand:
    """Return the edges of equally wide bins from the smallest to the largest element; of total width 1 if these are equal."""
    dtype = promote_to_float(x)[0].dtype
    low, high = (min(x), max(x)) if range is None else (convert(end, dtype) for end in range)
    margin = multiply(convert(equal(low, high), dtype), 0.5)
    return operand(linspace(subtract(low, margin), add(high, margin), bins + 1))


def histogram_bin_edges(
    x: ArrayLike,
    /,
    bins: int | str | Sequence[float] = 10,
    range: tuple[float, float] | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the bin edges that `histogram` uses."""
    return histogram(x, bins, range, None, weights)[1]


def histogramdd(
    sample: ArrayLike | Sequence[ArrayLike],
    /,
    bins: int | Sequence[Any] = 10,
    range: Sequence[tuple[float, float] | None] | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the number of points in each cell, or the sum of their weights, as float64, and the edges along each axis.

    `sample` has a point per row, or is a list with the coordinates of all points along each axis. `bins` and `range` are as for
    `histogram`, also one for each axis.
    """
    if isinstance(sample, list | tuple):
        coordinates = [operand(cast("ArrayLike", x)) for x in sample]
    else:
        points = operand(cast("ArrayLike", sample))
        points = reshape(points, (-1, 1)) if points.ndim < 2 else points
        if points.ndim != 2:
            refuse(ShapeError(f"histogramdd: sample of shape {points.shape}; expected a matrix, with a point per row"))
        coordinates = [getitem(points, (slice(None), k)) for k in np.arange(points.shape[1])]
    bins_of_axes = [bins] * len(coordinates) if isinstance(bins, int | np.integer) else list(bins)
    ranges = [None] * len(coordinates) if range is None else list(range)
    if not len(bins_of_axes) == len(ranges) == len(coordinates):
        counts = f"{len(bins_of_axes)} bins and {len(ranges)} ranges for {len(coordinates)} axes"
        refuse(ShapeError(f"histogramdd: {counts}; expected one for each"))
    if any(x.ndim != 1 for x in coordinates):
        shapes = ", ".join(str(x.shape) for x in coordinates)
        refuse(ShapeError(f"histogramdd: coordinates of shapes {shapes}; expected a vector for each axis"))
    edges, cells, is_inside = list[Any](), operand(0), operand(np.True_)
    for x, axis_bins, axis_range in zip(coordinates, bins_of_axes, ranges, strict=True):
        axis_edges = operand(histogram_bin_edges(x, axis_bins, axis_range))
        count = axis_edges.shape[0] - 1
        index = subtract(searchsorted(axis_edges, x, side="right"), 1)
        index = where(equal(x, getitem(axis_edges, -1)), count - 1, index)
        is_inside = logical_and(is_inside, logical_and(greater_equal(index, 0), less(index, count)))
        cells = add(multiply(cells, count), index)
        edges.append(axis_edges)
    shape = [axis_edges.shape[0] - 1 for axis_edges in edges]
    increments = convert(operand(1 if weights is None else weights), np.float64)
    increments = where(is_inside, increments, 0)
    counts = At(zeros(prod(shape), np.float64))[where(is_inside, cells, 0)].add(increments)
    counts = reshape(counts, shape)
    if density:
        counts = divide(counts, sum(counts))
        for k, axis_edges in enumerate(edges):
            counts = divide(counts, reshape(diff(axis_edges), [-1 if a == k else 1 for a in np.arange(len(edges))]))
    return counts, edges


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    /,
    bins: int | Sequence[Any] = 10,
    range: Sequence[tuple[float, float] | None] | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the histogram of the points (x, y), and the edges along both axes; see `histogramdd`.

    A sequence of other than two `bins` is the edges along both axes.
    """
    if not isinstance(bins, int | np.integer) and len(bins) not in (1, 2):
        bins = [bins, bins]
    elif not isinstance(bins, int | np.integer) and len(bins) == 1:
        bins = [bins[0], bins[0]]
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, *edges
