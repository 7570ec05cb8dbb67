"""Reductions along axes.

`axis` is one axis, several, or None for all; `keepdims` leaves the reduced axes with size 1. Only elements where `where` is
true count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ShapeError
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
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
from dlc.numpy.by_parts import by_parts
from dlc.numpy.functions.comparing import equal, greater, isnan, logical_not, maximum, minimum
from dlc.numpy.functions.elementwise import add, divide, multiply, sqrt, square, subtract
from dlc.numpy.functions.elementwise import where as select

__all__ = [
    "all", "any", "argmax", "argmin", "average", "count_nonzero", "max", "mean", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "ptp", "std", "sum", "var",
]  # fmt: skip


def _reduce(op: type[DlOp], x: Operand, axis: Axes, keepdims: bool) -> Any:
    axes = axes_of(op.name.removeprefix("dl.reduce_"), x, axis)
    return apply(op, x, axes=axes, keepdims=keepdims) if axes else x


def _summable(x: ArrayLike, dtype: Any, where: ArrayLike | None, identity: int) -> Operand:
    """Bools and integers as 64-bit, as NumPy adds them; `identity` where an element does not count."""
    x = operand(x)
    if dtype is not None:
        x = convert(x, dtype)
    elif x.dtype.kind in "biu":
        x = convert(x, np.uint64 if x.dtype.kind == "u" else np.int64)
    return x if where is None else select(where, x, identity)


@by_parts("x", "initial")
def sum(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The sum, and `initial`; integers are summed as 64-bit unless `dtype` says otherwise."""
    result = _reduce(dl.ReduceSumOp, _summable(x, dtype, where, 0), axis, keepdims)
    return result if initial is None else add(result, initial)


