"""Sort integers: sorting networks for many short columns, radix sort for long rows, a heap for the k smallest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, flag, shape_of, sizes
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.library_kernels.row_sorting import RadixDigit, rows_per_network
from dlc.ir import Attribute, IntegerType, i32
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder, split_extent
from dlc.passes.library_kernels.values import Index, KernelValue, maximum, minimum, select
from dlc.passes.types import vector_type
from dlc.shapes.dims import Size

# Elements per iteration of loops that count or scatter keys, to amortize the loop overhead.
_UNROLLED_ELEMENTS = 4
# Side of the square blocks that are transposed in registers, in elements.
_TRANSPOSE_TILE_ELEMENTS = 8


def sort_columns(builder: KernelBuilder, op: dl.NetworkSortOp, x: Buffer, y: Buffer) -> None:
    """Sort tiles of columns in a local buffer, one column per lane; rows are transposed into columns."""
    rows, n, columns = shape_of(op.x)
    n = int(n)
    is_transposed = columns == 1
    outer, lanes = (1, rows) if is_transposed else (rows, columns)
    keys = _SortKeys(IntegerType(scalar.bits(element_type_of(op.x))), descending=flag(op.descending))
    for first, width, count in split_extent(lanes, rows_per_network(n, element_type_of(op.x))):
        with builder.grid(outer * count, n * width * (n.bit_length() ** 2)) as task:
            row, tile = builder.split_index(task, count)
            start = tile * width + first
            # The vector is rounded up to a power of two lanes; the extra lanes hold arbitrary values.
            padded_width = 1 << (width - 1).bit_length()
            local = builder.scratch(n, padded_width, element=keys.element)
            start_index = (start, 0, 0) if is_transposed else (row, 0, start)
            _copy_keys(builder, x, local, start_index, n, width, is_transposed, keys, into=True)
            if n > 1:
                _sorting_network(builder, local, n, padded_width)
            _copy_keys(builder, y, local, start_index, n, width, is_transposed, keys, into=False)


@dataclass(frozen=True)
class _SortKeys:
    """Integer keys that compare like the elements: see Note [Sorting integers]."""

    element: IntegerType
    descending: bool

    def from_element(self, x: KernelValue) -> KernelValue:
        keys = x
        if x.is_float:
            keys = select(x.differs(x), self._max_key, self._flip_negative(x.bits_as(self.element)))
        return keys ^ -1 if self.descending else keys

    def to_element(self, keys: KernelValue, element: Attribute) -> KernelValue:
        keys = keys ^ -1 if self.descending else keys
        return keys if element == self.element else self._flip_negative(keys).bits_as(element)

    @property
    def _max_key(self) -> int:
        return (1 << (scalar.bits(self.element) - 1)) - 1

    def _flip_negative(self, bits: KernelValue) -> KernelValue:
        return select(bits < 0, bits ^ self._max_key, bits)


def _copy_keys(
    builder: KernelBuilder,
    buffer: Buffer,
    local: Buffer,
    start: tuple[Index, Index, Index],
    n: int,
    width: int,
    is_transposed: bool,
    keys: _SortKeys,
    *,
    into: bool,
) -> None:
    """Copy columns of a buffer into the local one as keys (`into`), or back."""
    step = min(n, _TRANSPOSE_TILE_ELEMENTS) if is_transposed else 1
    with builder.loop(0, n, step, name="k") as step_start:
        k = _clamped_start(builder, step_start, n, step)
        position = (start[0], k, start[2])
        if not is_transposed and into:
            local.set_row(k, 0, row=keys.from_element(buffer.row(*position, width=width)))
        elif not is_transposed:
            buffer.set_row(*position, row=keys.to_element(local.row(k, 0, width=width), builder.element))
        elif into:
            local.set_block((k, 0), (0, 1), keys.from_element(buffer.block(position, (step, width), (1, 0))))
        else:
            buffer.set_block(position, (0, 1), keys.to_element(local.block((k, 0), (width, step), (1, 0)), builder.element))


def _sorting_network(builder: KernelBuilder, local: Buffer, n: int, width: int) -> None:
    """Sort the columns of a buffer, lane by lane, with Knuth's algorithm M (merge exchange).

    For p = top, top/2, … 1, compare and exchange i and i + d: first with d = p for all i in the first half of each block of 2p,
    then with d = q - p, for q = top, top/2, … 2p, for all i in the second half.
    """
    top = 1 << ((n - 1).bit_length() - 1)
    with builder.loop(0, top.bit_length(), name="s") as s:
        p = builder.index(top) >> s
        with builder.loop(0, s + 1, name="t") as t:
            first = t.equals(0)
            d = select(first, p, (builder.index(2 * top) >> t) - p)
            end = n - builder.minimum_index(d, n)
            blocks = builder.loop(select(first, 0, p), end, p * 2, name="block")
            with blocks as block, builder.loop(block, builder.minimum_index(block + p, end), name="i") as i:
                x, y = local.row(i, 0, width=width), local.row(i + d, 0, width=width)
                local.set_row(i, 0, row=minimum(x, y))
                local.set_row(i + d, 0, row=maximum(x, y))


def sort_digits(builder: KernelBuilder, op: dl.RadixSortOp, x: Buffer, y: Buffer, scratch_row: Buffer) -> None:
    """Radix sort: count all digits; then, digit by digit, compute the start of each bucket and scatter the elements.

    Keys may be distances from the minimum: if values have a small range, their high digits are equal, and the passes of
    these are skipped.
    """
    rows, n = shape_of(op.x)
    digits = op.digits
    num_buckets, lowest = max(1 << digit.bits for digit in digits), digits[0].shift

    with builder.grid(rows, 3 * n) as row:
        row_minimum = _row_minimum(builder, x, row, n) & -(1 << lowest) if op.sorts_by_distance else None

        def bucket_of(digit: RadixDigit, value: KernelValue) -> KernelValue:
            bucket = ((value if row_minimum is None else value - row_minimum) >> digit.shift) & ((1 << digit.bits) - 1)
            return (bucket ^ digit.flip if digit.flip and row_minimum is None else bucket).unsigned.as_index()

        counts = builder.scratch(len(digits), num_buckets, element=i32)
        for k, digit in enumerate(digits):
            with builder.loop(0, 1 << digit.bits, name="d") as d:
                counts[k, d] = builder.number(0, i32)
        for i in _each_index(builder, n):
            value = x[row, i]
            for k, digit in enumerate(digits):
                bucket = bucket_of(digit, value)
                counts[k, bucket] = counts[k, bucket] + 1
        source, targets = x, (y, scratch_row)
        for k, digit in enumerate(digits):
            destination = targets[(len(digits) - 1 - k) % 2]
            is_needed = None
            if isinstance(n, int) and n:
                is_needed = counts[k, bucket_of(digit, x[row, 0])].differs(n)
                with builder.when(is_needed.equals(0)):
                    _copy_row(builder, source, destination, row, n)
            with builder.when(is_needed) if is_needed is not None else nullcontext():
                bucket_start = builder.cell(builder.number(0, i32))
                with builder.loop(0, 1 << digit.bits, name="d") as d:
                    count = counts[k, d]
                    counts[k, d] = bucket_start.value
                    bucket_start.value = bucket_start.value + count
                for i in _each_index(builder, n):
                    value = source[row, i]
                    bucket = bucket_of(digit, value)
                    position = counts[k, bucket]
                    counts[k, bucket] = position + 1
                    destination[row, position.as_index()] = value
            source = destination
        if len(digits) == 1:
            _copy_row(builder, x, scratch_row, row, n)


def _each_index(builder: KernelBuilder, n: Size) -> Iterator[KernelValue]:
    """Yield the indices of `for i in range(n)`; a static loop is unrolled by a few elements, with a remainder loop."""
    unrolled_end = n // _UNROLLED_ELEMENTS * _UNROLLED_ELEMENTS if isinstance(n, int) else 0
    if unrolled_end:
        with builder.loop(0, builder.size(unrolled_end), _UNROLLED_ELEMENTS) as first:
            for k in range(_UNROLLED_ELEMENTS):
                yield first + k
    with builder.loop(builder.size(unrolled_end), builder.size(n)) as i:
        yield i


def _row_minimum(builder: KernelBuilder, x: Buffer, row: KernelValue, n: Size) -> KernelValue:
    """Return the minimum of a row, or the largest integer if the row is empty."""
    width = builder.lanes if isinstance(n, int) and n >= builder.lanes else 1
    largest = np.iinfo(numpy_dtype(builder.element)).max
    smallest = builder.cell(builder.number(largest, vector_type((width,), builder.element)))
    with builder.loop(0, builder.size(n), width) as i:
        smallest.value = minimum(smallest.value, x.row(row, _clamped_start(builder, i, n, width), width=width))
    return smallest.value.reduce_lanes("minsi")


def _copy_row(builder: KernelBuilder, source: Buffer, destination: Buffer, row: KernelValue, n: Size) -> None:
    """Copy a row from one buffer into another."""
    width = builder.lanes if isinstance(n, int) and n >= builder.lanes else 1
    with builder.loop(0, builder.size(n), width) as step_start:
        i = _clamped_start(builder, step_start, n, width)
        destination.set_row(row, i, row=source.row(row, i, width=width))


def _clamped_start(builder: KernelBuilder, i: KernelValue, n: Size, width: int) -> KernelValue:
    """Return the start of a vector, clamped so that it ends within n elements; the last one may overlap the previous one."""
    return builder.minimum_index(i, n - width) if isinstance(n, int) and n % width else i


# Maximum levels of a heap.
_MAX_HEAP_LEVELS = 40


def smallest(builder: KernelBuilder, op: dl.SmallestKOp, x: Buffer, y: Buffer) -> None:
    """Maintain a max-heap of the smallest elements in the result, then sort it (heapsort)."""
    (rows, n), size = shape_of(op.x), builder.index(builder.size(sizes(op.size)[0]))
    with builder.grid(rows, n) as row, builder.when(builder.index(0) < size):
        levels, width = builder.cell(builder.index(0)), builder.cell(builder.index(1))
        with builder.loop(0, _MAX_HEAP_LEVELS), builder.when(width.value <= size):
            levels.value = levels.value + 1
            width.value = width.value * 2
        heap = _Heap(builder, y, row, levels.value)
        with builder.loop(0, size) as i:
            y[row, i] = x[row, i]
        half = size // 2
        with builder.loop(0, half) as i:
            heap.sink(half - 1 - i, size)
        with builder.loop(size, builder.size(n)) as i:
            element = x[row, i]
            with builder.when(element < y[row, 0]):
                y[row, 0] = element
                heap.sink(builder.index(0), size)
        with builder.loop(1, size) as i:
            end = size - i
            largest, last = y[row, 0], y[row, end]
            y[row, 0], y[row, end] = last, largest
            heap.sink(builder.index(0), end)


class _Heap:
    """A max-heap in a row: element i is not less than elements 2i + 1 and 2i + 2."""

    def __init__(self, builder: KernelBuilder, buffer: Buffer, row: KernelValue, levels: KernelValue) -> None:
        self.builder, self.buffer, self.row, self.levels = builder, buffer, row, levels

    def sink(self, start: KernelValue, size: KernelValue) -> None:
        """Sift an element down in a heap of `size` elements."""
        builder, y, row = self.builder, self.buffer, self.row
        current = builder.cell(start)
        with builder.loop(0, self.levels):
            child = current.value * 2 + 1
            with builder.when(child < size):
                sibling = builder.minimum_index(child + 1, size - 1)
                larger_child = select(y[row, child] < y[row, sibling], sibling, child)
                parent_value, child_value = y[row, current.value], y[row, larger_child]
                position = current.value
                y[row, position], y[row, larger_child] = maximum(parent_value, child_value), minimum(parent_value, child_value)
                current.value = select(parent_value < child_value, larger_child, size)
