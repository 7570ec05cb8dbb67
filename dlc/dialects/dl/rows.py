"""Rows of integers in ascending order: by a network of comparisons for many short rows, by their digits for long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import Sequential, is_unsigned, storage_type
from dlc.dialects.dl.loops import Index, Loops, tiles
from dlc.dims import Size
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    arith,
    i32,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

# How many rows a network sorts side by side, and the side of the squares in which they are turned for that.
_LANES, _SQUARE = 16, 8


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
    """`x` [a, n, c] in ascending order along its middle axis: Batcher's merge exchange (Knuth, 5.2.2 M), several rows at once.

    (C1) `x` is of signed integers, of three sizes; (C2) the middle one is not 0, and known in a kernel. n elements take
    n·log²(n)/4 comparisons, whatever they are.
    """

    name = "dl.sort_columns"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape = _require(self.name, self.x, 3)
        if shape[1] == 0:
            raise ShapeError(f"dl.sort_columns: x of shape {shape} has no element in a column (C2)")
        return [tensor_type(shape, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        return np.sort(operands[0], axis=1)

    def loops(self, b: Loops, operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> None:
        (x,), (y,) = operands, results
        rows, n, columns = shape_of(self.x)
        n = int(n)
        # Columns lie side by side already; rows are turned.
        turned = columns == 1
        lanes = rows if turned else columns
        for first, width, count in tiles(lanes, _LANES):
            with b.grid(1 if turned else rows, count) as (row, tile):
                start = b.plus(b.times(tile, width), first)
                local = b.local(storage_type(element_type_of(self.x)), n, width)
                whole = (start, 0, 0) if turned else (row, 0, start)
                _moved(b, x, local, whole, n, width, turned, into=True)
                if n > 1:
                    _exchange(b, local, n, width)
                _moved(b, y, local, whole, n, width, turned, into=False)


def _moved(
    b: Loops, buffer: SSAValue, local: SSAValue, start: Sequence[Index], n: int, width: int, turned: bool, *, into: bool
) -> None:
    """Columns of a buffer into the local one, or back."""
    step = min(n, _SQUARE) if turned else 1
    with b.loop(0, n, step, name="k") as counted:
        # What is left over at the end is moved with its neighbours before it.
        k = counted if n % step == 0 else b.least(counted, n - step)
        place, here = (start[0], k, start[2]), (k, 0)
        axes = (0, 1) if turned else (2,)
        if not turned and into:
            b.write(b.read(buffer, place, (width,), axes), local, here, (1,))
        elif not turned:
            b.write(b.read(local, here, (width,), (1,)), buffer, place, axes)
        elif into:
            b.write(b.read(buffer, place, (step, width), (1, 0)), local, here, (0, 1))
        else:
            b.write(b.read(local, here, (width, step), (1, 0)), buffer, place, axes)


def _exchange(b: Loops, local: SSAValue, n: int, width: int) -> None:
    """Knuth's algorithm M on rows of a buffer, lane by lane.

    For p = top, top/2, … 1: exchange i and i + d, for all i in the first half of a block of 2p, first with d = p; then, for
    those in the second half, with d = q - p for q = top, top/2, … 2p.
    """
    top = 1 << ((n - 1).bit_length() - 1)
    with b.loop(0, top.bit_length(), name="s") as s:
        p = b.halved(top, s)
        with b.loop(0, b.plus(s, 1), name="t") as t:
            d = b.if_zero(t, p, b.minus(b.halved(2 * top, t), p))
            end = b.minus(n, b.least(d, n))
            blocks = b.loop(b.if_zero(t, 0, p), end, b.times(p, 2), name="block")
            with blocks as block, b.loop(block, b.least(b.plus(block, p), end), name="i") as i:
                low, high = (i, 0), (b.plus(i, d), 0)
                x, y = (b.read(local, place, (width,), (1,)) for place in (low, high))
                b.write(b(arith.MinSIOp(x, y)), local, low, (1,))
                b.write(b(arith.MaxSIOp(x, y)), local, high, (1,))


@irdl_op_definition
class SortDigitOp(Sequential):
    """The rows of `x` [a, n] in ascending order of one digit: `bits` bits from bit `shift` on; equal ones keep their order.

    With `signed` the first of these bits is the sign. Digit by digit, the lowest first, that sorts the rows: 3n steps a digit.
    (C1) `x` is of signed integers, of two sizes; (C2) the digit is within its elements.
    """

    name = "dl.sort_digit"
    x = operand_def(TensorType)
    shift = prop_def(IntegerAttr)
    bits = prop_def(IntegerAttr)
    signed = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element, shift, bits = element_type_of(self.x), int(number(self.shift)), int(number(self.bits))
        shape = _require(self.name, self.x, 2)
        if shift < 0 or bits < 1 or shift + bits > scalar.bits(element):
            raise ShapeError(f"dl.sort_digit: {bits} bits from bit {shift} on of {element} (C2)")
        return [tensor_type(shape, element)]

    @property
    def _counted(self) -> tuple[int, int, int]:
        """The shift, the mask behind it, and what turns the digit into the number that is ordered by."""
        bits = int(number(self.bits))
        return int(number(self.shift)), (1 << bits) - 1, 1 << (bits - 1) if flag(self.signed) else 0

    def reference(self, *operands: Array) -> Array:
        (x,), (shift, mask, flip) = operands, self._counted
        digits = ((x.astype(np.int64) >> shift) & mask) ^ flip
        return np.take_along_axis(x, np.argsort(digits, axis=1, kind="stable"), axis=1)

    def loops(self, b: Loops, operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> None:
        """Counts how often each digit occurs, where its elements begin, and puts each element there."""
        (x,), (y,) = operands, results
        rows, n = shape_of(self.x)
        element = storage_type(element_type_of(self.x))
        _, mask, _ = self._counted
        zero, one = (scalar.constant(b, k, i32) for k in (0, 1))
        with b.grid(rows) as (row,):
            counts = b.local(i32, mask + 1)
            with b.loop(0, mask + 1, name="d") as d:
                b.store(zero, counts, d)
            with b.loop(0, n) as i:
                digit = self._digit(b, b.load(x, row, i), element)
                b.store(scalar.add(b, b.load(counts, digit), one), counts, digit)
            with b.carry([zero], 0, mask + 1, name="d") as walk:
                (begun,), count = walk.values, b.load(counts, walk.at)
                b.store(begun, counts, walk.at)
                walk.following = [scalar.add(b, begun, count)]
            with b.loop(0, n) as i:
                value = b.load(x, row, i)
                digit = self._digit(b, value, element)
                place = b.load(counts, digit)
                b.store(scalar.add(b, place, one), counts, digit)
                b.store(value, y, row, b.place_of(place))

    def _digit(self, b: Loops, value: SSAValue, element: Attribute) -> SSAValue:
        shift, mask, flip = self._counted
        digit = b(arith.ShRUIOp(value, scalar.constant(b, shift, element)))
        digit = b(arith.AndIOp(digit, scalar.constant(b, mask, element)))
        if flip:
            digit = b(arith.XOrIOp(digit, scalar.constant(b, flip, element)))
        return b.place_of(digit if scalar.bits(element) > 8 else b(arith.ExtUIOp(digit, i32)))


@dataclass(frozen=True)
class Digit:
    """Some bits of an integer."""

    shift: int
    bits: int


# A digit has as many bits as pays: what counts it stays in the first-level cache, and is not longer than the rows.
_DIGIT_BITS, _LONG_DIGIT_BITS, _LONG_ROW = 8, 11, 8192


def digits(low: int, high: int, n: Size) -> list[Digit]:
    """The bits from `low` to `high` in digits for rows of n elements, the lowest first, as equal as they can be."""
    count = -(-(high - low) // (_LONG_DIGIT_BITS if isinstance(n, int) and n >= _LONG_ROW else _DIGIT_BITS))
    ends = [low + (high - low) * k // count for k in range(count + 1)]
    return [Digit(start, end - start) for start, end in pairwise(ends)]


# What the longest columns have, whose lanes are a local buffer.
_LOCAL_BYTES = 1 << 16


def network_is_quicker(before: Size, n: int, behind: Size, element: Attribute, bits: int) -> bool:
    """Whether columns [before, n, behind] are sorted sooner by comparisons than by digits of so many bits, in cycles.

    Where it is not known how many there are, they go one by one.
    """
    before, behind = (size if isinstance(size, int) else 1 for size in (before, behind))
    if n * _LANES * scalar.bits(element) // 8 > _LOCAL_BYTES:
        return False
    tiles = -(-before // _LANES) if behind == 1 else before * -(-behind // _LANES)
    levels = (n - 1).bit_length()
    exchanges = n * levels * (levels + 1) // 4
    network = tiles * exchanges * (20 if scalar.bits(element) == 64 else 5)
    by_digits = before * behind * sum(6 * n + (4 << d.bits) for d in digits(0, bits, n))
    return network <= by_digits
