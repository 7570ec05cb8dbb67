"""Rows of integers in ascending order: by a network of comparisons for many short rows, by their digits for long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DimsAttr, Tensor, element_type_of, flag, ints, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import Sequential, is_unsigned
from dlc.dialects.dl.movement.shaping import known_less
from dlc.dims import Size
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

# What the rows that a network sorts side by side have of each place, in bytes: a vector, or two of them, so that one comparison
# does not wait for another, if the nearest cache holds the rows.
_VECTOR_BYTES, _NEAREST_BYTES = 64, 1 << 15


def rows_side_by_side(n: int, element: Attribute) -> int:
    """How many rows of n elements a network sorts at once."""
    vectors = 2 if 2 * n * _VECTOR_BYTES <= _NEAREST_BYTES else 1
    return vectors * _VECTOR_BYTES * 8 // scalar.bits(element)


def _require(name: str, x: SSAValue, rank: int) -> tuple[Size, ...]:
    """The shape of what is sorted; raises where it is not of signed integers, and of this rank."""
    element = element_type_of(x)
    if not is_integer(element) or is_unsigned(element):
        raise DTypeError(f"{name}: x of {element}; expected signed integers")
    shape = shape_of(x)
    if rank_of(x) != rank:
        raise ShapeError(f"{name}: x of shape {shape}; expected {rank} sizes")
    return shape


@irdl_op_definition
class SortColumnsOp(Sequential):
    """`x` [a, n, c] in order along its middle axis: Batcher's merge exchange (Knuth, 5.2.2 M), several rows at once.

    Ascending, or descending; NaN counts as the largest, -0 as below 0: see Note [Sorting integers].
    (C1) `x` is of signed integers or floats of 32 or 64 bits, of three sizes; (C2) the middle one is not 0, and known in a
    kernel. n elements take n·log²(n)/4 comparisons, whatever they are.
    """

    name = "dl.sort_columns"
    x = operand_def(TensorType)
    descending = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @staticmethod
    def takes(element: Attribute) -> bool:
        """Whether elements of a type are sorted as they are."""
        return (is_integer(element) and not is_unsigned(element)) or element in (f32, f64)

    def infer(self) -> Sequence[Tensor]:
        element, shape = element_type_of(self.x), shape_of(self.x)
        if not self.takes(element):
            raise DTypeError(f"{self.name}: x of {element}; expected signed integers or floats of 32 or 64 bits")
        if rank_of(self.x) != 3 or shape[1] == 0:
            raise ShapeError(f"{self.name}: x of shape {shape}; expected three sizes, the second not 0 (C1, C2)")
        return [tensor_type(shape, element)]

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        keys = x
        if x.dtype.kind == "f":
            bits = x.view(f"i{x.itemsize}")
            keys = np.where(np.isnan(x), np.iinfo(bits.dtype).max, _turned(bits))
        keys = np.sort(keys, axis=1)
        keys = np.flip(keys, 1) if flag(self.descending) else keys
        return _turned(keys).view(x.dtype) if x.dtype.kind == "f" else keys


def _turned(bits: Array) -> Array:
    """Bits of floats as ordered integers, and back."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@dataclass(frozen=True)
class Digit:
    """Some bits of an integer; `flip` turns them into the number that is ordered by."""

    shift: int
    bits: int
    flip: int = 0

    def of(self, x: Array) -> Array:
        return ((x.astype(np.int64) >> self.shift) & ((1 << self.bits) - 1)) ^ self.flip


@irdl_op_definition
class SortDigitsOp(Sequential):
    """The rows of `x` [a, n] in ascending order of some bits, in which equal ones keep their order; and as they were before the
    last step of it.

    Digit k has the bits from `ends[k]` to `ends[k + 1]`; the lowest comes first, the bits of all are those that are ordered by.
    With `signed` the highest of them is the sign; if it is that of the elements, digits are those of the distance from the
    least element's bits from `ends[0]` on. All digits are counted at once: n steps, and n for each that elements differ in.
    (C1) `x` is of signed integers, of two sizes; (C2) `ends` ascend, by up to 16, within the bits of its elements.
    """

    name = "dl.sort_digits"
    x = operand_def(TensorType)
    ends = prop_def(DenseArrayBase)
    signed = opt_prop_def(BoolAttr)
    result = result_def(TensorType)
    before = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element, ends = element_type_of(self.x), ints(self.ends)
        shape = _require(self.name, self.x, 2)
        ascend = [0 < high - low <= 16 for low, high in pairwise(ends)]
        if not ascend or not all(ascend) or min(ends) < 0 or max(ends) > scalar.bits(element):
            raise ShapeError(f"dl.sort_digits: digits that end at bits {list(ends)} of {element} (C2)")
        return [tensor_type(shape, element)] * 2

    @property
    def digits(self) -> list[Digit]:
        *rest, last = (Digit(low, high - low) for low, high in pairwise(ints(self.ends)))
        return [*rest, replace(last, flip=1 << (last.bits - 1)) if flag(self.signed) else last]

    @property
    def by_distance(self) -> bool:
        """Whether digits are those of distances from the least element."""
        return flag(self.signed) and ints(self.ends)[-1] == scalar.bits(element_type_of(self.x))

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = (before,) = operands
        digits, least = self.digits, x.dtype.type(0)
        if self.by_distance and x.size:
            digits = [replace(digit, flip=0) for digit in digits]
            least = x.min(axis=1, keepdims=True) >> digits[0].shift << digits[0].shift
        for digit in digits:
            before, x = x, np.take_along_axis(x, np.argsort(digit.of(x - least), axis=1, kind="stable"), axis=1)
        return x, before


