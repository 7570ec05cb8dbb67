"""Select elements by rank from rows of integers, with a radix search from the most significant digit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, ints, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import i32
from dlc.passes.library_kernels.builder import Buffer, Cell, KernelBuilder
from dlc.passes.library_kernels.values import KernelValue, maximum, minimum, select
from dlc.passes.types import vector_type

# Histograms that consecutive elements alternate between, so that equal digits need not wait for the previous store.
_NUM_HISTOGRAMS = 2


def select_ranks(builder: KernelBuilder, op: dl.OrderStatisticsOp, x: Buffer, y: Buffer) -> None:
    """Select elements by rank: determine their digits from the most significant one, by histograms."""
    (rows, n), key_bits = shape_of(op.x), scalar.bits(element_type_of(op.x))
    ranks = ints(op.ranks)
    if not ranks:
        return
    with builder.grid(rows, 3 * int(n)) as row:
        search = _RankSearch(builder, x, row, int(n), op.digit_bits, ranks)
        search.search_first_digit()
        for _ in range(-(-key_bits // op.digit_bits) - 1):
            with builder.when(search.shift.value.differs(0)):
                search.search_next_digit()
        for k, rank in enumerate(search.ranks):
            y[row, k] = search.minimum + rank.prefix.value


@dataclass(frozen=True)
class _Rank:
    """The search state of a rank.

    Attributes:
        prefix: The digits found so far of the element with this rank, less the minimum.
        remaining_rank: The rank of the element among those that begin with these digits.
    """

    prefix: Cell
    remaining_rank: Cell


class _RankSearch:
    """The search in one row; `shift` is the number of low bits still to find."""

    def __init__(
        self, builder: KernelBuilder, x: Buffer, row: KernelValue, n: int, digit_bits: int, ranks: tuple[int, ...]
    ) -> None:
        self.builder, self.x, self.row, self.n, self.digit_bits = builder, x, row, n, digit_bits
        self.vector_width = min(builder.lanes, 1 << (n.bit_length() - 1))
        self.histograms = builder.scratch(max(_NUM_HISTOGRAMS, len(ranks)), 1 << digit_bits, element=i32)
        self.minimum, max_distance = self._minimum_and_range()
        # The first digit starts at the most significant bit in which distances differ.
        self.shift = builder.cell(builder.number(0))
        for k in range(digit_bits, scalar.bits(builder.element)):
            self.shift.value = select((max_distance >> k).equals(0), self.shift.value, builder.number(k - digit_bits + 1))
        self.ranks = [_Rank(builder.cell(builder.number(0)), builder.cell(builder.number(rank, i32))) for rank in ranks]

    def _minimum_and_range(self) -> tuple[KernelValue, KernelValue]:
        """Return the minimum and its distance to the maximum."""
        builder, t = self.builder, vector_type((self.vector_width,), self.builder.element)
        limits = np.iinfo(numpy_dtype(builder.element))
        low, high = builder.cell(builder.number(limits.max, t)), builder.cell(builder.number(limits.min, t))

        def update_limits(start: KernelValue) -> None:
            elements = self.x.row(self.row, start, width=self.vector_width)
            low.value, high.value = minimum(low.value, elements), maximum(high.value, elements)

        with builder.loop(0, self.n, self.vector_width) as step:
            # The last vector overlaps the previous one, which does not change the result.
            update_limits(builder.minimum_index(step, self.n - self.vector_width))
        lowest = low.value.reduce_lanes("minsi")
        return lowest, (high.value.reduce_lanes("maxsi") - lowest).unsigned

    def search_first_digit(self) -> None:
        """Count all elements, for all ranks, by their first digit."""
        self._clear(_NUM_HISTOGRAMS)
        shift, vectorized_end = self.shift.value, self.n - self.n % _NUM_HISTOGRAMS
        with self.builder.loop(0, vectorized_end, _NUM_HISTOGRAMS) as i:
            for k in range(_NUM_HISTOGRAMS):
                self._count(k, self._distance(self.x[self.row, i + k]) >> shift)
        for i in range(vectorized_end, self.n):
            self._count(0, self._distance(self.x[self.row, i]) >> shift)
        self._append_digits([[*range(_NUM_HISTOGRAMS)]] * len(self.ranks))

    def search_next_digit(self) -> None:
        """Count, for each rank, the next digits of the elements that begin with the digits found so far.

        Such elements are rare, so each vector is first tested for any of them.
        """
        builder, previous_shift = self.builder, self.shift.value
        self._clear(len(self.ranks))
        self.shift.value = select(previous_shift > self.digit_bits, previous_shift - self.digit_bits, 0)
        shift = self.shift.value
        prefixes = [rank.prefix.value for rank in self.ranks]
        vectorized_end = self.n - self.n % self.vector_width

        def count(i: KernelValue) -> None:
            distance = self._distance(self.x[self.row, i])
            for k, prefix in enumerate(prefixes):
                offset = (distance - prefix).unsigned
                with builder.when((offset >> previous_shift).equals(0)):
                    self._count(k, offset >> shift)

        with builder.loop(0, vectorized_end, self.vector_width) as first:
            distances = self._distance(self.x.row(self.row, first, width=self.vector_width))
            has_candidate = None
            for prefix in prefixes:
                matches = ((distances - prefix).unsigned >> previous_shift).equals(0)
                has_candidate = matches if has_candidate is None else has_candidate | matches
            assert has_candidate is not None
            with builder.when(has_candidate.reduce_lanes("or")), builder.loop(first, first + self.vector_width) as i:
                count(i)
        with builder.loop(vectorized_end, self.n) as i:
            count(i)
        self._append_digits([[k] for k in range(len(self.ranks))])

    def _distance(self, element: KernelValue) -> KernelValue:
        return (element - self.minimum).unsigned

    def _count(self, k: int, digit: KernelValue) -> None:
        position = digit.as_index()
        self.histograms[k, position] = self.histograms[k, position] + 1

    def _clear(self, count: int) -> None:
        with self.builder.loop(0, 1 << self.digit_bits, name="d") as d:
            for k in range(count):
                self.histograms[k, d] = self.builder.number(0, i32)

    def _append_digits(self, histograms: list[list[int]]) -> None:
        """Append the next digit to each rank, found in the sum of its histograms, which are given by index."""
        builder, searches = self.builder, [_DigitSearch.start(self.builder, rank) for rank in self.ranks]
        with builder.loop(0, 1 << self.digit_bits, name="d") as d:
            for digit_search, indices in zip(searches, histograms, strict=True):
                count = self.histograms[indices[0], d]
                for k in indices[1:]:
                    count = count + self.histograms[k, d]
                digit_search.update(d, count)
        for digit_search, rank in zip(searches, self.ranks, strict=True):
            rank.remaining_rank.value = digit_search.remaining_rank - digit_search.num_before_digit.value
            rank.prefix.value = rank.prefix.value + (digit_search.digit.value.as_integer(builder.element) << self.shift.value)


@dataclass(frozen=True)
class _DigitSearch:
    """The search for the next digit of a rank, in ascending order of digits.

    `digit` is the best digit so far, and `num_before_digit` the number of elements with smaller digits; `num_before` is that
    number for the current digit. `remaining_rank` is the number of elements to skip.
    """

    remaining_rank: KernelValue
    digit: Cell
    num_before_digit: Cell
    num_before: Cell

    @staticmethod
    def start(builder: KernelBuilder, rank: _Rank) -> _DigitSearch:
        num_before_digit, num_before = (builder.cell(builder.number(0, i32)) for _ in range(2))
        return _DigitSearch(rank.remaining_rank.value, builder.cell(builder.index(0)), num_before_digit, num_before)

    def update(self, digit: KernelValue, count: KernelValue) -> None:
        """Update the best digit: the last one that has elements, and at most `remaining_rank` elements before it."""
        is_candidate = (self.num_before.value <= self.remaining_rank) & count.differs(0)
        self.digit.value = select(is_candidate, digit, self.digit.value)
        self.num_before_digit.value = select(is_candidate, self.num_before.value, self.num_before_digit.value)
        self.num_before.value = self.num_before.value + count
