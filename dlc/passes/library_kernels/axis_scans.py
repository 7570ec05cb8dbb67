"""Scans along the middle axis of [a, n, b]: cumulative sums and products, argmin and argmax."""

from __future__ import annotations

import operator
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, flag, shape_of
from dlc.ir import i32, i64
from dlc.passes.library_kernels.builder import Buffer, Cell, KernelBuilder, split_extent
from dlc.passes.library_kernels.values import Index, KernelValue, maximum, minimum, select
from dlc.passes.types import vector_type
from dlc.shapes.dims import Size

# Lanes along b.
_COLUMN_LANES = 16
# Elements per block of a cumulative sum. Blocks are summed separately, since rounding errors grow with the number of
# additions in sequence.
_SUMMATION_BLOCK_ELEMENTS = 256
# Minimum row lengths for lanes that fill several registers, and for lanes that fill the widest register.
_MIN_LONG_ROW_ELEMENTS, _MIN_MEDIUM_ROW_ELEMENTS = 192, 64
# In a row of at least `_MIN_BLOCKS` blocks, the extremum of each block is computed first, in `_BLOCK_LANES` lanes; then the
# index is searched only in the best block.
_MIN_BLOCKS, _BLOCK_ELEMENTS, _BLOCK_LANES = 4, 1024, 64


def accumulate(builder: KernelBuilder, op: dl.AccumulateOp, x: Buffer, y: Buffer) -> None:
    """Compute cumulative sums or products, in blocks: y[j] = previous_total + running_total.

    `running_total` is the sum from the start of the block that contains j, `previous_total` that of all earlier blocks.
    """
    rows, n, columns = shape_of(op.x)
    end = builder.size(n)
    combine, identity_element = (operator.add, 0) if op.kind.data == "add" else (operator.mul, 1)
    for first, width, count in split_extent(columns, _COLUMN_LANES):
        with builder.grid(rows * count, n * width) as point:
            row, tile = builder.split_index(point, count)
            start = tile * width + first
            identities = builder.number(identity_element, vector_type((width,), builder.element))
            previous_total = builder.cell(identities)
            with builder.loop(0, end, _SUMMATION_BLOCK_ELEMENTS, name="block") as block:
                block_total = builder.cell(identities)
                with builder.loop(block, builder.minimum_index(block + _SUMMATION_BLOCK_ELEMENTS, end), name="j") as step:
                    position = (row, end - 1 - step if flag(op.reverse) else step, start)
                    running_total = combine(block_total.value, x.row(*position, width=width))
                    y.set_row(
                        *position, row=combine(previous_total.value, block_total.value if flag(op.exclusive) else running_total)
                    )
                    block_total.value = running_total
                previous_total.value = combine(previous_total.value, block_total.value)


def arg_extremum(builder: KernelBuilder, op: dl.ArgExtremumOp, x: Buffer, y: Buffer) -> None:
    """Compute the index of the extremum along the axis, or along each segment of it.

    Each lane tracks its best element; the lanes of a row are combined at the end. All segments have the same length; if it
    does not divide the axis, the last segment overlaps the previous one.
    """
    rows, n, columns = shape_of(op.x)
    count = op.num_segments
    length: Size = n if count is None else op.segment_length
    extreme = _ArgExtremum(builder, op)

    def set_indices(row: KernelValue, segment: Index, column: Index, indices: KernelValue, width: int) -> None:
        coordinates = (row, column) if count is None else (row, segment, column)
        if width:
            y.set_row(*coordinates, row=indices.widened(i64))
        else:
            y[coordinates] = indices.widened(i64)

    @contextmanager
    def segments(columns: Size, width: int) -> Generator[tuple[KernelValue, Index, Index, KernelValue]]:
        """Open a grid; yield a row, a segment and its start, and a tile of columns."""
        points_per_row = columns if count is None else columns * count
        with builder.grid(rows * points_per_row, length * width) as point:
            row, point_in_row = builder.split_index(point, points_per_row)
            segment, tile = (0, point_in_row) if count is None else builder.split_index(point_in_row, columns)
            first = (
                0
                if count is None
                else builder.minimum_index(builder.index(segment) * op.segment_length, int(n) - op.segment_length)
            )
            yield row, segment, first, tile

    if columns == 1:
        with segments(1, 1) as (row, segment, first, _):
            set_indices(row, segment, 0, extreme.of_row(x, row, first, length), 0)
        return
    for begin, width, tiles in split_extent(columns, _COLUMN_LANES):
        with segments(tiles, width) as (row, segment, first, tile):
            column = tile * width + begin
            set_indices(row, segment, column, extreme.of_columns(x, row, column, first, length, width), width)


