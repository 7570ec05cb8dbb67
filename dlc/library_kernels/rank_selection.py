"""Select elements by rank from rows of integers, with a radix search from the most significant digit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.base import ints
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.vectors import lanes_of, points_per_task, position_dtype

# Histograms that consecutive elements alternate between, so that equal digits need not wait for the previous store.
_NUM_HISTOGRAMS = 2


def select_ranks(op: dl.OrderStatisticsOp, x: ArrayReference, y: ArrayReference) -> None:
    """Select elements by rank: determine their digits from the most significant one, by histograms."""
    (rows, n), ranks = x.shape, ints(op.ranks)
    if not ranks:
        return
    for row in k.grid(rows, parallel=points_per_task(3 * n)):
        search = _RankSearch(x[row], op.digit_bits, ranks)
        search.search_first_digit()
        for _ in range(-(-8 * x.dtype.itemsize // op.digit_bits) - 1):
            with k.when(search.shift.value != 0):
                search.search_next_digit()
        for r, rank in enumerate(search.ranks):
            y[row, r] = search.minimum + rank.prefix.value


@dataclass(frozen=True)
class _Rank:
    """The search state of a rank.

    Attributes:
        prefix: The digits found so far of the element with this rank, less the minimum.
        remaining_rank: The rank of the element among those that begin with these digits.
    """

    prefix: Variable
    remaining_rank: Variable


class _RankSearch:
    """The search in the row x; `shift` is the number of low bits still to find."""

    def __init__(self, x: ArrayReference, digit_bits: int, ranks: tuple[int, ...]) -> None:
        self.x, self.n, self.digit_bits = x, int(x.shape[0]), digit_bits
        self.unsigned = np.dtype(f"u{x.dtype.itemsize}")
        self.width = min(lanes_of(x.dtype), 1 << (self.n.bit_length() - 1))
        self.histograms = k.buffer((max(_NUM_HISTOGRAMS, len(ranks)), 1 << digit_bits), position_dtype(self.n), fill=None)
        self.minimum, max_distance = self._minimum_and_range()
        # The first digit starts at the most significant bit in which distances differ.
        bits = 8 * x.dtype.itemsize
        self.shift = k.variable(0, size=bits)
        for bit in range(digit_bits, bits):
            self.shift.value = k.select((max_distance >> bit) == 0, self.shift.value, bit - digit_bits + 1)
        self.ranks = [_Rank(k.variable(0, x.dtype), k.variable(rank, position_dtype(self.n))) for rank in ranks]

    def _minimum_and_range(self) -> tuple[Value, Value]:
        """Return the minimum and its distance to the maximum."""
        limits = np.iinfo(self.x.dtype)
        low, high = (k.variable(k.full(self.width, limit, self.x.dtype)) for limit in (limits.max, limits.min))
        for step in k.range(0, self.n, self.width):
            # The last vector overlaps the previous one, which does not change the result.
            elements = self.x.load(k.minimum(step, self.n - self.width), width=self.width)
            low.value, high.value = k.minimum(low.value, elements), k.maximum(high.value, elements)
        lowest = low.value.min()
        return lowest, (high.value.max() - lowest).view(self.unsigned)

    def search_first_digit(self) -> None:
        """Count all elements, for all ranks, by their first digit."""
        self._clear(_NUM_HISTOGRAMS)
        shift, whole = self.shift.value, self.n - self.n % _NUM_HISTOGRAMS
        for i in k.range(0, whole, _NUM_HISTOGRAMS):
            for h in range(_NUM_HISTOGRAMS):
                self._count(h, self._distance(self.x[i + h]) >> shift)
        for i in range(whole, self.n):
            self._count(0, self._distance(self.x[i]) >> shift)
        self._append_digits([[*range(_NUM_HISTOGRAMS)]] * len(self.ranks))

    def search_next_digit(self) -> None:
        """Count, for each rank, the next digits of the elements that begin with the digits found so far.

        Such elements are rare, so each vector is first tested for any of them.
        """
        previous_shift = self.shift.value
        self._clear(len(self.ranks))
        self.shift.value = k.maximum(previous_shift - self.digit_bits, 0)
        shift = self.shift.value
        prefixes = [rank.prefix.value for rank in self.ranks]

        def count(i: Value) -> None:
            distance = self._distance(self.x[i])
            for h, prefix in enumerate(prefixes):
                offset = distance - prefix.view(self.unsigned)
                with k.when((offset >> previous_shift) == 0):
                    self._count(h, offset >> shift)

        whole = self.n - self.n % self.width
        for first in k.range(0, whole, self.width):
            distances = self._distance(self.x.load(first, width=self.width))
            has_candidate = k.full(self.width, False, np.bool_)
            for prefix in prefixes:
                has_candidate |= ((distances - prefix.view(self.unsigned)) >> previous_shift) == 0
            with k.when(has_candidate.any()):
                for i in k.range(first, first + self.width):
                    count(i)
        for i in k.range(whole, self.n):
            count(i)
        self._append_digits([[h] for h in range(len(self.ranks))])

    def _distance(self, elements: Value) -> Value:
        return (elements - self.minimum).view(self.unsigned)

    def _count(self, histogram: int, digit: Value) -> None:
        self.histograms[histogram, k.assume_index(digit, 1 << self.digit_bits)] += 1

    def _clear(self, count: int) -> None:
        for digit in k.range(1 << self.digit_bits):
            for histogram in range(count):
                self.histograms[histogram, digit] = 0

    def _append_digits(self, histograms: list[list[int]]) -> None:
        """Append the next digit to each rank, found in the sum of its histograms, which are given by index."""
        searches = [_DigitSearch.start(rank, 1 << self.digit_bits) for rank in self.ranks]
        for digit in k.range(1 << self.digit_bits):
            for search, indices in zip(searches, histograms, strict=True):
                count = self.histograms[indices[0], digit]
                for histogram in indices[1:]:
                    count = count + self.histograms[histogram, digit]
                search.update(digit, count)
        for search, rank in zip(searches, self.ranks, strict=True):
            rank.remaining_rank.value = search.remaining_rank - search.num_before_digit.value
            rank.prefix.value += search.digit.value.astype(self.x.dtype) << self.shift.value


@dataclass(frozen=True)
class _DigitSearch:
    """The search for the next digit of a rank, in ascending order of digits.

    `digit` is the best digit so far, and `num_before_digit` the number of elements with smaller digits; `num_before` is that
    number for the current digit. `remaining_rank` is the number of elements to skip.
    """

    remaining_rank: Value
    digit: Variable
    num_before_digit: Variable
    num_before: Variable

    @staticmethod
    def start(rank: _Rank, num_digits: int) -> _DigitSearch:
        remaining_rank = rank.remaining_rank.value
        num_before_digit, num_before = (k.variable(0, remaining_rank.dtype) for _ in range(2))
        return _DigitSearch(remaining_rank, k.variable(0, size=num_digits), num_before_digit, num_before)

    def update(self, digit: Value, count: Value) -> None:
        """Update the best digit: the last one that has elements, and at most `remaining_rank` elements before it."""
        is_candidate = (self.num_before.value <= self.remaining_rank) & (count != 0)
        self.digit.value = k.select(is_candidate, digit, self.digit.value)
        self.num_before_digit.value = k.select(is_candidate, self.num_before.value, self.num_before_digit.value)
        self.num_before.value += count
