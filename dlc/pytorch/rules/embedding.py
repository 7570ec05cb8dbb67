"""Embedding lookups, embedding bags, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, refuse
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()


@table("embedding")
def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    return dnp.take(weight, indices, axis=0)


@table("embedding_dense_backward")
def embedding_backward(g: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    rows = dnp.reshape(g, (-1, g.shape[-1]))
    flat = dnp.reshape(indices, (-1,))
    if scale_grad_by_freq:
        counts = dnp.at(np.zeros(num_weights, np.int64))[flat].add(1)
        rows = dnp.divide(rows, convert(dnp.expand_dims(dnp.take(counts, flat), 1), g.dtype))
    if padding_idx >= 0:
        rows = dnp.where(dnp.expand_dims(dnp.equal(flat, padding_idx), 1), convert(0, g.dtype), rows)
    return dnp.at(np.zeros((num_weights, g.shape[-1]), g.dtype))[flat].add(rows)


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
    """Return the sum (mode 0), mean (1) or maximum (2) of the rows of each bag; 0 for an empty bag.

    `offsets` are the starts of the bags.
    """
    bags = offsets.shape[0] - include_last_offset
    bag = _bags(indices, offsets, bags)
    included = dnp.not_equal(indices, padding_idx % weight.shape[0]) if padding_idx >= 0 else dnp.ones(indices.shape, np.bool_)
    rows = dnp.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = dnp.multiply(rows, dnp.expand_dims(per_sample_weights, -1))
    count = dnp.at(dnp.zeros((bags,), np.int64))[bag].add(convert(included, np.int64))
    identity = -np.inf if mode == 2 else 0
    rows = dnp.where(dnp.expand_dims(included, -1), rows, convert(identity, rows.dtype))
    target = dnp.at(dnp.full((bags, weight.shape[1]), identity, rows.dtype))[bag]
    y = target.max(rows) if mode == 2 else target.add(rows)
    divisor = dnp.expand_dims(dnp.maximum(count, 1), -1)
    y = dnp.divide(y, convert(divisor, y.dtype)) if mode == 1 else y
    y = dnp.where(dnp.expand_dims(dnp.greater(count, 0), -1), y, convert(0, y.dtype))
    # PyTorch returns no offset2bag where its backward op does not need it.
    omits_offset2bag = mode == 0 and padding_idx < 0 and weight.dtype in (np.float32, np.float16)
    return y, bag[:0] if omits_offset2bag else bag, count, _max_row_indices(rows, y, bag, indices) if mode == 2 else count


def _bags(indices: Any, offsets: Any, bags: int) -> Any:
    """Return the bag that each index belongs to."""
    return dnp.subtract(dnp.searchsorted(offsets[:bags], dnp.arange(indices.shape[0]), side="right"), 1)


def _max_row_indices(rows: Any, y: Any, bag: Any, indices: Any) -> Any:
    """Return the row index of each element of the maxima."""
    positions = dnp.expand_dims(dnp.arange(indices.shape[0]), 1)
    candidates = dnp.where(dnp.equal(rows, dnp.take(y, bag, axis=0)), positions, indices.shape[0] - 1)
    first_positions = dnp.at(dnp.full(y.shape, indices.shape[0] - 1, np.int64))[bag].min(candidates)
    return dnp.take(indices, first_positions)


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
        option = "sparse=True" if sparse else "scale_grad_by_freq=True"
        refuse(UnsupportedError(f"the gradient of an EmbeddingBag with {option} is not supported; use False"))
    zeros = dnp.zeros((num_weights, g.shape[1]), g.dtype)
    if mode == 2:
        g = dnp.where(dnp.expand_dims(dnp.greater(bag_size, 0), 1), g, convert(0, g.dtype))
        return dnp.at(zeros)[maximum_indices, dnp.arange(g.shape[1])].add(g)
    if mode == 1:
        g = dnp.divide(g, convert(dnp.expand_dims(dnp.maximum(bag_size, 1), 1), g.dtype))
    rows = dnp.take(g, _bags(indices, offsets, g.shape[0]), axis=0)
    if per_sample_weights is not None:
        rows = dnp.multiply(rows, dnp.expand_dims(per_sample_weights, 1))
    if padding_idx >= 0:
        rows = dnp.where(dnp.expand_dims(dnp.equal(indices, padding_idx), 1), convert(0, rows.dtype), rows)
    return dnp.at(zeros)[indices].add(rows)


@table("_embedding_bag_per_sample_weights_backward")
def per_sample_weights_backward(
    g: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    bag_gradients = dnp.take(g, _bags(indices, offsets, g.shape[0]), axis=0)
    product = dnp.sum(dnp.multiply(bag_gradients, dnp.take(weight, indices, axis=0)), 1)
    return dnp.where(dnp.equal(indices, padding_idx), convert(0, product.dtype), product) if padding_idx >= 0 else product
