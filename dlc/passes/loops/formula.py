"""Formulas over SSA values: Python operators that insert `arith` and `math` ops, on scalars and vectors alike.

    r = fma(n, -LN2_HIGH, x)        →  %r = math.fma %n, %c, %x : vector<7x32xf32>
    y = select(x < 0.0, nan, r)     →  %b = arith.cmpf olt, …;  %y = arith.select %b, …

Python numbers become constants, pooled at the start of the kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

from dlc.dialects.ldexp import MathLdexpOp
from dlc.ir import (
    Attribute,
    Block,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    Operation,
    SSAValue,
    VectorType,
    arith,
    f32,
    f64,
    func,
    i1,
    i32,
    i64,
    math,
    shaped_like,
)
from dlc.passes.kernel_values import element_of

Number: TypeAlias = "int | float"
NO_FASTMATH = arith.FastMathFlagsAttr("none")
NO_OVERFLOW = arith.IntegerOverflowAttr("none")
_FLOAT_PROPERTIES = {"fastmath": NO_FASTMATH}
_INTEGER_PROPERTIES = {"overflowFlags": NO_OVERFLOW}
# Comparison predicates, as the attributes that arith.cmpf and arith.cmpi carry.
_FLOAT_PREDICATES = {name: IntegerAttr(k, i64) for k, name in enumerate(("eq", "gt", "ge", "lt", "le"), start=1)}
_INTEGER_PREDICATES = {
    name: IntegerAttr(k, i64) for k, name in enumerate(("eq", "ne", "lt", "le", "gt", "ge", "ult", "ule", "ugt", "uge"))
}


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format, and the types of its values, bits and booleans in a given shape."""

    float_type: Attribute
    bits_type: Attribute
    bool_type: Attribute
    width: int
    mantissa: int
    bias: int
    # The smallest positive normal value.
    min_normal: float

    @property
    def rounder(self) -> float:
        """The constant whose addition rounds to an integer, which is then in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def rounder_bits(self) -> int:
        return self.bits_of(self.rounder)

    def bits_of(self, value: float) -> int:
        """Return the bits of a float, as a signed integer."""
        is_f32 = self.width == 32
        return struct.unpack("<i" if is_f32 else "<q", struct.pack("<f" if is_f32 else "<d", value))[0]


@lru_cache(1024)
def find_format(type: Attribute) -> FloatFormat:
    """Return the format of a scalar or vector type of f32 or f64 elements."""
    element = element_of(type)
    if element == f32:
        return FloatFormat(type, shaped_like(type, i32), shaped_like(type, i1), 32, 23, 127, 2.0**-126)
    if element == f64:
        return FloatFormat(type, shaped_like(type, i64), shaped_like(type, i1), 64, 52, 1023, 2.0**-1022)
    raise TypeError(f"formulas support element types f32 and f64, got {type}")


class FormulaConstants:
    """A pool of the constants of one kernel, at the start of its block."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._first_op = block.first_op
        self._values: dict[tuple[Attribute, int | bytes], SSAValue] = {}

    @property
    def function(self) -> func.FuncOp:
        """The kernel."""
        kernel = self.block.parent_op()
        assert isinstance(kernel, func.FuncOp)
        return kernel

    def get(self, value: Number, type: Attribute) -> SSAValue:
        """Return the constant `value`, splat to `type`."""
        key = (type, value if isinstance(value, int) else struct.pack("<d", value))
        if key not in self._values:
            op = arith.ConstantOp.create(properties={"value": self._attribute(value, type)}, result_types=[type])
            if self._first_op is None:
                self.block.add_op(op)
            else:
                self.block.insert_op_before(op, self._first_op)
            self._values[key] = op.result
        return self._values[key]

    @staticmethod
    def _attribute(value: Number, type: Attribute) -> Attribute:
        if isinstance(type, VectorType):
            if type.element_type == f32:
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            return DenseIntOrFPElementsAttr.from_list(cast(Any, type), [value])
        return FloatAttr(value, cast(Any, type)) if isinstance(value, float) else IntegerAttr(value, cast(Any, type))