def prod(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The product, times `initial`; integers are multiplied as 64-bit unless `dtype` says otherwise."""
    result = _reduce(dl.ReduceProdOp, _summable(x, dtype, where, 1), axis, keepdims)
    return result if initial is None else multiply(result, initial)


def max(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The largest of the elements and `initial`; NaN if one is. Nothing has no largest without `initial`."""
    result = _extremum(dl.ReduceMaxOp, x, axis, keepdims, initial, where)
    return result if initial is None else maximum(result, convert(initial, result.dtype))


def min(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The smallest of the elements and `initial`; NaN if one is. Nothing has no smallest without `initial`."""
    result = _extremum(dl.ReduceMinOp, x, axis, keepdims, initial, where)
    return result if initial is None else minimum(result, convert(initial, result.dtype))


def _extremum(
    op: type[DlOp], x: ArrayLike, axis: Axes, keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None
) -> Any:
    x, name = operand(x), op.name.removeprefix("dl.reduce_")
    if initial is None:
        if where is not None:
            refuse(ShapeError(f"{name}: where may leave no elements; give initial"))
        if 0 in (x.shape[a] for a in axes_of(name, x, axis)):
            refuse(ShapeError(f"{name}: no elements along axis {axis} of {x.shape}; give initial"))
    elif where is not None:
        x = operand(select(where, x, convert(initial, x.dtype)))
    return _reduce(op, x, axis, keepdims)


def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Any:
    """Whether one is true (not zero)."""
    x = convert(x, np.bool_)
    return _reduce(dl.ReduceAnyOp, x if where is None else select(where, x, False), axis, keepdims)


def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Any:
    """Whether all are true (not zero)."""
    x = convert(x, np.bool_)
    return _reduce(dl.ReduceAllOp, x if where is None else select(where, x, True), axis, keepdims)


def count_nonzero(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """How many are not zero (or false)."""
    return sum(convert(x, np.bool_), axis, keepdims=keepdims)


def ptp(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The distance from the smallest to the largest."""
    return subtract(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


@by_parts("x")
def mean(
    x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> Any:
    """The mean; integers become float64 first. The mean of nothing is NaN. As an integer it is truncated."""
    (x,) = promote_to_float(x if dtype is None else convert(x, dtype))
    y = _reduce(dl.ReduceMeanOp, x, axis, keepdims) if where is None else _mean_where(x, where, axis, keepdims)
    return y if dtype is None else convert(y, dtype)


def _mean_where(x: Operand, where: ArrayLike, axis: Axes, keepdims: bool, correction: float = 0) -> Any:
    """The sum of the elements that count, divided by their number less `correction`."""
    # 16-bit floats: a sum of many may exceed their range where the mean does not.
    wide = convert(x, np.float32) if x.dtype.itemsize == 2 else x
    counted = apply(dl.BroadcastToOp, convert(where, np.bool_), shape=x.shape)
    number = convert(count_nonzero(counted, axis, keepdims=keepdims), wide.dtype)
    if correction:
        number = maximum(subtract(number, float(correction)), 0)
    return convert(divide(sum(wide, axis, keepdims=keepdims, where=counted), number), x.dtype)


def var(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    correction: float = 0,
    ddof: float | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """The sum of squared distances from the mean, divided by the number of elements less `correction` (or `ddof`)."""
    (x,) = promote_to_float(x if dtype is None else convert(x, dtype))
    wide = convert(x, np.float32) if x.dtype.itemsize == 2 else x
    distance = square(subtract(wide, mean(wide, axis, keepdims=True, where=where)))
    correction = correction if ddof is None else ddof
    if where is None and not correction:
        return convert(mean(distance, axis, keepdims=keepdims), x.dtype)
    return convert(_mean_where(distance, True if where is None else where, axis, keepdims, correction), x.dtype)


def std(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    correction: float = 0,
    ddof: float | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """The standard deviation: √var."""
    spread = var(x, axis, dtype, correction=correction, ddof=ddof, keepdims=keepdims, where=where)
    # Equal numbers have no slope, where that of a root is infinite.
    none = equal(spread, 0)
    return select(none, 0, sqrt(select(none, 1, spread)))


def average(x: ArrayLike, /, axis: Axes = None, weights: ArrayLike | None = None, *, keepdims: bool = False) -> Any:
    """The mean, each element as often as `weights` says; those have the shape of `x`, or are a vector along `axis`."""
    x = operand(x)
    if weights is None:
        return mean(x, axis, keepdims=keepdims)
    w = operand(weights)
    axes = axes_of("average", x, axis)
    if w.shape != x.shape:
        if w.shape != tuple(x.shape[a] for a in axes) or len(axes) != 1:
            refuse(ShapeError(f"average: weights of shape {w.shape} for {x.shape} and axis {axis}; give one for each element"))
        w = apply(dl.ReshapeOp, w, shape=[s if a in axes else 1 for a, s in enumerate(x.shape)])
    # Integers are averaged in f64, whatever they are weighted with.
    x, w = promote(*promote_to_float(x), w)
    total = sum(apply(dl.BroadcastToOp, w, shape=x.shape), axis, keepdims=keepdims)
    return divide(sum(multiply(x, w), axis, keepdims=keepdims), total)


def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the largest stands along `axis`, the first of equals; None: in the flattened array. NaN is the largest."""
    return _arg(dl.ArgmaxOp, operand(x), axis, keepdims)


def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the smallest stands along `axis`, the first of equals; None: in the flattened array. NaN is the smallest."""
    return _arg(dl.ArgminOp, operand(x), axis, keepdims)


def _arg(op: type[DlOp], x: Operand, axis: int | None, keepdims: bool) -> Any:
    if axis is not None:
        return apply(op, x, axis=axis_of(op.name.removeprefix("dl."), x, axis), keepdims=keepdims)
    found = apply(op, apply(dl.ReshapeOp, x, shape=(x.size,)), axis=0, keepdims=False)
    return apply(dl.ReshapeOp, found, shape=(1,) * x.ndim) if keepdims else found


def _without_nan(x: ArrayLike, value: float) -> Any:
    """`x` with a value in the place of NaN."""
    x = operand(x)
    return select(isnan(x), value, x) if is_floating(x.dtype) else x


def nansum(x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, keepdims: bool = False) -> Any:
    """The sum of those that are not NaN."""
    return sum(_without_nan(x, 0), axis, dtype, keepdims=keepdims)


def nanprod(x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, keepdims: bool = False) -> Any:
    """The product of those that are not NaN."""
    return prod(_without_nan(x, 1), axis, dtype, keepdims=keepdims)


def nanmax(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The largest that is not NaN; NaN if all are."""
    op = dl.ReduceNanmaxOp if is_floating(operand(x).dtype) else dl.ReduceMaxOp
    return _extremum(op, x, axis, keepdims, None, None)


def nanmin(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The smallest that is not NaN; NaN if all are."""
    op = dl.ReduceNanminOp if is_floating(operand(x).dtype) else dl.ReduceMinOp
    return _extremum(op, x, axis, keepdims, None, None)


def nanmean(x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, keepdims: bool = False) -> Any:
    """The mean of those that are not NaN; NaN if all are."""
    return mean(x, axis, dtype, keepdims=keepdims, where=logical_not(isnan(x)))


def nanvar(x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance of those that are not NaN; NaN if there are no more than `ddof`."""
    numbers = logical_not(isnan(x))
    spread = var(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=numbers)
    return select(greater(count_nonzero(numbers, axis, keepdims=keepdims), ddof), spread, np.nan) if ddof else spread


def nanstd(x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation of those that are not NaN; NaN if all are."""
    return sqrt(nanvar(x, axis, dtype, ddof=ddof, keepdims=keepdims))


def nanargmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the largest that is not NaN stands along `axis`; 0 if all are NaN."""
    return argmax(_without_nan(x, -np.inf), axis, keepdims=keepdims)


def nanargmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the smallest that is not NaN stands along `axis`; 0 if all are NaN."""
    return argmin(_without_nan(x, np.inf), axis, keepdims=keepdims)
