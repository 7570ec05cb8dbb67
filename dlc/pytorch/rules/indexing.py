"""Elements at places that are data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.errors import UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import apply, convert, is_floating, refuse
from dlc.pytorch.rules.table import Table, is_tensor, with_an_axis

table = Table()


@table("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    return dnp.take(x, dnp.ravel(index), axis=dim) if x.ndim else x


@table("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if 0 in index.shape:
        # Of none PyTorch does not compare the rank.
        return dnp.zeros(index.shape, x.dtype)
    rows, places = with_an_axis(x), with_an_axis(index)
    axis = dim % rows.ndim
    return dnp.reshape(apply(dl.GatherElementsOp, _cut(rows, places.shape, axis), places, axis=axis), index.shape)


def _cut(x: Any, shape: Sequence[int], axis: int) -> Any:
    """The part of `x` that an index of this shape reaches along the other axes."""
    limits = [s if a == axis else n for a, (s, n) in enumerate(zip(x.shape, shape, strict=True))]
    return apply(dl.SliceOp, x, starts=[0] * x.ndim, limits=limits, strides=[1] * x.ndim) if limits != list(x.shape) else x


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    """Indices as a key: a mask that is known is the places where it is true."""
    return tuple(np.s_[:] if i is None else _places(i) for i in indices)


def _places(index: Any) -> Any:
    if isinstance(index, Tracer) and index.dtype == np.bool_:
        refuse(UnsupportedError("a mask beside other indices as places to write at; write by one after the other"))
    return index if index.dtype == np.bool_ else convert(index, np.int64)


@table("index_put _unsafe_index_put")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    if accumulate and x.dtype == np.bool_:
        return _of_bits(index_put, x, indices, values, True)
    values = convert(values, x.dtype)
    if len(indices) == 1 and isinstance(indices[0], Tracer) and indices[0].dtype == np.bool_:
        meant = _spread(x, indices[0], values)
        mask = dnp.reshape(indices[0], (*indices[0].shape, *(1,) * (x.ndim - indices[0].ndim)))
        return dnp.where(mask, dnp.add(x, meant) if accumulate else meant, x)
    place = dnp.at(x)[_key(indices)]
    return place.add(values) if accumulate else place.set(values)


def _spread(x: Any, mask: Any, values: Any) -> Any:
    """For each element of `x` the value that is meant for it where the mask is true: one for each true element, in order, or
    one for all."""
    if values.ndim <= x.ndim - mask.ndim:
        return values
    if values.shape[0] == 1:
        return values[0]
    number = dnp.maximum(dnp.subtract(dnp.cumsum(convert(dnp.ravel(mask), np.int64), 0), 1), 0)
    taken = dnp.take(values, number, axis=0)
    return dnp.reshape(taken, (*mask.shape, *taken.shape[1:]))


def _of_bits(rule: Any, x: Any, *args: Any) -> Any:
    """What a rule makes of bools, of which sums are "or" and products "and": of the numbers 0 and 1, what is not 0."""
    bits = (convert(a, np.int32) if is_tensor(a) and a.dtype == np.bool_ else a for a in args)
    return convert(rule(convert(x, np.int32), *bits), np.bool_)


def _scatter(x: Any, dim: int, index: Any, source: Any, mode: str) -> Any:
    if mode != "none" and x.dtype == np.bool_:
        return _of_bits(_scatter, x, dim, index, source, mode)
    if x.ndim == 0 or index.ndim == 0:
        rows, index, source = map(with_an_axis, (x, index, source))
        return dnp.reshape(_scatter(rows, 0, index, source, mode), x.shape)
    axis = dim % x.ndim
    # Only as much of the source as there are indices.
    limits = index.shape
    if tuple(source.shape) != tuple(limits):
        source = apply(dl.SliceOp, source, starts=[0] * x.ndim, limits=limits, strides=[1] * x.ndim)
    return apply(dl.ScatterElementsOp, x, index, convert(source, x.dtype), axis=axis, mode=mode, checked=True)


@table("scatter.src scatter.reduce")
def scatter(x: Any, dim: int, index: Any, src: Any, reduce: str = "none") -> Any:
    return _scatter(x, dim, index, src, _MODES[reduce])


@table("scatter.value scatter.value_reduce")
def scatter_value(x: Any, dim: int, index: Any, value: float, reduce: str = "none") -> Any:
    return _scatter(x, dim, index, dnp.broadcast_to(convert(value, x.dtype), index.shape), _MODES[reduce])


@table("scatter_add")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter(x, dim, index, src, "add")


@table("scatter_reduce.two")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    if x.dtype == np.bool_:
        return _of_bits(scatter_reduce, x, dim, index, src, reduce, include_self)
    if include_self and reduce != "mean":
        return _scatter(x, dim, index, src, _MODES[reduce])
    count = _scatter(dnp.zeros(x.shape, np.int64), dim, index, dnp.ones(index.shape, np.int64), "add")
    written = dnp.greater(count, 0)
    start = x if include_self else dnp.where(written, convert(_neutral(reduce, x.dtype), x.dtype), x)
    y = _scatter(start, dim, index, src, _MODES[reduce])
    if reduce != "mean":
        return y
    divide = dnp.divide if is_floating(x.dtype) else dnp.floor_divide
    return dnp.where(written, divide(y, convert(dnp.add(count, int(include_self)), x.dtype)), y)


def _neutral(reduce: str, dtype: Any) -> Any:
    """What an element is before anything is combined with it."""
    if reduce in ("amax", "amin") and is_floating(dtype):
        return -np.inf if reduce == "amax" else np.inf
    if reduce in ("amax", "amin"):
        return np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max
    return 1 if reduce == "prod" else 0


_MODES = {
    "none": "none", "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


@table("index_add")
def index_add(x: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Any:
    if x.dtype == np.bool_:
        return _of_bits(index_add, x, dim, index, source, alpha)
    source = convert(source if alpha == 1 else dnp.multiply(source, alpha), x.dtype)
    return _updated(x, dim, index, source, lambda place, new: place.add(new))


def _updated(x: Any, dim: int, index: Any, source: Any, update: Callable[[Any, Any], Any]) -> Any:
    """`x` with rows along an axis updated by those of the source, if that has any."""
    rows = with_an_axis(x)
    place = dnp.at(rows)[(*[np.s_[:]] * (dim % rows.ndim), with_an_axis(index))]
    return dnp.reshape(update(place, with_an_axis(source) if is_tensor(source) else source), x.shape)


@table("index_copy")
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return _updated(x, dim, index, source, lambda place, new: place.set(new))


@table("index_fill.int_Scalar index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return _updated(x, dim, index, convert(value, x.dtype), lambda place, new: place.set(new))


_UPDATES = {"prod": "multiply", "amax": "max", "amin": "min", "mean": "add"}


@table("index_reduce")
def index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    if x.ndim == 0:
        return dnp.reshape(index_reduce(with_an_axis(x), 0, index, with_an_axis(source), reduce, include_self), ())
    index = with_an_axis(index)
    key = (*[np.s_[:]] * (dim % x.ndim), index)
    shape = (-1, *(1,) * (x.ndim - 1 - dim % x.ndim))
    count = dnp.reshape(dnp.at(dnp.zeros((x.shape[dim],), np.int64))[index].add(1), shape)
    written = dnp.greater(count, 0)
    start = x if include_self else dnp.where(written, convert(_neutral(reduce, x.dtype), x.dtype), x)
    y = getattr(dnp.at(start)[key], _UPDATES[reduce])(convert(source, x.dtype))
    if reduce != "mean":
        return y
    divide = dnp.divide if is_floating(x.dtype) else dnp.floor_divide
    return dnp.where(written, divide(y, convert(dnp.add(count, int(include_self)), x.dtype)), y)


@table("put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    if accumulate and x.dtype == np.bool_:
        return _of_bits(put, x, index, source, True)
    place = dnp.at(dnp.ravel(x))[dnp.ravel(index)]
    values = dnp.ravel(source)
    return dnp.reshape(place.add(values) if accumulate else place.set(values), x.shape)


@table("take")
def take(x: Any, index: Any) -> Any:
    return dnp.take(dnp.ravel(x), index)


@table("masked_scatter_backward")
def masked_scatter_backward(g: Any, mask: Any, sizes: Sequence[int]) -> Any:
    """The cotangents where the mask is true, one after the other, and zeros behind them."""
    mask = dnp.ravel(dnp.broadcast_to(mask, g.shape))
    size = math.prod(sizes)
    number = dnp.subtract(dnp.cumsum(convert(mask, np.int64), 0), 1)
    # What is not counted lands behind the end.
    places = dnp.where(dnp.logical_and(mask, dnp.less(number, size)), number, size)
    return dnp.reshape(dnp.at(dnp.zeros((size + 1,), g.dtype))[places].set(dnp.ravel(g))[:size], tuple(sizes))


@table("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """The elements of the source, one after the other, where the mask is true."""
    x, mask = dnp.broadcast_arrays(x, mask)
    return dnp.where(mask, _spread(x, mask, dnp.ravel(source)), x)
