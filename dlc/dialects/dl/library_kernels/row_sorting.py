"""Sorting kernels for rows of integers: sorting networks for many short rows, radix sort for long ones, and selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, ints, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import RowwiseKernel, is_unsigned
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    DenseArrayBase,
    SSAValue,
    TensorType,
    f32,
    f64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_less

# A network sorts several rows at once, one per SIMD lane. It sorts one vector of rows, or two if the L1 cache holds them: their
# independent comparisons overlap.
_VECTOR_BYTES, _L1_BYTES = 64, 1 << 15
# Maximum size of the local buffer in which a network sorts its columns, and of these columns.
_MAX_LOCAL_BYTES = 1 << 16
MAX_NETWORK_ELEMENTS = _MAX_LOCAL_BYTES // _VECTOR_BYTES


def rows_per_network(n: int, element: Attribute) -> int:
    """Return the number of rows of n elements that a sorting network sorts at once."""
    vectors = 2 if 2 * n * _VECTOR_BYTES <= _L1_BYTES else 1
    return vectors * _VECTOR_BYTES * 8 // scalar.bits(element)


def _require_signed_rows(name: str, x: SSAValue, rank: int) -> tuple[Size, ...]:
    """Return the shape of an operand of signed integers of this rank; raise DTypeError or ShapeError for any other."""
    element = element_type_of(x)
    if not is_integer(element) or is_unsigned(element):
        raise DTypeError(f"{name}: x of {element}; expected signed integers")
    shape = shape_of(x)
    if rank_of(x) != rank:
        raise ShapeError(f"{name}: x of shape {shape}; expected rank {rank}")
    return shape


class _NetworkSort(RowwiseKernel):
    """A sort along axis 1 with a network of comparisons."""

    x = operand_def(TensorType)
    descending = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def reference(self, *operands: Array) -> Array:
        keys = np.sort(to_ordered_keys(operands[0]), axis=1)
        return from_ordered_keys(np.flip(keys, 1) if flag(self.descending) else keys, operands[0].dtype)


@irdl_op_definition
class NetworkSortOp(_NetworkSort):
    """Sorts `x` [a, n, c] along its middle axis with a sorting network, Batcher's merge exchange (Knuth, 5.2.2 M).

    Ascending, or descending; NaN counts as the largest, -0 as below 0: see Note [Sorting integers]. The network sorts several
    columns at once and takes n·log²(n)/4 comparisons, regardless of the data.
    (C1) `x` has rank 3 and a signed integer type, or a float type of 32 or 64 bits; (C2) n is not 0, and static in a kernel.
    """

    name = "dl.network_sort"

    @staticmethod
    def supports(element: Attribute) -> bool:
        """Return whether the op sorts elements of a type directly, without conversion to keys."""
        return (is_integer(element) and not is_unsigned(element)) or element in (f32, f64)

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        if not self.supports(element):
            raise DTypeError(f"{self.name}: x of {element}; expected signed integers or floats of 32 or 64 bits")
        if rank_of(self.x) != 3 or is_known_less(shape[1], 1):
            raise ShapeError(f"{self.name}: x of shape {shape}; expected rank 3 and a middle size other than 0 (C1, C2)")
        return [tensor_type(shape, element)]


def has_permutable_keys(element: Attribute) -> bool:
    """Return whether kernels permute vectors of the sort keys of a type: signed integers or floats of 32 or 64 bits."""
    return NetworkSortOp.supports(element) and scalar.bits(element) >= 32


def to_ordered_keys(x: Array) -> Array:
    """Return integers in the order of the elements: see Note [Sorting integers]."""
    if x.dtype.kind != "f":
        return x
    bits = x.view(f"i{x.itemsize}")
    return np.where(np.isnan(x), np.iinfo(bits.dtype).max, _ordered_bits(bits))


def from_ordered_keys(keys: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements that have these keys."""
    return _ordered_bits(keys).view(dtype) if dtype.kind == "f" else keys


