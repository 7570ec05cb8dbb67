"""Sort integers: sorting networks for many short columns, radix sort for long rows, a heap for the k smallest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, flag
from dlc.dialects.dl.library_kernels.row_sorting import MAX_NETWORK_ELEMENTS, RadixDigit, rows_per_network
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.vectors import (
    Dtype,
    Index,
    column_grid,
    is_one,
    lanes_of,
    load,
    overlapping_strips,
    points_per_task,
    position_dtype,
    store,
    tiles,
)
from dlc.shapes.traced_dims import TracedSize

# Elements per iteration of loops that count or scatter keys, to amortize the loop overhead.
_UNROLLED_ELEMENTS = 4
# Maximum counts of a counting sort of long rows, which take 32 KiB, and minimum elements of a row per count.
_MAX_CACHED_COUNTS, _MIN_ELEMENTS_PER_COUNT = 1 << 13, 8
# Side of the square blocks that are transposed in registers, in elements.
_TRANSPOSE_TILE_ELEMENTS = 8


def sort_columns(op: dl.NetworkSortOp, x: ArrayReference, y: ArrayReference) -> None:
    """Sort tiles of columns in a local buffer, one column per lane; rows are transposed into columns."""
    (rows, _, columns), n = x.shape, int(x.shape[1])
    keys = SortKeys(x.dtype, flag(op.descending))
    has_rows_as_columns = is_one(columns)
    outer, lanes = (1, rows) if has_rows_as_columns else (rows, columns)
    max_width, work = rows_per_network(n, element_type_of(op.x)), n * n.bit_length() ** 2
    for row, start, width in column_grid(outer, columns=lanes, width=max_width, work=work, is_masked=True):
        local = _column_buffer(n, width, keys)
        if has_rows_as_columns:
            _sort_rows(x, y, keys, local, start, width)
            continue
        for i in k.range(n):
            local.store(i, 0, value=keys.from_element(load(x, row, i, start, width=width)))
        sorting_network(local, n)
        for i in k.range(n):
            store(y, row, i, start, value=keys.to_element(local.load(i, 0, width=width)))


def _column_buffer(n: int, width: int, keys: SortKeys) -> ArrayReference:
    """Return a local buffer for columns of at most n keys."""
    # The vector is rounded up to a power of two lanes; the extra lanes hold arbitrary values.
    return k.buffer((n, 1 << (width - 1).bit_length()), keys.dtype, fill=None)


def _sort_rows(x: ArrayReference, y: ArrayReference, keys: SortKeys, local: ArrayReference, start: Value, width: int) -> None:
    """Sort `width` rows from `start` on as columns of a local buffer; those beyond the array are ignored."""
    n, other_indices = x.shape[1], (0,) * (x.ndim - 2)
    for i, target, height in _row_strips(n, local.shape[0]):
        block = x.load(start, i, *other_indices, width=(height, width), axis=(1, 0), fill=0)
        local.store(target, 0, value=keys.from_element(block))
    sorting_network(local, n)
    for i, source, height in _row_strips(n, local.shape[0]):
        block = local.load(source, 0, width=(width, height), axis=(1, 0))
        y.store(start, i, *other_indices, value=keys.to_element(block), axis=(0, 1), masked=True)


def _row_strips(n: TracedSize, capacity: TracedSize) -> Iterator[tuple[Index, Index, int]]:
    """Yield (index, index in a buffer, width) for strips of rows of n elements; the last one may reach beyond a symbolic n."""
    width = _TRANSPOSE_TILE_ELEMENTS
    if isinstance(n, int):
        yield from ((i, i, height) for i, height in overlapping_strips(n, width))
        return
    for i, _, _ in tiles(0, n, width):
        yield i, k.assume_index(i, capacity - width + 1), width


@dataclass(frozen=True)
class SortKeys:
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


def sorting_network(local: ArrayReference, n: TracedSize) -> None:
    """Sort the columns of n elements of a buffer, lane by lane, with Knuth's algorithm M (merge exchange).

    For p = top, top/2, … 1, compare and exchange i and i + d: first with d = p for all i in the first half of each block of 2p,
    then with d = q - p, for q = top, top/2, … 2p, for all i in the second half.
    """
    capacity, width = map(int, local.shape)
    if isinstance(n, int) and n == 1:
        return
    top, levels = _highest_bit(n, capacity)
    for s in k.range(levels):
        p = top >> s if isinstance(n, int) else k.maximum(top >> s, 1)
        for t in k.range(s + 1):
            is_first = t == 0
            d = k.select(is_first, p, k.maximum((top * 2 >> t) - p, 0))
            for block in k.range(k.select(is_first, 0, p), n - d, p * 2):
                for i in k.range(block, k.minimum(block + p, n - d)):
                    i, j = (i if isinstance(n, int) else k.assume_index(i, capacity)), k.assume_index(i + d, capacity)
                    a, b = local.load(i, 0, width=width), local.load(j, 0, width=width)
                    local.store(i, 0, value=k.minimum(a, b))
                    local.store(j, 0, value=k.maximum(a, b))


def _highest_bit(n: TracedSize, capacity: int) -> tuple[Value, Index]:
    """Return the largest power of two below n, at least 1, and the number of its bits; n is at most `capacity`."""
    max_bits = (capacity - 1).bit_length()
    if isinstance(n, int):
        return k.index(1 << (max_bits - 1)), max_bits
    top, bits = k.variable(1, size=capacity), k.variable(1, size=max_bits + 1)
    for _ in k.range(1, max_bits):
        with k.when(top.value * 2 < n):
            top.value = k.assume_index(top.value * 2, capacity)
            bits.value = k.assume_index(bits.value + 1, max_bits + 1)
    return top.value, bits.value


def sort_digits(op: dl.RadixSortOp, x: ArrayReference, y: ArrayReference, scratch: ArrayReference) -> None:
    """Sort each row by its digits, or if the op permits it, several short rows of symbolic shape by a network."""
    rows, n = x.shape
    if not flag(op.permits_network):
        for row in k.grid(rows, parallel=points_per_task(3 * n)):
            _sort_row_by_digits(op, x, y, scratch, row)
        return
    capacity, keys = MAX_NETWORK_ELEMENTS, SortKeys(x.dtype, descending=False)
    for _, start, width in column_grid(1, columns=rows, width=lanes_of(x.dtype), work=n, is_masked=True):
        with k.when(_are_rows_short(op, x)):
            _sort_rows(x, y, keys, _column_buffer(capacity, width, keys), start, width)
    for row in k.grid(rows, parallel=points_per_task(3 * n)):
        with k.when(~_are_rows_short(op, x)):
            _sort_row_by_digits(op, x, y, scratch, row)


def _are_rows_short(op: dl.RadixSortOp, x: ArrayReference) -> Value:
    """Return whether a network sorts the rows faster; its time does not depend on the number of rows, up to the lanes."""
    rows, n = map(k.index, x.shape)
    return (n <= MAX_NETWORK_ELEMENTS) & (n <= rows * op.network_elements_per_row)


def _sort_row_by_digits(op: dl.RadixSortOp, x: ArrayReference, y: ArrayReference, scratch: ArrayReference, row: Value) -> None:
    """Sort a row by counting its values if they are within a small range, else by radix sort."""
    if not op.sorts_by_distance:
        _radix_sort_row(op, x, y, scratch, row, None)
        return
    smallest, largest = _row_limits(x, row)
    minimum, num_values = smallest & -(1 << op.digits[0].shift), _max_counted_values(op, x.shape[1])
    if not num_values:
        _radix_sort_row(op, x, y, scratch, row, minimum)
        return
    max_distance = (largest - minimum).view(f"u{x.dtype.itemsize}")
    is_range_small = max_distance <= num_values - 1
    with k.when(is_range_small):
        _counting_sort_row(x, y, row, minimum, k.assume_index(max_distance, num_values), num_values)
        _copy_row(x if len(op.digits) == 1 else y, scratch, row)
    with k.when(~is_range_small):
        _radix_sort_row(op, x, y, scratch, row, minimum)


def _max_counted_values(op: dl.RadixSortOp, n: TracedSize) -> int:
    """Return the number of values up to which a row of n elements is sorted by counting, 0 for never.

    These values have the same last digit if there are several digits. Their counts are not more than those of a radix sort, or
    in long rows than the L1 cache holds.
    """
    digits = op.digits
    if not isinstance(n, int) or digits[0].shift:
        return 0
    limit = 1 << (digits[-1].shift or digits[0].bits)
    counts = max(sum(1 << digit.bits for digit in digits), min(n // _MIN_ELEMENTS_PER_COUNT, _MAX_CACHED_COUNTS))
    return min(n, limit, counts)


def _counting_sort_row(
    x: ArrayReference, y: ArrayReference, row: Value, minimum: Value, max_distance: Value, num_values: int
) -> None:
    """Count the elements of each value, then store each value as often as it is counted."""
    n, width = x.shape[1], lanes_of(x.dtype)
    counts = k.buffer((num_values,), position_dtype(n))
    for i in k.range(n, unroll=_UNROLLED_ELEMENTS):
        counts[k.assume_index((x[row, i] - minimum).view(f"u{x.dtype.itemsize}"), num_values)] += 1
    end = k.variable(0, position_dtype(n))
    for distance in k.range(max_distance + 1):
        start = end.value
        end.value += counts[distance]
        value = k.full(width, minimum + distance.astype(x.dtype), x.dtype)
        # A vector may reach beyond the last element of its value; the next value overwrites these elements.
        for i in k.range(k.index(start), k.index(end.value), width):
            store(y, row, i, value=value)


def _radix_sort_row(
    op: dl.RadixSortOp, x: ArrayReference, y: ArrayReference, scratch: ArrayReference, row: Value, minimum: Value | None
) -> None:
    """Radix sort: count all digits; then, digit by digit, compute the start of each bucket and scatter the elements.

    Keys are distances from the minimum if there is one: if values have a small range, their high digits are equal, and the
    passes of these are skipped.
    """
    n, digits = x.shape[1], op.digits
    num_buckets = max(1 << digit.bits for digit in digits)

    def bucket_of(digit: RadixDigit, value: Value) -> Value:
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


def _row_limits(x: ArrayReference, row: Value) -> tuple[Value, Value]:
    """Return the minimum and maximum of a row; of an empty row, the largest and smallest integer."""
    limits = np.iinfo(x.dtype)
    smallest, largest = (k.variable(k.full(_row_width(x), limit, x.dtype)) for limit in (limits.max, limits.min))
    for i, width in overlapping_strips(x.shape[1], _row_width(x)):
        elements = x.load(row, i, width=width)
        smallest.value = k.minimum(smallest.value, elements)
        largest.value = k.maximum(largest.value, elements)
    return smallest.value.min(), largest.value.max()


def _copy_row(source: ArrayReference, destination: ArrayReference, row: Value) -> None:
    """Copy a row from one buffer into another."""
    for i, width in overlapping_strips(source.shape[1], _row_width(source)):
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
