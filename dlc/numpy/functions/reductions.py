"""Reductions.

`axis` is one axis, several, or None for all; `keepdims` keeps the reduced axes with size 1. Only elements where `where` is true
are included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    apply,
    as_dtype,
    convert,
    in_float32_or_wider,
    is_floating,
    normalize_axes,
    normalize_axis,
    operand,
    promote,
    promote_to_float,
    refuse,
    require_elements,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions.comparison import equal, fmax, fmin, greater, isnan, logical_and, logical_not, maximum, minimum
from dlc.numpy.functions.elementwise import add, divide, multiply, sqrt, square, subtract
from dlc.numpy.functions.elementwise import where as select
from dlc.shapes.traced_dims import untraced

__all__ = [
    "all", "any", "argmax", "argmin", "average", "count_nonzero", "max", "mean", "min", "nanargmax", "nanargmin", "nanmax",
    "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "ptp", "std", "sum", "var",
]  # fmt: skip


def _reduce(op: type[DlOp], x: Operand, axis: Axes, keepdims: bool) -> Any:
    axes = normalize_axes(op.name.removeprefix("dl.reduce_"), x, axis)
    return apply(op, x, axes=axes, keepdims=keepdims) if axes else x


def _summable(x: ArrayLike, dtype: Any, where: ArrayLike | None, identity: int) -> Operand:
    """Convert bools and integers to 64-bit, as NumPy's sums do; excluded elements become `identity`."""
    x = operand(x)
    if dtype is not None:
        x = convert(x, dtype)
    elif x.dtype.kind in "biu":
        x = convert(x, np.uint64 if x.dtype.kind == "u" else np.int64)
    return x if where is None else select(where, x, identity)


@componentwise("x", "initial")
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
    """Return the sum, plus `initial`; integers are summed in 64-bit unless `dtype` is given."""
    result = _reduce(dl.ReduceSumOp, _summable(x, dtype, where, 0), axis, keepdims)
    return result if initial is None else add(result, convert(initial, result.dtype))


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
    """Return the product, times `initial`; integers are multiplied in 64-bit unless `dtype` is given."""
    result = _reduce(dl.ReduceProdOp, _summable(x, dtype, where, 1), axis, keepdims)
    return result if initial is None else multiply(result, convert(initial, result.dtype))


