"""Sorting, searching and order statistics.

NaN is sorted last, as the largest value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.dims import is_static
from dlc.errors import ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.ir import Block
from dlc.numpy.apply import (
    ArrayLike,
    Axes,
    Operand,
    apply,
    convert,
    is_floating,
    normalize_axes,
    normalize_axis,
    operand,
    promote,
    promote_to_float,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.functions.comparison import (
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    maximum,
    minimum,
)
from dlc.numpy.functions.elementwise import add, floor, multiply, subtract, where
from dlc.numpy.functions.indexing import take, take_along_axis
from dlc.numpy.functions.joining import stack
from dlc.numpy.functions.reductions import any as any_true
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shape_manipulation import expand_dims, flip, moveaxis, ravel, reshape

__all__ = [
    "argsort", "digitize", "interp", "isin", "lexsort", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile",
    "quantile", "searchsorted", "sort", "top_k",
]  # fmt: skip


def argsort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Return the indices of a stable sort along `axis`, ascending or descending. Axis None: of the flattened array."""
    x, axis = with_axis_or_flattened("argsort", x, axis)
    return apply(dl.ArgsortOp, x, axis=axis, descending=descending)


def sort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Sort the elements along `axis`, ascending or descending. Axis None: of the flattened array."""
    x, axis = with_axis_or_flattened("sort", x, axis)
    return apply(dl.SortOp, x, axis=axis, descending=descending)


def lexsort(keys: ArrayLike, /, axis: int = -1) -> Any:
    """Return the indices that sort by several keys along `axis`: the last key is the primary one."""
    rows = operand(keys)
    if not rows.ndim or rows.shape[0] == 0:
        refuse(ShapeError(f"lexsort: keys of shape {rows.shape}; expected at least one key along axis 0"))
    order: Any = None
    for k in range(rows.shape[0]):
        key = reshape(take(rows, [k], axis=0), rows.shape[1:])
        sorted_axis = normalize_axis("lexsort", key, axis)
        if order is None:
            order = argsort(key, sorted_axis)
        else:
            order = take_along_axis(order, argsort(take_along_axis(key, order, sorted_axis), sorted_axis), sorted_axis)
    return order


def top_k(x: ArrayLike, k: int, /, *, axis: int = -1) -> tuple[Any, Any]:
    """Return the `k` largest elements along `axis` in descending order, and their indices. (Not in NumPy.)"""
    x = operand(x)
    axis = normalize_axis("top_k", x, axis)
    if k < 0 or (isinstance(x.shape[axis], int) and k > x.shape[axis]):
        refuse(ShapeError(f"top_k: k {k} for size {x.shape[axis]} of axis {axis}; expected 0 ≤ k ≤ size"))
    indices = apply(dl.ArgsortOp, x, axis=axis, descending=True, count=(k,))
    return take_along_axis(x, indices, axis), indices


def searchsorted(x: ArrayLike, v: ArrayLike, /, side: str = "left", sorter: ArrayLike | None = None) -> Any:
    """Return the insertion indices of `v` in the sorted vector `x` (sorted by `sorter`); side "right": after equal elements."""
    if side not in ("left", "right"):
        refuse(UnsupportedError(f'searchsorted: side {side!r}; expected "left" or "right"'))
    a, v = promote(x, v)
    if a.ndim != 1:
        refuse(ShapeError(f"searchsorted: x of shape {a.shape}; expected a sorted vector"))
    if sorter is not None:
        a = take(a, sorter, axis=0)
    if a.dtype == np.bool_:
        a, v = (convert(array, np.int8) for array in (a, v))
    return reshape(apply(dl.SearchsortedOp, a, ravel(v), right=side == "right"), v.shape)


def digitize(x: ArrayLike, bins: ArrayLike, /, right: bool = False) -> Any:
    """Return the index of the bin of each element, for ascending edges: bins[i - 1] ≤ x < bins[i], or < and ≤ if `right`.

    For descending edges bins[i - 1] > x ≥ bins[i], or ≥ and > if `right`. Unsorted edges raise ShapeError if they are static.
    """
    edges: Any = operand(bins)
    if edges.ndim != 1:
        refuse(ShapeError(f"digitize: bins of shape {edges.shape}; expected a vector of edges"))
    below, above = edges[:-1], edges[1:]
    if not isinstance(edges, Tracer) and np.any(below < above) and np.any(below > above):
        refuse(ShapeError(f"digitize: bins {edges.tolist()!r:.60}; expected ascending or descending edges"))
    descending = any_true(greater(below, above))
    index = searchsorted(where(descending, flip(edges), edges), x, side="left" if right else "right")
    return where(descending, subtract(edges.size, index), index)


# Up to this many values, every pair is compared; more values are sorted for a binary search.
_MAX_COMPARED_VALUES = 128
# Up to this many values, building a lookup table takes longer than it saves.
_MAX_VALUES_WITHOUT_TABLE = 16
# The lookup table of integers must fit into the L1/L2 caches along with the elements.
_MAX_TABLE_BYTES = 1 << 16


def isin(x: ArrayLike, values: ArrayLike, /, *, invert: bool = False) -> Any:
    """Return whether each element is one of `values`, or none of them if `invert`.

    Few values are compared pairwise; integers in a small range are looked up in a table; else a binary search is used.
    """
    x, values = operand(x), operand(ravel(values))
    if x.dtype.kind in "iu" and values.dtype.kind in "iu" and np.result_type(x.dtype, values.dtype).kind == "f":
        # No integer dtype represents both: only elements in the range of the dtype of `values` can be among them.
        limits = np.iinfo(values.dtype)
        in_range = logical_and(greater_equal(x, limits.min), less_equal(x, limits.max))
        is_member = logical_and(in_range, isin(convert(x, values.dtype), values))
        return logical_not(is_member) if invert else is_member
    x, values = (operand(array) for array in promote(x, values))
    # The table is not longer than the array of elements.
    size = min(x.size, _MAX_TABLE_BYTES) if x.dtype.kind in "iu" and is_static((*x.shape, *values.shape)) else 0
    is_member = (
        _isin_by_table(x, values, size) if _MAX_VALUES_WITHOUT_TABLE < values.size < size else _isin_by_comparison(x, values)
    )
    return logical_not(is_member) if invert else is_member


def _isin_by_comparison(x: Operand, values: Operand) -> Any:
    """Return whether elements are among values by comparison or binary search, for any dtype and size."""
    if values.dtype == np.bool_:
        return any_true(equal(expand_dims(x, -1), values), -1)
    if values.size <= _MAX_COMPARED_VALUES:
        # min over xor of the bit patterns is 0 iff one value is equal: fewer instructions than a comparison of each pair.
        differences = bitwise_xor(expand_dims(_bits_of(x), -1), _bits_of(values))
        return logical_and(equal(apply(dl.ReduceMinOp, differences, axes=(x.ndim,), keepdims=False), 0), equal(x, x))
    sorted_values = sort(values)
    return equal(take(sorted_values, minimum(searchsorted(sorted_values, x), values.size - 1), axis=0), x)


def _isin_by_table(x: Operand, values: Operand, size: int) -> Any:
    """Return whether elements are among integers: by a table of `size` entries if the range of the values fits.

    Otherwise use `_isin_by_comparison`.
    """
    unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
    smallest, largest = (apply(op, values, axes=(0,), keepdims=False) for op in (dl.ReduceMinOp, dl.ReduceMaxOp))

    def distance(y: Any) -> Any:
        return convert(subtract(y, smallest), unsigned)

    def by_table() -> Any:
        # The gather clamps elements outside of the table to its last entry, which no value sets.
        empty, present = np.zeros(size + 1, np.bool_), np.ones(values.size, np.bool_)
        table = apply(dl.ScatterRowsOp, empty, distance(values), present, mode="none")
        return apply(dl.GatherOp, table, distance(x), axis=0)

    fits_table = less(distance(largest), size)
    if not isinstance(fits_table, Tracer) or fits_table.array is not None:
        return by_table() if fits_table else _isin_by_comparison(x, values)
    bodies, results = [Block(), Block()], list[Tracer]()
    for body, compute in zip(bodies, (by_table, lambda: _isin_by_comparison(x, values)), strict=True):
        with fits_table.owner.in_body(body):
            results.append(compute())
            body.add_op(dl.YieldOp([results[-1].value]))
    (is_member,) = fits_table.owner.insert(dl.IfOp.of(fits_table.value, bodies[0], bodies[1], [results[0].value.type]))
    return is_member


def _bits_of(x: Operand) -> Any:
    """Return the bit patterns as unsigned integers, after mapping -0.0 to 0.0 so that equal values have equal patterns."""
    normalized = where(equal(x, 0), 0, x) if is_floating(x.dtype) else x
    return apply(dl.BitcastOp, normalized, to=element_type(f"uint{8 * x.dtype.itemsize}"))


def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, /, left: ArrayLike | None = None, right: ArrayLike | None = None) -> Any:
    """Return the piecewise linear interpolation at `x` of the points (xp, fp), xp ascending; `left`, `right` beyond them.

    NaN for NaN. Between an infinite and a finite value the result is infinite; at a point it is the point's value.
    """
    x, xp, fp = promote_to_float(x, xp, fp)
    size = xp.size
    above = minimum(where(less(searchsorted(xp, x, side="right"), 1), 1, searchsorted(xp, x, side="right")), size - 1)
    below = subtract(above, 1)
    x0, x1, y0, y1 = (take(v, index, axis=0) for v, index in ((xp, below), (xp, above), (fp, below), (fp, above)))
    slope = apply(dl.DivOp, subtract(y1, y0), where(equal(x1, x0), 1, subtract(x1, x0)))
    from_below, from_above = (add(multiply(slope, subtract(x, at)), y) for at, y in ((x0, y0), (x1, y1)))
    interpolated = where(isnan(from_below), where(equal(y0, y1), y0, from_above), from_below)
    interpolated = where(equal(x, x0), y0, where(equal(x, x1), y1, interpolated))
    first, last = (take(v, index, axis=0) for v, index in ((xp, 0), (xp, size - 1)))
    interpolated = where(less(x, first), take(fp, 0, axis=0) if left is None else left, interpolated)
    return where(greater(x, last), take(fp, size - 1, axis=0) if right is None else right, interpolated)


def median(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Return the median; NaN if any element is NaN. Integers are promoted to float64."""
    return quantile(x, 0.5, axis, keepdims=keepdims)


