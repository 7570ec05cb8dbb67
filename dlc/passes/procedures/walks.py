"""Along the middle axis of [a, n, b], element by element: running sums and products, places of extrema."""

from __future__ import annotations

import operator
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, flag, shape_of
from dlc.dims import Size
from dlc.ir import i32, i64
from dlc.passes.procedures.code import Buffer, Cell, Code, parts
from dlc.passes.procedures.values import Index, Value, maximum, minimum, select
from dlc.passes.types import vector_type

# What is computed at once along b, in elements.
_LANES = 16
# So many elements are summed by themselves before they are added to those before: errors grow with that, and with the
# number of such blocks.
_BLOCK = 256
# From how many on the lanes of a row are some registers, and from how many on the longest one.
_LONG_ROW, _MIDDLE_ROW = 1024, 64
# A row of some parts of so many elements has the best of each part first, of so many lanes; the place is looked for in one.
_PARTS, _PART, _WIDE = 4, 1024, 64


def accumulate(code: Code, op: dl.AccumulateOp, x: Buffer, y: Buffer) -> None:
    """y[j] = before + own, where `own` is of the block that j is in, and `before` of the blocks before that."""
    rows, n, columns = shape_of(op.x)
    end = code.size(n)
    combine, identity = (operator.add, 0) if op.kind.data == "add" else (operator.mul, 1)
    for first, width, count in parts(columns, _LANES):
        with code.grid(rows * count, n * width) as part:
            row, tile = code.apart(part, count)
            start = tile * width + first
            nothing = code.number(identity, vector_type((width,), code.element))
            before = code.cell(nothing)
            with code.loop(0, end, _BLOCK, name="block") as block:
                own = code.cell(nothing)
                with code.loop(block, code.least(block + _BLOCK, end), name="j") as counted:
                    place = (row, end - 1 - counted if flag(op.reverse) else counted, start)
                    so_far = combine(own.value, x.row(*place, width=width))
                    y.set_row(*place, row=combine(before.value, own.value if flag(op.exclusive) else so_far))
                    own.value = so_far
                before.value = combine(before.value, own.value)


def extreme_place(code: Code, op: dl.ExtremePlaceOp, x: Buffer, y: Buffer) -> None:
    """Each lane has the best that it has seen, and where; where lanes are of one row, the best of them is the row's.

    Stretches are equally long: the last one begins within the one before where they would not fit.
    """
    rows, n, columns = shape_of(op.x)
    count = op.stretches
    length: Size = n if count is None else op.stretch
    extreme = _Extreme(code, op)

    def set_places(row: Value, stretch: Index, column: Index, places: Value, width: int) -> None:
        at = (row, column) if count is None else (row, stretch, column)
        if width:
            y.set_row(*at, row=places.widened(i64))
        else:
            y[at] = places.widened(i64)

    @contextmanager
    def stretches(columns: Size, width: int) -> Generator[tuple[Value, Index, Index, Value]]:
        """A row, a stretch of it and where that begins, and a part of its columns."""
        of_row = columns if count is None else columns * count
        with code.grid(rows * of_row, length * width) as part:
            row, within = code.apart(part, of_row)
            stretch, tile = (0, within) if count is None else code.apart(within, columns)
            first = 0 if count is None else code.least(code.index(stretch) * op.stretch, int(n) - op.stretch)
            yield row, stretch, first, tile

    if columns == 1:
        with stretches(1, 1) as (row, stretch, first, _):
            set_places(row, stretch, 0, extreme.of_row(x, row, first, length), 0)
        return
    for begin, width, tiles in parts(columns, _LANES):
        with stretches(tiles, width) as (row, stretch, first, tile):
            column = tile * width + begin
            set_places(row, stretch, column, extreme.of_columns(x, row, column, first, length, width), width)


