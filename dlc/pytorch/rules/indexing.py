"""Elements at places that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.errors import UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import apply, convert, refuse
from dlc.pytorch.rules.table import Table

table = Table()


@table("embedding")
def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    return dnp.take(weight, indices, axis=0)


@table("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    return dnp.take(x, dnp.ravel(index), axis=dim) if x.ndim else x


@table("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if x.ndim == 0:
        return x
    return apply(dl.GatherElementsOp, _cut(x, index.shape, dim % x.ndim), index, axis=dim % x.ndim)


def _cut(x: Any, shape: Sequence[int], axis: int) -> Any:
    """The part of `x` that an index of this shape reaches along the other axes."""
    limits = [s if a == axis else n for a, (s, n) in enumerate(zip(x.shape, shape, strict=True))]
    return apply(dl.SliceOp, x, starts=[0] * x.ndim, limits=limits, strides=[1] * x.ndim) if limits != list(x.shape) else x


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    """Indices as a key: a mask that is known is the places where it is true."""
    return tuple(np.s_[:] if i is None else _places(i) for i in indices)


def _places(index: Any) -> Any:
    if isinstance(index, Tracer) and index.dtype == np.bool_:
        refuse(UnsupportedError("a mask as an index, whose elements decide the size of the result; use torch.where"))
    return index if index.dtype == np.bool_ else convert(index, np.int64)


@table("index.Tensor _unsafe_index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    named = [k for k, i in enumerate(indices) if i is not None]
    if len(named) == 1 and indices[named[0]].dtype != np.bool_:
        return dnp.take(x, indices[named[0]], axis=named[0])
    return x[_key(indices)]


@table("index_put _unsafe_index_put")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    masks = [i for i in indices if i is not None and i.dtype == np.bool_]
    if len(masks) == 1 == len(indices) and values.ndim == 0 and not accumulate:
        mask = dnp.reshape(masks[0], (*masks[0].shape, *(1,) * (x.ndim - masks[0].ndim)))
        return dnp.where(mask, convert(values, x.dtype), x)
    place = dnp.at(x)[_key(indices)]
    return place.add(convert(values, x.dtype)) if accumulate else place.set(convert(values, x.dtype))


def _scatter(x: Any, dim: int, index: Any, source: Any, mode: str) -> Any:
    axis = dim % max(x.ndim, 1)
    if x.ndim == 0:
        x, index, source = (dnp.reshape(v, (1,)) for v in (x, index, source))
        return dnp.reshape(_scatter(x, 0, index, source, mode), ())
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
    if reduce == "mean" or not include_self:
        more = "" if include_self else " without the elements that are there"
        refuse(UnsupportedError(f"scatter_reduce of {reduce!r}{more}; add up counts and divide"))
    return _scatter(x, dim, index, src, _MODES[reduce])


_MODES = {
    "none": "none", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


@table("index_add")
def index_add(x: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Any:
    key = (*[np.s_[:]] * (dim % x.ndim), index)
    return dnp.at(x)[key].add(convert(source if alpha == 1 else dnp.multiply(source, alpha), x.dtype))


@table("index_copy")
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return dnp.at(x)[(*[np.s_[:]] * (dim % x.ndim), index)].set(source)


@table("index_fill.int_Scalar index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return dnp.at(x)[(*[np.s_[:]] * (dim % x.ndim), index)].set(convert(value, x.dtype))


@table("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """The elements of the source, one after the other, where the mask is true."""
    mask = dnp.broadcast_to(mask, x.shape)
    number = dnp.maximum(dnp.subtract(dnp.cumsum(convert(dnp.ravel(mask), np.int64), 0), 1), 0)
    return dnp.where(mask, dnp.reshape(dnp.take(dnp.ravel(source), number, axis=0), x.shape), x)


@table("bucketize.Tensor")
def bucketize(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return convert(dnp.searchsorted(boundaries, x, side="right" if right else "left"), np.int32 if out_int32 else np.int64)


@table("isin.Tensor_Tensor")
def isin(x: Any, values: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return dnp.isin(x, values, invert=invert)


@table("nonzero")
def nonzero(x: Any) -> Any:
    return dnp.transpose(apply(dl.NonzeroOp, x))