class _ArgExtremum:
    """Generate an arg-extremum: the index of the first or last occurrence of the smallest or largest value."""

    def __init__(self, builder: KernelBuilder, op: dl.ArgExtremumOp) -> None:
        self.builder = builder
        self.smallest, self.last = flag(op.smallest), flag(op.last)
        low, high = scalar.limits(element_type_of(op.x))
        self.worst = high if self.smallest else low

    def of_columns(self, x: Buffer, row: KernelValue, column: KernelValue, first: Index, n: Size, width: int) -> KernelValue:
        """Return the indices for `width` adjacent columns."""
        best, begin = self._initial(x, width, first), self.builder.index(first)
        with self.builder.loop(begin, begin + self.builder.size(n), name="j") as j:
            best.update(x.row(row, j, column, width=width), j.as_integer(i32).splat((width,)))
        return best.position.value

    def of_row(self, x: Buffer, row: KernelValue, first: Index, n: Size) -> KernelValue:
        """Return the index of the extremum in `n` elements of a row, starting at `first`, with adjacent elements in lanes."""
        if not isinstance(n, int) or n < _MIN_BLOCKS * _BLOCK_ELEMENTS:
            return self._scan_row(x, row, first, n)
        return self._scan_row(x, row, self._best_block(x, row, first, n), _BLOCK_ELEMENTS)

    def _best_block(self, x: Buffer, row: KernelValue, begin: Index, n: int) -> KernelValue:
        """Return the start of the block with the best value: this is twice as fast as tracking the index of every element."""
        builder, choose = self.builder, minimum if self.smallest else maximum
        worst = builder.constant(self.worst, vector_type((_BLOCK_LANES,), builder.element), signed=x.signed)
        best = _RunningBest(self, builder.cell(worst.extreme(smallest=self.smallest)), builder.cell(self._index_value(begin)))

        def update_from_block(first: Index) -> None:
            lanes = builder.cell(worst)
            with builder.loop(0, _BLOCK_ELEMENTS, _BLOCK_LANES, name="k") as offset:
                lanes.value = choose(lanes.value, x.block((row, offset + first, 0), (_BLOCK_LANES,), (1,)))
            extreme = lanes.value.extreme(smallest=self.smallest)
            best.update(extreme, self._index_value(first))

        with builder.loop(0, n - n % _BLOCK_ELEMENTS, _BLOCK_ELEMENTS, name="j") as first:
            update_from_block(first + begin)
        if n % _BLOCK_ELEMENTS:
            # The last block overlaps the previous one, which does not change the result.
            update_from_block(begin + (n - _BLOCK_ELEMENTS))
        return best.position.value.as_index()

    def _scan_row(self, x: Buffer, row: KernelValue, first: Index, n: Size) -> KernelValue:
        """Return the index of the extremum by one pass over `n` elements; long rows use several registers of lanes."""
        builder, end = self.builder, self.builder.size(n)
        width = self._lanes(n)
        vectorized_end = end - end % width
        lanes = self._initial(x, width, first)
        with builder.loop(0, vectorized_end, width, name="j") as offset:
            lanes.update(x.block((row, offset + first, 0), (width,), (1,)), builder.iota(offset + first, width, i32))
        has_full_vector = isinstance(n, int) and n >= width
        if isinstance(n, int) and has_full_vector and n % width:
            # The last vector overlaps the previous one, which does not change the result.
            last = first + (n - width)
            lanes.update(x.block((row, last, 0), (width,), (1,)), builder.iota(last, width, i32))
        value, position = self._reduce_lanes(lanes)
        if has_full_vector:
            return position
        best = _RunningBest(self, builder.cell(value), builder.cell(position))
        with builder.loop(vectorized_end, end, name="j") as offset:
            best.update_unordered(x[row, offset + first, 0], (offset + first).as_integer(i32))
        return best.position.value

    def _lanes(self, n: Size) -> int:
        """Return the number of lanes for a row of `n` elements; combining many lanes at the end costs time."""
        if not isinstance(n, int) or n < _MIN_MEDIUM_ROW_ELEMENTS:
            return 8
        if n >= _MIN_LONG_ROW_ELEMENTS:
            return 32
        return 16 if scalar.bits(self.builder.element) <= 32 else 8

    def is_better(self, value: KernelValue, best: KernelValue) -> KernelValue:
        """Return whether a value replaces the best one before it."""
        if self.last:
            is_at_least = value <= best if self.smallest else value >= best
            return is_at_least | value.differs(value) if value.is_float else is_at_least
        if not value.is_float:
            return value < best if self.smallest else value > best
        # The negated comparison also holds if `value` is NaN; a best value that is NaN is final.
        return value.fails("ge" if self.smallest else "le", best) & best.equals(best)

    def _initial(self, x: Buffer, width: int, first: Index) -> _RunningBest:
        """Return the worst value with the first index, which is the result if no element is better."""
        worst = self.builder.constant(self.worst, vector_type((width,), self.builder.element), signed=x.signed)
        return _RunningBest(self, self.builder.cell(worst), self.builder.cell(self._index_value(first).splat((width,))))

    def _index_value(self, position: Index) -> KernelValue:
        """Return an index as an i32 value."""
        return self.builder.number(position, i32) if isinstance(position, int) else position.as_integer(i32)

    def _reduce_lanes(self, lanes: _RunningBest) -> tuple[KernelValue, KernelValue]:
        """Return the best value of the lanes and its index."""
        best, position = lanes.value.value, lanes.position.value
        extreme = best.extreme(smallest=self.smallest)
        is_extreme = best.equals(extreme)
        if best.is_float:
            # A NaN extremum has the position of a NaN, which does not equal itself.
            is_extreme = is_extreme | best.differs(best)
        sentinel = -1 if self.last else (1 << 31) - 1
        return extreme, select(is_extreme, position, sentinel).extreme(smallest=not self.last)


@dataclass(frozen=True)
class _RunningBest:
    """The best value so far and its index, in each lane."""

    extremum: _ArgExtremum
    value: Cell
    position: Cell

    def update(self, value: KernelValue, position: KernelValue) -> None:
        """Update with an element at a higher index than all previous ones."""
        self._replace_if(self.extremum.is_better(value, self.value.value), value, position)

    def update_unordered(self, value: KernelValue, position: KernelValue) -> None:
        """Update with an element at any index; ties are resolved by the indices."""
        best = self.value.value
        wins_after, wins_before = self.extremum.is_better(value, best), self.extremum.is_better(best, value) ^ 1
        self._replace_if(select(position > self.position.value, wins_after, wins_before), value, position)

    def _replace_if(self, better: KernelValue, value: KernelValue, position: KernelValue) -> None:
        self.value.value = select(better, value, self.value.value)
        self.position.value = select(better, position, self.position.value)
