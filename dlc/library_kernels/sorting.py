"""Sort integers: sorting networks for many short columns, radix sort for long rows, a heap for the k smallest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, flag
from dlc.dialects.dl.library_kernels.row_sorting import RadixDigit, rows_per_network
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.vectors import Dtype, Index, column_grid, is_one, lanes_of, points_per_task, position_dtype

# Elements per iteration of loops that count or scatter keys, to amortize the loop overhead.
_UNROLLED_ELEMENTS = 4
# Side of the square blocks that are transposed in registers, in elements.
_TRANSPOSE_TILE_ELEMENTS = 8


def sort_columns(op: dl.NetworkSortOp, x: ArrayReference, y: ArrayReference) -> None:
    """Sort tiles of columns in a local buffer, one column per lane; rows are transposed into columns."""
    (rows, _, columns), n = x.shape, int(x.shape[1])
    keys = _SortKeys(x.dtype, flag(op.descending))
    has_rows_as_columns = is_one(columns)
    outer, lanes = (1, rows) if has_rows_as_columns else (rows, columns)
    max_width, work = rows_per_network(n, element_type_of(op.x)), n * n.bit_length() ** 2
    for row, start, width in column_grid(outer, columns=lanes, width=max_width, work=work):
        # The vector is rounded up to a power of two lanes; the extra lanes hold arbitrary values.
        local = k.buffer((n, 1 << (width - 1).bit_length()), keys.dtype, fill=None)
        if has_rows_as_columns:
            for i, rows_of_tile in _overlapping_strips(n, _TRANSPOSE_TILE_ELEMENTS):
                block = x.load(start, i, 0, width=(rows_of_tile, width), axis=(1, 0))
                local.store(i, 0, value=keys.from_element(block))
        else:
            for i in k.range(n):
                local.store(i, 0, value=keys.from_element(x.load(row, i, start, width=width)))
        _sorting_network(local)
        if has_rows_as_columns:
            for i, rows_of_tile in _overlapping_strips(n, _TRANSPOSE_TILE_ELEMENTS):
                block = local.load(i, 0, width=(width, rows_of_tile), axis=(1, 0))
                y.store(start, i, 0, value=keys.to_element(block), axis=(0, 1))
        else:
            for i in k.range(n):
                y.store(row, i, start, value=keys.to_element(local.load(i, 0, width=width)))


@dataclass(frozen=True)
class _SortKeys:
    """Integer keys that compare like the elements: see Note [Sorting integers]."""

    element: Dtype
    descending: bool

    @property
    def dtype(self) -> Dtype:
        return np.dtype(f"i{self.element.itemsize}")

    def from_element(self, x: Value) -> Value:
        keys = x
        if x.is_float:
            keys = k.select(x != x, np.iinfo(self.dtype).max, self._flip_negative(x.view(self.dtype)))
        return ~keys if self.descending else keys

    def to_element(self, keys: Value) -> Value:
        keys = ~keys if self.descending else keys
        return keys if self.element == self.dtype else self._flip_negative(keys).view(self.element)

    def _flip_negative(self, bits: Value) -> Value:
        return k.select(bits < 0, bits ^ np.iinfo(self.dtype).max, bits)


def _overlapping_strips(n: Any, width: int) -> Iterator[tuple[Value, int]]:
    """Yield (start, width) for vectors of n elements; the last one overlaps the previous one."""
    width = min(n, width) if isinstance(n, int) else width
    for i in k.range(0, n, width):
        yield k.minimum(i, n - width) if width > 1 and n % width else i, width


def _sorting_network(local: ArrayReference) -> None:
    """Sort the columns of a buffer, lane by lane, with Knuth's algorithm M (merge exchange).

    For p = top, top/2, … 1, compare and exchange i and i + d: first with d = p for all i in the first half of each block of 2p,
    then with d = q - p, for q = top, top/2, … 2p, for all i in the second half.
    """
    n, width = map(int, local.shape)
    if n == 1:
        return
    top = 1 << ((n - 1).bit_length() - 1)
    for s in k.range(top.bit_length()):
        p = k.index(top) >> s
        for t in k.range(s + 1):
            is_first = t == 0
            d = k.select(is_first, p, k.maximum((k.index(2 * top) >> t) - p, 0))
            for block in k.range(k.select(is_first, 0, p), n - d, p * 2):
                for i in k.range(block, k.minimum(block + p, n - d)):
                    j = k.assume_index(i + d, n)
                    a, b = local.load(i, 0, width=width), local.load(j, 0, width=width)
                    local.store(i, 0, value=k.minimum(a, b))
                    local.store(j, 0, value=k.maximum(a, b))


def sort_digits(op: dl.RadixSortOp, x: ArrayReference, y: ArrayReference, scratch: ArrayReference) -> None:
    """Radix sort: count all digits; then, digit by digit, compute the start of each bucket and scatter the elements.

    Keys may be distances from the minimum: if values have a small range, their high digits are equal, and the passes of
    these are skipped.
    """
    rows, n = x.shape
    digits = op.digits
    num_buckets, lowest = max(1 << digit.bits for digit in digits), digits[0].shift
    for row in k.grid(rows, parallel=points_per_task(3 * n)):
        minimum = _row_minimum(x, row) & -(1 << lowest) if op.sorts_by_distance else None

        def bucket_of(digit: RadixDigit, value: Value, minimum: Value | None = minimum) -> Value:
            key = (value if minimum is None else value - minimum).view(f"u{value.dtype.itemsize}")
            bucket = (key >> digit.shift) & ((1 << digit.bits) - 1)
            return k.assume_index(bucket ^ digit.flip if digit.flip and minimum is None else bucket, 1 << digit.bits)

        counts = k.buffer((len(digits), num_buckets), position_dtype(n))
        for i in k.range(n, unroll=_UNROLLED_ELEMENTS):
            value = x[row, i]
            for d, digit in enumerate(digits):
                bucket = bucket_of(digit, value)
                counts[d, bucket] += 1
        source, targets = x, (y, scratch)
        for d, digit in enumerate(digits):
            destination = targets[(len(digits) - 1 - d) % 2]
            is_needed = None
            if isinstance(n, int) and n:
                is_needed = counts[d, bucket_of(digit, x[row, 0])] != n
                with k.when(~is_needed):
                    _copy_row(source, destination, row)
            with k.when(is_needed) if is_needed is not None else nullcontext():
                bucket_start = k.variable(0, position_dtype(n))
                for bucket in k.range(1 << digit.bits):
                    count = counts[d, bucket]
                    counts[d, bucket] = bucket_start.value
                    bucket_start.value += count
                for i in k.range(n, unroll=_UNROLLED_ELEMENTS):
                    value = source[row, i]
                    bucket = bucket_of(digit, value)
                    position = counts[d, bucket]
                    counts[d, bucket] = position + 1
                    destination[row, k.assume_index(position, n)] = value
            source = destination
        if len(digits) == 1:
            _copy_row(x, scratch, row)


def _row_width(x: ArrayReference) -> int:
    """Return the width of vectors of a row."""
    n = x.shape[1]
    return lanes_of(x.dtype) if isinstance(n, int) and n >= lanes_of(x.dtype) else 1


def _row_minimum(x: ArrayReference, row: Value) -> Value:
    """Return the minimum of a row, or the largest integer if the row is empty."""
    smallest = k.variable(k.full(_row_width(x), np.iinfo(x.dtype).max, x.dtype))
    for i, width in _overlapping_strips(x.shape[1], _row_width(x)):
        smallest.value = k.minimum(smallest.value, x.load(row, i, width=width))
    return smallest.value.min()


def _copy_row(source: ArrayReference, destination: ArrayReference, row: Value) -> None:
    """Copy a row from one buffer into another."""
    for i, width in _overlapping_strips(source.shape[1], _row_width(source)):
        destination.store(row, i, value=source.load(row, i, width=width))


# Maximum levels of a heap.
_MAX_HEAP_LEVELS = 40


def smallest(op: dl.SmallestKOp, x: ArrayReference, y: ArrayReference) -> None:
    """Maintain a max-heap of the smallest elements in the result, then sort it (heapsort)."""
    (rows, n), size = x.shape, y.shape[1]
    for row in k.grid(rows, parallel=points_per_task(n)):
        with k.when(k.index(size) > 0):
            levels, width = k.variable(0, np.int64), k.variable(1, np.int64)
            for _ in k.range(_MAX_HEAP_LEVELS):
                with k.when(width.value <= size):
                    levels.value += 1
                    width.value += width.value
            heap = _Heap(y[row], levels.value)
            for i in k.range(size):
                y[row, i] = x[row, i]
            half = k.index(size) // 2
            for i in k.range(half):
                heap.sink(half - 1 - i, k.index(size))
            for i in k.range(size, n):
                element = x[row, i]
                with k.when(element < y[row, 0]):
                    y[row, 0] = element
                    heap.sink(0, k.index(size))
            for i in k.range(1, size):
                end = k.index(size) - i
                largest, last = y[row, 0], y[row, end]
                y[row, 0], y[row, end] = last, largest
                heap.sink(0, end)


@dataclass(frozen=True)
class _Heap:
    """A max-heap in a row: element i is not less than elements 2i + 1 and 2i + 2."""

    row: ArrayReference
    levels: Value

    def sink(self, start: Index, size: Value) -> None:
        """Sift the element at `start` down in a heap of `size` elements."""
        row, capacity = self.row, self.row.shape[0]
        # The size is the position of an element that is in its place.
        current = k.variable(start, size=capacity + 1)
        for _ in k.range(self.levels):
            position = current.value
            child = position * 2 + 1
            with k.when(child < size):
                child = k.assume_index(child, capacity)
                sibling = k.assume_index(k.minimum(child + 1, size - 1), capacity)
                parent = k.assume_index(position, capacity)
                larger_child = k.select(row[child] < row[sibling], sibling, child)
                parent_value, child_value = row[parent], row[larger_child]
                row[parent], row[larger_child] = k.maximum(parent_value, child_value), k.minimum(parent_value, child_value)
                current.value = k.select(parent_value < child_value, larger_child, size)