def max(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """Return the maximum of the elements and `initial`; NaN if any is NaN. No elements without `initial` is an error."""
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
    """Return the minimum of the elements and `initial`; NaN if any is NaN. No elements without `initial` is an error."""
    result = _extremum(dl.ReduceMinOp, x, axis, keepdims, initial, where)
    return result if initial is None else minimum(result, convert(initial, result.dtype))


def _extremum(
    op: type[DlOp], x: ArrayLike, axis: Axes, keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None
) -> Any:
    x, name = operand(x), op.name.removeprefix("dl.reduce_")
    if initial is None:
        if where is not None:
            refuse(ShapeError(f"{name}: where may exclude all elements; pass initial"))
        require_elements(name, x, normalize_axes(name, x, axis), axis)
    elif where is not None:
        x = operand(select(where, x, convert(initial, x.dtype)))
    return _reduce(op, x, axis, keepdims)


def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Any:
    """Return whether any element is true (nonzero)."""
    x = convert(x, np.bool_)
    return _reduce(dl.ReduceAnyOp, x if where is None else select(where, x, False), axis, keepdims)


def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Any:
    """Return whether all elements are true (nonzero)."""
    x = convert(x, np.bool_)
    return _reduce(dl.ReduceAllOp, x if where is None else select(where, x, True), axis, keepdims)


def count_nonzero(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Return the number of nonzero (true) elements."""
    return sum(convert(x, np.bool_), axis, keepdims=keepdims)


def ptp(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Return the range, maximum minus minimum."""
    return subtract(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


@componentwise("x")
def mean(
    x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> Any:
    """Return the mean, NaN of no elements. Integers are promoted to float64, and truncated if `dtype` is an integer."""
    (x,) = promote_to_float(x if dtype is None else convert(x, dtype))
    y = _reduce(dl.ReduceMeanOp, x, axis, keepdims) if where is None else _mean_where(x, where, axis, keepdims)
    return y if dtype is None else convert(y, dtype)


# For functions that have a parameter of this name.
_mean = mean


def _mean_where(x: Operand, where: ArrayLike | None, axis: Axes, keepdims: bool, correction: float = 0) -> Any:
    """Return the sum of the included elements, by default all, divided by their number minus `correction`."""
    # A sum of half-precision elements may overflow although the mean does not.
    x_wide = convert(x, np.float32) if x.dtype.itemsize == 2 else x
    if where is None:
        included, count = None, convert(math.prod(x.shape[a] for a in normalize_axes("mean", x, axis)), x_wide.dtype)
    else:
        included = apply(dl.BroadcastToOp, convert(where, np.bool_), shape=x.shape)
        count = convert(count_nonzero(included, axis, keepdims=keepdims), x_wide.dtype)
    if correction:
        count = maximum(subtract(count, float(correction)), 0)
    return convert(divide(sum(x_wide, axis, keepdims=keepdims, where=included), count), x.dtype)


def var(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """Return the variance: the sum of squared deviations from the mean, divided by the count minus `ddof` (or `correction`).

    `mean`: the mean, of a shape that broadcasts to that of `x`, if it is known.
    """
    if dtype is not None and not is_floating(as_dtype(dtype)):
        refuse(UnsupportedError(f"var: dtype {as_dtype(dtype)}; expected a float dtype, convert the result with .astype"))
    (x,) = promote_to_float(x if dtype is None else convert(x, dtype))
    x_wide = convert(x, np.float32) if x.dtype.itemsize == 2 else x
    center = _mean(x_wide, axis, keepdims=True, where=where) if mean is None else convert(mean, x_wide.dtype)
    squared_deviation = square(subtract(x_wide, center))
    correction = _correction(ddof, correction)
    if where is None and not correction:
        return convert(_mean(squared_deviation, axis, keepdims=keepdims), x.dtype)
    return convert(_mean_where(squared_deviation, where, axis, keepdims, correction), x.dtype)


def _correction(ddof: float, correction: float | None) -> float:
    """Return the number that is subtracted from the count, from either of its names."""
    if ddof and correction is not None:
        refuse(ArgumentError("var, std: ddof and correction; pass one of them"))
    return ddof if correction is None else correction


def std(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """Return the standard deviation √var."""
    variance = var(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean, correction=correction)
    # The derivative at variance 0 is defined as 0, where that of the root is infinite.
    is_zero = equal(variance, 0)
    return select(is_zero, 0, sqrt(select(is_zero, 1, variance)))


def average(
    x: ArrayLike,
    /,
    axis: Axes = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Return the weighted mean, and with `returned` the sum of the weights.

    `weights` have the shape of `x`, or that of the axes.
    """
    x = operand(x)
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        count = math.prod(x.shape[a] for a in normalize_axes("average", x, axis))
        return (result, apply(dl.BroadcastToOp, convert(count, result.dtype), shape=result.shape)) if returned else result
    w = align_weights("average", operand(weights), x, axis)

    @in_float32_or_wider
    def weighted_mean(x: Operand, w: Operand) -> Any:
        total = sum(apply(dl.BroadcastToOp, w, shape=x.shape), axis, keepdims=keepdims)
        return divide(sum(multiply(x, w), axis, keepdims=keepdims), total), total

    # Integers are promoted to float64 regardless of the dtype of the weights.
    result, total = weighted_mean(*promote(*promote_to_float(x), w))
    return (result, total) if returned else result


def align_weights(name: str, weights: Operand, x: Operand, axis: Axes) -> Operand:
    """Return weights that broadcast to `x`, from those of the shape of `x` or of the axes in the given order."""
    if untraced(weights.shape) == untraced(x.shape):
        return weights
    axes = normalize_axes(name, x, axis)
    if axis is None:
        refuse(DTypeError(f"{name}: weights of shape {weights.shape} for shape {x.shape}; pass the axis"))
    if untraced(weights.shape) != untraced([x.shape[a] for a in axes]):
        refuse(ShapeError(f"{name}: weights of shape {weights.shape} for axis {axis} of shape {x.shape}; expected its sizes"))
    order = sorted(range(len(axes)), key=lambda k: axes[k])
    return apply(
        dl.ReshapeOp,
        apply(dl.TransposeOp, weights, permutation=order),
        shape=[s if a in axes else 1 for a, s in enumerate(x.shape)],
    )


def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the index of the first maximum along `axis`; axis None: of the flattened array. NaN is the maximum."""
    return _arg(dl.ArgmaxOp, operand(x), axis, keepdims)


def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the index of the first minimum along `axis`; axis None: of the flattened array. NaN is the minimum."""
    return _arg(dl.ArgminOp, operand(x), axis, keepdims)


def _arg(op: type[DlOp], x: Operand, axis: int | None, keepdims: bool) -> Any:
    if axis is not None:
        return apply(op, x, axis=normalize_axis(op.name.removeprefix("dl."), x, axis), keepdims=keepdims)
    flat_index = apply(op, apply(dl.ReshapeOp, x, shape=(x.size,)), axis=0, keepdims=False)
    return apply(dl.ReshapeOp, flat_index, shape=(1,) * x.ndim) if keepdims else flat_index


def _without_nan(x: ArrayLike, value: float) -> Any:
    """Replace NaN by a value."""
    x = operand(x)
    return select(isnan(x), value, x) if is_floating(x.dtype) else x


def nansum(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """Return the sum, ignoring NaN."""
    return sum(_without_nan(x, 0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


def nanprod(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """Return the product, ignoring NaN."""
    return prod(_without_nan(x, 1), axis, dtype, keepdims=keepdims, initial=initial, where=where)


def nanmax(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """Return the maximum of the elements and `initial`, ignoring NaN; NaN if all elements are NaN."""
    op = dl.ReduceNanmaxOp if is_floating(operand(x).dtype) else dl.ReduceMaxOp
    result = _extremum(op, x, axis, keepdims, initial, where)
    return result if initial is None else fmax(result, convert(initial, result.dtype))


def nanmin(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """Return the minimum of the elements and `initial`, ignoring NaN; NaN if all elements are NaN."""
    op = dl.ReduceNanminOp if is_floating(operand(x).dtype) else dl.ReduceMinOp
    result = _extremum(op, x, axis, keepdims, initial, where)
    return result if initial is None else fmin(result, convert(initial, result.dtype))


def nanmean(
    x: ArrayLike, /, axis: Axes = None, dtype: AnyDType = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> Any:
    """Return the mean, ignoring NaN; NaN if all elements are NaN. The `dtype` of a mean of floats is a float dtype."""
    return mean(x, axis, dtype, keepdims=keepdims, where=_is_number("nanmean", x, dtype, where))


def _is_number(name: str, x: ArrayLike, dtype: AnyDType, where: ArrayLike | None) -> Any:
    """Return whether the elements are included and not NaN. Raises DTypeError for an integer dtype of floats."""
    if dtype is not None and is_floating(operand(x).dtype) and not is_floating(as_dtype(dtype)):
        refuse(DTypeError(f"{name}: dtype {as_dtype(dtype)} for an array of {operand(x).dtype}; expected a float dtype"))
    is_number = logical_not(isnan(x))
    return is_number if where is None else logical_and(is_number, where)


def nanvar(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """Return the variance, ignoring NaN; NaN if there are at most `ddof` other elements."""
    is_number = _is_number("nanvar", x, dtype, where)
    variance = var(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=is_number, mean=mean, correction=correction)
    excess = _correction(ddof, correction)
    return select(greater(count_nonzero(is_number, axis, keepdims=keepdims), excess), variance, np.nan) if excess else variance


def nanstd(
    x: ArrayLike,
    /,
    axis: Axes = None,
    dtype: AnyDType = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """Return the standard deviation, ignoring NaN; NaN if all elements are NaN."""
    return sqrt(nanvar(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean, correction=correction))


def nanargmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the index of the first maximum along `axis`, ignoring NaN; -1 if all elements are NaN."""
    return _index_without_nan(argmax, x, -np.inf, axis, keepdims)


def nanargmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the index of the first minimum along `axis`, ignoring NaN; -1 if all elements are NaN."""
    return _index_without_nan(argmin, x, np.inf, axis, keepdims)


def _index_without_nan(find: Callable[..., Any], x: ArrayLike, replacement: float, axis: int | None, keepdims: bool) -> Any:
    """Find an extremum among elements other than NaN. As in JAX, -1 stands for the ValueError of NumPy."""
    index = find(_without_nan(x, replacement), axis, keepdims=keepdims)
    return select(all(isnan(x), axis, keepdims=keepdims), -1, index)
