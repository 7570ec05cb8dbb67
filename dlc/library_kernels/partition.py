"""Partition rows with quickselect, on vectors that are compressed by masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import number
from dlc.dialects.dl.library_kernels.partition import PARTITION_VECTOR_BYTES
from dlc.kernels.functions import compress
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.sorting import SortKeys
from dlc.library_kernels.vectors import Dtype, Index, points_per_task

# Elements of a sample, and the distance of the bounds of an element from its expected rank in the sample: four standard
# deviations of the rank of a median. Shorter rows are searched as a whole.
_SAMPLE_ELEMENTS, _RANK_MARGIN = 1024, 64
_MIN_SAMPLED_ROW_ELEMENTS = 1 << 13
# Rounds whose pivot is an element; after them the pivot is the middle of the range of values, which ends the search.
_MAX_ELEMENT_PIVOT_ROUNDS = 32
_READS_PER_ELEMENT = 8

# (vector of keys, mask of its elements) → None; the mask is None if all lanes have elements.
Visit: TypeAlias = "Callable[[Index, Value, Value | None], None]"


def partition(op: dl.PartitionOp, x: ArrayReference, y: ArrayReference) -> None:
    """Find the element of rank `kth`, then compress the smaller ones and the larger ones into their parts of the result."""
    rows, n = x.shape
    for row in k.grid(rows, parallel=points_per_task(_READS_PER_ELEMENT * n)):
        _PartitionedRow(SortKeys(x.dtype, descending=False), x[row], y[row], number(op.kth)).partition()


@dataclass(frozen=True)
class _KeyArray:
    """An array of the bits of keys, of which the first elements are in use."""

    memory: ArrayReference
    dtype: Dtype

    @property
    def capacity(self) -> int:
        return int(self.memory.shape[0])

    @property
    def width(self) -> int:
        return PARTITION_VECTOR_BYTES // self.dtype.itemsize

    def __getitem__(self, i: Index) -> Value:
        return self.memory[k.assume_index(i, self.capacity)].view(self.dtype)

    def store(self, i: Index, keys: Value, *, is_last: bool) -> None:
        """Store a vector, the last one without the lanes beyond the array."""
        bits = keys.view(self.memory.dtype)
        if is_last:
            self.memory.store(k.assume_index(i, self.capacity), value=bits, masked=True)
        else:
            self.memory.store(k.assume_index(i, self.capacity - self.width + 1), value=bits)

    def visit(self, count: Index, visit: Visit) -> None:
        """Visit the first elements by vectors; the last one has a mask."""
        width = self.width
        whole = k.index(count) // width * width
        for i in k.range(0, whole, width):
            visit(i, self.memory.load(k.assume_index(i, self.capacity - width + 1), width=width).view(self.dtype), None)
        with k.when(whole < count):
            last = self.memory.load(k.assume_index(whole, self.capacity), width=width, fill=0).view(self.dtype)
            lanes = k.iota(width, np.int32) < (k.index(count) - whole).astype(np.int32)
            visit(whole, last, lanes)


class _Counter:
    """The number of elements of visited vectors for which a mask is true."""

    def __init__(self, keys: _KeyArray) -> None:
        self._ones = k.full(keys.width, 1, keys.dtype)
        self._counts, self._max_count = k.variable(k.full(keys.width, 0, keys.dtype)), keys.capacity

    def add(self, mask: Value) -> None:
        self._counts.value += k.select(mask, self._ones, 0)

    @property
    def total(self) -> Value:
        return k.assume_index(k.index(self._counts.value.sum()), self._max_count + 1)


def _intersection(mask: Value, lanes: Value | None) -> Value:
    return mask if lanes is None else mask & lanes


class _Selection:
    """A search for the key of a rank among the first `count` keys of an array, which is overwritten."""

    def __init__(self, keys: _KeyArray, count: Index, rank: Index) -> None:
        capacity, limits = keys.capacity, np.iinfo(keys.dtype)
        self.keys = keys
        self.count = k.variable(count, size=capacity + 1)
        self.rank = k.variable(rank, size=capacity)
        self.low, self.high = k.variable(limits.min, keys.dtype), k.variable(limits.max, keys.dtype)
        self.result = k.variable(0, keys.dtype)
        self.is_running = k.variable(1, np.int32)

    def run(self) -> Value:
        """Return the key of the rank."""
        for round in k.range(_MAX_ELEMENT_PIVOT_ROUNDS + 8 * self.keys.dtype.itemsize + 1):
            with k.when(self.is_running.value != 0):
                self._step(self._pivot(round))
        return self.result.value

    def _pivot(self, round: Value) -> Value:
        """Return the median of three keys, or in late rounds the middle of the range of values."""
        count, low, high = self.count.value, self.low.value, self.high.value
        a, b, c = (self.keys[count * part // 4] for part in (1, 2, 3))
        median = k.maximum(k.minimum(a, b), k.minimum(k.maximum(a, b), c))
        return k.select(round < _MAX_ELEMENT_PIVOT_ROUNDS, median, (low & high) + ((low ^ high) >> 1))

    def _step(self, pivot: Value) -> None:
        """Select the keys on the side of the pivot that has the rank, or end the search."""
        keys, rank = self.keys, self.rank.value
        splat = k.full(keys.width, pivot, keys.dtype)
        num_less, num_equal = _Counter(keys), _Counter(keys)

        def count(_: Index, elements: Value, lanes: Value | None) -> None:
            num_less.add(_intersection(elements < splat, lanes))
            num_equal.add(_intersection(elements == splat, lanes))

        keys.visit(self.count.value, count)
        less = num_less.total
        not_greater = k.assume_index(less + num_equal.total, keys.capacity + 1)
        is_less = rank < less
        is_equal = ~is_less & (rank < not_greater)
        with k.when(is_equal):
            self.result.value = pivot
            self.is_running.value = 0
        with k.when(~is_equal):
            # Inverted bits are in the opposite order, so that one comparison serves both sides.
            flip = k.select(is_less, k.full(1, 0, keys.dtype), k.full(1, -1, keys.dtype))
            remaining = _CompressedKeys(keys, 0)
            bound, flips = splat ^ flip, k.full(keys.width, 0, keys.dtype) ^ flip
            keys.visit(
                self.count.value, lambda _, v, lanes: remaining.append(v, _intersection((v ^ flips) < bound, lanes), lanes)
            )
            self.low.value = k.select(is_less, self.low.value, pivot + 1)
            self.high.value = k.select(is_less, pivot - 1, self.high.value)
            self.rank.value = k.assume_index(k.select(is_less, rank, rank - not_greater), keys.capacity)
            self.count.value = remaining.end.value


class _CompressedKeys:
    """Selected keys that are stored one after the other, from `start` on."""

    def __init__(self, target: _KeyArray, start: Index, encode: Callable[[Value], Value] | None = None) -> None:
        self.target, self.encode = target, encode
        self.end: Variable = k.variable(start, size=target.capacity + 1)

    def append(self, keys: Value, mask: Value, lanes: Value | None, *, may_reach_end: bool = False) -> None:
        """Append the selected keys of a vector; stores of whole vectors follow their loads unless they `may_reach_end`."""
        selected, count = compress(mask, keys)
        selected = selected if self.encode is None else self.encode(selected)
        end, last_start = self.end.value, self.target.capacity - self.target.width
        if lanes is not None:
            self._store_last(end, selected)
        elif may_reach_end:
            with k.when(end <= last_start):
                self.target.store(end, selected, is_last=False)
            with k.when(end > last_start):
                self._store_last(end, selected)
        else:
            self.target.store(end, selected, is_last=False)
        self.end.value = k.assume_index(end + count, self.target.capacity + 1)

    def _store_last(self, end: Value, selected: Value) -> None:
        with k.when(end < self.target.capacity):
            self.target.store(end, selected, is_last=True)


@dataclass(frozen=True)
class _PartitionedRow:
    """A row x and the row y of the result, which holds the searched keys before the result is written."""

    keys: SortKeys
    x: ArrayReference
    y: ArrayReference
    kth: int

    def partition(self) -> None:
        n, source = int(self.x.shape[0]), _KeyArray(self.x, self.x.dtype)
        target = _KeyArray(self.y, self.keys.dtype)
        pivot = self._pivot(n, source, target)
        splat = k.full(target.width, pivot, target.dtype)
        num_equal = _Counter(target)
        less = _CompressedKeys(target, 0, self._bits)

        def append_less(_: Index, elements: Value, lanes: Value | None) -> None:
            keys = self.keys.from_element(elements)
            num_equal.add(_intersection(keys == splat, lanes))
            less.append(keys, _intersection(keys < splat, lanes), lanes)

        source.visit(n, append_less)
        end = k.assume_index(less.end.value + num_equal.total, n + 1)
        equal = self._bits(splat)
        for i in k.range(less.end.value, end, target.width):
            target.store(i, equal, is_last=True)
        greater = _CompressedKeys(target, end, self._bits)

        def append_greater(_: Index, elements: Value, lanes: Value | None) -> None:
            keys = self.keys.from_element(elements)
            greater.append(keys, _intersection(keys > splat, lanes), lanes, may_reach_end=True)

        source.visit(n, append_greater)

    def _bits(self, keys: Value) -> Value:
        """Return the bits of the elements of keys."""
        return self.keys.to_element(keys).view(self.keys.dtype)

    def _pivot(self, n: int, source: _KeyArray, scratch: _KeyArray) -> Value:
        """Return the key of rank `kth`."""
        if n < _MIN_SAMPLED_ROW_ELEMENTS:
            self._copy_keys(n, source, scratch)
            return _Selection(scratch, n, self.kth).run()
        limits, rank = np.iinfo(scratch.dtype), self.kth * _SAMPLE_ELEMENTS // n
        low_rank, high_rank = rank - _RANK_MARGIN, rank + _RANK_MARGIN
        low = self._sample(n, low_rank) if low_rank >= 0 else k.full(1, limits.min, scratch.dtype).min()
        high = self._sample(n, high_rank) if high_rank < _SAMPLE_ELEMENTS else k.full(1, limits.max, scratch.dtype).max()
        lows, highs = (k.full(scratch.width, bound, scratch.dtype) for bound in (low, high))
        num_below = _Counter(scratch)
        candidates = _CompressedKeys(scratch, 0)

        def append(_: Index, elements: Value, lanes: Value | None) -> None:
            keys = self.keys.from_element(elements)
            num_below.add(_intersection(keys < lows, lanes))
            candidates.append(keys, _intersection((keys >= lows) & (keys <= highs), lanes), lanes)

        source.visit(n, append)
        below, count = num_below.total, candidates.end.value
        is_bounded = (below <= self.kth) & (below + count > self.kth)
        with k.when(~is_bounded):
            self._copy_keys(n, source, scratch)
        first_rank = k.select(is_bounded, self.kth - below, self.kth)
        return _Selection(scratch, k.select(is_bounded, count, n), k.assume_index(first_rank, n)).run()

    def _sample(self, n: int, rank: int) -> Value:
        """Return the key of this rank in a sample at regular distances."""
        sample = k.buffer((_SAMPLE_ELEMENTS,), self.keys.dtype, fill=None)
        for i in k.range(_SAMPLE_ELEMENTS):
            sample[i] = self.keys.from_element(self.x[k.assume_index(i * (n // _SAMPLE_ELEMENTS), n)])
        return _Selection(_KeyArray(sample, self.keys.dtype), _SAMPLE_ELEMENTS, rank).run()

    def _copy_keys(self, n: int, source: _KeyArray, target: _KeyArray) -> None:
        source.visit(n, lambda i, elements, lanes: target.store(i, self.keys.from_element(elements), is_last=lanes is not None))
