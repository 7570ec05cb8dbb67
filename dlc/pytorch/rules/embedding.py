"""Rows of a table, by their numbers: one by one, and in bags; and what their gradients are."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, refuse
from dlc.pytorch.rules.table import Table

table = Table()


@table("embedding")
def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    return dnp.take(weight, indices, axis=0)


@table("embedding_dense_backward")
def embedding_backward(g: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    rows = dnp.reshape(g, (-1, g.shape[-1]))
    places = dnp.reshape(indices, (-1,))
    if padding_idx >= 0:
        rows = dnp.where(dnp.expand_dims(dnp.equal(places, padding_idx), 1), convert(0, g.dtype), rows)
    return dnp.at(np.zeros((num_weights, g.shape[-1]), g.dtype))[places].add(rows)


@table("_embedding_bag _embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0), means (1) or maxima (2) of the rows of each bag, which begins at its offset; 0 of a bag without any."""
    bags = offsets.shape[0] - include_last_offset
    bag = _bags(indices, offsets, bags)
    counted = dnp.not_equal(indices, padding_idx % weight.shape[0]) if padding_idx >= 0 else dnp.ones(indices.shape, np.bool_)
    rows = dnp.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = dnp.multiply(rows, dnp.expand_dims(per_sample_weights, -1))
    count = dnp.at(dnp.zeros((bags,), np.int64))[bag].add(convert(counted, np.int64))
    least = -np.inf if mode == 2 else 0
    rows = dnp.where(dnp.expand_dims(counted, -1), rows, convert(least, rows.dtype))
    place = dnp.at(dnp.full((bags, weight.shape[1]), least, rows.dtype))[bag]
    y = place.max(rows) if mode == 2 else place.add(rows)
    several = dnp.expand_dims(dnp.maximum(count, 1), -1)
    y = dnp.divide(y, convert(several, y.dtype)) if mode == 1 else y
    y = dnp.where(dnp.expand_dims(dnp.greater(count, 0), -1), y, convert(0, y.dtype))
    # PyTorch leaves out which bag each is in where it does not need that.
    is_left_out = mode == 0 and padding_idx < 0 and weight.dtype in (np.float32, np.float16)
    return y, bag[:0] if is_left_out else bag, count, _first_largest(rows, y, bag, indices) if mode == 2 else count


def _bags(indices: Any, offsets: Any, bags: int) -> Any:
    """Which bag each of the indices is in."""
    return dnp.subtract(dnp.searchsorted(offsets[:bags], dnp.arange(indices.shape[0]), side="right"), 1)


def _first_largest(rows: Any, y: Any, bag: Any, indices: Any) -> Any:
    """Which row each element of the bags' maxima is of."""
    places = dnp.expand_dims(dnp.arange(indices.shape[0]), 1)
    found = dnp.where(dnp.equal(rows, dnp.take(y, bag, axis=0)), places, indices.shape[0] - 1)
    first = dnp.at(dnp.full(y.shape, indices.shape[0] - 1, np.int64))[bag].min(found)
    return dnp.take(indices, first)


@table("_embedding_bag_backward")
def embedding_bag_backward(
    g: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    if sparse or scale_grad_by_freq:
        named = "sparse=True" if sparse else "scale_grad_by_freq=True"
        refuse(UnsupportedError(f"the gradient of an EmbeddingBag with {named}; leave that out"))
    none = dnp.zeros((num_weights, g.shape[1]), g.dtype)
    if mode == 2:
        g = dnp.where(dnp.expand_dims(dnp.greater(bag_size, 0), 1), g, convert(0, g.dtype))
        return dnp.at(none)[maximum_indices, dnp.arange(g.shape[1])].add(g)
    if mode == 1:
        g = dnp.divide(g, convert(dnp.expand_dims(dnp.maximum(bag_size, 1), 1), g.dtype))
    rows = dnp.take(g, _bags(indices, offsets, g.shape[0]), axis=0)
    if per_sample_weights is not None:
        rows = dnp.multiply(rows, dnp.expand_dims(per_sample_weights, 1))
    if padding_idx >= 0:
        rows = dnp.where(dnp.expand_dims(dnp.equal(indices, padding_idx), 1), convert(0, rows.dtype), rows)
    return dnp.at(none)[indices].add(rows)


@table("_embedding_bag_per_sample_weights_backward")
def per_sample_weights_backward(
    g: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    of_bags = dnp.take(g, _bags(indices, offsets, g.shape[0]), axis=0)
    product = dnp.sum(dnp.multiply(of_bags, dnp.take(weight, indices, axis=0)), 1)
    return dnp.where(dnp.equal(indices, padding_idx), convert(0, product.dtype), product) if padding_idx >= 0 else product
