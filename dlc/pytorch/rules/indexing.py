"""Gather, scatter and indexed updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import apply, convert, is_floating
from dlc.pytorch.rules.rule_table import RuleTable, at_least_1d, is_tensor, promoted
from dlc.shapes.traced_dims import untraced

table = RuleTable()


@table("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    return dnp.take(x, dnp.ravel(index), axis=dim) if x.ndim else x


@table("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if 0 in untraced(index.shape):
        # PyTorch does not check the rank of an empty index.
        return dnp.zeros(index.shape, x.dtype)
    rows, indices = at_least_1d(x), at_least_1d(index)
    axis = dim % rows.ndim
    return dnp.reshape(apply(dl.GatherElementsOp, _slice_to(rows, indices.shape, axis), indices, axis=axis), index.shape)


def _slice_to(x: Any, shape: Sequence[int], axis: int) -> Any:
    """Slice the other axes of `x` to the sizes of an index."""
    limits = [s if a == axis else n for a, (s, n) in enumerate(zip(x.shape, shape, strict=True))]
    return (
        apply(dl.SliceOp, x, starts=[0] * x.ndim, limits=limits, strides=[1] * x.ndim)
        if untraced(limits) != untraced(x.shape)
        else x
    )


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    """Convert indices to an indexing key."""
    return tuple(np.s_[:] if i is None else i if i.dtype == np.bool_ else convert(i, np.int64) for i in indices)


@table("index_put _unsafe_index_put _index_put_impl")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    if accumulate and x.dtype == np.bool_:
        return _of_bits(index_put, x, indices, values, True)
    values = convert(values, x.dtype)
    if len(indices) == 1 and isinstance(indices[0], Tracer) and indices[0].dtype == np.bool_:
        new = _masked_values(x, indices[0], values)
        mask = dnp.reshape(indices[0], (*indices[0].shape, *(1,) * (x.ndim - indices[0].ndim)))
        return dnp.where(mask, dnp.add(x, new) if accumulate else new, x)
    selected = dnp.at(x)[_key(indices)]
    return selected.add(values) if accumulate else selected.set(values)


def _masked_values(x: Any, mask: Any, values: Any) -> Any:
    """Align values, one for each true element of the mask in order, or one for all, with the elements of `x`."""
    if values.ndim <= x.ndim - mask.ndim:
        return values
    if untraced(values.shape[0]) == 1:
        return values[0]
    index = dnp.maximum(dnp.subtract(dnp.cumsum(convert(dnp.ravel(mask), np.int64), 0), 1), 0)
    aligned = dnp.take(values, index, axis=0)
    return dnp.reshape(aligned, (*mask.shape, *aligned.shape[1:]))


def _of_bits(rule: Any, x: Any, *args: Any) -> Any:
    """Apply a rule to bools as integers 0 and 1, so that sums are "or" and products are "and"."""
    bits = (convert(a, np.int32) if is_tensor(a) and a.dtype == np.bool_ else a for a in args)
    return convert(rule(convert(x, np.int32), *bits), np.bool_)


def _scatter(x: Any, dim: int, index: Any, source: Any, mode: str) -> Any:
    if mode != "none" and x.dtype == np.bool_:
        return _of_bits(_scatter, x, dim, index, source, mode)
    if x.ndim == 0 or index.ndim == 0:
        rows, index, source = map(at_least_1d, (x, index, source))
        return dnp.reshape(_scatter(rows, 0, index, source, mode), x.shape)
    if 0 in untraced(index.shape):
        # PyTorch does not check the rank of an empty index.
        return x
    axis = dim % x.ndim
    # The source may be larger than the index.
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
    is_updated = dnp.greater(count, 0)
    start = x if include_self else dnp.where(is_updated, convert(_identity(reduce, x.dtype), x.dtype), x)
    y = _scatter(start, dim, index, src, _MODES[reduce])
    if reduce != "mean":
        return y
    divide = dnp.divide if is_floating(x.dtype) else dnp.floor_divide
    return dnp.where(is_updated, divide(y, convert(dnp.add(count, int(include_self)), x.dtype)), y)


def _identity(reduce: str, dtype: Any) -> Any:
    """Return the identity element of a reduction."""
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
    source = convert(source if alpha == 1 else dnp.multiply(*promoted(source, alpha)), x.dtype)
    return _update_along_dim(x, dim, index, source, lambda selected, new: selected.add(new))


def _update_along_dim(x: Any, dim: int, index: Any, source: Any, update: Callable[[Any, Any], Any]) -> Any:
    """Update slices along an axis by the slices of the source."""
    rows = at_least_1d(x)
    selected = dnp.at(rows)[(*[np.s_[:]] * (dim % rows.ndim), at_least_1d(index))]
    return dnp.reshape(update(selected, at_least_1d(source) if is_tensor(source) else source), x.shape)


@table("index_copy")
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return _update_along_dim(x, dim, index, source, lambda selected, new: selected.set(new))


@table("index_fill.int_Scalar index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return _update_along_dim(x, dim, index, convert(value, x.dtype), lambda selected, new: selected.set(new))


_UPDATES = {"prod": "multiply", "amax": "max", "amin": "min", "mean": "add"}


@table("index_reduce")
def index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    if x.ndim == 0:
        return dnp.reshape(index_reduce(at_least_1d(x), 0, index, at_least_1d(source), reduce, include_self), ())
    index = at_least_1d(index)
    key = (*[np.s_[:]] * (dim % x.ndim), index)
    shape = (-1, *(1,) * (x.ndim - 1 - dim % x.ndim))
    count = dnp.reshape(dnp.at(dnp.zeros((x.shape[dim],), np.int64))[index].add(1), shape)
    is_updated = dnp.greater(count, 0)
    start = x if include_self else dnp.where(is_updated, convert(_identity(reduce, x.dtype), x.dtype), x)
    y = getattr(dnp.at(start)[key], _UPDATES[reduce])(convert(source, x.dtype))
    if reduce != "mean":
        return y
    divide = dnp.divide if is_floating(x.dtype) else dnp.floor_divide
    return dnp.where(is_updated, divide(y, convert(dnp.add(count, int(include_self)), x.dtype)), y)


@table("put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    if accumulate and x.dtype == np.bool_:
        return _of_bits(put, x, index, source, True)
    selected = dnp.at(dnp.ravel(x))[dnp.ravel(index)]
    values = dnp.ravel(source)
    return dnp.reshape(selected.add(values) if accumulate else selected.set(values), x.shape)


@table("take")
def take(x: Any, index: Any) -> Any:
    return dnp.take(dnp.ravel(x), index)


@table("masked_scatter_backward")
def masked_scatter_backward(g: Any, mask: Any, sizes: Sequence[int]) -> Any:
    """Return the cotangents where the mask is true, in order, followed by zeros."""
    mask = dnp.ravel(dnp.broadcast_to(mask, g.shape))
    size = math.prod(sizes)
    index = dnp.subtract(dnp.cumsum(convert(mask, np.int64), 0), 1)
    # Unselected elements are written to an extra element at the end.
    target_indices = dnp.where(dnp.logical_and(mask, dnp.less(index, size)), index, size)
    return dnp.reshape(dnp.at(dnp.zeros((size + 1,), g.dtype))[target_indices].set(dnp.ravel(g))[:size], tuple(sizes))


@table("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """Replace the elements where the mask is true by the elements of the source, in order."""
    x, mask = dnp.broadcast_arrays(x, mask)
    if source.size == 0:
        # No element is selected.
        return x
    return dnp.where(mask, _masked_values(x, mask, dnp.ravel(source)), x)