class FormulaBuilder:
    """Insert the ops of a formula before an op, with its source location.

    `fused` states whether `fma` rounds once on the target, `has_ldexp` whether it has an instruction for `ldexp`.
    """

    def __init__(self, anchor: Operation, constants: FormulaConstants, *, fused: bool = True, has_ldexp: bool = False) -> None:
        block = anchor.parent
        assert block is not None
        self.anchor = anchor
        self.block = block
        self.constants = constants
        self.fused = fused
        self.has_ldexp = has_ldexp

    def insert(
        self, op: type[Operation], operands: Sequence[SSAValue], value_type: Attribute, properties: dict[str, Any] | None = None
    ) -> SSAValue:
        """Insert a new op and return its result."""
        new = op.create(operands=operands, result_types=[value_type], properties=properties or {})
        new.location = self.anchor.location
        self.block.insert_op_before(new, self.anchor)
        return new.results[0]


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Bool:
    """A boolean per element."""

    builder: FormulaBuilder
    format: FloatFormat
    value: SSAValue

    def __and__(self, other: Bool) -> Bool:
        return self._with(arith.AndIOp, other)

    def __or__(self, other: Bool) -> Bool:
        return self._with(arith.OrIOp, other)

    def __xor__(self, other: Bool) -> Bool:
        return self._with(arith.XOrIOp, other)

    def _with(self, op: type[Operation], other: Bool) -> Bool:
        t = self.format.bool_type
        return Bool(self.builder, self.format, self.builder.insert(op, [self.value, other.value], t))


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """Integers of the same width as the floats."""

    builder: FormulaBuilder
    format: FloatFormat
    value: SSAValue

    def constant(self, value: int) -> Bits:
        return Bits(self.builder, self.format, self.builder.constants.get(value, self.format.bits_type))

    def _with(self, op: type[Operation], other: Bits | int, properties: dict[str, Any] | None = None) -> Bits:
        right = self.constant(other) if isinstance(other, int) else other
        t = self.format.bits_type
        return Bits(self.builder, self.format, self.builder.insert(op, [self.value, right.value], t, properties))

    def __add__(self, other: Bits | int) -> Bits:
        return self._with(arith.AddiOp, other, _INTEGER_PROPERTIES)

    def __sub__(self, other: Bits | int) -> Bits:
        return self._with(arith.SubiOp, other, _INTEGER_PROPERTIES)

    def __and__(self, other: Bits | int) -> Bits:
        return self._with(arith.AndIOp, other)

    def __rsub__(self, other: int) -> Bits:
        return self.constant(other) - self

    def __xor__(self, other: Bits | int) -> Bits:
        return self._with(arith.XOrIOp, other)

    def __or__(self, other: Bits | int) -> Bits:
        return self._with(arith.OrIOp, other)

    def __mul__(self, other: Bits | int) -> Bits:
        return self._with(arith.MuliOp, other, _INTEGER_PROPERTIES)

    def __lshift__(self, other: Bits | int) -> Bits:
        return self._with(arith.ShLIOp, other, _INTEGER_PROPERTIES)

    def __rshift__(self, other: int) -> Bits:
        """Shift right arithmetically."""
        return self._with(arith.ShRSIOp, other)

    def unsigned_shift(self, other: Bits | int) -> Bits:
        """Shift right logically."""
        return self._with(arith.ShRUIOp, other)

    def unsigned_remainder(self, other: Bits) -> Bits:
        return self._with(arith.RemUIOp, other)

    def _compare(self, predicate: str, other: Bits | int) -> Bool:
        operands = [self.value, (self.constant(other) if isinstance(other, int) else other).value]
        result = self.builder.insert(
            arith.CmpiOp, operands, self.format.bool_type, {"predicate": _INTEGER_PREDICATES[predicate]}
        )
        return Bool(self.builder, self.format, result)

    def equals(self, other: Bits | int) -> Bool:
        return self._compare("eq", other)

    def __lt__(self, other: Bits | int) -> Bool:
        """Compare as signed integers."""
        return self._compare("lt", other)

    def __gt__(self, other: Bits | int) -> Bool:
        return self._compare("gt", other)

    def is_at_least_unsigned(self, bound: int) -> Bool:
        """Compare as unsigned integers: self ≥ bound."""
        return self._compare("uge", bound)

    def choose(self, condition: Bool, other: Bits | int) -> Bits:
        """Select self where the condition holds, else the other."""
        right = self.constant(other) if isinstance(other, int) else other
        t = self.format.bits_type
        return Bits(
            self.builder, self.format, self.builder.insert(arith.SelectOp, [condition.value, self.value, right.value], t)
        )

    def as_float(self) -> Float:
        """Bitcast to float."""
        return Float(self.builder, self.format, self.builder.insert(arith.BitcastOp, [self.value], self.format.float_type))

    def to_float(self) -> Float:
        """Convert to the nearest float."""
        return Float(self.builder, self.format, self.builder.insert(arith.SIToFPOp, [self.value], self.format.float_type))