def _ordered_bits(bits: Array) -> Array:
    """Convert the bits of floats to integers in the order of the floats, or back: the function is its own inverse."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@irdl_op_definition
class BitonicSortOp(_NetworkSort):
    """Sorts each row of `x` [a, n] with a bitonic network across the lanes of vectors, for few short rows.

    Ascending, or descending; NaN counts as the largest, -0 as below 0: see Note [Sorting integers].
    (C1) `x` has rank 2 and a signed integer or float type of 32 or 64 bits; (C2) n is 1 to 1024, and static in a kernel.
    """

    name = "dl.bitonic_sort"

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        if not has_permutable_keys(element):
            raise DTypeError(f"{self.name}: x of {element}; expected signed integers or floats of 32 or 64 bits (C1)")
        if rank_of(self.x) != 2 or is_known_less(shape[1], 1) or is_known_less(MAX_NETWORK_ELEMENTS, shape[1]):
            raise ShapeError(
                f"{self.name}: x of shape {shape}; expected rank 2 and 1 to {MAX_NETWORK_ELEMENTS} columns (C1, C2)"
            )
        return [tensor_type(shape, element)]


@dataclass(frozen=True)
class RadixDigit:
    """A range of bits of an integer; `flip` is XORed to make the digit of a signed integer ordered."""

    shift: int
    bits: int
    flip: int = 0

    def extract(self, x: Array) -> Array:
        return ((x.astype(np.int64) >> self.shift) & ((1 << self.bits) - 1)) ^ self.flip


@irdl_op_definition
class RadixSortOp(RowwiseKernel):
    """Stable radix sort of the rows of `x` [a, n] by a range of bits; results: sorted rows, and rows before the last pass.

    Digit k consists of the bits from `ends[k]` to `ends[k + 1]`; the lowest digit is sorted first. With `signed` the highest
    bit is a sign. If it is also the sign of the elements, digits are those of the distance from the smallest element, from bit
    `ends[0]` on. One pass counts all digits, and one more pass per digit in which elements differ permutes them. Long rows of
    values in a small range are sorted by counting the values instead.
    With `permits_network`, short rows may be sorted by a network.
    (C1) `x` has a signed integer type and rank 2; (C2) `ends` ascend, by at most 16, within the width of the elements; (C3)
    with `permits_network`, elements of equal digits are in ascending order.
    """

    name = "dl.radix_sort"
    x = operand_def(TensorType)
    ends = prop_def(DenseArrayBase)
    signed = opt_prop_def(BoolAttr)
    permits_network = opt_prop_def(BoolAttr)
    result = result_def(TensorType)
    previous_rows = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element, ends = element_type_of(self.x), ints(self.ends)
        shape = _require_signed_rows(self.name, self.x, 2)
        is_ascending = [0 < high - low <= 16 for low, high in pairwise(ends)]
        if not is_ascending or not all(is_ascending) or min(ends) < 0 or max(ends) > scalar.bits(element):
            raise ShapeError(f"dl.radix_sort: ends {list(ends)} for {element}; expected ascending bits, at most 16 apart (C2)")
        return [tensor_type(shape, element)] * 2

    @property
    def digits(self) -> list[RadixDigit]:
        *other_digits, last = (RadixDigit(low, high - low) for low, high in pairwise(ints(self.ends)))
        return [*other_digits, replace(last, flip=1 << (last.bits - 1)) if flag(self.signed) else last]

    @property
    def sorts_by_distance(self) -> bool:
        """Return whether digits are those of the distance from the smallest element."""
        return flag(self.signed) and ints(self.ends)[-1] == scalar.bits(element_type_of(self.x))

    @property
    def network_elements_per_row(self) -> int:
        """The largest n for which a network sorts one row of n elements faster."""
        element, ends = element_type_of(self.x), ints(self.ends)
        sizes_of_rows = range(2, MAX_NETWORK_ELEMENTS)
        return max((n for n in sizes_of_rows if is_network_sort_faster(1, n, 1, element, ends[-1] - ends[0])), default=1)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = (previous_order,) = operands
        digits, minimum = self.digits, x.dtype.type(0)
        if self.sorts_by_distance and x.size:
            digits = [replace(digit, flip=0) for digit in digits]
            minimum = x.min(axis=1, keepdims=True) >> digits[0].shift << digits[0].shift
        for digit in digits:
            previous_order, x = x, np.take_along_axis(x, np.argsort(digit.extract(x - minimum), axis=1, kind="stable"), axis=1)
        return x, previous_order


@irdl_op_definition
class SmallestKOp(RowwiseKernel):
    """The `size` smallest elements of each row of `x` [a, n], ascending: [a, `size`].

    A max-heap holds the smallest elements so far, so that most elements are compared with its root only if `size` is small.
    (C1) `x` has a signed integer type and rank 2; (C2) `size` is at most n.
    """

    name = "dl.smallest_k"
    x = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (rows, n), (size,) = _require_signed_rows(self.name, self.x, 2), sizes(self.size)
        if is_known_less(size, 0) or is_known_less(n, size):
            raise ShapeError(f"{self.name}: size {size} for rows of {n} elements; expected at most {n} (C2)")
        return [tensor_type((rows, size), element_type_of(self.x))]

    @property
    def size_constraints(self) -> Sequence[Size]:
        """See LibraryKernel."""
        return [shape_of(self.x)[1] - sizes(self.size)[0]]

    def reference(self, *operands: Array) -> Array:
        return np.sort(operands[0], axis=1)[:, : int(sizes(self.size)[0])]


# The counts of a digit stay in the L1 cache and are no longer than a row: 8 bits, or 11 for rows from 2^13 elements. Rows from
# 2^19 elements exceed the caches: each digit value then writes to a separate cache line and page, and the misses of 11-bit
# digits cost more than another pass.
_DIGIT_BITS, _LONG_DIGIT_BITS, _LONG_ROW_ELEMENTS, _UNCACHED_ROW_ELEMENTS = 8, 11, 1 << 13, 1 << 19


def digit_ends(low: int, high: int, n: Size) -> list[int]:
    """Divide the bits from `low` to `high` into digits of nearly equal width for rows of n elements; return their ends."""
    is_long = isinstance(n, int) and _LONG_ROW_ELEMENTS <= n < _UNCACHED_ROW_ELEMENTS
    count = -(-(high - low) // (_LONG_DIGIT_BITS if is_long else _DIGIT_BITS))
    return [low + (high - low) * k // count for k in range(count + 1)]


def _network_cycles(outer_size: Size, n: int, inner_size: Size, element: Attribute) -> int:
    """Estimate the cycles of a network that sorts columns [outer, n, inner]; symbolic sizes count as 1."""
    outer_size, inner_size = (size if isinstance(size, int) else 1 for size in (outer_size, inner_size))
    lanes = rows_per_network(n, element)
    tiles = -(-outer_size // lanes) if inner_size == 1 else outer_size * -(-inner_size // lanes)
    levels = (n - 1).bit_length()
    exchanges = n * levels * (levels + 1) // 4
    # 64-bit exchanges are a compare and two selects, since vectors lack 64-bit minimum and maximum.
    return tiles * exchanges * (10 if scalar.bits(element) == 64 else 5)


def _radix_cycles(columns: int, n: int, bits: int) -> int:
    """Estimate the cycles of radix sorts of columns by `bits` bits."""
    return columns * sum(6 * n + (4 << high - low) for low, high in pairwise(digit_ends(0, bits, n)))


# Shorter rows have fewer elements than two vectors.
_MIN_BITONIC_ELEMENTS = 65


def is_bitonic_sort_faster(outer_size: Size, n: Size, element: Attribute, bits: int) -> bool:
    """Return whether a bitonic network within each row is faster than sorting rows [outer, n] in any other way."""
    if not isinstance(n, int) or not isinstance(outer_size, int) or not _MIN_BITONIC_ELEMENTS <= n <= MAX_NETWORK_ELEMENTS:
        return False
    if not has_permutable_keys(element):
        return False
    levels = (n - 1).bit_length()
    vectors = (1 << levels) * scalar.bits(element) // (8 * _VECTOR_BYTES)
    cycles = outer_size * vectors * levels * (levels + 1) // 4 * (14 if scalar.bits(element) == 64 else 6)
    return cycles < min(_network_cycles(outer_size, n, 1, element), _radix_cycles(outer_size, n, bits))


def is_network_sort_faster(outer_size: Size, n: Size, inner_size: Size, element: Attribute, bits: int) -> bool:
    """Return whether a network sorts columns [outer, n, inner] faster than a radix sort by `bits` bits, by estimated cycles.

    Other symbolic sizes than n count as 1, so that columns are estimated to be sorted sequentially.
    """
    if not isinstance(n, int) or n > MAX_NETWORK_ELEMENTS:
        return False
    columns = prod(size if isinstance(size, int) else 1 for size in (outer_size, inner_size))
    return _network_cycles(outer_size, n, inner_size, element) <= _radix_cycles(columns, n, bits)


# Minimum elements of a row that is partitioned, maximum ranks, and minimum bits of an element per rank in rows that networks
# sort: a network sorts half as many elements of twice the bits at once, and each rank takes a partition.
_MIN_PARTITIONED_ROW_ELEMENTS, _MAX_RANKS, _MIN_BITS_PER_RANK = 512, 8, 16


def is_partition_faster(n: Size, inner_size: Size, element: Attribute, num_ranks: int = 1) -> bool:
    """Return whether partitioning rows of n elements at some ranks is faster than sorting columns [outer, n, inner]."""
    if not isinstance(n, int) or n < _MIN_PARTITIONED_ROW_ELEMENTS:
        return False
    if n > MAX_NETWORK_ELEMENTS:
        return num_ranks <= _MAX_RANKS
    # Short columns are sorted in place, but transposed to be partitioned.
    return inner_size == 1 and num_ranks * _MIN_BITS_PER_RANK <= scalar.bits(element)


# The minimum ratio of elements to selected elements for which partial sorting is faster than sorting.
_MIN_PARTIAL_SORT_RATIO = 8


def is_partial_sort_faster(n: Size, size: Size) -> bool:
    """Return whether selecting the smallest `size` of n elements is faster than sorting all; assumed for a symbolic size."""
    return not isinstance(size, int) or _MIN_PARTIAL_SORT_RATIO * size <= (n if isinstance(n, int) else _LONG_ROW_ELEMENTS)
