"""Results as large as the data has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dims import Size
from dlc.numpy.apply import convert
from dlc.pytorch.rules.creation import counted
from dlc.pytorch.rules.table import Table

table = Table()


@table("nonzero")
def nonzero(x: Any) -> Any:
    return dnp.argwhere(x)


@table("index.Tensor _unsafe_index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    """A mask is the places where it is true."""
    named = [k for k, i in enumerate(indices) if i is not None]
    if len(named) == 1 and indices[named[0]].dtype != np.bool_:
        return dnp.take(x, indices[named[0]], axis=named[0])
    return x[tuple(np.s_[:] if i is None else i if i.dtype == np.bool_ else convert(i, np.int64) for i in indices)]


@table("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    x, mask = dnp.broadcast_arrays(x, mask)
    return dnp.ravel(x)[dnp.ravel(mask)]


@table("bincount")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Sums of float32 are float32, all other ones float64."""
    counts = dnp.bincount(x, weights, minlength)
    return counts if weights is None or weights.dtype != np.float32 else convert(counts, np.float32)


@table("repeat_interleave.Tensor")
def repeated(repeats: Any, output_size: Size | None = None) -> Any:
    """The places of the repeats, each as often as it says; of so many in all, if that is said."""
    if output_size is None:
        return dnp.repeat(counted(repeats.shape[0]), repeats)
    return dnp.searchsorted(dnp.cumsum(repeats, 0), counted(output_size), side="right")


@table("repeat_interleave.self_Tensor")
def repeat_interleave(x: Any, repeats: Any, dim: int | None = None, output_size: Size | None = None) -> Any:
    flat, axis = (dnp.ravel(x), 0) if dim is None else (x, dim % x.ndim)
    return dnp.take(flat, repeated(dnp.broadcast_to(repeats, (flat.shape[axis],)), output_size), axis=axis)


@table("_unique2")
def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return dnp.unique(x, return_inverse=True, return_counts=True)


@table("unique_dim")
def unique_dim(x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return dnp.unique(x, return_inverse=True, return_counts=True, axis=dim)


@table("unique_consecutive")
def unique_consecutive(x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The rows that are not equal to the one before, which of them each row is, and how many follow one another."""
    rows = dnp.ravel(x) if dim is None else dnp.moveaxis(x, dim, 0)
    differs = dnp.any(dnp.not_equal(rows[1:], rows[:-1]), tuple(range(1, rows.ndim)))
    is_first = dnp.concatenate([np.ones(1, np.bool_), differs])[: rows.shape[0]]
    which = dnp.subtract(dnp.cumsum(convert(is_first, np.int64)), 1)
    values = rows[is_first]
    counts = dnp.at(dnp.zeros((values.shape[0],), np.int64))[which].add(1)
    if dim is None:
        return values, dnp.reshape(which, x.shape), counts
    return dnp.moveaxis(values, 0, dim), which, counts


@table("unique_dim_consecutive")
def unique_dim_consecutive(x: Any, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return unique_consecutive(x, return_inverse, return_counts, dim)


@table("nonzero_static")
def nonzero_static(x: Any, size: int, fill_value: int = -1) -> Any:
    """The first so many places where it is not 0, filled up where there are fewer."""
    if not x.ndim:
        return dnp.zeros((size, 0), np.int64)
    flat = dnp.ravel(convert(x, np.bool_))
    number = dnp.cumsum(convert(flat, np.int64))
    place = dnp.where(dnp.logical_and(flat, dnp.less_equal(number, size)), dnp.subtract(number, 1), size)
    found = dnp.at(np.full(size + 1, -1))[place].set(dnp.arange(flat.shape[0]))[:size]
    kept, places = dnp.greater_equal(found, 0), list[Any]()
    for axis in reversed(range(x.ndim)):
        places.insert(0, dnp.where(kept, dnp.remainder(found, x.shape[axis]), fill_value))
        found = dnp.floor_divide(found, x.shape[axis])
    return dnp.stack(places, 1)
