"""Reductions and cumulative operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, nn, special
from dlc.numpy.apply import convert, is_floating
from dlc.pytorch.rules.rule_table import Rule, RuleTable, promoted_floats
from dlc.pytorch.rules.shape_manipulation import slice_axis

table = RuleTable()


def _axes(x: Any, dim: int | Sequence[int] | None) -> Any:
    """Return the axes of a reduction: None for all, also for an empty list; and for rank 0, where PyTorch accepts dim 0."""
    if not x.ndim or dim is None or dim == [] or dim == ():
        return None
    return tuple(dim) if isinstance(dim, Sequence) else dim


def _summable(x: Any, dtype: Any) -> Any:
    """Convert an operand to the dtype that PyTorch sums in: `dtype` if it is specified, int64 for integers and booleans."""
    return convert(x, dtype or (x.dtype if is_floating(x.dtype) else np.int64))


@table("sum sum.dim_IntList")
def sum(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.sum(_summable(x, dtype), _axes(x, dim), keepdims=keepdim)


@table("prod prod.dim_int")
def prod(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.prod(_summable(x, dtype), _axes(x, dim), keepdims=keepdim)


@table("prims::sum")
def prims_sum(x: Any, dims: Sequence[int] | None, *, output_dtype: Any = None) -> Any:
    return sum(x, dims, dtype=output_dtype)


@table("prims::prod")
def prims_prod(x: Any, dims: Sequence[int] | None, *, output_dtype: Any = None) -> Any:
    return prod(x, dims, dtype=output_dtype)


@table("mean mean.dim")
def mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.mean(x if dtype is None else convert(x, dtype), _axes(x, dim), keepdims=keepdim)


def _reduction(names: str, function: Rule) -> Rule:
    def reduce(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return function(x, _axes(x, dim), keepdims=keepdim)

    return table(names)(reduce)


amax, amin = _reduction("amax", dnp.max), _reduction("amin", dnp.min)
argmax, argmin = _reduction("argmax", dnp.argmax), _reduction("argmin", dnp.argmin)
_reduction("any any.dim any.dims", dnp.any)
_reduction("all all.dim all.dims", dnp.all)


@table("max max.dim")
def max(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return amax(x) if dim is None else (amax(x, dim, keepdim), argmax(x, dim, keepdim))


@table("min min.dim")
def min(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return amin(x) if dim is None else (amin(x, dim, keepdim), argmin(x, dim, keepdim))


@table("var.correction")
def var(x: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return dnp.var(x, _axes(x, dim), correction=1 if correction is None else correction, keepdims=keepdim)


@table("var.dim")
def var_along(x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return var(x, dim, int(unbiased), keepdim)


@table("var")
def var_of_all(x: Any, unbiased: bool = True) -> Any:
    return var(x, None, int(unbiased))


@table("std.correction")
def std(x: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return dnp.sqrt(var(x, dim, correction, keepdim))


@table("var_mean.correction")
def var_mean(x: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return var(x, dim, correction, keepdim), mean(x, dim, keepdim)


@table("linalg_vector_norm")
def vector_norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = dnp.abs(x if dtype is None else convert(x, dtype))
    if ord in (float("inf"), -float("inf")):
        return (amax if ord > 0 else amin)(x, dim, keepdim)
    # Powers may overflow half precision although the norm does not.
    x_wide = convert(x, np.promote_types(x.dtype, np.float32))
    if ord == 0:
        norm = sum(convert(dnp.not_equal(x_wide, 0), x_wide.dtype), dim, keepdim)
    elif ord == 2:
        norm = dnp.sqrt(sum(dnp.square(x_wide), dim, keepdim))
    else:
        norm = sum(x_wide, dim, keepdim) if ord == 1 else dnp.power(sum(dnp.power(x_wide, ord), dim, keepdim), 1 / ord)
    return convert(norm, x.dtype)


@table("logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return special.logsumexp(promoted_floats(x)[0], _axes(x, dim), keepdims=keepdim)


def _as_float(x: Any, dtype: Any) -> Any:
    """Return `x` as a float, of the dtype if one is given.

    In `_softmax` the argument is a flag for the conversion of half to float, which has been applied already.
    """
    return promoted_floats(convert(x, dtype) if isinstance(dtype, np.dtype) else x)[0]


@table("_softmax softmax.int")
def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    x = _as_float(x, dtype)
    return nn.softmax(x, dim) if x.ndim else dnp.reshape(nn.softmax(dnp.reshape(x, (1,)), 0), ())


@table("_log_softmax log_softmax.int")
def log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    x = _as_float(x, dtype)
    return nn.log_softmax(x, dim) if x.ndim else dnp.reshape(nn.log_softmax(dnp.reshape(x, (1,)), 0), ())


@table("cumsum")
def cumsum(x: Any, dim: int, dtype: Any = None) -> Any:
    return dnp.cumsum(_summable(x, dtype), dim) if x.ndim else x


@table("cumprod")
def cumprod(x: Any, dim: int, dtype: Any = None) -> Any:
    return dnp.cumprod(_summable(x, dtype), dim) if x.ndim else x


def _cumulative(combine: Callable[[Any, Any], Any], x: Any, axis: int) -> Any:
    """Return the cumulative reduction by `combine` along an axis: a parallel prefix scan, sequential for a symbolic size."""
    size = x.shape[axis]
    if not isinstance(size, int):
        rows = dnp.moveaxis(x, axis, 0)
        first = slice_axis(rows, 0, 0, 1)
        _, remaining_rows = lax.scan(
            lambda total, row: (combine(total, row),) * 2, dnp.squeeze(first, 0), slice_axis(rows, 0, 1, size)
        )
        return dnp.moveaxis(dnp.concat([first, remaining_rows], axis=0), 0, axis)
    step = 1
    while step < size:
        head, earlier = slice_axis(x, axis, 0, step), slice_axis(x, axis, 0, size - step)
        x = dnp.concat([head, combine(earlier, slice_axis(x, axis, step, size))], axis=axis)
        step *= 2
    return x


@table("logcumsumexp _logcumsumexp")
def logcumsumexp(x: Any, dim: int) -> Any:
    return _cumulative(dnp.logaddexp, x, dim % x.ndim) if x.ndim else x


def _cumulative_extremum(better: Callable[[Any, Any], Any]) -> Any:
    """Define the cumulative maximum or minimum, with the last index of the extremum; NaN from the first NaN on."""

    def cumulative_extremum(x: Any, dim: int) -> Any:
        if not x.ndim:
            return x, np.zeros((), np.int64)
        axis = dim % x.ndim
        extremum = _cumulative(dnp.maximum if better is dnp.greater_equal else dnp.minimum, x, axis)
        positions = dnp.reshape(dnp.arange(x.shape[axis]), (-1, *(1,) * (x.ndim - 1 - axis)))
        is_extremum = dnp.logical_or(better(x, extremum), dnp.isnan(x)) if is_floating(x.dtype) else better(x, extremum)
        return extremum, _cumulative(dnp.maximum, dnp.where(is_extremum, positions, 0), axis)

    return cumulative_extremum


table("cummax")(_cumulative_extremum(dnp.greater_equal))
table("cummin")(_cumulative_extremum(dnp.less_equal))


@table("dist")
def dist(x: Any, y: Any, p: float = 2) -> Any:
    return vector_norm(dnp.subtract(*promoted_floats(x, y)), p)


@table("native_norm")
def native_norm(x: Any, p: float = 2) -> Any:
    return vector_norm(x, p)
