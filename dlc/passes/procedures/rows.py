"""Integers in ascending order: by a network of comparisons for many short columns, by their digits for long rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, flag, shape_of, sizes
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.procedures.rows import Digit, rows_side_by_side
from dlc.dims import Size
from dlc.ir import Attribute, IntegerType, i32
from dlc.passes.procedures.code import Buffer, Code, parts
from dlc.passes.procedures.values import Index, Value, maximum, minimum, select
from dlc.passes.types import vector_type

# So many elements are counted, or moved, in one turn of a loop, which has about as many instructions of its own.
_IN_A_ROW = 4
# The side of the squares in which rows are turned.
_SQUARE = 8


def sort_columns(code: Code, op: dl.SortColumnsOp, x: Buffer, y: Buffer) -> None:
    """Some columns side by side in a buffer of their own. Columns lie so already; rows are turned."""
    rows, n, columns = shape_of(op.x)
    n = int(n)
    turned = columns == 1
    outer, lanes = (1, rows) if turned else (rows, columns)
    keys = _Keys(IntegerType(scalar.bits(element_type_of(op.x))), descending=flag(op.descending))
    for first, width, count in parts(lanes, rows_side_by_side(n, element_type_of(op.x))):
        with code.grid(outer * count, n * width * (n.bit_length() ** 2)) as part:
            row, tile = code.apart(part, count)
            start = tile * width + first
            # Registers are full: the lanes beside the columns hold anything.
            lanes_of_all = 1 << (width - 1).bit_length()
            local = code.scratch(n, lanes_of_all, element=keys.element)
            whole = (start, 0, 0) if turned else (row, 0, start)
            _moved(code, x, local, whole, n, width, turned, keys, into=True)
            if n > 1:
                _exchange(code, local, n, lanes_of_all)
            _moved(code, y, local, whole, n, width, turned, keys, into=False)


@dataclass(frozen=True)
class _Keys:
    """What is compared in the place of elements: Note [Sorting integers]."""

    element: IntegerType
    descending: bool

    def of(self, x: Value) -> Value:
        keys = x
        if x.is_float:
            keys = select(x.differs(x), self._most, self._turned(x.bits_as(self.element)))
        return keys ^ -1 if self.descending else keys

    def back(self, keys: Value, element: Attribute) -> Value:
        keys = keys ^ -1 if self.descending else keys
        return keys if element == self.element else self._turned(keys).bits_as(element)

    @property
    def _most(self) -> int:
        return (1 << (scalar.bits(self.element) - 1)) - 1

    def _turned(self, bits: Value) -> Value:
        return select(bits < 0, bits ^ self._most, bits)


def _moved(
    code: Code,
    buffer: Buffer,
    local: Buffer,
    start: tuple[Index, Index, Index],
    n: int,
    width: int,
    turned: bool,
    keys: _Keys,
    *,
    into: bool,
) -> None:
    """Columns of a buffer into the local one, as keys, or back."""
    step = min(n, _SQUARE) if turned else 1
    with code.loop(0, n, step, name="k") as counted:
        k = _moved_back(code, counted, n, step)
        place = (start[0], k, start[2])
        if not turned and into:
            local.set_row(k, 0, row=keys.of(buffer.row(*place, width=width)))
        elif not turned:
            buffer.set_row(*place, row=keys.back(local.row(k, 0, width=width), code.element))
        elif into:
            local.set_block((k, 0), (0, 1), keys.of(buffer.block(place, (step, width), (1, 0))))
        else:
            buffer.set_block(place, (0, 1), keys.back(local.block((k, 0), (width, step), (1, 0)), code.element))


def _exchange(code: Code, local: Buffer, n: int, width: int) -> None:
    """Knuth's algorithm M on rows of a buffer, lane by lane.

    For p = top, top/2, … 1: exchange i and i + d, for all i in the first half of a block of 2p, first with d = p; then, for
    those in the second half, with d = q - p for q = top, top/2, … 2p.
    """
    top = 1 << ((n - 1).bit_length() - 1)
    with code.loop(0, top.bit_length(), name="s") as s:
        p = code.index(top) >> s
        with code.loop(0, s + 1, name="t") as t:
            first = t.equals(0)
            d = select(first, p, (code.index(2 * top) >> t) - p)
            end = n - code.least(d, n)
            blocks = code.loop(select(first, 0, p), end, p * 2, name="block")
            with blocks as block, code.loop(block, code.least(block + p, end), name="i") as i:
                x, y = local.row(i, 0, width=width), local.row(i + d, 0, width=width)
                local.set_row(i, 0, row=minimum(x, y))
                local.set_row(i + d, 0, row=maximum(x, y))


def sort_digits(code: Code, op: dl.SortDigitsOp, x: Buffer, y: Buffer, before: Buffer) -> None:
    """Counts how often each digit occurs, where its elements begin, and puts each element there, digit after digit.

    Of the distances from the least one, numbers of a small range share the higher digits, by which nothing moves.
    """
    rows, n = shape_of(op.x)
    digits = op.digits
    most, lowest = max(1 << digit.bits for digit in digits), digits[0].shift

    with code.grid(rows, 3 * n) as row:
        least = _least(code, x, row, n) & -(1 << lowest) if op.by_distance else None

        def number_of(digit: Digit, value: Value) -> Value:
            number = ((value if least is None else value - least) >> digit.shift) & ((1 << digit.bits) - 1)
            return (number ^ digit.flip if digit.flip and least is None else number).unsigned.as_index()

        counts = code.scratch(len(digits), most, element=i32)
        for k, digit in enumerate(digits):
            with code.loop(0, 1 << digit.bits, name="d") as d:
                counts[k, d] = code.number(0, i32)
        for i in _each(code, n):
            value = x[row, i]
            for k, digit in enumerate(digits):
                number = number_of(digit, value)
                counts[k, number] = counts[k, number] + 1
        source, targets = x, (y, before)
        for k, digit in enumerate(digits):
            target = targets[(len(digits) - 1 - k) % 2]
            moves = None
            if isinstance(n, int) and n:
                moves = counts[k, number_of(digit, x[row, 0])].differs(n)
                with code.when(moves.equals(0)):
                    _copied(code, source, target, row, n)
            with code.when(moves) if moves is not None else nullcontext():
                begun = code.cell(code.number(0, i32))
                with code.loop(0, 1 << digit.bits, name="d") as d:
                    count = counts[k, d]
                    counts[k, d] = begun.value
                    begun.value = begun.value + count
                for i in _each(code, n):
                    value = source[row, i]
                    number = number_of(digit, value)
                    place = counts[k, number]
                    counts[k, number] = place + 1
                    target[row, place.as_index()] = value
            source = target
        if len(digits) == 1:
            _copied(code, x, before, row, n)


def _each(code: Code, n: Size) -> Iterator[Value]:
    """`for i in range(n)`: of a known n what is done with i is written for a few of them, in a loop, and once more for what is
    left over."""
    whole = n // _IN_A_ROW * _IN_A_ROW if isinstance(n, int) else 0
    if whole:
        with code.loop(0, code.size(whole), _IN_A_ROW) as first:
            for k in range(_IN_A_ROW):
                yield first + k
    with code.loop(code.size(whole), code.size(n)) as i:
        yield i


def _least(code: Code, x: Buffer, row: Value, n: Size) -> Value:
    """The least element of a row, the largest number if there is none."""
    width = code.lanes if isinstance(n, int) and n >= code.lanes else 1
    largest = np.iinfo(numpy_dtype(code.element)).max
    found = code.cell(code.number(largest, vector_type((width,), code.element)))
    with code.loop(0, code.size(n), width) as i:
        found.value = minimum(found.value, x.row(row, _moved_back(code, i, n, width), width=width))
    return found.value.combined("minsi")


def _copied(code: Code, source: Buffer, target: Buffer, row: Value, n: Size) -> None:
    """A row from one buffer into another."""
    width = code.lanes if isinstance(n, int) and n >= code.lanes else 1
    with code.loop(0, code.size(n), width) as counted:
        i = _moved_back(code, counted, n, width)
        target.set_row(row, i, row=source.row(row, i, width=width))


def _moved_back(code: Code, i: Value, n: Size, width: int) -> Value:
    """Where a vector begins that is within n elements: what is left over at the end is taken with its neighbours before it."""
    return code.least(i, n - width) if isinstance(n, int) and n % width else i


# More levels than a heap has.
_MOST_LEVELS = 40


def smallest(code: Code, op: dl.SmallestOp, x: Buffer, y: Buffer) -> None:
    """A heap of the smallest elements so far, where the result will be; then its largest goes to its end, time and again."""
    (rows, n), size = shape_of(op.x), code.index(code.size(sizes(op.size)[0]))
    with code.grid(rows, n) as row, code.when(code.index(0) < size):
        levels, width = code.cell(code.index(0)), code.cell(code.index(1))
        with code.loop(0, _MOST_LEVELS), code.when(width.value <= size):
            levels.value = levels.value + 1
            width.value = width.value * 2
        heap = _Heap(code, y, row, levels.value)
        with code.loop(0, size) as i:
            y[row, i] = x[row, i]
        half = size // 2
        with code.loop(0, half) as i:
            heap.sink(half - 1 - i, size)
        with code.loop(size, code.size(n)) as i:
            element = x[row, i]
            with code.when(element < y[row, 0]):
                y[row, 0] = element
                heap.sink(code.index(0), size)
        with code.loop(1, size) as i:
            end = size - i
            largest, last = y[row, 0], y[row, end]
            y[row, 0], y[row, end] = last, largest
            heap.sink(code.index(0), end)


class _Heap:
    """A row whose element i is not less than its elements 2i + 1 and 2i + 2."""

    def __init__(self, code: Code, buffer: Buffer, row: Value, levels: Value) -> None:
        self.code, self.buffer, self.row, self.levels = code, buffer, row, levels

    def sink(self, start: Value, size: Value) -> None:
        """Moves an element down to where it belongs, of the first `size`."""
        code, y, row = self.code, self.buffer, self.row
        at = code.cell(start)
        with code.loop(0, self.levels):
            child = at.value * 2 + 1
            with code.when(child < size):
                other = code.least(child + 1, size - 1)
                below = select(y[row, child] < y[row, other], other, child)
                upper, lower = y[row, at.value], y[row, below]
                place = at.value
                y[row, place], y[row, below] = maximum(upper, lower), minimum(upper, lower)
                at.value = select(upper < lower, below, size)
