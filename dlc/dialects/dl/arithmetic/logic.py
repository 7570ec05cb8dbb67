"""Elementwise ops on bools and bits: comparisons, logic, shifts.

Operands broadcast as in NumPy and have the same element type; a comparison with NaN is false, except for `dl.not_equal`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import Binary, Comparison, Unary
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Body, is_unsigned
from dlc.ir import (
    SSAValue,
    arith,
    irdl_op_definition,
)

INTEGER_KINDS = ("integer",)
BOOL_KINDS = ("bool",)


# ── comparison ──


@irdl_op_definition
class EqualOp(Comparison):
    """`x = y`; false where either is NaN."""

    name = "dl.equal"
    PREDICATE: ClassVar[str] = "eq"


@irdl_op_definition
class NotEqualOp(Comparison):
    """`x ≠ y`; true where either is NaN."""

    name = "dl.not_equal"
    PREDICATE: ClassVar[str] = "ne"


@irdl_op_definition
class LessOp(Comparison):
    """`x < y`; false where either is NaN, false < true."""

    name = "dl.less"
    PREDICATE: ClassVar[str] = "lt"


@irdl_op_definition
class LessEqualOp(Comparison):
    """`x ≤ y`; false where either is NaN, false < true."""

    name = "dl.less_equal"
    PREDICATE: ClassVar[str] = "le"


@irdl_op_definition
class GreaterOp(Comparison):
    """`x > y`; false where either is NaN, false < true."""

    name = "dl.greater"
    PREDICATE: ClassVar[str] = "gt"


@irdl_op_definition
class GreaterEqualOp(Comparison):
    """`x ≥ y`; false where either is NaN, false < true."""

    name = "dl.greater_equal"
    PREDICATE: ClassVar[str] = "ge"


# ── logic ──


@irdl_op_definition
class AndOp(Binary):
    """`x and y` on bool."""

    name = "dl.and"
    KINDS: ClassVar[tuple[str, ...]] = BOOL_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return x & y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.bit_and(body, x, y)


@irdl_op_definition
class OrOp(Binary):
    """`x or y` on bool."""

    name = "dl.or"
    KINDS: ClassVar[tuple[str, ...]] = BOOL_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return x | y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.bit_or(body, x, y)


@irdl_op_definition
class XorOp(Binary):
    """`x ≠ y` on bool."""

    name = "dl.xor"
    KINDS: ClassVar[tuple[str, ...]] = BOOL_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return x ^ y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return body(arith.XOrIOp(x, y))


@irdl_op_definition
class NotOp(Unary):
    """`not x` on bool."""

    name = "dl.not"
    KINDS: ClassVar[tuple[str, ...]] = BOOL_KINDS

    def numpy(self, x: Array) -> Array:
        return ~x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return scalar.bit_not(body, x)


@irdl_op_definition
class BitwiseAndOp(Binary):
    """Bitwise AND of two integers."""

    name = "dl.bitwise_and"
    KINDS: ClassVar[tuple[str, ...]] = INTEGER_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return x & y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.bit_and(body, x, y)


@irdl_op_definition
class BitwiseOrOp(Binary):
    """Bitwise OR of two integers."""

    name = "dl.bitwise_or"
    KINDS: ClassVar[tuple[str, ...]] = INTEGER_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return x | y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.bit_or(body, x, y)


@irdl_op_definition
class BitwiseXorOp(Binary):
    """Bitwise exclusive OR of two integers."""

    name = "dl.bitwise_xor"
    KINDS: ClassVar[tuple[str, ...]] = INTEGER_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return x ^ y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return body(arith.XOrIOp(x, y))


@irdl_op_definition
class BitwiseNotOp(Unary):
    """Bitwise complement of an integer."""

    name = "dl.bitwise_not"
    KINDS: ClassVar[tuple[str, ...]] = INTEGER_KINDS

    def numpy(self, x: Array) -> Array:
        return ~x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return scalar.bit_not(body, x)


@irdl_op_definition
class ShiftLeftOp(Binary):
    """`x · 2^y`, wrapping around; 0 where `y` is negative or at least the number of bits."""

    name = "dl.shift_left"
    KINDS: ClassVar[tuple[str, ...]] = INTEGER_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return np.left_shift(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        in_range, amount = _shift_amount(body, y)
        return scalar.select(body, in_range, body(arith.ShLIOp(x, amount)), scalar.like(body, 0, x))


@irdl_op_definition
class ShiftRightOp(Binary):
    """`⌊x / 2^y⌋`; where `y` is negative or at least the number of bits 0, or -1 for a negative `x`."""

    name = "dl.shift_right"
    KINDS: ClassVar[tuple[str, ...]] = INTEGER_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return np.right_shift(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        in_range, amount = _shift_amount(body, y)
        if not is_unsigned(self.element):
            return body(arith.ShRSIOp(x, amount))
        return scalar.select(body, in_range, body(arith.ShRUIOp(x, amount)), scalar.like(body, 0, x))


def _shift_amount(body: Body, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Emit a bool (`y` is a valid shift amount) and `y` clamped to a valid one: a shift by the full width is poison."""
    last = scalar.like(body, 8 * numpy_dtype(y.type).itemsize - 1, y)
    return body(arith.CmpiOp(y, last, "ule")), body(arith.MinUIOp(y, last))