class _Extreme:
    """What is looked for: the largest or smallest value, the first or last of equal ones."""

    def __init__(self, code: Code, op: dl.ExtremePlaceOp) -> None:
        self.code = code
        self.smallest, self.last = flag(op.smallest), flag(op.last)
        low, high = scalar.limits(element_type_of(op.x))
        self.worst = high if self.smallest else low

    def of_columns(self, x: Buffer, row: Value, column: Value, first: Index, n: Size, width: int) -> Value:
        """The places for columns side by side."""
        best, begin = self._nothing(x, width, first), self.code.index(first)
        with self.code.loop(begin, begin + self.code.size(n), name="j") as j:
            best.take(x.row(row, j, column, width=width), j.as_integer(i32).spread((width,)))
        return best.place.value

    def of_row(self, x: Buffer, row: Value, first: Index, n: Size) -> Value:
        """The place in a stretch of a row, whose neighbours are lanes."""
        if not isinstance(n, int) or n < _PARTS * _PART:
            return self._of_stretch(x, row, first, n)
        return self._of_stretch(x, row, self._part_of_best(x, row, first, n), _PART)

    def _part_of_best(self, x: Buffer, row: Value, begin: Index, n: int) -> Value:
        """Where the part of a stretch begins that has its best value: places beside all values would take as long again."""
        code, choose = self.code, minimum if self.smallest else maximum
        worst = code.constant(self.worst, vector_type((_WIDE,), code.element), signed=x.signed)
        best = _Best(self, code.cell(worst.extreme(smallest=self.smallest)), code.cell(self._at(begin)))

        def consider(first: Index) -> None:
            lanes = code.cell(worst)
            with code.loop(0, _PART, _WIDE, name="k") as at:
                lanes.value = choose(lanes.value, x.block((row, at + first, 0), (_WIDE,), (1,)))
            extreme = lanes.value.extreme(smallest=self.smallest)
            best.take(extreme, self._at(first))

        with code.loop(0, n - n % _PART, _PART, name="j") as first:
            consider(first + begin)
        if n % _PART:
            # Elements that are considered twice change nothing.
            consider(begin + (n - _PART))
        return best.place.value.as_index()

    def _of_stretch(self, x: Buffer, row: Value, first: Index, n: Size) -> Value:
        """The place in a part of a row: lanes are a register or some, as long as there is enough for them."""
        code, end = self.code, self.code.size(n)
        width = self._lanes(n)
        whole = end - end % width
        lanes = self._nothing(x, width, first)
        with code.loop(0, whole, width, name="j") as at:
            lanes.take(x.block((row, at + first, 0), (width,), (1,)), code.numbered(at + first, width, i32))
        covered = isinstance(n, int) and n >= width
        if isinstance(n, int) and covered and n % width:
            # Elements that are considered twice change nothing.
            last = first + (n - width)
            lanes.take(x.block((row, last, 0), (width,), (1,)), code.numbered(last, width, i32))
        value, place = self._of_lanes(lanes)
        if covered:
            return place
        best = _Best(self, code.cell(value), code.cell(place))
        with code.loop(whole, end, name="j") as at:
            best.take_any(x[row, at + first, 0], (at + first).as_integer(i32))
        return best.place.value

    def _lanes(self, n: Size) -> int:
        """How many lanes a part of a row has: combining them in the end takes as long as some steps."""
        if not isinstance(n, int) or n < _MIDDLE_ROW:
            return 8
        if n >= _LONG_ROW:
            return 32
        return 16 if scalar.bits(self.code.element) <= 32 else 8

    def later(self, value: Value, best: Value) -> Value:
        """Whether a value is the one to keep of itself and the best before it."""
        if self.last:
            further = value <= best if self.smallest else value >= best
            return further | value.differs(value) if value.is_float else further
        if not value.is_float:
            return value < best if self.smallest else value > best
        # What fails holds for NaN: one that is the best stays.
        return value.fails("ge" if self.smallest else "le", best) & best.equals(best)

    def _nothing(self, x: Buffer, width: int, first: Index) -> _Best:
        """The worst value, which stands for those that are no better: the first place of all has one of them then."""
        worst = self.code.constant(self.worst, vector_type((width,), self.code.element), signed=x.signed)
        return _Best(self, self.code.cell(worst), self.code.cell(self._at(first).spread((width,))))

    def _at(self, place: Index) -> Value:
        """A place as places are kept."""
        return self.code.number(place, i32) if isinstance(place, int) else place.as_integer(i32)

    def _of_lanes(self, lanes: _Best) -> tuple[Value, Value]:
        """The best of the lanes, and where it is."""
        best, place = lanes.value.value, lanes.place.value
        extreme = best.extreme(smallest=self.smallest)
        holds = best.equals(extreme)
        if best.is_float:
            # NaN is equal to nothing.
            holds = holds | best.differs(best)
        beyond = -1 if self.last else (1 << 31) - 1
        return extreme, select(holds, place, beyond).extreme(smallest=not self.last)


@dataclass(frozen=True)
class _Best:
    """The best so far, and its place."""

    of: _Extreme
    value: Cell
    place: Cell

    def take(self, value: Value, place: Value) -> None:
        """Considers what stands behind all before."""
        self._keep(self.of.later(value, self.value.value), value, place)

    def take_any(self, value: Value, place: Value) -> None:
        """Considers what may stand before the best: then it is the one to keep unless the best is."""
        best = self.value.value
        behind, before = self.of.later(value, best), self.of.later(best, value) ^ 1
        self._keep(select(place > self.place.value, behind, before), value, place)

    def _keep(self, better: Value, value: Value, place: Value) -> None:
        self.value.value = select(better, value, self.value.value)
        self.place.value = select(better, place, self.place.value)
