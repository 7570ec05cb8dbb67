"""Order: sorting, elements of a rank, searching in what is sorted, counting by bins. NaN counts as the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.numpy.apply import apply, convert, is_floating
from dlc.pytorch.rules.table import Table, promoted

table = Table()


@table("topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if largest:
        return dnp.top_k(x, k, axis=dim)
    places = _first(dnp.argsort(x, axis=dim), k, dim)
    return dnp.take_along_axis(x, places, dim), places


def _first(x: Any, count: int, axis: int) -> Any:
    return dnp.take(x, np.arange(count), axis=axis)


@table("sort sort.stable")
def sort(x: Any, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    places = dnp.argsort(x, axis=dim, descending=descending)
    return dnp.take_along_axis(x, places, dim), places


@table("argsort argsort.stable")
def argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return dnp.argsort(x, axis=dim, descending=descending)


def _at_rank(x: Any, places: Any, rank: Any, dim: int, keepdim: bool) -> Any:
    """The element that is the `rank`th of those that lie in order at `places`, one for each row, and its place."""
    place = dnp.take_along_axis(places, rank, dim)
    found = dnp.take_along_axis(x, place, dim), place
    return found if keepdim else tuple(dnp.squeeze(v, dim) for v in found)


@table("kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.ndim:
        return x, np.zeros((), np.int64)
    rank = np.full((1,) * x.ndim, k - 1)
    return _at_rank(x, dnp.argsort(x, axis=dim), rank, dim, keepdim)


@table("median.dim")
def median(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower one of two in the middle; the first NaN if there is one."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    size = x.shape[dim]
    rank: Any = dnp.full((1,) * x.ndim, dnp.asarray((size - 1) // 2))
    if is_floating(x.dtype):
        numbers = dnp.sum(convert(dnp.logical_not(dnp.isnan(x)), np.int64), dim, keepdims=True)
        rank = dnp.where(dnp.less(numbers, size), dnp.minimum(numbers, size - 1), rank)
    return _at_rank(x, dnp.argsort(x, axis=dim), rank, dim, keepdim)


@table("nanmedian.dim")
def nanmedian(x: Any, dim: int, keepdim: bool = False) -> Any:
    if not x.ndim or not is_floating(x.dtype):
        return median(x, dim, keepdim)
    numbers = dnp.sum(convert(dnp.logical_not(dnp.isnan(x)), np.int64), dim, keepdims=True)
    rank = dnp.maximum(dnp.floor_divide(dnp.subtract(numbers, 1), 2), 0)
    return _at_rank(x, dnp.argsort(x, axis=dim), rank, dim, keepdim)


@table("median")
def median_of_all(x: Any) -> Any:
    return median(dnp.ravel(x), 0)[0]


@table("nanmedian")
def nanmedian_of_all(x: Any) -> Any:
    return nanmedian(dnp.ravel(x), 0)[0]


@table("mode")
def mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent elements, and the last of its places."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if x.dtype == np.bool_:
        value, place = mode(convert(x, np.uint8), dim, keepdim)
        return convert(value, np.bool_), place
    rows = dnp.moveaxis(x, dim, -1)
    ordered = dnp.sort(rows)
    flat = (-1, int(rows.shape[-1]))
    grouped = dnp.reshape(ordered, flat)
    before, through = (apply(dl.SearchsortedOp, grouped, grouped, right=right) for right in (False, True))
    first = dnp.argmax(dnp.reshape(dnp.subtract(through, before), rows.shape), -1, keepdims=True)
    value = dnp.take_along_axis(ordered, first, -1)
    here = np.arange(int(rows.shape[-1]))
    place = dnp.max(dnp.where(dnp.equal(rows, value), here, 0), -1, keepdims=True)
    found = dnp.moveaxis(value, -1, dim), dnp.moveaxis(place, -1, dim)
    return found if keepdim else tuple(dnp.squeeze(v, dim) for v in found)


@table("searchsorted.Tensor searchsorted.Scalar")
def searchsorted(
    ordered: Any, x: Any, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """Where the elements of each row of `x` belong in the ascending row of `ordered`, or all of them in the one row."""
    if sorter is not None:
        ordered = dnp.take_along_axis(ordered, sorter, -1)
    ordered, x = promoted(ordered, x)
    right = right or side == "right"
    if ordered.ndim == 1:
        places = dnp.searchsorted(ordered, x, side="right" if right else "left")
    else:
        places = apply(dl.SearchsortedOp, ordered, x, right=right)
    return convert(places, np.int32 if out_int32 else np.int64)


@table("bucketize.Tensor bucketize.Scalar")
def bucketize(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, x, out_int32, right)


@table("isin.Tensor_Tensor")
def isin(x: Any, values: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return dnp.isin(x, values, invert=invert)


@table("histc")
def histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements lie in each of so many intervals of one size; between the extrema where `min` and `max` are equal."""
    x = dnp.ravel(x)
    low, high = (convert(v, x.dtype) for v in ((min, max) if min != max else (dnp.min(x), dnp.max(x))))
    flat = dnp.equal(low, high)
    low, high = dnp.where(flat, dnp.subtract(low, 1), low), dnp.where(flat, dnp.add(high, 1), high)
    inside = dnp.logical_and(dnp.greater_equal(x, low), dnp.less_equal(x, high))
    part = dnp.divide(dnp.multiply(dnp.subtract(dnp.where(inside, x, low), low), bins), dnp.subtract(high, low))
    bin = dnp.minimum(convert(part, np.int64), bins - 1)
    counts = dnp.at(dnp.zeros((bins,), np.int64))[bin].add(convert(inside, np.int64))
    return convert(counts, x.dtype)
