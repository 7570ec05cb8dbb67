"""Reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, nn, special
from dlc.numpy.apply import convert, is_floating
from dlc.pytorch.rules.shaping import sliced
from dlc.pytorch.rules.table import Table, promoted_floats

table = Table()


def _axes(x: Any, dim: int | Sequence[int] | None) -> Any:
    """An empty list of axes means all of them; a tensor of rank 0 has one by PyTorch's count, and none here."""
    if not x.ndim or dim is None or dim == [] or dim == ():
        return None
    return tuple(dim) if isinstance(dim, Sequence) else dim


def _summable(x: Any, dtype: Any) -> Any:
    return convert(x, dtype or (x.dtype if is_floating(x.dtype) else np.int64))


@table("sum sum.dim_IntList")
def sum(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.sum(_summable(x, dtype), _axes(x, dim), keepdims=keepdim)


@table("prod prod.dim_int")
def prod(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.prod(_summable(x, dtype), _axes(x, dim), keepdims=keepdim)


@table("mean mean.dim")
def mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.mean(x if dtype is None else convert(x, dtype), _axes(x, dim), keepdims=keepdim)


@table("amax")
def amax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.max(x, _axes(x, dim), keepdims=keepdim)


@table("amin")
def amin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.min(x, _axes(x, dim), keepdims=keepdim)


@table("any any.dim any.dims")
def any(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.any(x, _axes(x, dim), keepdims=keepdim)


@table("all all.dim all.dims")
def all(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.all(x, _axes(x, dim), keepdims=keepdim)


@table("argmax")
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return dnp.argmax(x, _axes(x, dim), keepdims=keepdim)


@table("argmin")
def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return dnp.argmin(x, _axes(x, dim), keepdims=keepdim)


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
    # Powers may be beyond what 16 bits hold, though their root is not.
    wide = convert(x, np.promote_types(x.dtype, np.float32))
    if ord == 0:
        norm = sum(convert(dnp.not_equal(wide, 0), wide.dtype), dim, keepdim)
    elif ord == 2:
        norm = dnp.sqrt(sum(dnp.square(wide), dim, keepdim))
    else:
        norm = sum(wide, dim, keepdim) if ord == 1 else dnp.power(sum(dnp.power(wide, ord), dim, keepdim), 1 / ord)
    return convert(norm, x.dtype)


@table("logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return special.logsumexp(promoted_floats(x)[0], _axes(x, dim), keepdims=keepdim)


def _float(x: Any, dtype: Any) -> Any:
    """`x` in the dtype, if one is given; there a flag says that a half may become a float, which PyTorch has done by then."""
    return promoted_floats(convert(x, dtype) if isinstance(dtype, np.dtype) else x)[0]


@table("_softmax softmax.int")
def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    x = _float(x, dtype)
    return nn.softmax(x, dim) if x.ndim else dnp.reshape(nn.softmax(dnp.reshape(x, (1,)), 0), ())


@table("_log_softmax log_softmax.int")
def log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    x = _float(x, dtype)
    return nn.log_softmax(x, dim) if x.ndim else dnp.reshape(nn.log_softmax(dnp.reshape(x, (1,)), 0), ())


@table("cumsum")
def cumsum(x: Any, dim: int, dtype: Any = None) -> Any:
    return dnp.cumsum(_summable(x, dtype), dim) if x.ndim else x


@table("cumprod")
def cumprod(x: Any, dim: int, dtype: Any = None) -> Any:
    return dnp.cumprod(_summable(x, dtype), dim) if x.ndim else x


def _running(combine: Callable[[Any, Any], Any], x: Any, axis: int) -> Any:
    """What `combine` makes of all elements up to each one along an axis: runs of 2, 4, 8… of them first, or one after the other
    where their number is open."""
    size = x.shape[axis]
    if not isinstance(size, int):
        rows = dnp.moveaxis(x, axis, 0)
        first = sliced(rows, 0, 0, 1)
        _, made = lax.scan(lambda sofar, row: (combine(sofar, row),) * 2, dnp.squeeze(first, 0), sliced(rows, 0, 1, size))
        return dnp.moveaxis(dnp.concat([first, made], axis=0), 0, axis)
    step = 1
    while step < size:
        head, earlier = sliced(x, axis, 0, step), sliced(x, axis, 0, size - step)
        x = dnp.concat([head, combine(earlier, sliced(x, axis, step, size))], axis=axis)
        step *= 2
    return x


@table("logcumsumexp _logcumsumexp")
def logcumsumexp(x: Any, dim: int) -> Any:
    return _running(dnp.logaddexp, x, dim % x.ndim) if x.ndim else x


def _running_extremum(better: Callable[[Any, Any], Any]) -> Any:
    """The extremum up to each element, and the last place where it is; from a NaN on it is NaN."""

    def running(x: Any, dim: int) -> Any:
        if not x.ndim:
            return x, np.zeros((), np.int64)
        axis = dim % x.ndim
        best = _running(dnp.maximum if better is dnp.greater_equal else dnp.minimum, x, axis)
        here = dnp.reshape(dnp.arange(x.shape[axis]), (-1, *(1,) * (x.ndim - 1 - axis)))
        is_best = dnp.logical_or(better(x, best), dnp.isnan(x)) if is_floating(x.dtype) else better(x, best)
        return best, _running(dnp.maximum, dnp.where(is_best, here, 0), axis)

    return running


table("cummax")(_running_extremum(dnp.greater_equal))
table("cummin")(_running_extremum(dnp.less_equal))


@table("dist")
def dist(x: Any, y: Any, p: float = 2) -> Any:
    return vector_norm(dnp.subtract(*promoted_floats(x, y)), p)


@table("native_norm")
def native_norm(x: Any, p: float = 2) -> Any:
    return vector_norm(x, p)
