"""Operators with data-dependent output shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules.creation import integer_range
from dlc.pytorch.rules.rule_table import RuleTable
from dlc.shapes.traced_dims import TracedSize

table = RuleTable()


@table("nonzero")
def nonzero(x: Any) -> Any:
    return dnp.argwhere(x)


@table("index.Tensor _unsafe_index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    """Index by arrays and masks; a mask selects the indices of its true elements."""
    indexed_axes = [k for k, i in enumerate(indices) if i is not None]
    if len(indexed_axes) == 1 and indices[indexed_axes[0]].dtype != np.bool_:
        return dnp.take(x, indices[indexed_axes[0]], axis=indexed_axes[0])
    return x[tuple(np.s_[:] if i is None else i if i.dtype == np.bool_ else convert(i, np.int64) for i in indices)]


@table("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    x, mask = dnp.broadcast_arrays(x, mask)
    return dnp.ravel(x)[dnp.ravel(mask)]


@table("bincount")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Weighted counts of float32 weights are float32, others float64."""
    counts = dnp.bincount(x, weights, minlength)
    return counts if weights is None or weights.dtype != np.float32 else convert(counts, np.float32)


@table("repeat_interleave.Tensor")
def repeat_indices(repeats: Any, output_size: TracedSize | None = None) -> Any:
    """Repeat each index k `repeats[k]` times; `output_size` is the total, or None."""
    if output_size is None:
        return dnp.repeat(integer_range(repeats.shape[0]), repeats)
    return dnp.searchsorted(dnp.cumsum(repeats, 0), integer_range(output_size), side="right")


@table("repeat_interleave.self_Tensor")
def repeat_interleave(x: Any, repeats: Any, dim: int | None = None, output_size: TracedSize | None = None) -> Any:
    flat, axis = (dnp.ravel(x), 0) if dim is None else (x, dim % x.ndim)
    return dnp.take(flat, repeat_indices(dnp.broadcast_to(repeats, (flat.shape[axis],)), output_size), axis=axis)


@table("_unique2")
def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return dnp.unique(x, return_inverse=True, return_counts=True)


@table("unique_dim")
def unique_dim(x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return dnp.unique(x, return_inverse=True, return_counts=True, axis=dim)


@table("unique_consecutive")
def unique_consecutive(x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """Return the rows that differ from the previous one, the index of the run of each row, and the lengths of the runs."""
    rows = dnp.ravel(x) if dim is None else dnp.moveaxis(x, dim, 0)
    differs = dnp.any(dnp.not_equal(rows[1:], rows[:-1]), tuple(range(1, rows.ndim)))
    is_first = dnp.concatenate([np.ones(1, np.bool_), differs])[: rows.shape[0]]
    inverse = dnp.subtract(dnp.cumsum(convert(is_first, np.int64)), 1)
    values = rows[is_first]
    counts = dnp.at(dnp.zeros((values.shape[0],), np.int64))[inverse].add(1)
    if dim is None:
        return values, dnp.reshape(inverse, x.shape), counts
    return dnp.moveaxis(values, 0, dim), inverse, counts


@table("unique_dim_consecutive")
def unique_dim_consecutive(x: Any, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return unique_consecutive(x, return_inverse, return_counts, dim)


@table("nonzero_static")
def nonzero_static(x: Any, size: int, fill_value: int = -1) -> Any:
    """Return the indices of the first `size` nonzero elements, padded with `fill_value`."""
    if not x.ndim:
        return dnp.zeros((size, 0), np.int64)
    flat = dnp.ravel(convert(x, np.bool_))
    count = dnp.cumsum(convert(flat, np.int64))
    # Element `size` of the scatter target collects the indices that are not returned.
    slot = dnp.where(dnp.logical_and(flat, dnp.less_equal(count, size)), dnp.subtract(count, 1), size)
    flat_indices = dnp.at(np.full(size + 1, -1))[slot].set(dnp.arange(flat.shape[0]))[:size]
    is_found, coordinates = dnp.greater_equal(flat_indices, 0), list[Any]()
    for axis in reversed(range(x.ndim)):
        coordinates.insert(0, dnp.where(is_found, dnp.remainder(flat_indices, x.shape[axis]), fill_value))
        flat_indices = dnp.floor_divide(flat_indices, x.shape[axis])
    return dnp.stack(coordinates, 1)
