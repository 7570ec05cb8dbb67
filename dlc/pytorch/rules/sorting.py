"""Sorting, order statistics, searching and histograms. NaN is the largest value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.numpy.apply import apply, convert, is_floating
from dlc.pytorch.rules.rule_table import RuleTable, promoted

table = RuleTable()


@table("topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if largest:
        return dnp.top_k(x, k, axis=dim)
    indices = _take_first(dnp.argsort(x, axis=dim), k, dim)
    return dnp.take_along_axis(x, indices, dim), indices


def _take_first(x: Any, count: int, axis: int) -> Any:
    return dnp.take(x, np.arange(count), axis=axis)


@table("sort sort.stable")
def sort(x: Any, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    indices = argsort(x, dim, descending)
    return dnp.take_along_axis(x, indices, dim) if x.ndim else x, indices


@table("argsort argsort.stable")
def argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return dnp.argsort(x, axis=dim, descending=descending) if x.ndim else np.zeros((), np.int64)


def _at_rank(x: Any, sorted_indices: Any, rank: Any, dim: int, keepdim: bool) -> Any:
    """Return the element of the given rank of each row, and its index, from the indices that sort the rows."""
    index = dnp.take_along_axis(sorted_indices, rank, dim)
    values_and_indices = dnp.take_along_axis(x, index, dim), index
    return values_and_indices if keepdim else tuple(dnp.squeeze(v, dim) for v in values_and_indices)


@table("kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.ndim:
        return x, np.zeros((), np.int64)
    rank = np.full((1,) * x.ndim, k - 1)
    return _at_rank(x, dnp.argsort(x, axis=dim), rank, dim, keepdim)


@table("median.dim")
def median(x: Any, dim: int, keepdim: bool = False) -> Any:
    """Return the lower median of each row, and its index; the first NaN if there is one."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    size = x.shape[dim]
    rank: Any = dnp.full((1,) * x.ndim, dnp.asarray((size - 1) // 2))
    if is_floating(x.dtype):
        count = dnp.sum(convert(dnp.logical_not(dnp.isnan(x)), np.int64), dim, keepdims=True)
        rank = dnp.where(dnp.less(count, size), dnp.minimum(count, size - 1), rank)
    return _at_rank(x, dnp.argsort(x, axis=dim), rank, dim, keepdim)


@table("nanmedian.dim")
def nanmedian(x: Any, dim: int, keepdim: bool = False) -> Any:
    if not x.ndim or not is_floating(x.dtype):
        return median(x, dim, keepdim)
    count = dnp.sum(convert(dnp.logical_not(dnp.isnan(x)), np.int64), dim, keepdims=True)
    rank = dnp.maximum(dnp.floor_divide(dnp.subtract(count, 1), 2), 0)
    return _at_rank(x, dnp.argsort(x, axis=dim), rank, dim, keepdim)


@table("median")
def median_of_all(x: Any) -> Any:
    return median(dnp.ravel(x), 0)[0]


@table("nanmedian")
def nanmedian_of_all(x: Any) -> Any:
    return nanmedian(dnp.ravel(x), 0)[0]


@table("mode")
def mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the smallest of the most frequent elements of each row, and its last index."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if x.dtype == np.bool_:
        value, index = mode(convert(x, np.uint8), dim, keepdim)
        return convert(value, np.bool_), index
    rows = dnp.moveaxis(x, dim, -1)
    sorted_values = dnp.sort(rows)
    flat = (-1, int(rows.shape[-1]))
    sorted_rows = dnp.reshape(sorted_values, flat)
    low, high = (apply(dl.SearchsortedOp, sorted_rows, sorted_rows, right=right) for right in (False, True))
    # high - low is the number of equal elements in the row.
    first = dnp.argmax(dnp.reshape(dnp.subtract(high, low), rows.shape), -1, keepdims=True)
    value = dnp.take_along_axis(sorted_values, first, -1)
    positions = np.arange(int(rows.shape[-1]))
    index = dnp.max(dnp.where(dnp.equal(rows, value), positions, 0), -1, keepdims=True)
    values_and_indices = dnp.moveaxis(value, -1, dim), dnp.moveaxis(index, -1, dim)
    return values_and_indices if keepdim else tuple(dnp.squeeze(v, dim) for v in values_and_indices)


@table("searchsorted.Tensor searchsorted.Scalar")
def searchsorted(
    ordered: Any, x: Any, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """Return the insertion indices of the elements of each row of `x` in the corresponding sorted row, or in the only one."""
    if sorter is not None:
        ordered = dnp.take_along_axis(ordered, sorter, -1)
    ordered, x = promoted(ordered, x)
    right = right or side == "right"
    if ordered.ndim == 1:
        indices = dnp.searchsorted(ordered, x, side="right" if right else "left")
    else:
        indices = apply(dl.SearchsortedOp, ordered, x, right=right)
    return convert(indices, np.int32 if out_int32 else np.int64)


@table("bucketize.Tensor bucketize.Scalar")
def bucketize(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, x, out_int32, right)


@table("isin.Tensor_Tensor")
def isin(x: Any, values: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return dnp.isin(x, values, invert=invert)


@table("histc")
def histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Return the histogram with `bins` equal bins from `min` to `max`, or over the range of x if these are equal."""
    x = dnp.ravel(x)
    low, high = (convert(v, x.dtype) for v in ((min, max) if min != max else (dnp.min(x), dnp.max(x))))
    flat = dnp.equal(low, high)
    low, high = dnp.where(flat, dnp.subtract(low, 1), low), dnp.where(flat, dnp.add(high, 1), high)
    is_in_range = dnp.logical_and(dnp.greater_equal(x, low), dnp.less_equal(x, high))
    bin_position = dnp.divide(dnp.multiply(dnp.subtract(dnp.where(is_in_range, x, low), low), bins), dnp.subtract(high, low))
    bin = dnp.minimum(convert(bin_position, np.int64), bins - 1)
    counts = dnp.at(dnp.zeros((bins,), np.int64))[bin].add(convert(is_in_range, np.int64))
    return convert(counts, x.dtype)


@table("histogram.bin_ct")
def histogram(x: Any, bins: int = 100, range: Sequence[float] | None = None, weight: Any = None, density: bool = False) -> Any:
    """Return the histogram with equal bins, over the range of `x` by default, and the edges of the bins."""
    low, high = (convert(v, x.dtype) for v in range or ((dnp.min(x), dnp.max(x)) if x.size else (0, 1)))
    is_flat = dnp.equal(low, high)
    low, high = (dnp.where(is_flat, dnp.add(v, by), v) for v, by in ((low, -0.5), (high, 0.5)))
    return histogram_by_edges(x, dnp.linspace(low, high, bins + 1), weight, density)


@table("histogram.bins_tensor")
def histogram_by_edges(x: Any, bins: Any, weight: Any = None, density: bool = False) -> Any:
    counts, edges = dnp.histogram(x, bins, density=density, weights=weight)
    return convert(counts, x.dtype), edges
