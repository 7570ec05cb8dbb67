"""Quantiles: medians, quantiles and percentiles, also weighted or ignoring NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import ArgumentError, OutOfBoundsError, ShapeError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import (
    ArrayLike,
    Axes,
    Operand,
    apply,
    convert,
    is_empty,
    is_floating,
    is_traced,
    normalize_axes,
    operand,
    promote_to_float,
    refuse,
)
from dlc.numpy.functions.comparison import equal, isnan, less, logical_and, logical_not, maximum, minimum
from dlc.numpy.functions.creation import full
from dlc.numpy.functions.cumulative import cumsum
from dlc.numpy.functions.elementwise import add, ceil, divide, floor, multiply, remainder, rint, subtract, where
from dlc.numpy.functions.indexing import take, take_along_axis
from dlc.numpy.functions.joining import concat, stack
from dlc.numpy.functions.reductions import align_weights, any, sum
from dlc.numpy.functions.shape_manipulation import broadcast_to, moveaxis, reshape
from dlc.numpy.functions.sorting import argsort, sort

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]


def _rank_from_end(n: Any, q: Any) -> Any:
    return multiply(subtract(n, 1), q)


def _plotting_rank(alpha: float, beta: float) -> Callable[[Any, Any], Any]:
    """Return the rank from 0 of a quantile by the plotting positions (k - alpha) / (n + 1 - alpha - beta).

    Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996).
    """
    return lambda n, q: subtract(add(multiply(n, q), add(alpha, multiply(q, 1 - alpha - beta))), 1)


def _closest_rank(n: Any, q: Any) -> Any:
    """Return the rank nearest to n · q - 1; of two, the odd one."""
    rank = subtract(multiply(n, q), 1.5)
    low = floor(rank)
    return where(logical_and(equal(rank, low), equal(remainder(low, 2.0), 1)), low, add(low, 1))


def _averaged_rank(n: Any, q: Any) -> Any:
    """Return the rank above n · q - 1, or the middle of two if n · q is an integer."""
    rank = subtract(multiply(n, q), 1)
    return where(equal(rank, floor(rank)), add(rank, 0.5), ceil(rank))


# (number of elements, q) → the rank of the quantile, from 0: between two integers, their elements are interpolated.
_DISCRETE_RANKS: Mapping[str, Callable[[Any, Any], Any]] = {
    "inverted_cdf": lambda n, q: ceil(subtract(multiply(n, q), 1)),
    "closest_observation": _closest_rank,
    "lower": lambda n, q: floor(_rank_from_end(n, q)),
    "higher": lambda n, q: ceil(_rank_from_end(n, q)),
    "nearest": lambda n, q: rint(_rank_from_end(n, q)),
}
_RANKS: Mapping[str, Callable[[Any, Any], Any]] = {
    **_DISCRETE_RANKS,
    "averaged_inverted_cdf": _averaged_rank,
    "interpolated_inverted_cdf": _plotting_rank(0, 1),
    "hazen": _plotting_rank(0.5, 0.5),
    "weibull": _plotting_rank(0, 0),
    "linear": _rank_from_end,
    "median_unbiased": _plotting_rank(1 / 3, 1 / 3),
    "normal_unbiased": _plotting_rank(3 / 8, 3 / 8),
    "midpoint": lambda n, q: multiply(add(floor(_rank_from_end(n, q)), ceil(_rank_from_end(n, q))), 0.5),
}


def median(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Return the median; NaN if any element is NaN. Integers are promoted to float64; without elements NaN, with a warning."""
    return _median(x, axis, keepdims, ignore_nan=False)


