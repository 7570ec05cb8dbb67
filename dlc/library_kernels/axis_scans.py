"""Scans along the middle axis of [a, n, b]: cumulative sums and products, argmin and argmax."""

from __future__ import annotations

import operator
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
from dlc.library_kernels.vectors import Index, column_grid, is_one, load, points_per_task, position_dtype, store

# Lanes along b.
_COLUMN_LANES = 16
# Elements per block of a cumulative sum. Blocks are summed separately, since rounding errors grow with the number of
# additions in sequence.
_SUMMATION_BLOCK_ELEMENTS = 256
# Minimum row lengths for lanes that fill several registers, and for lanes that fill the widest register.
_MIN_LONG_ROW_ELEMENTS, _MIN_MEDIUM_ROW_ELEMENTS = 192, 64
# Lanes of shorter rows.
_SHORT_ROW_LANES = 8
# In a row of at least `_MIN_BLOCKS` blocks, the extremum of each block is computed first, in `_BLOCK_LANES` lanes; then the
# index is searched only in the best block.
_MIN_BLOCKS, _BLOCK_ELEMENTS, _BLOCK_LANES = 4, 1024, 64


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

    Each lane tracks its best element; the lanes of a row are combined at the end. All segments have the same length; if it
    does not divide the axis, the last segment overlaps the previous one.
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


