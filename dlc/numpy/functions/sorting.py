"""Sorting and searching.

NaN is sorted last, as the largest value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.library_kernels.row_sorting import has_permutable_keys, is_partition_faster
from dlc.errors import ArgumentError, OutOfBoundsError, ShapeError
from dlc.frontend.trace import Tracer, is_python_scalar
from dlc.ir import Block, i32
from dlc.numpy.apply import (
    ArrayLike,
    Operand,
    apply,
    convert,
    is_empty,
    is_floating,
    normalize_axis,
    operand,
    promote,
    promote_to_float,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.functions.comparison import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    minimum,
)
from dlc.numpy.functions.elementwise import add, multiply, remainder, subtract, where
from dlc.numpy.functions.indexing import take, take_along_axis
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.reductions import any as any_true
from dlc.numpy.functions.shape_manipulation import expand_dims, flip, moveaxis, ravel, reshape
from dlc.shapes.dims import is_static, product
from dlc.shapes.traced_dims import untraced

__all__ = [
    "argpartition", "argsort", "digitize", "interp", "isin", "lexsort", "partition", "searchsorted", "sort", "top_k",
]  # fmt: skip


_SORT_KINDS = "quicksort", "mergesort", "heapsort", "stable"


def argsort(
    x: ArrayLike,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = None,
) -> Any:
    """Return the indices of a sort along `axis`, ascending or descending. Axis None: of the flattened array.

    Sorts of every `kind` are stable.
    """
    _require_kind("argsort", kind, stable)
    x, axis = with_axis_or_flattened("argsort", x, axis)
    return apply(dl.ArgsortOp, x, axis=axis, descending=descending)


def sort(
    x: ArrayLike,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = None,
) -> Any:
    """Sort the elements along `axis`, ascending or descending. Axis None: of the flattened array.

    Sorts of every `kind` are stable.
    """
    _require_kind("sort", kind, stable)
    x, axis = with_axis_or_flattened("sort", x, axis)
    return apply(dl.SortOp, x, axis=axis, descending=descending)


def partition(x: ArrayLike, kth: int | Sequence[int], /, axis: int | None = -1, kind: str = "introselect") -> Any:
    """Return a copy partitioned at `kth` along `axis`.

    Elements keep their order in long rows that are partitioned at one position; others are sorted.
    """
    _require_partition("partition", operand(x), kth, axis, kind)
    x, axis = with_axis_or_flattened("partition", x, axis)
    position = _single_position(x, kth, axis)
    is_differentiated = isinstance(x, Tracer) and x.owner.derivative_orders > 0
    if position is None or is_differentiated or not has_permutable_keys(element_type(x.dtype)):
        return sort(x, axis)
    return moveaxis(_partition_rows(moveaxis(x, axis, -1), position), -1, axis)


def argpartition(x: ArrayLike, kth: int | Sequence[int], /, axis: int | None = -1, kind: str = "introselect") -> Any:
    """Return the indices that partition the elements at `kth` along `axis`.

    Indices ascend on either side in long rows that are partitioned at one position; others are those that sort the elements.
    """
    _require_partition("argpartition", operand(x), kth, axis, kind)
    x, axis = with_axis_or_flattened("argpartition", x, axis)
    position = _single_position(x, kth, axis)
    if position is None or x.dtype.itemsize > 4:
        return argsort(x, axis)
    rows = moveaxis(x, axis, -1)
    # As in an argsort, keys are in the upper half of a word and indices in the lower one.
    keys = bitwise_left_shift(_comparison_keys(rows), np.int64(32))
    partitioned = _partition_rows(bitwise_or(keys, np.arange(rows.shape[-1])), position)
    return moveaxis(bitwise_and(partitioned, np.int64((1 << 32) - 1)), -1, axis)


def _single_position(x: Operand, kth: int | Sequence[int], axis: int) -> int | None:
    """Return the position at which a row is partitioned; None if it is not the only one, or if sorting is faster."""
    size, positions = x.shape[axis], np.unique(kth)
    is_faster = is_partition_faster(untraced(size), product(untraced(x.shape[axis + 1 :])), element_type(x.dtype))
    return int(positions[0]) % int(size) if is_faster and len(positions) == 1 else None


def _partition_rows(x: Any, position: int) -> Any:
    """Partition along the last axis, of static size."""
    rows = reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    return reshape(apply(dl.PartitionOp, rows, kth=position), x.shape)


def _comparison_keys(x: Operand) -> Any:
    """Return int64 keys of up to 32 bits that compare like the elements; NaN is the largest, and -0 and 0 are equal."""
    if not is_floating(x.dtype):
        return subtract(convert(x, np.int64), np.int64(1 << 31)) if x.dtype == np.uint32 else convert(x, np.int64)
    wide = convert(x, np.float32)
    bits: Any = apply(dl.BitcastOp, where(equal(wide, 0), np.float32(0), wide), to=i32)
    largest = np.int32(np.iinfo(np.int32).max)
    ordered = where(less(bits, 0), bitwise_xor(bits, largest), bits)
    return convert(where(isnan(wide), largest, ordered), np.int64)


def _require_partition(name: str, x: Operand, kth: int | Sequence[int], axis: int | None, kind: str) -> None:
    """Raise ArgumentError for an unknown algorithm, and OutOfBoundsError for a position outside of an axis of static size."""
    if kind != "introselect":
        refuse(ArgumentError(f"{name}: kind {kind!r}; expected 'introselect'"))
    size = math.prod(x.shape) if axis is None else x.shape[normalize_axis(name, x, axis)]
    for position in np.atleast_1d(np.asarray(kth)).tolist():
        if isinstance(size, int) and not -size <= position < size:
            refuse(OutOfBoundsError(f"{name}: kth = {position} is out of bounds for {size} elements"))


def _require_kind(name: str, kind: str | None, stable: bool | None) -> None:
    """Raise ArgumentError for a sort algorithm that NumPy does not have, and for one in addition to `stable`."""
    if kind is not None and kind not in _SORT_KINDS:
        refuse(ArgumentError(f"{name}: kind {kind!r}; expected one of {', '.join(_SORT_KINDS)}"))
    if kind is not None and stable is not None:
        refuse(ArgumentError(f"{name}: kind and stable; pass one of them"))


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
        refuse(ArgumentError(f'searchsorted: side {side!r}; expected "left" or "right"'))
    # As in NumPy, a Python number keeps its own dtype: it may be between two elements, or beyond all of them.
    a, v = promote(x, np.asarray(v) if is_python_scalar(v) else v)
    if a.ndim != 1:
        refuse(ShapeError(f"searchsorted: x of shape {a.shape}; expected a sorted vector"))
    if sorter is not None:
        order = operand(sorter)
        if untraced(order.shape) != untraced(a.shape):
            refuse(ShapeError(f"searchsorted: sorter of shape {order.shape} for x of shape {a.shape}; expected its shape"))
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


def isin(x: ArrayLike, values: ArrayLike, /, *, invert: bool = False, kind: str | None = None) -> Any:
    """Return whether each element is one of `values`, or none of them if `invert`. The result does not depend on `kind`.

    Few values are compared pairwise; integers in a small range are looked up in a table; else a binary search is used.
    """
    x, values = operand(x), operand(ravel(values))
    if kind not in (None, "sort", "table"):
        refuse(ArgumentError(f"isin: kind {kind!r}; expected None, 'sort' or 'table'"))
    if kind == "table" and not (x.dtype.kind in "iub" and values.dtype.kind in "iub"):
        refuse(ArgumentError(f"isin: kind 'table' for {x.dtype} and {values.dtype}; expected integers or bools"))
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
        _isin_by_table(x, values, size)
        if size and _MAX_VALUES_WITHOUT_TABLE < values.size < size
        else _isin_by_comparison(x, values)
    )
    return logical_not(is_member) if invert else is_member


def _isin_by_comparison(x: Operand, values: Operand) -> Any:
    """Return whether elements are among values by comparison or binary search, for any dtype and size."""
    if values.dtype == np.bool_:
        return any_true(equal(expand_dims(x, -1), values), -1)
    if is_static(values.shape) and values.size <= _MAX_COMPARED_VALUES:
        # min over xor of the bit patterns is 0 iff one value is equal: fewer instructions than a comparison of each pair.
        differences = bitwise_xor(expand_dims(_bits_of(x), -1), _bits_of(values))
        return logical_and(equal(apply(dl.ReduceMinOp, differences, axes=(x.ndim,), keepdims=False), 0), equal(x, x))
    sorted_values = sort(values)
    if not is_static(values.shape):
        # `values` may be empty, without a last element.
        return logical_and(less(searchsorted(sorted_values, x), searchsorted(sorted_values, x, side="right")), equal(x, x))
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


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    /,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: float | None = None,
) -> Any:
    """Return the piecewise linear interpolation at `x` of the points (xp, fp), xp ascending; `left`, `right` beyond them.

    NaN for NaN. Between an infinite and a finite value the result is infinite; at a point it is the point's value. With a
    `period` the coordinates are periodic: xp may have any order, and no x is beyond the points.
    """
    x, xp, fp = promote_to_float(x, xp, fp)
    is_vector = xp.ndim == 1 and untraced(xp.shape) == untraced(fp.shape)
    if not is_vector or is_empty("interp", xp, (0,), 0):
        refuse(ShapeError(f"interp: xp of shape {xp.shape} and fp of shape {fp.shape}; expected vectors of one length, not 0"))
    if period is not None:
        x, xp, fp, left, right = *_periodic(x, xp, fp, period), None, None
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


def _periodic(x: Operand, xp: Operand, fp: Operand, period: float) -> tuple[Operand, Operand, Operand]:
    """Reduce coordinates to one period, sort the points, and repeat the last one before and the first one after them."""
    if period == 0:
        refuse(ArgumentError("interp: period 0; expected another number"))
    period = math.fabs(period)
    x, xp = operand(remainder(x, period)), operand(remainder(xp, period))
    order = argsort(xp)
    xp, fp = take(xp, order, axis=0), take(fp, order, axis=0)
    first, last, first_value, last_value = (take(v, [k], axis=0) for v in (xp, fp) for k in (0, -1))
    return x, concat([subtract(last, period), xp, add(first, period)]), concat([last_value, fp, first_value])
