"""Elementwise ops: arithmetic and selection.

Operands broadcast as in NumPy and have the same element type. Integers wrap around; NaN, infinities and signed zeros of floats
behave as in NumPy. Functions of one float are in `functions.py`, comparisons in `logic.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import Binary, Unary, common_element_type, kind_of
from dlc.dialects.dl.base import Array, Tensor, broadcast_shapes, element_type_of, flag, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Elementwise, is_unsigned
from dlc.dialects.ldexp import MathLdexpOp, ldexp
from dlc.dialects.remainder import RemFOp
from dlc.errors import DTypeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    SSAValue,
    TensorType,
    arith,
    f64,
    irdl_op_definition,
    math,
    operand_def,
    opt_prop_def,
    result_def,
)

COMPUTABLE_KINDS = ("float", "integer", "bool")


# ── arithmetic ──


@irdl_op_definition
class AddOp(Binary):
    """`x + y`."""

    name = "dl.add"

    def numpy(self, x: Array, y: Array) -> Array:
        return x + y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.add(body, x, y)


@irdl_op_definition
class SubOp(Binary):
    """`x - y`."""

    name = "dl.sub"

    def numpy(self, x: Array, y: Array) -> Array:
        return x - y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.subtract(body, x, y)


@irdl_op_definition
class MulOp(Binary):
    """`x · y`."""

    name = "dl.mul"

    def numpy(self, x: Array, y: Array) -> Array:
        return x * y

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.multiply(body, x, y)


@irdl_op_definition
class DivOp(Binary):
    """`x / y`; of integers the quotient truncated toward zero, 0 where `y` is 0.

    The smallest signed integer divided by -1 wraps around to itself.
    """

    name = "dl.div"

    def numpy(self, x: Array, y: Array) -> Array:
        if x.dtype.kind not in "iu":
            return x / y
        quotient = np.floor_divide(x, y)
        return quotient + ((quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0))

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.divide(body, x, y, self.element)


@irdl_op_definition
class FloordivOp(Binary):
    """`⌊x / y⌋`; of integers 0 where `y` is 0.

    Floats behave as in NumPy: `(x - mod(x, y)) / y` rounded, `x / y` where `y` is 0, NaN where `x` is infinite.
    """

    name = "dl.floordiv"

    def numpy(self, x: Array, y: Array) -> Array:
        return np.floor_divide(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        if not is_float(x.type):
            quotient = scalar.divide(body, x, y, self.element)
            remainder = scalar.subtract(body, x, scalar.multiply(body, quotient, y))
            return quotient if is_unsigned(self.element) else _floored(body, quotient, remainder, y, self.element)
        narrow, x, y = x.type, scalar.convert(body, x, x.type, f64), scalar.convert(body, y, y.type, f64)
        remainder = body(RemFOp(x, y))
        truncated = scalar.divide(body, scalar.subtract(body, x, remainder), y, f64)
        floored = _floored(body, truncated, remainder, y, f64)
        quotient = body(math.FloorOp(floored))
        # Correct a quotient that rounding moved just below an integer.
        is_too_small = scalar.compare_with(body, "gt", scalar.subtract(body, floored, quotient), 0.5, f64)
        quotient = scalar.select(body, is_too_small, scalar.add(body, quotient, scalar.like(body, 1, quotient)), quotient)
        ratio = scalar.divide(body, x, y, f64)
        signed_zero = body(math.CopySignOp(scalar.like(body, 0, ratio), ratio))
        quotient = scalar.select(body, scalar.compare_with(body, "eq", quotient, 0.0, f64), signed_zero, quotient)
        quotient = scalar.select(body, scalar.compare_with(body, "eq", y, 0.0, f64), ratio, quotient)
        return scalar.convert(body, quotient, f64, narrow)


def _floored(body: Body, quotient: SSAValue, remainder: SSAValue, y: SSAValue, element: Attribute) -> SSAValue:
    """Emit the floor of a truncated quotient: one less if remainder and divisor differ in sign, unless the divisor is 0."""
    needs_decrement = scalar.bit_and(
        body, _signs_differ(body, remainder, y, element), scalar.compare_with(body, "ne", y, 0, element)
    )
    return scalar.select(body, needs_decrement, scalar.subtract(body, quotient, scalar.like(body, 1, quotient)), quotient)


def _signs_differ(body: Body, remainder: SSAValue, y: SSAValue, element: Attribute) -> SSAValue:
    """Emit a bool: true if a nonzero remainder and its divisor differ in sign."""
    is_positive, is_negative = (scalar.compare_with(body, p, remainder, 0, element) for p in ("gt", "lt"))
    is_divisor_negative = scalar.compare_with(body, "lt", y, 0, element)
    is_divisor_positive = scalar.compare_with(body, "gt", y, 0, element)
    return scalar.bit_or(
        body, scalar.bit_and(body, is_positive, is_divisor_negative), scalar.bit_and(body, is_negative, is_divisor_positive)
    )


@irdl_op_definition
class ModOp(Binary):
    """`x - y·⌊x / y⌋`, with the sign of `y`; if `fmod` is set `x - y·trunc(x / y)`, with the sign of `x`, as in C.

    Integers: 0 where `y` is 0. Floats: NaN where `y` is 0 or `x` is infinite; exact except for the sum `remainder + y` where
    the signs differ, which is rounded once.
    """

    name = "dl.mod"
    fmod = opt_prop_def(BoolAttr)

    @property
    def truncates(self) -> bool:
        return flag(self.fmod)

    def numpy(self, x: Array, y: Array) -> Array:
        return np.fmod(x, y) if self.truncates else np.mod(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        divisor = scalar.constant_integer(y)
        if divisor is not None and divisor > 0 and not self.truncates:
            return _remainder_of_constant(body, x, y, divisor, self.element)
        zero = scalar.like(body, 0, x)
        if is_float(x.type):
            remainder = body(RemFOp(x, y))
            signed_zero = body(math.CopySignOp(zero, y))
        else:
            quotient = scalar.divide(body, x, y, self.element)
            remainder = scalar.subtract(body, x, scalar.multiply(body, quotient, y))
            remainder = scalar.select(body, scalar.compare(body, "eq", y, zero, self.element), zero, remainder)
            signed_zero = zero
        if self.truncates or is_unsigned(self.element):
            return remainder
        shifted = scalar.add(body, remainder, y)
        shifted = scalar.select(body, _signs_differ(body, remainder, y, self.element), shifted, remainder)
        return scalar.select(body, scalar.compare(body, "eq", remainder, zero, self.element), signed_zero, shifted)


def _remainder_of_constant(body: Body, x: SSAValue, y: SSAValue, divisor: int, element: Attribute) -> SSAValue:
    """Emit `x - y·⌊x / y⌋` for a positive constant `y`."""
    if divisor & (divisor - 1) == 0:
        return scalar.bit_and(body, x, scalar.like(body, divisor - 1, x))
    quotient = body(arith.DivUIOp(x, y) if is_unsigned(element) else arith.DivSIOp(x, y))
    remainder = scalar.subtract(body, x, scalar.multiply(body, quotient, y))
    if is_unsigned(element):
        return remainder
    is_negative = scalar.compare_with(body, "lt", remainder, 0, element)
    return scalar.add(body, remainder, scalar.select(body, is_negative, y, scalar.like(body, 0, y)))


@irdl_op_definition
class PowOp(Binary):
    """`x` to the power `y`; a negative integer exponent gives the truncated value: 0, or ±1 where `x` is ±1."""

    name = "dl.pow"

    def numpy(self, x: Array, y: Array) -> Array:
        if x.dtype.kind not in "iu":
            return np.power(x, y)
        inverse = np.where(x == 1, 1, np.where(x == x.dtype.type(0) - x.dtype.type(1), 1 - 2 * (y & 1), 0))
        return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0))).astype(x.dtype)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        if is_float(x.type):
            return body(math.PowFOp(x, y))
        # x^y = Π over the set bits k of y of x^(2^k): each step squares the base.
        one, zero = scalar.like(body, 1, x), scalar.like(body, 0, x)
        width = 8 * numpy_dtype(self.element).itemsize
        power, base = one, x
        for bit in range(width):
            mask = scalar.like(body, 1 << bit, y)
            is_set = scalar.compare(body, "ne", scalar.bit_and(body, y, mask), zero, self.element)
            power = scalar.select(body, is_set, scalar.multiply(body, power, base), power)
            base = scalar.multiply(body, base, base)
        if is_unsigned(self.element):
            return power
        # The product is also right for negative powers of 1 and -1; no other integer has an integer inverse.
        is_unit = scalar.bit_or(body, *(scalar.compare_with(body, "eq", x, value, self.element) for value in (1, -1)))
        has_no_inverse = scalar.bit_and(body, scalar.compare(body, "lt", y, zero, self.element), scalar.bit_not(body, is_unit))
        return scalar.select(body, has_no_inverse, zero, power)


@irdl_op_definition
class Atan2Op(Binary):
    """C's `atan2(x, y)`: the angle in [-π, π] of the point with abscissa `y` and ordinate `x`; signs of zeros count."""

    name = "dl.atan2"
    KINDS: ClassVar[tuple[str, ...]] = ("float",)

    def numpy(self, x: Array, y: Array) -> Array:
        return np.arctan2(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return body(math.Atan2Op(x, y))


@irdl_op_definition
class LdexpOp(Binary):
    """`x·2^⌊y⌋`, rounded once; NaN if `x` or `y` is NaN. The result for an infinite `y` is undefined."""

    name = "dl.ldexp"
    KINDS: ClassVar[tuple[str, ...]] = ("float",)

    def numpy(self, x: Array, y: Array) -> Array:
        return ldexp(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return body(MathLdexpOp(x, y))


@irdl_op_definition
class MaximumOp(Binary):
    """The larger of `x` and `y`, NaN if either is NaN; `x or y` on bool."""

    name = "dl.maximum"
    KINDS: ClassVar[tuple[str, ...]] = COMPUTABLE_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return np.maximum(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.maximum(body, x, y, self.element)


@irdl_op_definition
class MinimumOp(Binary):
    """The smaller of `x` and `y`, NaN if either is NaN; `x and y` on bool."""

    name = "dl.minimum"
    KINDS: ClassVar[tuple[str, ...]] = COMPUTABLE_KINDS

    def numpy(self, x: Array, y: Array) -> Array:
        return np.minimum(x, y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        return scalar.minimum(body, x, y, self.element)


@irdl_op_definition
class NegOp(Unary):
    """`-x`; signed and unsigned integers wrap around."""

    name = "dl.neg"

    def numpy(self, x: Array) -> Array:
        return np.negative(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return body(arith.NegfOp(x)) if is_float(x.type) else scalar.subtract(body, scalar.like(body, 0, x), x)


@irdl_op_definition
class AbsOp(Unary):
    """`|x|`; the smallest signed integer wraps around to itself."""

    name = "dl.abs"

    def numpy(self, x: Array) -> Array:
        return np.abs(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        if is_float(x.type):
            return body(math.AbsFOp(x))
        if is_unsigned(self.element):
            return x
        return scalar.maximum(body, x, scalar.subtract(body, scalar.like(body, 0, x), x), self.element)


@irdl_op_definition
class SignOp(Unary):
    """-1, 0 or 1 for negative, zero and positive `x`; NaN stays NaN."""

    name = "dl.sign"

    def numpy(self, x: Array) -> Array:
        return np.sign(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        result = x
        for predicate, value in (("eq", 0), ("lt", -1), ("gt", 1)):
            is_match = scalar.compare_with(body, predicate, x, 0, self.element)
            result = scalar.select(body, is_match, scalar.like(body, value, x), result)
        return result


@irdl_op_definition
class ReluOp(Unary):
    """`max(x, 0)`; NaN stays NaN."""

    name = "dl.relu"

    def numpy(self, x: Array) -> Array:
        return np.maximum(x, x.dtype.type(0))

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return scalar.maximum(body, x, scalar.like(body, 0, x), self.element)


# ── selection ──


@irdl_op_definition
class SelectOp(Elementwise):
    """`x` where `condition` is true, else `y`.

    (C1) `condition` is bool; (C2) `x` and `y` have the same element type; (C3) the three shapes broadcast to the result's.
    """

    name = "dl.select"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    condition = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if kind_of(element_type_of(self.condition)) != "bool":
            raise DTypeError(f"dl.select: condition has element type {element_type_of(self.condition)}, expected i1 (C1)")
        element = common_element_type(self, [self.x, self.y], (*COMPUTABLE_KINDS, "storage-only"))
        return [tensor_type(broadcast_shapes(self.name, *map(shape_of, self.operands)), element)]

    def reference(self, *operands: Array) -> Array:
        return np.where(*operands)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return scalar.select(body, *elements)