class _ArgExtremum:
    """Generate an arg-extremum: the index of the first or last occurrence of the smallest or largest value."""

    def __init__(self, op: dl.ArgExtremumOp, x: ArrayReference) -> None:
        self.x = x
        self.smallest, self.last = flag(op.smallest), flag(op.last)
        low, high = scalar.limits(element_type_of(op.x))
        self.worst = high if self.smallest else low
        self.position_dtype = position_dtype(x.shape[1])

    def of_columns(self, row: Value, column: Value, first: Value, n: Any, width: int) -> Value:
        """Return the indices for `width` adjacent columns."""
        best = self._initial(width, first)
        for j in k.range(first, first + n):
            best.update(
                load(self.x, row, j, column, width=width), k.full(width, j.astype(self.position_dtype), self.position_dtype)
            )
        return best.position.value

    def of_row(self, row: Value, first: Value, n: Any) -> Value:
        """Return the index of the extremum in `n` elements of a row, starting at `first`, with adjacent elements in lanes."""
        if not isinstance(n, int) or n < _MIN_BLOCKS * _BLOCK_ELEMENTS:
            return self._scan_row(row, first, n)
        return self._scan_row(row, self._best_block(row, first, n), _BLOCK_ELEMENTS)

    def extreme(self, lanes: Value) -> Value:
        """Return the minimum or the maximum element of a vector; NaN if one is NaN."""
        return lanes.min() if self.smallest else lanes.max()

    def _best_block(self, row: Value, begin: Value, n: int) -> Value:
        """Return the start of the block with the best value: this is twice as fast as tracking the index of every element."""
        choose = k.minimum if self.smallest else k.maximum
        worst = k.full(_BLOCK_LANES, self.worst, self.x.dtype)
        best = _RunningBest(self, k.variable(self.extreme(worst)), k.variable(begin.astype(self.position_dtype)))

        def update_from_block(first: Value) -> None:
            lanes = k.variable(worst)
            for offset in k.range(0, _BLOCK_ELEMENTS, _BLOCK_LANES):
                lanes.value = choose(lanes.value, self._load(row, offset + first, _BLOCK_LANES))
            best.update(self.extreme(lanes.value), first.astype(self.position_dtype))

        for first in k.range(0, n - n % _BLOCK_ELEMENTS, _BLOCK_ELEMENTS):
            update_from_block(first + begin)
        if n % _BLOCK_ELEMENTS:
            # The last block overlaps the previous one, which does not change the result.
            update_from_block(begin + (n - _BLOCK_ELEMENTS))
        return k.assume_index(best.position.value, self.x.shape[1] - _BLOCK_ELEMENTS + 1)

    def _load(self, row: Value, start: Value, width: int) -> Value:
        """Load adjacent elements of a row."""
        return self.x.load(row, start, 0, width=width, axis=1)

    def _scan_row(self, row: Value, first: Value, n: Any) -> Value:
        """Return the index of the extremum by one pass over `n` elements; long rows use several registers of lanes."""
        if isinstance(n, int):
            return self._scan_vectors(row, first, n, self._lanes(n), has_full_vector=n >= self._lanes(n))
        position, longer_rows = k.variable(first.astype(self.position_dtype)), k.index(n) < 0
        for min_size in (_MIN_LONG_ROW_ELEMENTS, _MIN_MEDIUM_ROW_ELEMENTS, _SHORT_ROW_LANES, 0):
            is_long_enough = k.index(n) >= min_size
            with k.when(is_long_enough & ~longer_rows):
                lanes, has_full_vector = self._lanes(min_size), min_size >= _SHORT_ROW_LANES
                position.value = self._scan_vectors(row, first, n, lanes, has_full_vector=has_full_vector)
            longer_rows = is_long_enough
        return position.value

    def _scan_vectors(self, row: Value, first: Value, n: Any, width: int, *, has_full_vector: bool) -> Value:
        """Return the index of the extremum of `n` elements, scanned in vectors of `width` and a remainder."""
        lanes = self._initial(width, first)
        whole = n // width * width if isinstance(n, int) else k.index(n) // width * width
        for offset in k.range(0, whole, width):
            lanes.update(self._load(row, offset + first, width), self._positions(offset + first, width))
        if has_full_vector and not (isinstance(n, int) and n % width == 0):
            # The last vector overlaps the previous one, which does not change the result.
            last = first + (n - width)
            last = last if isinstance(n, int) else k.assume_index(last, self.x.shape[1] - width + 1)
            lanes.update(self._load(row, last, width), self._positions(last, width))
        value, position = self._reduce_lanes(lanes)
        if has_full_vector:
            return position
        best = _RunningBest(self, k.variable(value), k.variable(position))
        for offset in k.range(whole, n):
            best.update_unordered(self.x[row, offset + first, 0], (offset + first).astype(self.position_dtype))
        return best.position.value

    def _lanes(self, n: int) -> int:
        """Return the number of lanes for a row of `n` elements; combining many lanes at the end costs time."""
        if n < _MIN_MEDIUM_ROW_ELEMENTS:
            return _SHORT_ROW_LANES
        if n >= _MIN_LONG_ROW_ELEMENTS:
            return 32
        return 16 if self.x.dtype.itemsize <= 4 else 8

    def is_better(self, value: Value, best: Value) -> Value:
        """Return whether a value replaces the best one before it."""
        if self.last:
            is_at_least = value <= best if self.smallest else value >= best
            return is_at_least | (value != value) if value.is_float else is_at_least
        if not value.is_float:
            return value < best if self.smallest else value > best
        # The negated comparison also holds if `value` is NaN; a best value that is NaN is final.
        return ~(value >= best if self.smallest else value <= best) & (best == best)

    def _initial(self, width: int, first: Value) -> _RunningBest:
        """Return the worst value with the first index, which is the result if no element is better."""
        position = k.full(width, first.astype(self.position_dtype), self.position_dtype)
        return _RunningBest(self, k.variable(k.full(width, self.worst, self.x.dtype)), k.variable(position))

    def _positions(self, start: Value, width: int) -> Value:
        """Return start, start + 1, … as values."""
        return k.iota(width, self.position_dtype) + start.astype(self.position_dtype)

    def _reduce_lanes(self, lanes: _RunningBest) -> tuple[Value, Value]:
        """Return the best value of the lanes and its index."""
        best, position = lanes.value.value, lanes.position.value
        extreme = self.extreme(best)
        is_extreme = best == extreme
        if best.is_float:
            # A NaN extremum has the position of a NaN, which does not equal itself.
            is_extreme |= best != best
        positions = k.select(is_extreme, position, -1 if self.last else np.iinfo(self.position_dtype).max)
        return extreme, positions.max() if self.last else positions.min()


@dataclass(frozen=True)
class _RunningBest:
    """The best value so far and its index, in each lane."""

    extremum: _ArgExtremum
    value: Variable
    position: Variable

    def update(self, value: Value, position: Value) -> None:
        """Update with an element at a higher index than all previous ones."""
        self._replace_if(self.extremum.is_better(value, self.value.value), value, position)

    def update_unordered(self, value: Value, position: Value) -> None:
        """Update with an element at any index; ties are resolved by the indices."""
        best = self.value.value
        wins_after, wins_before = self.extremum.is_better(value, best), ~self.extremum.is_better(best, value)
        self._replace_if(k.select(position > self.position.value, wins_after, wins_before), value, position)

    def _replace_if(self, better: Value, value: Value, position: Value) -> None:
        self.value.value = k.select(better, value, self.value.value)
        self.position.value = k.select(better, position, self.position.value)