@irdl_op_definition
class SmallestOp(Sequential):
    """The `size` smallest elements of each row of `x` [a, n], ascending: [a, `size`]. A heap holds the smallest so far, the
    largest of them at its root: most elements are compared with that alone where few are wanted.

    (C1) `x` is of signed integers, of two sizes; (C2) `size` is at most n.
    """

    name = "dl.smallest"
    x = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (rows, n), (size,) = _require(self.name, self.x, 2), sizes(self.size)
        if known_less(size, 0) or known_less(n, size):
            raise ShapeError(f"{self.name}: the smallest {size} of {n} (C2)")
        return [tensor_type((rows, size), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.sort(operands[0], axis=1)[:, : int(sizes(self.size)[0])]


@irdl_op_definition
class OfRanksOp(Sequential):
    """The elements of each row of `x` [a, n] that stand at some places when it is in order: `y[a, k] = sorted(x[a])[ranks[k]]`.

    Elements are counted by the digits of their distance from the least, the highest digit first; of each digit behind it only
    those count that are near an element that is looked for.
    (C1) `x` is of signed integers, of two sizes; (C2) `ranks` are places of a row, whose size is known in a kernel.
    """

    name = "dl.of_ranks"
    x = operand_def(TensorType)
    ranks = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        (rows, n), ranks = _require(self.name, self.x, 2), ints(self.ranks)
        if any(rank < 0 or known_less(n, rank + 1) for rank in ranks):
            raise ShapeError(f"{self.name}: the elements at {list(ranks)} of {n} (C2)")
        return [tensor_type((rows, len(ranks)), element_type_of(self.x))]

    @property
    def digit_bits(self) -> int:
        """How many bits are counted by at once."""
        # Each value of a digit is looked at for each rank.
        return _LONG_DIGIT_BITS if int(shape_of(self.x)[1]) >= 4 * _LONG_ROW else _DIGIT_BITS

    def reference(self, *operands: Array) -> Array:
        return np.sort(operands[0], axis=1)[:, list(ints(self.ranks))]


# A digit has as many bits as pays: what counts it stays in the first-level cache, and is not longer than the rows. Of rows that
# no cache near by holds, each value of a digit has a line and a page of its own, and more of them than are kept cost more than
# another digit does.
_DIGIT_BITS, _LONG_DIGIT_BITS, _LONG_ROW, _FAR_ROW = 8, 11, 1 << 13, 1 << 19


def digit_ends(low: int, high: int, n: Size) -> list[int]:
    """Where the digits end of the bits from `low` to `high` for rows of n elements, as equal as they can be."""
    count = -(-(high - low) // (_LONG_DIGIT_BITS if isinstance(n, int) and _LONG_ROW <= n < _FAR_ROW else _DIGIT_BITS))
    return [low + (high - low) * k // count for k in range(count + 1)]


# What the longest columns have, whose lanes are a local buffer.
_LOCAL_BYTES = 1 << 16


def network_is_quicker(before: Size, n: int, behind: Size, element: Attribute, bits: int) -> bool:
    """Whether columns [before, n, behind] are sorted sooner by comparisons than by digits of so many bits, in cycles.

    Where it is not known how many there are, they go one by one.
    """
    before, behind = (size if isinstance(size, int) else 1 for size in (before, behind))
    if n * _VECTOR_BYTES > _LOCAL_BYTES:
        return False
    lanes = rows_side_by_side(n, element)
    tiles = -(-before // lanes) if behind == 1 else before * -(-behind // lanes)
    levels = (n - 1).bit_length()
    exchanges = n * levels * (levels + 1) // 4
    # Two numbers of 64 bits are compared first, where vectors of them have no least and largest.
    network = tiles * exchanges * (10 if scalar.bits(element) == 64 else 5)
    by_digits = before * behind * sum(6 * n + (4 << high - low) for low, high in pairwise(digit_ends(0, bits, n)))
    return network <= by_digits


# So few elements are looked for by themselves, in rows of so many.
_FEW_RANKS, _RANKED_ROW = 8, 512


def ranks_are_quicker(before: Size, n: Size, behind: Size, element: Attribute, ranks: int) -> bool:
    """Whether the elements of some ranks are found sooner than columns [before, n, behind] are sorted."""
    if not isinstance(n, int) or n < _RANKED_ROW or ranks > _FEW_RANKS:
        return False
    return not network_is_quicker(before, n, behind, element, scalar.bits(element))


# How many times as many elements as are wanted there are where selecting is quicker than sorting.
_MANY = 8


def selection_is_quicker(n: Size, size: Size) -> bool:
    """Whether so few of n elements are wanted that all others need no order; where data says how many, they are few."""
    return not isinstance(size, int) or _MANY * size <= (n if isinstance(n, int) else _LONG_ROW)
