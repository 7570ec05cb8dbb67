"""Scans along the middle axis of [a, n, b]: cumulative sums and products, argmin and argmax."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, flag
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.vectors import (
    Dtype,
    Index,
    column_grid,
    is_one,
    load,
    overlapping_strips,
    points_per_task,
    position_dtype,
    store,
    tiles,
)
from dlc.shapes.traced_dims import TracedSize

# Lanes along b.
_COLUMN_LANES = 16
# Elements per block of a cumulative sum. Blocks are summed separately, since rounding errors grow with the number of
# additions in sequence.
_SUMMATION_BLOCK_ELEMENTS = 256
# Lanes for the index of a row's extremum, by the minimum number of elements of a row: combining lanes at the end costs time.
_ROW_LANES = {0: 8, 64: 16, 192: 32}
# In a row of at least `_MIN_BLOCKS` blocks, the index is computed only in the block with the extremum.
_MIN_BLOCKS, _BLOCK_ELEMENTS, _BLOCK_LANES = 2, 1024, 64


def accumulate(op: dl.AccumulateOp, x: ArrayReference, y: ArrayReference) -> None:
    """Compute cumulative sums in blocks, y[j] = previous_total + running_total, or cumulative products.

    `running_total` is the sum from the start of the block that contains j, `previous_total` that of all earlier blocks.
    Products are one block: the product of a later block may underflow where y[j] does not.
    """
    rows, n, columns = x.shape
    is_sum = op.kind.data == "add"
    combine, identity = (operator.add, 0) if is_sum else (operator.mul, 1)

    def accumulate_block(row: Value, column: Index, width: int, begin: Any, end: Any, previous_total: Variable | None) -> Value:
        """Store the results of a block; return its total."""
        block_total = k.variable(k.full(width, identity, x.dtype))
        for step in k.range(begin, end):
            j = n - 1 - step if flag(op.reverse) else step
            running_total = combine(block_total.value, load(x, row, j, column, width=width))
            total = block_total.value if flag(op.exclusive) else running_total
            store(y, row, j, column, value=total if previous_total is None else combine(previous_total.value, total))
            block_total.value = running_total
        return block_total.value

    for row, column, width in column_grid(rows, columns=columns, width=_COLUMN_LANES, work=n, is_masked=True):
        if not is_sum:
            accumulate_block(row, column, width, 0, n, None)
            continue
        previous_total = k.variable(k.full(width, identity, x.dtype))
        for block in k.range(0, n, _SUMMATION_BLOCK_ELEMENTS):
            end = k.minimum(block + _SUMMATION_BLOCK_ELEMENTS, n)
            block_total = accumulate_block(row, column, width, block, end, previous_total)
            previous_total.value = combine(previous_total.value, block_total)


def arg_extremum(op: dl.ArgExtremumOp, x: ArrayReference, y: ArrayReference) -> None:
    """Compute the index of the extremum along the axis, or along each segment of it.

    All segments have the same length; if it does not divide the axis, the last segment overlaps the previous one.
    """
    rows, n, columns = x.shape
    num_segments = op.num_segments or 1
    length: Any = n if op.num_segments is None else op.segment_length
    extreme = _ArgExtremum(op, x)

    def store_indices(row: Value, segment: Value, column: Index, indices: Value) -> None:
        outer = (row,) if op.num_segments is None else (row, segment)
        if indices.shape:
            store(y, *outer, column, value=indices.astype(np.int64))
        else:
            y[(*outer, column)] = indices.astype(np.int64)

    if is_one(columns):
        for row, segment in k.grid(rows, num_segments, parallel=points_per_task(length)):
            first = k.minimum(segment * length, n - length)
            store_indices(row, segment, 0, extreme.of_row(row, first, length))
        return
    grid = column_grid(rows, num_segments, columns=columns, width=_COLUMN_LANES, work=length, is_masked=True)
    for row, segment, column, width in grid:
        first = k.minimum(segment * length, n - length)
        store_indices(row, segment, column, extreme.of_columns(row, column, first, length, width))


@dataclass(frozen=True)
class _ArgExtremum:
    """The index of the first or last occurrence of the smallest or largest value of `x`."""

    op: dl.ArgExtremumOp
    x: ArrayReference

    @property
    def smallest(self) -> bool:
        return flag(self.op.smallest)

    @property
    def last(self) -> bool:
        return flag(self.op.last)

    @property
    def worst(self) -> Any:
        """The result if no element is better."""
        low, high = scalar.limits(element_type_of(self.op.x))
        return high if self.smallest else low

    @property
    def position_dtype(self) -> Dtype:
        return position_dtype(self.x.shape[1])

    def of_columns(self, row: Value, column: Value, first: Value, n: Any, width: int) -> Value:
        """Return the indices for `width` adjacent columns."""
        best, position = self._initial(width, first)
        for j in k.range(first, first + n):
            self._update(best, position, load(self.x, row, j, column, width=width), k.full(width, j, self.position_dtype))
        return position.value

    def of_row(self, row: Value, first: Value, n: TracedSize) -> Value:
        """Return the index of the extremum in `n` elements of a row, starting at `first`.

        The extrema of the blocks of a long row are computed first, twice as fast as their indices.
        """
        if not isinstance(n, int) or n < _MIN_BLOCKS * _BLOCK_ELEMENTS:
            return self._index_in_row(row, first, n)
        choose = k.minimum if self.smallest else k.maximum
        best, position = k.variable(self.worst, self.x.dtype), k.variable(first.astype(self.position_dtype))
        for offset, _ in overlapping_strips(n, _BLOCK_ELEMENTS):
            block = first + offset
            lanes = k.variable(k.full(_BLOCK_LANES, self.worst, self.x.dtype))
            for start in k.range(0, _BLOCK_ELEMENTS, _BLOCK_LANES):
                lanes.value = choose(lanes.value, self.x.load(row, block + start, 0, width=_BLOCK_LANES, axis=1))
            self._update(best, position, self._extremum(lanes.value), block.astype(self.position_dtype))
        best_block = k.assume_index(position.value, self.x.shape[1] - _BLOCK_ELEMENTS + 1)
        return self._index_in_row(row, best_block, _BLOCK_ELEMENTS)

    def _index_in_row(self, row: Value, first: Value, n: TracedSize) -> Value:
        """Return the index of the extremum of n elements, by lanes that suit n."""
        if isinstance(n, int):
            lanes = max(lanes for min_elements, lanes in _ROW_LANES.items() if n >= min_elements)
            return self._index_in_lanes(row, first, n, min(n, lanes))
        position, has_position = k.variable(0, self.position_dtype), k.index(n) < 0
        for min_elements, lanes in reversed(_ROW_LANES.items()):
            is_long_enough = k.index(n) >= min_elements
            with k.when(is_long_enough & ~has_position):
                position.value = self._index_in_lanes(row, first, n, lanes)
            has_position = is_long_enough
        return position.value

    def _index_in_lanes(self, row: Value, first: Value, n: TracedSize, width: int) -> Value:
        """Return the index of the extremum, of which each lane tracks its own; they are combined at the end."""
        best, position = self._initial(width, first)
        for start, elements in self._vectors(row, first, n, width):
            self._update(best, position, elements, k.iota(width, self.position_dtype) + start.astype(self.position_dtype))
        extremum = self._extremum(best.value)
        is_extremum = best.value == extremum
        if extremum.is_float:
            # A NaN extremum has the index of a NaN, which does not equal itself.
            is_extremum |= best.value != best.value
        positions = k.select(is_extremum, position.value, -1 if self.last else np.iinfo(self.position_dtype).max)
        index = positions.max() if self.last else positions.min()
        # The index of a lane beyond the row means that all elements are the worst.
        return index if isinstance(n, int) else k.minimum(index, k.index(n - 1).astype(self.position_dtype))

    def _initial(self, width: int, first: Value) -> tuple[Variable, Variable]:
        """Return variables with the worst value and the first index, which is the result if no element is better."""
        worst, position = k.full(width, self.worst, self.x.dtype), k.full(width, first, self.position_dtype)
        return k.variable(worst), k.variable(position)

    def _extremum(self, lanes: Value) -> Value:
        """Return the minimum or the maximum element of a vector; NaN if one is NaN."""
        return lanes.min() if self.smallest else lanes.max()

    def _vectors(self, row: Value, first: Value, n: TracedSize, width: int) -> Iterator[tuple[Value, Value]]:
        """Yield (start, elements) for vectors of n elements; the last one overlaps the previous one.

        If n is symbolic, the last one may reach beyond the row.
        """
        if not isinstance(n, int):
            for i, _, _ in tiles(0, n, width):
                yield k.index(i), self.x.load(row, i, 0, width=width, axis=1, fill=self.worst)
            return
        for i in k.range(0, n - n % width, width):
            yield first + i, self.x.load(row, first + i, 0, width=width, axis=1)
        if n % width:
            yield first + (n - width), self.x.load(row, first + (n - width), 0, width=width, axis=1)

    def _update(self, best: Variable, position: Variable, value: Value, index: Value) -> None:
        """Update the best value and its index with a value at a higher index."""
        is_better = self._is_better(value, best.value)
        best.value, position.value = k.select(is_better, value, best.value), k.select(is_better, index, position.value)

    def _is_better(self, value: Value, best: Value) -> Value:
        """Return whether a value replaces the best one before it."""
        if self.last:
            is_at_least = value <= best if self.smallest else value >= best
            return is_at_least | (value != value) if value.is_float else is_at_least
        if not value.is_float:
            return value < best if self.smallest else value > best
        # The negated comparison also holds if `value` is NaN; a best value that is NaN is final.
        return ~(value >= best if self.smallest else value <= best) & (best == best)