def nanmedian(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Return the median, ignoring NaN; NaN if all elements are NaN."""
    return _median(x, axis, keepdims, ignore_nan=True)


def _median(x: ArrayLike, axis: Axes, keepdims: bool, *, ignore_nan: bool) -> Any:
    (x,) = promote_to_float(x)
    axes = normalize_axes("median", x, axis)
    if isinstance(x, Tracer) and x.owner.is_data_dependent(math.prod(x.shape[a] for a in axes)):
        # A row of NaN is the median of no elements.
        rows = _rows(x, axes)
        padded_rows = concat([rows, full((1, *rows.shape[1:]), np.nan, x.dtype)])
        result = _quantile(padded_rows, 0.5, 0, "linear", False, None, ignore_nan=True)
        if not ignore_nan:
            result = where(any(isnan(rows), 0), np.nan, result)
        return _restore_axes(result, operand(0.5), x, axes) if keepdims else result
    if is_empty("median", x, axes, axis):
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=3)
        sizes = [1 if a in axes else s for a, s in enumerate(x.shape) if keepdims or a not in axes]
        return full(sizes, np.nan, x.dtype)
    return _quantile(x, 0.5, axis, "linear", keepdims, None, ignore_nan=ignore_nan)


def percentile(
    x: ArrayLike,
    q: ArrayLike,
    /,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the quantile for `q` in percent."""
    return _quantile(x, _percent_to_fraction(q), axis, method, keepdims, weights, ignore_nan=False)


def nanpercentile(
    x: ArrayLike,
    q: ArrayLike,
    /,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the percentile, ignoring NaN; NaN if all elements are NaN."""
    return _quantile(x, _percent_to_fraction(q), axis, method, keepdims, weights, ignore_nan=True)


def quantile(
    x: ArrayLike,
    q: ArrayLike,
    /,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the `q`-quantile, 0 ≤ q ≤ 1, interpolated between elements by `method`; NaN if any element is NaN.

    The axes of `q` come first. All methods of NumPy are available; those that return elements of `x` keep its dtype. `weights`
    have the shape of `x`, or of the axes, and require the method "inverted_cdf".
    """
    return _quantile(x, q, axis, method, keepdims, weights, ignore_nan=False)


def nanquantile(
    x: ArrayLike,
    q: ArrayLike,
    /,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the quantile, ignoring NaN; NaN if all elements are NaN."""
    return _quantile(x, q, axis, method, keepdims, weights, ignore_nan=True)


def _percent_to_fraction(q: ArrayLike) -> Any:
    return apply(dl.DivOp, *promote_to_float(q, 100.0)) if is_traced(q) else np.asarray(q) / 100


def _quantile(
    x: ArrayLike, q: ArrayLike, axis: Axes, method: str, keepdims: bool, weights: ArrayLike | None, *, ignore_nan: bool
) -> Any:
    if method not in _RANKS:
        refuse(ArgumentError(f"quantile: method {method!r}; expected one of {', '.join(sorted(_RANKS))}"))
    if weights is not None and method != "inverted_cdf":
        refuse(ArgumentError(f"quantile: weights with method {method!r}; expected the method 'inverted_cdf'"))
    fraction = operand(q)
    if method == "linear" and fraction.dtype.kind in "biu":
        # The 0-quantile and the 1-quantile are elements.
        method = "nearest"
    x = operand(x) if method in _DISCRETE_RANKS else promote_to_float(x)[0]
    axes = normalize_axes("quantile", x, axis)
    if is_empty("quantile", x, axes, axis):
        refuse(OutOfBoundsError(f"quantile: no elements along axis {axis} of shape {x.shape}"))
    if fraction.ndim > 2:
        refuse(ShapeError(f"quantile: q of shape {fraction.shape}; expected at most two axes"))
    if not isinstance(fraction, Tracer) and not np.all((fraction >= 0) & (fraction <= 1)):
        refuse(ArgumentError(f"quantile: q {q}; expected 0 ≤ q ≤ 1, or a percentile from 0 to 100"))
    rows = _rows(x, axes)
    if weights is None:
        rows = sort(rows, 0)
        result = _interpolated(rows, fraction, method, ignore_nan)
    else:
        order = argsort(rows, 0)
        rows = take_along_axis(rows, order, 0)
        aligned = broadcast_to(align_weights("quantile", operand(weights), x, axis), x.shape)
        result = _weighted(rows, take_along_axis(_rows(aligned, axes), order, 0), fraction, ignore_nan)
    if not ignore_nan and is_floating(x.dtype):
        # The last row is NaN if any element is.
        result = where(isnan(take(rows, rows.shape[0] - 1, axis=0)), np.nan, result)
    return _restore_axes(result, fraction, x, axes) if keepdims else result


def _rows(x: Operand, axes: tuple[int, ...]) -> Operand:
    """Return `x` with these axes flattened to one, the first one."""
    other_sizes = [s for a, s in enumerate(x.shape) if a not in axes]
    return reshape(moveaxis(x, axes, range(len(axes))) if axes else x, (math.prod(x.shape[a] for a in axes), *other_sizes))


def _interpolated(rows: Operand, fraction: Operand, method: str, ignore_nan: bool) -> Any:
    """Return the quantiles of sorted rows, in which NaN is last."""
    count: Any = maximum(sum(logical_not(isnan(rows)), 0), 1) if ignore_nan else rows.shape[0]
    q = reshape(convert(fraction, np.float64), (*fraction.shape, *(1 for _ in rows.shape[1:])))
    rank = _RANKS[method](convert(count, np.float64), q)
    low = floor(rank)
    weight = convert(subtract(rank, low), rows.dtype if is_floating(rows.dtype) else np.float64)
    ranks = (minimum(maximum(convert(r, np.int64), 0), subtract(count, 1)) for r in (low, add(low, 1)))
    below, above = (_elements_at_ranks(rows, r, fraction, ignore_nan) for r in ranks)
    if method in _DISCRETE_RANKS:
        return below
    # Not below + weight · (above - below): that is NaN between infinities, and the difference may overflow.
    between = add(multiply(below, subtract(1, weight)), multiply(above, weight))
    return where(logical_and(less(0, weight), logical_not(equal(below, above))), between, below)


def _weighted(rows: Operand, weights: Operand, fraction: Operand, ignore_nan: bool) -> Any:
    """Return the first elements of sorted rows up to which the weights sum up to the fraction of their total."""
    weights = convert(weights, np.float64)
    if ignore_nan:
        weights = where(isnan(rows), 0, weights)
    totals = cumsum(weights, axis=0)
    shares = divide(totals, take(totals, [rows.shape[0] - 1], axis=0))
    if is_floating(fraction.dtype):
        shares = convert(shares, fraction.dtype)
    # An element of weight 0 is not the 0-quantile.
    shares = where(equal(shares, 0), -1, shares)
    q = reshape(convert(fraction, shares.dtype), (fraction.size, *(1 for _ in rows.shape)))
    ranks = minimum(sum(less(shares, q), 1), rows.shape[0] - 1)
    return reshape(take_along_axis(rows, ranks, 0), (*fraction.shape, *rows.shape[1:]))


# Up to this many static ranks are taken one at a time, so that the compiler can select them without a full sort.
_MAX_SELECTED_RANKS = 8


def _elements_at_ranks(rows: Operand, ranks: Any, fraction: Operand, per_column: bool) -> Any:
    """Return the elements at these ranks along the first axis: the same ranks in all columns, or separate ranks per column."""
    shape = (*fraction.shape, *rows.shape[1:])
    static_ranks: list[int] = [] if per_column or isinstance(ranks, Tracer) else np.ravel(ranks).tolist()
    if fraction.shape and 0 < len(static_ranks) <= _MAX_SELECTED_RANKS:
        return reshape(stack([take(rows, rank, axis=0) for rank in static_ranks]), shape)
    if not per_column:
        return take(rows, reshape(ranks, fraction.shape), axis=0)
    return reshape(take_along_axis(rows, reshape(ranks, (fraction.size, *rows.shape[1:])), 0), shape)


def _restore_axes(result: Operand, fraction: Operand, x: Operand, axes: tuple[int, ...]) -> Any:
    sizes = [1 if a in axes else s for a, s in enumerate(x.shape)]
    return reshape(result, (*fraction.shape, *sizes))