@dataclass(frozen=True, slots=True, eq=False)
class Float:
    """Floats in a formula."""

    builder: FormulaBuilder
    format: FloatFormat
    value: SSAValue

    def constant(self, value: Number) -> Float:
        return Float(self.builder, self.format, self.builder.constants.get(float(value), self.format.float_type))

    def lift(self, other: Float | Number) -> Float:
        return other if isinstance(other, Float) else self.constant(other)

    def by_format(self, f32: T, f64: T) -> T:
        """Return the alternative for the format, such as coefficients or bounds."""
        return f32 if self.format.width == 32 else f64

    def _of(self, op: type[Operation], *operands: Float) -> Float:
        result = self.builder.insert(op, [o.value for o in operands], self.format.float_type, _FLOAT_PROPERTIES)
        return Float(self.builder, self.format, result)

    def __add__(self, other: Float | Number) -> Float:
        return self._of(arith.AddfOp, self, self.lift(other))

    def __sub__(self, other: Float | Number) -> Float:
        return self._of(arith.SubfOp, self, self.lift(other))

    def __rsub__(self, other: Float | Number) -> Float:
        return self._of(arith.SubfOp, self.lift(other), self)

    def __mul__(self, other: Float | Number) -> Float:
        return self._of(arith.MulfOp, self, self.lift(other))

    def __truediv__(self, other: Float | Number) -> Float:
        return self._of(arith.DivfOp, self, self.lift(other))

    def __rtruediv__(self, other: Float | Number) -> Float:
        return self._of(arith.DivfOp, self.lift(other), self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Float:
        return self._of(arith.NegfOp, self)

    def __abs__(self) -> Float:
        return self._of(math.AbsFOp, self)

    def _compare(self, predicate: str, other: Float | Number) -> Bool:
        operands = [self.value, self.lift(other).value]
        properties = {"predicate": _FLOAT_PREDICATES[predicate], "fastmath": NO_FASTMATH}
        return Bool(self.builder, self.format, self.builder.insert(arith.CmpfOp, operands, self.format.bool_type, properties))

    # Comparisons are ordered: false where an operand is NaN.
    def __lt__(self, other: Float | Number) -> Bool:
        return self._compare("lt", other)

    def __le__(self, other: Float | Number) -> Bool:
        return self._compare("le", other)

    def __gt__(self, other: Float | Number) -> Bool:
        return self._compare("gt", other)

    def __ge__(self, other: Float | Number) -> Bool:
        return self._compare("ge", other)

    def equals(self, other: Float | Number) -> Bool:
        return self._compare("eq", other)

    def bits(self) -> Bits:
        """Bitcast to integer."""
        return Bits(self.builder, self.format, self.builder.insert(arith.BitcastOp, [self.value], self.format.bits_type))

    def to_bits(self) -> Bits:
        """Convert to integer, rounding toward zero."""
        return Bits(self.builder, self.format, self.builder.insert(arith.FPToSIOp, [self.value], self.format.bits_type))

    def sqrt(self) -> Float:
        return self._of(math.SqrtOp, self)

    def floor(self) -> Float:
        return self._of(math.FloorOp, self)

    def trunc(self) -> Float:
        return self._of(math.TruncOp, self)

    def round(self) -> Float:
        """Round to the nearest integer, ties to even."""
        return self._of(math.RoundEvenOp, self)

    def ldexp(self, exponent: Float) -> Float:
        """Return self·2ⁿ with n = ⌊exponent⌋, rounded once, on a target that has the instruction."""
        return self._of(MathLdexpOp, self, exponent)

    def copysign(self, other: Float) -> Float:
        """Return self with the sign of another float."""
        return self._of(math.CopySignOp, self, other)

    def at_least(self, bound: Number) -> Float:
        """max(x, bound); NaN stays NaN, since the comparison is false."""
        return select(self < bound, self.constant(bound), self)

    def at_most(self, bound: Number) -> Float:
        """min(x, bound); NaN stays NaN."""
        return select(self > bound, self.constant(bound), self)

    def convert(self, type: Attribute) -> Float:
        """Convert to another float type of the same shape."""
        target = find_format(type)
        op = arith.ExtFOp if target.width > self.format.width else arith.TruncFOp
        return Float(self.builder, target, self.builder.insert(op, [self.value], type))


def fma(a: Float, b: Float | Number, c: Float | Number) -> Float:
    """a·b + c, rounded once if the target has an FMA instruction."""
    operands = [a.value, a.lift(b).value, a.lift(c).value]
    return Float(a.builder, a.format, a.builder.insert(math.FmaOp, operands, a.format.float_type, _FLOAT_PROPERTIES))


def select(condition: Bool, a: Float, b: Float | Number) -> Float:
    """Select a where the condition holds, else b."""
    operands = [condition.value, a.value, a.lift(b).value]
    return Float(a.builder, a.format, a.builder.insert(arith.SelectOp, operands, a.format.float_type))


def polynomial(x: Float, coefficients: Sequence[float]) -> Float:
    """Evaluate Σ coefficients[k]·xᵏ by Horner's scheme."""
    *other_terms, total = (x.constant(c) for c in coefficients)
    for c in reversed(other_terms):
        total = fma(total, x, c)
    return total
