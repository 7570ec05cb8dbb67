"""Attention over a KV cache that is written in place.

The keys of a layer are an array [slots · capacity, kv heads, head size], and so are its values. int8 caches have a scale per
row and head, f32 [slots · capacity, kv heads]. A slot has the rows of one
text. A step scatters its rows to the positions of its tokens, then reads the rows up to the position of each token: the cost
depends on the number of tokens so far, not on the capacity. Pages of memory that no token has reached are not allocated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.kernels as k
import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.kernel_functions.kernel import kernel
from dlc.numpy.apply import apply, operand

# The vector width: a multiple of every CPU's, so that code generation splits vectors evenly.
_VECTOR_LANES = 16
# Rows of the cache per block of online softmax; their scores are one vector.
_BLOCK_ROWS = 16
# Maximum queries per task, which share the loads of keys and values.
_MAX_TASK_QUERIES = 8
# The initial maximum of scores: finite, so that its difference to a masked score is -∞ and not NaN.
_LOWEST_SCORE = -1e30
_MAX_INT8 = 127


@dataclass
class KvCache:
    """The caches of all layers during a step: `arrays` has the keys and values of each layer, and the scales of int8 caches.

    A step has T tokens of each of R texts.

    Attributes:
        slot: The slot of each text, i64 [R].
        position: The number of tokens of each text before this step, i64 [R].
        count: The number of valid tokens of each text, i32 [R]; the others are padding, whose keys and values are not written.
        num_tokens: The number T of tokens of each text in this step.
        num_slots: The number of slots.
    """

    arrays: list[Any]
    slot: Any
    position: Any
    count: Any
    num_tokens: int
    num_slots: int

    def __post_init__(self) -> None:
        total = self.arrays[0].shape[0]
        self.capacity = total // self.num_slots
        self.first_row = self.slot * self.capacity
        steps = dnp.arange(self.num_tokens)
        self.positions = dnp.reshape(self.position[:, None] + steps, (-1,))
        # Rows beyond the last one are ignored. The caller limits the number of tokens to the capacity.
        rows = self.first_row[:, None] + self.position[:, None] + steps
        self._rows = dnp.reshape(dnp.where(steps < self.count[:, None], rows, total), (-1,))

    def attend(
        self,
        layer: int,
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Any:
        """Write the keys and values [R·T, kv heads, D] of a layer, and return causal attention of query [R·T, heads, D].

        A token attends to the tokens of its text, up to itself: to the last `window` ones. `softcap` limits scores to
        softcap · tanh(score / softcap). Returns [R·T, heads · D].
        """
        num_arrays = num_cache_arrays(self.arrays[0].dtype)
        updates = [key, value]
        if num_arrays > 2:
            scales = [dnp.max(dnp.abs(update), -1) * np.float32(1 / _MAX_INT8) for update in updates]
            steps = [dnp.where(scale == 0, np.float32(1), scale)[:, :, None] for scale in scales]
            updates = [*(dnp.round(update / step) for update, step in zip(updates, steps, strict=True)), *scales]
        for index, update in enumerate(updates, num_arrays * layer):
            cache = operand(self.arrays[index])
            converted = operand(update.astype(cache.dtype))
            self.arrays[index] = apply(dl.ScatterRowsOp, cache, operand(self._rows), converted, mode="none")
        keys, values, *scales = self.arrays[num_arrays * layer : num_arrays * (layer + 1)]
        tokens, heads, size = query.shape
        scaled = query * (1 / math.sqrt(size) if scale is None else scale)
        groups = dnp.reshape(scaled, (-1, self.num_tokens, keys.shape[1], heads // keys.shape[1], size))
        arguments = groups, keys, values, *scales, self.first_row, self.position, self.count
        attention = _attend_scaled if scales else _attend
        mixed = attention(*arguments, capacity=self.capacity, window=window, softcap=softcap)
        return dnp.reshape(mixed, (tokens, heads * size))


def num_cache_arrays(dtype: Any) -> int:
    """Return the number of arrays per layer of a cache dtype: keys and values, and the scales of int8."""
    return 4 if np.dtype(dtype) == np.int8 else 2


def _task_tokens(tokens: int, heads_per_group: int) -> int:
    """Return the number of tokens whose queries a task computes: a divisor of the number of tokens."""
    return next(n for n in range(max(1, _MAX_TASK_QUERIES // heads_per_group), 0, -1) if tokens % n == 0)


def _result(query: Any, keys: Any, values: Any, first_row: Any, position: Any, valid: Any) -> k.Result:
    return k.Result(query.shape, np.float32)


@kernel(results=_result)
def _attend(
    query: Any,
    keys: Any,
    values: Any,
    first_row: Any,
    position: Any,
    valid: Any,
    output: Any,
    *,
    capacity: int,
    window: int | None,
    softcap: float | None,
) -> None:
    """Attention to float keys and values."""
    _online_softmax(query, keys, values, first_row, position, valid, output, capacity, window, softcap)


def _scaled_result(
    query: Any, keys: Any, values: Any, key_scales: Any, value_scales: Any, first_row: Any, position: Any, valid: Any
) -> k.Result:
    return k.Result(query.shape, np.float32)


@kernel(results=_scaled_result)
def _attend_scaled(
    query: Any,
    keys: Any,
    values: Any,
    key_scales: Any,
    value_scales: Any,
    first_row: Any,
    position: Any,
    valid: Any,
    output: Any,
    *,
    capacity: int,
    window: int | None,
    softcap: float | None,
) -> None:
    """Attention to int8 keys and values with a scale per row and group, f32 [rows, groups]."""
    scales = key_scales, value_scales
    _online_softmax(query, keys, values, first_row, position, valid, output, capacity, window, softcap, scales)


def _online_softmax(
    query: Any,
    keys: Any,
    values: Any,
    first_row: Any,
    position: Any,
    valid: Any,
    output: Any,
    capacity: int,
    window: int | None,
    softcap: float | None,
    scales: tuple[Any, Any] | None = None,
) -> None:
    """Online softmax over blocks of keys (Milakov and Gimelshein, 2018), for query [R, T, groups, heads per group, D].

    Query t of text r attends to position[r] + t + 1 rows of `keys` and `values` [rows, groups, D], from first_row[r] on. Rows
    after the valid[r] tokens of the step are not read: those of an earlier text may be infinite.
    """
    texts, tokens, groups, heads, size = query.shape
    width, count = math.gcd(size, _VECTOR_LANES), _task_tokens(tokens, heads)
    chunks, rows = range(0, size, width), range(count * heads)
    for text, task, group in k.grid(texts, tokens // count, groups):
        base = k.clip(first_row[text], keys.shape[0] - capacity + 1)
        first = k.minimum(k.clip(position[text], capacity) + task * count, capacity - 1)
        last_row = k.clip(position[text] + valid[text].astype(np.int64) - 1, capacity)
        weights = k.buffer((len(rows), _BLOCK_ROWS), np.float32)
        sums = k.buffer((len(rows), size), np.float32, fill=0)
        rescale = k.buffer((len(rows),), np.float32, fill=0)
        highest = [k.variable(_LOWEST_SCORE, np.float32) for _ in rows]
        totals = [k.variable(0, np.float32) for _ in rows]
        low = 0 if window is None else k.maximum(first - (window - 1), 0) // _BLOCK_ROWS * _BLOCK_ROWS
        for start in k.range(low, k.minimum(first + count, capacity), _BLOCK_ROWS):
            for j in k.range(_BLOCK_ROWS):
                row = base + k.minimum(start + j, last_row)
                key = [keys.load(row, group, d, width=width).astype(np.float32) for d in chunks]
                for r in rows:
                    products = k.full(width, 0, np.float32)
                    for d, part in zip(chunks, key, strict=True):
                        products = k.fma(
                            query.load(text, task * count + r // heads, group, r % heads, d, width=width), part, products
                        )
                    score = products.sum()
                    weights[r, j] = score if scales is None else score * scales[0][row, group]
            for r in rows:
                last = (first + r // heads).astype(np.int64)
                index = k.iota(_BLOCK_ROWS, np.int64) + start.astype(np.int64)
                is_visible = index <= last if window is None else (index <= last) & (index > last - window)
                scores = weights.load(r, 0, width=_BLOCK_ROWS)
                scores = scores if softcap is None else softcap * k.tanh(scores / softcap)
                scores = k.select(is_visible, scores, k.full(_BLOCK_ROWS, -math.inf, np.float32))
                new_highest = k.maximum(highest[r].value, scores.max())
                factor = k.exp(highest[r].value - new_highest)
                exponentials = k.exp(scores - new_highest)
                weights.store(r, 0, value=exponentials)
                rescale[r] = factor
                totals[r].value = totals[r].value * factor + exponentials.sum()
                highest[r].value = new_highest
            for d in k.range(0, size, width):
                accumulators = [k.variable(sums.load(r, d, width=width) * rescale[r]) for r in rows]
                for j in k.range(_BLOCK_ROWS):
                    row = base + k.minimum(start + j, last_row)
                    value = values.load(row, group, d, width=width).astype(np.float32)
                    if scales is not None:
                        value = value * k.full(width, scales[1][row, group], np.float32)
                    for r in rows:
                        accumulators[r].value = k.fma(value, k.full(width, weights[r, j], np.float32), accumulators[r].value)
                for r in rows:
                    sums.store(r, d, value=accumulators[r].value)
        for r in rows:
            rescale[r] = 1 / totals[r].value
        for i in k.range(count):
            for head in k.range(heads):
                for d in k.range(0, size, width):
                    row = i * heads + head
                    output.store(text, task * count + i, group, head, d, value=sums.load(row, d, width=width) * rescale[row])