def percentile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Return the quantile for `q` in percent."""
    return quantile(x, _percent_to_fraction(q), axis, method=method, keepdims=keepdims)


def _percent_to_fraction(q: ArrayLike) -> Any:
    return apply(dl.DivOp, *promote_to_float(q, 100.0)) if isinstance(q, Tracer) else np.asarray(q) / 100


_METHODS = {"linear", "lower", "higher", "nearest", "midpoint"}


def quantile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Return the `q`-quantile, 0 ≤ q ≤ 1, interpolated between elements by `method`; NaN if any element is NaN.

    The axes of `q` come first. Methods: linear, lower, higher, nearest and midpoint.
    """
    return _quantile(x, q, axis, method, keepdims, ignore_nan=False)


def nanmedian(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Return the median, ignoring NaN; NaN if all elements are NaN."""
    return nanquantile(x, 0.5, axis, keepdims=keepdims)


def nanpercentile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Return the percentile, ignoring NaN; NaN if all elements are NaN."""
    return nanquantile(x, _percent_to_fraction(q), axis, method=method, keepdims=keepdims)


def nanquantile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """Return the quantile, ignoring NaN; NaN if all elements are NaN."""
    return _quantile(x, q, axis, method, keepdims, ignore_nan=True)


def _quantile(x: ArrayLike, q: ArrayLike, axis: Axes, method: str, keepdims: bool, *, ignore_nan: bool) -> Any:
    if method not in _METHODS:
        refuse(UnsupportedError(f"quantile: method {method!r}; expected one of {', '.join(sorted(_METHODS))}"))
    (x,) = promote_to_float(x)
    axes = normalize_axes("quantile", x, axis)
    other_axes = [a for a in range(x.ndim) if a not in axes]
    size = math.prod(x.shape[a] for a in axes)
    rows = reshape(moveaxis(x, axes, range(len(axes))) if axes else x, (size, *(x.shape[a] for a in other_axes)))
    if size == 0:
        refuse(ShapeError(f"quantile: no elements along axis {axis} of shape {x.shape}"))
    rows = sort(rows, 0)
    fraction = operand(q)
    if not isinstance(fraction, Tracer) and not np.all((fraction >= 0) & (fraction <= 1)):
        refuse(ShapeError(f"quantile: q {q}; expected 0 ≤ q ≤ 1, or a percentile from 0 to 100"))
    # NaN is sorted last.
    last: Any = maximum(subtract(sum(logical_not(isnan(rows)), 0), 1), 0) if ignore_nan else size - 1
    rank = multiply(
        reshape(convert(fraction, np.float64), (*fraction.shape, *(1 for _ in other_axes))), convert(last, np.float64)
    )
    low = convert(floor(rank), np.int64)
    high = minimum(add(low, 1), last)
    weight = subtract(rank, convert(low, np.float64))
    match method:
        case "lower":
            weight = multiply(weight, 0.0)
        case "higher":
            weight = convert(less(0.0, weight), np.float64)
        case "nearest":
            weight = subtract(apply(dl.RoundOp, rank), convert(low, np.float64))
        case "midpoint":
            weight = multiply(convert(less(0.0, weight), np.float64), 0.5)
        case _:
            pass
    weight = convert(weight, x.dtype)
    below, above = (_elements_at_ranks(rows, ranks, fraction, ignore_nan) for ranks in (low, high))
    result = where(less(0, weight), where(less(weight, 1), _interpolate(below, above, weight), above), below)
    if not ignore_nan:
        # The last row is NaN if any element is.
        result = where(isnan(take(rows, size - 1, axis=0)), np.nan, result)
    return _restore_axes(result, fraction, x, axes) if keepdims else result


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


def _interpolate(below: Operand, above: Operand, weight: Operand) -> Any:
    # Not below + weight · (above - below): that is NaN between infinities, and the difference may overflow.
    return where(equal(below, above), below, add(multiply(below, subtract(1, weight)), multiply(above, weight)))


def _restore_axes(result: Operand, fraction: Operand, x: Operand, axes: tuple[int, ...]) -> Any:
    sizes = [1 if a in axes else s for a, s in enumerate(x.shape)]
    return reshape(result, (*fraction.shape, *sizes))
