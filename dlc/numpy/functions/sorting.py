"""Order: sorting, searching in what is sorted, and statistics that follow from order. NaN counts as the largest."""

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
    along,
    apply,
    axes_of,
    axis_of,
    convert,
    is_floating,
    operand,
    promote,
    promote_to_float,
    refuse,
)
from dlc.numpy.functions.comparing import (
    bitwise_xor,
    equal,
    greater,
    isnan,
    less,
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
from dlc.numpy.functions.shaping import expand_dims, flip, moveaxis, ravel, reshape

__all__ = [
    "argsort", "digitize", "interp", "isin", "lexsort", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile",
    "quantile", "searchsorted", "sort", "top_k",
]  # fmt: skip


def argsort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """The places of the elements along `axis` in ascending order, or descending; equal ones keep theirs. None: flattened."""
    x, axis = along("argsort", x, axis)
    return apply(dl.ArgsortOp, x, axis=axis, descending=descending)


def sort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """The elements along `axis` in ascending order, or descending. None: flattened."""
    x, axis = along("sort", x, axis)
    return apply(dl.SortOp, x, axis=axis, descending=descending)


def lexsort(keys: ArrayLike, /, axis: int = -1) -> Any:
    """The order by several keys along `axis`: by the last one, then by the one before where those are equal, and so on."""
    rows = operand(keys)
    if not rows.ndim or rows.shape[0] == 0:
        refuse(ShapeError(f"lexsort: keys of shape {rows.shape}; expected the keys, one below the other"))
    order: Any = None
    for k in range(rows.shape[0]):
        key = reshape(take(rows, [k], axis=0), rows.shape[1:])
        sorted_axis = axis_of("lexsort", key, axis)
        if order is None:
            order = argsort(key, sorted_axis)
        else:
            order = take_along_axis(order, argsort(take_along_axis(key, order, sorted_axis), sorted_axis), sorted_axis)
    return order


def top_k(x: ArrayLike, k: int, /, *, axis: int = -1) -> tuple[Any, Any]:
    """The `k` largest elements along `axis`, largest first, and their places. (NumPy has no such function.)"""
    x = operand(x)
    axis = axis_of("top_k", x, axis)
    if k < 0 or (isinstance(x.shape[axis], int) and k > x.shape[axis]):
        refuse(ShapeError(f"top_k: {k} of {x.shape[axis]} elements"))
    places = apply(dl.ArgsortOp, x, axis=axis, descending=True, count=(k,))
    return take_along_axis(x, places, axis), places


def searchsorted(x: ArrayLike, v: ArrayLike, /, side: str = "left", sorter: ArrayLike | None = None) -> Any:
    """Where each of `v` belongs in the sorted vector `x` (sorted by `sorter`): before equal elements, or after for "right"."""
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
    """The number of the bin of each element, for ascending edges: bins[i - 1] ≤ x < bins[i], or < and ≤ if `right`.

    For descending edges bins[i - 1] > x ≥ bins[i], or ≥ and > if `right`. Others are an error where they are known.
    """
    edges: Any = operand(bins)
    if edges.ndim != 1:
        refuse(ShapeError(f"digitize: bins of shape {edges.shape}; expected a vector of edges"))
    below, above = edges[:-1], edges[1:]
    if not isinstance(edges, Tracer) and np.any(below < above) and np.any(below > above):
        refuse(ShapeError(f"digitize: edges {edges.tolist()!r:.60}; expected ascending or descending ones"))
    descending = any_true(greater(below, above))
    place = searchsorted(where(descending, flip(edges), edges), x, side="left" if right else "right")
    return where(descending, subtract(edges.size, place), place)


# More values than that are sorted to look elements up among them; fewer than those are always compared.
_COMPARED, _FEW = 128, 16
# What a table of integers has at most, in bytes: what the nearest caches hold beside what is looked up.
_TABLE_BYTES = 1 << 16


def isin(x: ArrayLike, values: ArrayLike, /, *, invert: bool = False) -> Any:
    """Whether each element is one of `values`, or none of them if `invert`. With few values every pair is compared; integers
    that are near one another are looked up in a table."""
    x, values = (operand(array) for array in promote(x, ravel(values)))
    # A table is not longer than what it serves.
    size = min(x.size, _TABLE_BYTES) if x.dtype.kind in "iu" and is_static((*x.shape, *values.shape)) else 0
    found = _near_one_another(x, values, size) if _FEW < values.size < size else _compared(x, values)
    return logical_not(found) if invert else found


def _compared(x: Operand, values: Operand) -> Any:
    """Whether elements are among values, of any dtype and size."""
    if values.dtype == np.bool_:
        return any_true(equal(expand_dims(x, -1), values), -1)
    if values.size <= _COMPARED:
        # Bits that differ from those of one of them nowhere: fewer instructions than a comparison of each pair.
        differences = bitwise_xor(expand_dims(_bits_of(x), -1), _bits_of(values))
        return logical_and(equal(apply(dl.ReduceMinOp, differences, axes=(x.ndim,), keepdims=False), 0), equal(x, x))
    ordered = sort(values)
    return equal(take(ordered, minimum(searchsorted(ordered, x), values.size - 1), axis=0), x)


def _near_one_another(x: Operand, values: Operand, size: int) -> Any:
    """Whether elements are among integers: by a table of `size` entries from the least one on, if that reaches the largest."""
    unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
    least, most = (apply(op, values, axes=(0,), keepdims=False) for op in (dl.ReduceMinOp, dl.ReduceMaxOp))

    def distance(y: Any) -> Any:
        return convert(subtract(y, least), unsigned)

    def looked_up() -> Any:
        # What is not within the table is moved to its end, an entry behind those that values have.
        empty, present = np.zeros(size + 1, np.bool_), np.ones(values.size, np.bool_)
        table = apply(dl.ScatterRowsOp, empty, distance(values), present, mode="none")
        return apply(dl.GatherOp, table, distance(x), axis=0)

    near = less(distance(most), size)
    if not isinstance(near, Tracer) or near.array is not None:
        return looked_up() if near else _compared(x, values)
    bodies, results = [Block(), Block()], list[Tracer]()
    for body, find in zip(bodies, (looked_up, lambda: _compared(x, values)), strict=True):
        with near.owner.inside(body):
            results.append(find())
            body.add_op(dl.YieldOp([results[-1].value]))
    (found,) = near.owner.insert(dl.IfOp.of(near.value, bodies[0], bodies[1], [results[0].value.type]))
    return found


def _bits_of(x: Operand) -> Any:
    """Numbers as unsigned integers; equal ones are of the same bits."""
    equals = where(equal(x, 0), 0, x) if is_floating(x.dtype) else x
    return apply(dl.BitcastOp, equals, to=element_type(f"uint{8 * x.dtype.itemsize}"))


def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, /, left: ArrayLike | None = None, right: ArrayLike | None = None) -> Any:
    """The values at `x` of the lines through the points (xp, fp), xp ascending; `left` and `right` are beyond the ends.

    NaN for NaN.
    """
    x, xp, fp = promote_to_float(x, xp, fp)
    size = xp.size
    above = minimum(where(less(searchsorted(xp, x, side="right"), 1), 1, searchsorted(xp, x, side="right")), size - 1)
    below = subtract(above, 1)
    x0, x1, y0, y1 = (take(v, place, axis=0) for v, place in ((xp, below), (xp, above), (fp, below), (fp, above)))
    inside = add(y0, multiply(subtract(y1, y0), apply(dl.DivOp, subtract(x, x0), where(equal(x1, x0), 1, subtract(x1, x0)))))
    first, last = (take(v, place, axis=0) for v, place in ((xp, 0), (xp, size - 1)))
    inside = where(less(x, first), take(fp, 0, axis=0) if left is None else left, inside)
    return where(greater(x, last), take(fp, size - 1, axis=0) if right is None else right, inside)


