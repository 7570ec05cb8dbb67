"""Elements of some ranks in rows of integers: counted by digits, the highest first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, ints, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import i32
from dlc.passes.procedures.code import Buffer, Cell, Code
from dlc.passes.procedures.values import Value, maximum, minimum, select
from dlc.passes.types import vector_type

# Equal digits one behind the other wait for one another's count, unless each has its own.
_COUNTS = 2


def of_ranks(code: Code, op: dl.OfRanksOp, x: Buffer, y: Buffer) -> None:
    """Each rank has the distance at which its digits so far begin, and how many elements to go from there."""
    (rows, n), bits = shape_of(op.x), scalar.bits(element_type_of(op.x))
    ranks = ints(op.ranks)
    if not ranks:
        return
    with code.grid(rows, 3 * int(n)) as row:
        search = _Search(code, x, row, int(n), op.digit_bits, ranks)
        search.by_first_digit()
        for _ in range(-(-bits // op.digit_bits) - 1):
            with code.when(search.shift.value.differs(0)):
                search.by_next_digit()
        for k, rank in enumerate(search.ranks):
            y[row, k] = search.least + rank.base.value


@dataclass(frozen=True)
class _Rank:
    """Where what is looked for begins, as a distance from the least element, and how many elements come before it there."""

    base: Cell
    left: Cell


class _Search:
    """Of a row; `shift` is how many bits the digits so far leave."""

    def __init__(self, code: Code, x: Buffer, row: Value, n: int, bits: int, ranks: tuple[int, ...]) -> None:
        self.code, self.x, self.row, self.n, self.bits = code, x, row, n, bits
        self.width = min(code.lanes, 1 << (n.bit_length() - 1))
        self.counts = code.scratch(max(_COUNTS, len(ranks)), 1 << bits, element=i32)
        self.least, spread = self._ends()
        # As many bits as leave the first digit all that the distances differ in.
        self.shift = code.cell(code.number(0))
        for k in range(bits, scalar.bits(code.element)):
            self.shift.value = select((spread >> k).equals(0), self.shift.value, code.number(k - bits + 1))
        self.ranks = [_Rank(code.cell(code.number(0)), code.cell(code.number(rank, i32))) for rank in ranks]

    def _ends(self) -> tuple[Value, Value]:
        """The least element, and how far the largest is from it."""
        code, t = self.code, vector_type((self.width,), self.code.element)
        limits = np.iinfo(numpy_dtype(code.element))
        low, high = code.cell(code.number(limits.max, t)), code.cell(code.number(limits.min, t))

        def consider(at: Value) -> None:
            elements = self.x.row(self.row, at, width=self.width)
            low.value, high.value = minimum(low.value, elements), maximum(high.value, elements)

        with code.loop(0, self.n, self.width) as counted:
            # Elements that are considered twice change nothing.
            consider(code.least(counted, self.n - self.width))
        least = low.value.combined("minsi")
        return least, (high.value.combined("maxsi") - least).unsigned

    def by_first_digit(self) -> None:
        """All elements are counted, and all ranks look there."""
        self._clear(_COUNTS)
        shift, whole = self.shift.value, self.n - self.n % _COUNTS
        with self.code.loop(0, whole, _COUNTS) as i:
            for k in range(_COUNTS):
                self._count(k, self._distance(self.x[self.row, i + k]) >> shift)
        for i in range(whole, self.n):
            self._count(0, self._distance(self.x[self.row, i]) >> shift)
        self._look([[*range(_COUNTS)]] * len(self.ranks))

    def by_next_digit(self) -> None:
        """Only what begins like a rank is counted for it, which is little as a rule: a vector is seen to have nothing of it."""
        code, before = self.code, self.shift.value
        self._clear(len(self.ranks))
        self.shift.value = select(before > self.bits, before - self.bits, 0)
        shift = self.shift.value
        bases = [rank.base.value for rank in self.ranks]
        whole = self.n - self.n % self.width

        def count(i: Value) -> None:
            distance = self._distance(self.x[self.row, i])
            for k, base in enumerate(bases):
                behind = (distance - base).unsigned
                with code.when((behind >> before).equals(0)):
                    self._count(k, behind >> shift)

        with code.loop(0, whole, self.width) as first:
            distances = self._distance(self.x.row(self.row, first, width=self.width))
            near = None
            for base in bases:
                found = ((distances - base).unsigned >> before).equals(0)
                near = found if near is None else near | found
            assert near is not None
            with code.when(near.combined("or")), code.loop(first, first + self.width) as i:
                count(i)
        with code.loop(whole, self.n) as i:
            count(i)
        self._look([[k] for k in range(len(self.ranks))])

    def _distance(self, element: Value) -> Value:
        return (element - self.least).unsigned

    def _count(self, k: int, digit: Value) -> None:
        place = digit.as_index()
        self.counts[k, place] = self.counts[k, place] + 1

    def _clear(self, count: int) -> None:
        with self.code.loop(0, 1 << self.bits, name="d") as d:
            for k in range(count):
                self.counts[k, d] = self.code.number(0, i32)

    def _look(self, counts: list[list[int]]) -> None:
        """Goes on to the digit that each rank has, by these counts."""
        code, looks = self.code, [_Look.begun(self.code, rank) for rank in self.ranks]
        with code.loop(0, 1 << self.bits, name="d") as d:
            for look, own in zip(looks, counts, strict=True):
                count = self.counts[own[0], d]
                for k in own[1:]:
                    count = count + self.counts[k, d]
                look.consider(d, count)
        for look, rank in zip(looks, self.ranks, strict=True):
            rank.left.value = look.left - look.found.value
            rank.base.value = rank.base.value + (look.digit.value.as_integer(code.element) << self.shift.value)


@dataclass(frozen=True)
class _Look:
    """For the digit of a rank: that so far, how many elements come before it, and before the next one; `left` are to go."""

    left: Value
    digit: Cell
    found: Cell
    before: Cell

    @staticmethod
    def begun(code: Code, rank: _Rank) -> _Look:
        found, before = (code.cell(code.number(0, i32)) for _ in range(2))
        return _Look(rank.left.value, code.cell(code.index(0)), found, before)

    def consider(self, digit: Value, count: Value) -> None:
        """The last digit that elements have before which there are no more than are left has it."""
        here = (self.before.value <= self.left) & count.differs(0)
        self.digit.value = select(here, digit, self.digit.value)
        self.found.value = select(here, self.before.value, self.found.value)
        self.before.value = self.before.value + count
