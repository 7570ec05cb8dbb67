"""Attention within the sequences of a ragged batch: one kernel with an online softmax (Milakov and Gimelshein, 2018).

The lanes of a vector are queries of one sequence. Blocks of queries and keys start at the first row of the sequence, so that
results do not depend on the other sequences of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.kernels as k
import dlc.numpy as dnp
from dlc.calculus.custom_rules import custom_vjp
from dlc.errors import DTypeError, ShapeError
from dlc.kernel_functions.kernel import kernel
from dlc.numpy.apply import operand, refuse
from dlc.ragged.ragged_array import Ragged, same_lengths

__all__ = ["attention"]

# Queries per block, in the lanes of one or two vectors.
_VECTOR_LANES = 16
# Keys per block of online softmax, and per register tile.
_BLOCK_KEYS, _TILE_KEYS = 32, 8
# Maximum features per register tile.
_TILE_COLUMNS = 8
# The initial maximum of scores: finite, so that its difference to a masked score is not NaN.
_LOWEST_SCORE = -1e30


def attention(query: Ragged, key: Ragged, value: Ragged, /, *, causal: bool = False, scale: float | None = None) -> Ragged:
    """Return softmax(query · keyᵀ · scale) · value within each sequence; no query attends to a key of another sequence.

    Rows of `query` are [heads, D], those of `key` [groups, D] and of `value` [groups, E]; each group serves heads / groups
    consecutive heads. The result has rows [heads, E]. With `causal`, a query attends to the keys up to its own row. `scale` is
    1 / √D by default. The batches must have the same lengths. Computed in float32.
    """
    lengths = same_lengths("attention", query, key, value)
    q, keys, values = (operand(x.values) for x in (query, key, value))
    shapes = [x.shape[1:] for x in (q, keys, values)]
    is_valid = all(len(s) == 2 for s in shapes) and shapes[0][1] == shapes[1][1] and shapes[1][0] == shapes[2][0]
    if not is_valid or shapes[0][0] % shapes[1][0]:
        rows = ", ".join(str(tuple(s)) for s in shapes)
        refuse(ShapeError(f"dlc.ragged.attention: rows of shapes {rows}; expected (heads, D), (groups, D) and (groups, E)"))
    for name, x in zip(("query", "key", "value"), (q, keys, values), strict=True):
        if x.dtype.kind != "f" or x.dtype != q.dtype:
            refuse(
                DTypeError(f"dlc.ragged.attention: {name} has dtype {x.dtype}, query {q.dtype}; expected equal float dtypes")
            )
    dtype = q.dtype
    if q.shape[0] == 0:
        return Ragged(dnp.zeros((*q.shape[:2], values.shape[2]), dtype), lengths)
    scale = 1 / math.sqrt(max(shapes[0][1], 1)) if scale is None else scale
    rows = [dnp.astype(x, np.float32) for x in (q * dnp.astype(scale, dtype), keys, values)]
    result = _attend(causal)(*rows, query.starts, query.ends)
    return Ragged(dnp.astype(result, dtype), lengths)


def _attend(causal: bool) -> Any:
    """Return attention as a function with a derivative."""

    @custom_vjp
    def attend(query: Any, keys: Any, values: Any, starts: Any, ends: Any) -> Any:
        return segment_attention(query, keys, values, starts, ends, causal=causal)

    def forward(*operands: Any) -> tuple[Any, Any]:
        result = segment_attention(*operands, causal=causal)
        return result, (*operands, result)

    def backward(residuals: Any, cotangent: Any) -> Any:
        return (*segment_attention_cotangents(*residuals, cotangent, causal=causal), None, None)

    attend.defvjp(forward, backward)
    return attend


def _divisor(size: int, maximum: int) -> int:
    """Return the largest divisor of a size up to a maximum."""
    return next(n for n in range(min(size, maximum), 0, -1) if size % n == 0)


def _lanes(value: Any) -> Any:
    """Return a vector of equal elements."""
    return k.full(_VECTOR_LANES, value, np.float32)


def _row(index: Any, rows: Any) -> Any:
    """Return the index of a row of a sequence, clipped to prove that it is in bounds."""
    return k.clip(index.astype(np.int32), rows)


def _products(array: Any, rows: Sequence[Any], group: Any, columns: Any) -> list[Any]:
    """Return for each row [groups, D] of an array its products [lanes] with the columns of a buffer [D, lanes]."""
    sums = [k.variable(_lanes(0)) for _ in rows]
    for d in k.range(columns.shape[0]):
        lane_elements = columns.load(d, 0, width=_VECTOR_LANES)
        for total, row in zip(sums, rows, strict=True):
            total.value = k.fma(_lanes(array[row, group, d]), lane_elements, total.value)
    return [total.value for total in sums]


@dataclass(frozen=True)
class _Queries:
    """Up to 16 queries of a head, in the lanes of vectors, and the keys to which they attend.

    Attributes:
        columns: A buffer [D, lanes] of the queries.
        first: The row of the first query.
        end: The row after the last key.
        group: The group of keys.
    """

    columns: Any
    first: Any
    end: Any
    group: Any
    causal: bool

    @property
    def last_block(self) -> Any:
        """The row after the last one to which a query attends."""
        return k.minimum(self.first + _VECTOR_LANES, self.end) if self.causal else self.end

    def scores(self, keys: Any, first_key: Any) -> tuple[list[Any], list[Any]]:
        """Return the rows of a tile of keys, and the scores [lanes] of each, -∞ where a query does not attend to it."""
        indices = [(first_key + i).astype(np.int32) for i in range(_TILE_KEYS)]
        rows = [k.clip(index, keys.shape[0]) for index in indices]
        queries, end = k.iota(_VECTOR_LANES, np.int32) + self.first.astype(np.int32), self.end.astype(np.int32)
        masked: list[Any] = []
        for key, score in zip(indices, _products(keys, rows, self.group, self.columns), strict=True):
            is_visible = (key <= queries) & (key < end) if self.causal else key < end
            masked.append(k.select(is_visible, score, _lanes(-math.inf)))
        return rows, masked


def _result(query: Any, keys: Any, values: Any, starts: Any, ends: Any) -> k.Result:
    return k.Result((*query.shape[:2], values.shape[2]), np.float32, fill=0)


@kernel(results=_result)
def segment_attention(query: Any, keys: Any, values: Any, starts: Any, ends: Any, output: Any, *, causal: bool) -> None:
    """Attention of query [L, heads, D] to keys [L, groups, D] and values [L, groups, E] within each of B sequences."""
    rows, heads, depth = query.shape
    groups, features = values.shape[1:]
    step, tile = _divisor(depth, 8), _divisor(features, _TILE_COLUMNS)
    for sequence, head in k.grid(starts.shape[0], heads):
        start = k.maximum(k.index(starts[sequence]), 0)
        end = k.minimum(k.index(ends[sequence]), rows)
        group = head // (heads // groups)
        queries = k.buffer((depth, _VECTOR_LANES), np.float32)
        sums = k.buffer((features, _VECTOR_LANES), np.float32)
        weights = k.buffer((_BLOCK_KEYS, _VECTOR_LANES), np.float32)
        for first in k.range(start, end, _VECTOR_LANES):
            block_queries = _Queries(queries, first, end, group, causal)
            for d in k.range(0, depth, step):
                queries.store(d, 0, value=query.load(first, head, d, width=(step, _VECTOR_LANES), axis=(2, 0), fill=0))
            for e in k.range(features):
                sums.store(e, 0, value=_lanes(0))
            highest, total = k.variable(_lanes(_LOWEST_SCORE)), k.variable(_lanes(0))
            for block in k.range(start, block_queries.last_block, _BLOCK_KEYS):
                new_highest = k.variable(highest.value)
                count = k.minimum(block_queries.last_block - block, _BLOCK_KEYS)
                for j in k.range(0, count, _TILE_KEYS):
                    _, scores = block_queries.scores(keys, block + j)
                    for i, score in enumerate(scores):
                        weights.store(j + i, 0, value=score)
                        new_highest.value = k.maximum(new_highest.value, score)
                rescale = k.exp(highest.value - new_highest.value)
                highest.value = new_highest.value
                total.value = total.value * rescale
                for j in k.range(count):
                    weight = k.exp(weights.load(j, 0, width=_VECTOR_LANES) - highest.value)
                    weights.store(j, 0, value=weight)
                    total.value += weight
                for e in k.range(0, features, tile):
                    parts = [k.variable(sums.load(e + i, 0, width=_VECTOR_LANES) * rescale) for i in range(tile)]
                    for j in k.range(count):
                        weight, row = weights.load(j, 0, width=_VECTOR_LANES), _row(block + j, rows)
                        for i, part in enumerate(parts):
                            part.value = k.fma(_lanes(values[row, group, e + i]), weight, part.value)
                    for i, part in enumerate(parts):
                        sums.store(e + i, 0, value=part.value)
            inverse = 1 / total.value
            for e in k.range(features):
                sums.store(e, 0, value=sums.load(e, 0, width=_VECTOR_LANES) * inverse)
            for i in k.range(k.minimum(end - first, _VECTOR_LANES)):
                row = _row(first + i, rows)
                for e in k.range(features):
                    output[row, head, e] = sums[e, i]


def _cotangents(query: Any, keys: Any, values: Any, starts: Any, ends: Any, output: Any, cotangent: Any) -> Any:
    return tuple(k.Result(x.shape, np.float32, fill=0) for x in (query, keys, values))


@kernel(results=_cotangents)
def segment_attention_cotangents(
    query: Any,
    keys: Any,
    values: Any,
    starts: Any,
    ends: Any,
    output: Any,
    cotangent: Any,
    dquery: Any,
    dkeys: Any,
    dvalues: Any,
    *,
    causal: bool,
) -> None:
    """Cotangents of the query, keys and values of `segment_attention`, from its result and the cotangent of the result.

    The first loop over keys computes the maximum and the sum of each query, from which the second recomputes the weights.
    """
    rows, heads, depth = query.shape
    groups, features = values.shape[1:]
    for sequence, group in k.grid(starts.shape[0], groups):
        start = k.maximum(k.index(starts[sequence]), 0)
        end = k.minimum(k.index(ends[sequence]), rows)
        queries = k.buffer((depth, _VECTOR_LANES), np.float32)
        dqueries = k.buffer((depth, _VECTOR_LANES), np.float32)
        gradients = k.buffer((features, _VECTOR_LANES), np.float32)
        weights = k.buffer((_TILE_KEYS, _VECTOR_LANES), np.float32)
        dscores = k.buffer((_TILE_KEYS, _VECTOR_LANES), np.float32)

        for first, member in ((f, m) for f in k.range(start, end, _VECTOR_LANES) for m in k.range(heads // groups)):
            head = group * (heads // groups) + member
            count = k.minimum(end - first, _VECTOR_LANES)
            block_queries = _Queries(queries, first, end, group, causal)
            delta = k.variable(_lanes(0))
            for d in k.range(depth):
                queries.store(d, 0, value=query.load(first, head, d, width=_VECTOR_LANES, axis=0, fill=0))
                dqueries.store(d, 0, value=_lanes(0))
            for e in k.range(features):
                lane_gradients = cotangent.load(first, head, e, width=_VECTOR_LANES, axis=0, fill=0)
                gradients.store(e, 0, value=lane_gradients)
                delta.value = k.fma(
                    lane_gradients, output.load(first, head, e, width=_VECTOR_LANES, axis=0, fill=0), delta.value
                )
            highest, total = k.variable(_lanes(_LOWEST_SCORE)), k.variable(_lanes(0))
            for block in k.range(start, block_queries.last_block, _TILE_KEYS):
                _, scores = block_queries.scores(keys, block)
                new_highest = k.variable(highest.value)
                for score in scores:
                    new_highest.value = k.maximum(new_highest.value, score)
                total.value *= k.exp(highest.value - new_highest.value)
                highest.value = new_highest.value
                for score in scores:
                    total.value += k.exp(score - highest.value)
            for block in k.range(start, block_queries.last_block, _TILE_KEYS):
                key_rows, scores = block_queries.scores(keys, block)
                dweights = _products(values, key_rows, group, gradients)
                for i, (score, dweight) in enumerate(zip(scores, dweights, strict=True)):
                    weight = k.exp(score - highest.value) / total.value
                    weights.store(i, 0, value=weight)
                    # Masked weights are 0, but their cotangents may be infinite or NaN.
                    dscore = k.select(weight > 0, weight * (dweight - delta.value), _lanes(0))
                    dscores.store(i, 0, value=dscore)
                for d in k.range(depth):
                    dquery_lanes = k.variable(dqueries.load(d, 0, width=_VECTOR_LANES))
                    for i, row in enumerate(key_rows):
                        with k.when(block + i < end):
                            element = _lanes(keys[row, group, d])
                            dquery_lanes.value = k.fma(element, dscores.load(i, 0, width=_VECTOR_LANES), dquery_lanes.value)
                    dqueries.store(d, 0, value=dquery_lanes.value)
                for j in k.range(k.minimum(end - block, _TILE_KEYS)):
                    row = _row(block + j, rows)
                    for result, source, factors in ((dkeys, query, dscores), (dvalues, cotangent, weights)):
                        width = math.gcd(result.shape[2], _VECTOR_LANES)
                        for d in k.range(0, result.shape[2], width):
                            part = k.variable(result.load(row, group, d, width=width))
                            for t in k.range(count):
                                elements = source.load(_row(first + t, rows), head, d, width=width)
                                part.value = k.fma(k.full(width, factors[j, t], np.float32), elements, part.value)
                            result.store(row, group, d, value=part.value)
            for i in k.range(count):
                row = _row(first + i, rows)
                for d in k.range(depth):
                    dquery[row, head, d] = dqueries[d, i]