def median(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The middle element, or the mean of the two; NaN if there is one. Integers become float64."""
    return quantile(x, 0.5, axis, keepdims=keepdims)


def percentile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """`quantile` with `q` in percent."""
    return quantile(x, _by_hundred(q), axis, method=method, keepdims=keepdims)


def _by_hundred(q: ArrayLike) -> Any:
    return apply(dl.DivOp, *promote_to_float(q, 100.0)) if isinstance(q, Tracer) else np.asarray(q) / 100


_METHODS = {"linear", "lower", "higher", "nearest", "midpoint"}


def quantile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """The value that the part `q` of the elements does not exceed, by `method` between two of them; NaN if there is one.

    The axes of `q` come first. Methods: linear, lower, higher, nearest and midpoint.
    """
    return _quantile(x, q, axis, method, keepdims, of_numbers=False)


def nanmedian(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """`median` of the elements that are not NaN; NaN if there are none."""
    return nanquantile(x, 0.5, axis, keepdims=keepdims)


def nanpercentile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """`percentile` of the elements that are not NaN; NaN if there are none."""
    return nanquantile(x, _by_hundred(q), axis, method=method, keepdims=keepdims)


def nanquantile(x: ArrayLike, q: ArrayLike, /, axis: Axes = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """`quantile` of the elements that are not NaN; NaN if there are none."""
    return _quantile(x, q, axis, method, keepdims, of_numbers=True)


def _quantile(x: ArrayLike, q: ArrayLike, axis: Axes, method: str, keepdims: bool, *, of_numbers: bool) -> Any:
    if method not in _METHODS:
        refuse(UnsupportedError(f"quantile: method {method!r}; expected one of {', '.join(sorted(_METHODS))}"))
    (x,) = promote_to_float(x)
    axes = axes_of("quantile", x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    size = math.prod(x.shape[a] for a in axes)
    rows = reshape(moveaxis(x, axes, range(len(axes))) if axes else x, (size, *(x.shape[a] for a in kept)))
    if size == 0:
        refuse(ShapeError(f"quantile: no elements along axis {axis} of {x.shape}"))
    rows = sort(rows, 0)
    part = operand(q)
    if not isinstance(part, Tracer) and not np.all((part >= 0) & (part <= 1)):
        refuse(ShapeError(f"quantile: {q}; expected parts from 0 to 1, of a percentile from 0 to 100"))
    # Sorted, numbers come before NaN.
    last: Any = maximum(subtract(sum(logical_not(isnan(rows)), 0), 1), 0) if of_numbers else size - 1
    place = multiply(reshape(convert(part, np.float64), (*part.shape, *(1 for _ in kept))), convert(last, np.float64))
    low = convert(floor(place), np.int64)
    high = minimum(add(low, 1), last)
    weight = subtract(place, convert(low, np.float64))
    match method:
        case "lower":
            weight = multiply(weight, 0.0)
        case "higher":
            weight = convert(less(0.0, weight), np.float64)
        case "nearest":
            weight = subtract(apply(dl.RoundOp, place), convert(low, np.float64))
        case "midpoint":
            weight = multiply(convert(less(0.0, weight), np.float64), 0.5)
        case _:
            pass
    weight = convert(weight, x.dtype)
    below, above = (_at_places(rows, p, part, of_numbers) for p in (low, high))
    result = where(less(0, weight), where(less(weight, 1), _between(below, above, weight), above), below)
    if not of_numbers:
        # NaN is last.
        result = where(isnan(take(rows, size - 1, axis=0)), np.nan, result)
    return _with_axes(result, part, x, axes) if keepdims else result


# So many places are read one by one.
_READ = 8


def _at_places(rows: Operand, places: Any, part: Operand, of_each: bool) -> Any:
    """The elements at places along the first axis: the same in all columns, or each column's own."""
    shape = (*part.shape, *rows.shape[1:])
    known: list[int] = [] if of_each or isinstance(places, Tracer) else np.ravel(places).tolist()
    if part.shape and 0 < len(known) <= _READ:
        # Known to the compiler one by one, which sorts nothing for a few places.
        return reshape(stack([take(rows, place, axis=0) for place in known]), shape)
    if not of_each:
        return take(rows, reshape(places, part.shape), axis=0)
    return reshape(take_along_axis(rows, reshape(places, (part.size, *rows.shape[1:])), 0), shape)


def _between(below: Operand, above: Operand, weight: Operand) -> Any:
    # Not below + weight · (above - below): between -inf and a number lies -inf, and the range of floats may be too small.
    return where(equal(below, above), below, add(multiply(below, subtract(1, weight)), multiply(above, weight)))


def _with_axes(result: Operand, part: Operand, x: Operand, axes: tuple[int, ...]) -> Any:
    sizes = [1 if a in axes else s for a, s in enumerate(x.shape)]
    return reshape(result, (*part.shape, *sizes))
