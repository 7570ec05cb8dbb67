"""Reductions, running sums and orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn, special
from dlc.numpy.apply import convert, is_floating
from dlc.pytorch.rules.table import Table, promoted_floats

table = Table()


def _axes(dim: int | Sequence[int] | None) -> Any:
    """An empty list of axes means all of them."""
    return None if dim is None or dim == [] or dim == () else tuple(dim) if isinstance(dim, Sequence) else dim


def _summable(x: Any, dtype: Any) -> Any:
    return convert(x, dtype or (x.dtype if is_floating(x.dtype) else np.int64))


@table("sum sum.dim_IntList")
def sum(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.sum(_summable(x, dtype), _axes(dim), keepdims=keepdim)


@table("prod prod.dim_int")
def prod(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.prod(_summable(x, dtype), _axes(dim), keepdims=keepdim)


@table("mean mean.dim")
def mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return dnp.mean(x if dtype is None else convert(x, dtype), _axes(dim), keepdims=keepdim)


@table("amax")
def amax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.max(x, _axes(dim), keepdims=keepdim)


@table("amin")
def amin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.min(x, _axes(dim), keepdims=keepdim)


@table("any any.dim any.dims")
def any(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.any(x, _axes(dim), keepdims=keepdim)


@table("all all.dim all.dims")
def all(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return dnp.all(x, _axes(dim), keepdims=keepdim)


@table("argmax")
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return dnp.argmax(x, dim, keepdims=keepdim)


@table("argmin")
def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return dnp.argmin(x, dim, keepdims=keepdim)


@table("max max.dim")
def max(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return amax(x) if dim is None else (amax(x, dim, keepdim), argmax(x, dim, keepdim))


@table("min min.dim")
def min(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return amin(x) if dim is None else (amin(x, dim, keepdim), argmin(x, dim, keepdim))


@table("var.correction")
def var(x: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return dnp.var(x, _axes(dim), correction=1 if correction is None else correction, keepdims=keepdim)


@table("var var.dim")
def var_unbiased(x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return var(x, dim, int(unbiased), keepdim)


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
    if ord == 0:
        return sum(convert(dnp.not_equal(x, 0), x.dtype), dim, keepdim)
    if ord == 2:
        return dnp.sqrt(sum(dnp.square(x), dim, keepdim))
    return sum(x, dim, keepdim) if ord == 1 else dnp.power(sum(dnp.power(x, ord), dim, keepdim), 1 / ord)


@table("logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return special.logsumexp(promoted_floats(x)[0], _axes(dim), keepdims=keepdim)


def _float(x: Any, dtype: Any) -> Any:
    """`x` in the dtype, if one is given; there a flag says that a half may become a float, which PyTorch has done by then."""
    return promoted_floats(convert(x, dtype) if isinstance(dtype, np.dtype) else x)[0]


@table("_softmax softmax.int")
def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return nn.softmax(_float(x, dtype), dim if x.ndim else -1)


@table("_log_softmax log_softmax.int")
def log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return nn.log_softmax(_float(x, dtype), dim)


@table("cumsum")
def cumsum(x: Any, dim: int, dtype: Any = None) -> Any:
    return dnp.cumsum(_summable(x, dtype), dim) if x.ndim else x


@table("cumprod")
def cumprod(x: Any, dim: int, dtype: Any = None) -> Any:
    return dnp.cumprod(_summable(x, dtype), dim) if x.ndim else x


@table("topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
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
