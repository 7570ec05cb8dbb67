"""Values inside loops: Python's operators on scalars and vectors insert `arith`, `math` and `vector` ops.

    x * y + 1.0                                →        %p = arith.mulf %x, %y;  arith.addf %p, %one

A Python number gets the type of the other operand; a scalar is broadcast to a vector operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.scalar import PREDICATES
from dlc.ir import (
    Attribute,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Operation,
    SSAValue,
    VectorType,
    arith,
    i1,
    i64,
    index,
    math,
    vector,
)
from dlc.passes.structured import OpBuilder
from dlc.passes.types import vector_type


def element_of(type: Attribute) -> Attribute:
    """Return the element type of a vector type; a scalar type itself."""
    return cast(Any, type).element_type if isinstance(type, VectorType) else type


def shape_of_vector(type: Attribute) -> tuple[int, ...]:
    """Return the shape of a vector type, () for a scalar type."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def with_element(type: Attribute, element: Attribute) -> Attribute:
    """Return the type with the same shape and another element type."""
    return vector_type(shape, element) if (shape := shape_of_vector(type)) else element


class ValueBuilder:
    """Insert ops at the end of the innermost open block."""

    def __init__(self, op_builder: OpBuilder) -> None:
        self.op_builder = op_builder

    def op(self, op: Operation, *, signed: bool = True) -> KernelValue:
        """Insert an op with one result and return the result."""
        return KernelValue(self, self.op_builder.op(op), signed)

    def constant(self, value: float, type: Attribute, *, signed: bool = True) -> KernelValue:
        """Return a constant of a scalar type, or splat to a vector type; integers wrap around."""
        e = element_of(type)
        attribute: Any
        if is_float(e):
            attribute = FloatAttr(value, cast(Any, e))
        else:
            bits = cast(IntegerType, e).width.data if isinstance(e, IntegerType) else 64
            attribute = IntegerAttr(_wrap(int(value), bits), cast(Any, e))
        if shape_of_vector(type):
            attribute = DenseIntOrFPElementsAttr.from_list(cast(Any, type), [attribute.value.data])
        return KernelValue(self, self.op_builder.constants.get(attribute, type), signed)


def _wrap(value: int, bits: int) -> int:
    """Wrap an integer to `bits` bits, signed."""
    return (value + (1 << bits >> 1)) % (1 << bits) - (1 << bits >> 1) if bits > 1 else value % 2


@dataclass(frozen=True, eq=False)
class KernelValue:
    """A scalar or vector of floats, integers, indices or booleans; `signed` is the signedness of integers."""

    builder: ValueBuilder
    ssa: SSAValue
    signed: bool = True

    @property
    def type(self) -> Attribute:
        return self.ssa.type

    @property
    def is_float(self) -> bool:
        return is_float(element_of(self.type))

    def like(self, other: Operand) -> KernelValue:
        """Return a Python number or a scalar, converted or broadcast to this value's type."""
        if not isinstance(other, KernelValue):
            return self.builder.constant(other, self.type, signed=self.signed)
        if shape_of_vector(self.type) and not shape_of_vector(other.type):
            return other.splat(shape_of_vector(self.type))
        return other

    def splat(self, shape: tuple[int, ...]) -> KernelValue:
        """Broadcast to a vector; a comparison as one of vectors, whose booleans need no conversion to a mask."""
        splat, comparison = self.builder.op_builder.splat, self.ssa.owner
        if isinstance(comparison, arith.CmpiOp | arith.CmpfOp) and element_of(comparison.lhs.type) != index:
            operands = [splat(v, shape) for v in comparison.operands]
            result_types = [with_element(operands[0].type, i1)]
            return self.builder.op(
                type(comparison).create(operands=operands, result_types=result_types, properties=comparison.properties)
            )
        return KernelValue(self.builder, splat(self.ssa, shape), self.signed)

    def _binary(self, other: Operand, float_op: Any, integer_op: Any) -> KernelValue:
        a, b = self._matched(other)
        return self.builder.op((float_op if self.is_float else integer_op)(a.ssa, b.ssa), signed=self.signed)

    def _matched(self, other: Operand) -> tuple[KernelValue, KernelValue]:
        if isinstance(other, KernelValue) and shape_of_vector(other.type) and not shape_of_vector(self.type):
            return other.like(self), other
        return self, self.like(other)

    def __add__(self, other: Operand) -> KernelValue:
        return self._binary(other, arith.AddfOp, arith.AddiOp)

    def __sub__(self, other: Operand) -> KernelValue:
        return self._binary(other, arith.SubfOp, arith.SubiOp)

    def __mul__(self, other: Operand) -> KernelValue:
        return self._binary(other, arith.MulfOp, arith.MuliOp)

    def __truediv__(self, other: Operand) -> KernelValue:
        return self._binary(other, arith.DivfOp, None)

    def __floordiv__(self, other: Operand) -> KernelValue:
        return self._binary(other, None, arith.DivUIOp)

    def __mod__(self, other: Operand) -> KernelValue:
        return self._binary(other, None, arith.RemUIOp)

    def __rshift__(self, other: Operand) -> KernelValue:
        """Logical shift right."""
        return self._binary(other, None, arith.ShRUIOp)

    def __lshift__(self, other: Operand) -> KernelValue:
        return self._binary(other, None, arith.ShLIOp)

    def __and__(self, other: Operand) -> KernelValue:
        return self._binary(other, None, arith.AndIOp)

    def __or__(self, other: Operand) -> KernelValue:
        return self._binary(other, None, arith.OrIOp)

    def __xor__(self, other: Operand) -> KernelValue:
        return self._binary(other, None, arith.XOrIOp)

    def __neg__(self) -> KernelValue:
        return self.builder.op(arith.NegfOp(self.ssa))

    def compared(self, relation: str, other: Operand) -> KernelValue:
        """Return whether a relation (`lt`, `le`, `gt`, `ge`, `eq`, `ne`) holds; only `ne` does for NaN."""
        a, b = self._matched(other)
        float_predicate, signed_predicate, unsigned_predicate = PREDICATES[relation]
        if self.is_float:
            return self.builder.op(arith.CmpfOp(a.ssa, b.ssa, float_predicate))
        return self.builder.op(arith.CmpiOp(a.ssa, b.ssa, signed_predicate if self.signed else unsigned_predicate))

    def __lt__(self, other: Operand) -> KernelValue:
        return self.compared("lt", other)

    def __le__(self, other: Operand) -> KernelValue:
        return self.compared("le", other)

    def __gt__(self, other: Operand) -> KernelValue:
        return self.compared("gt", other)

    def __ge__(self, other: Operand) -> KernelValue:
        return self.compared("ge", other)

    def equals(self, other: Operand) -> KernelValue:
        return self.compared("eq", other)

    def differs(self, other: Operand) -> KernelValue:
        return self.compared("ne", other)

    def as_integer(self, element: Attribute = i64) -> KernelValue:
        """Convert an index to an integer."""
        return self.builder.op(arith.IndexCastOp(self.ssa, element))

    def widened(self, element: Attribute) -> KernelValue:
        """Extend an integer to a type that is at least as wide."""
        t = with_element(self.type, element)
        if t == self.type:
            return self
        widen = arith.ExtSIOp if self.signed else arith.ExtUIOp
        return self.builder.op(widen.create(operands=[self.ssa], result_types=[t]), signed=self.signed)

    def bits_as(self, element: Attribute) -> KernelValue:
        """Bitcast each element to another type of the same width."""
        return self.builder.op(arith.BitcastOp(self.ssa, with_element(self.type, element)))

    def extreme(self, *, smallest: bool) -> KernelValue:
        """Return the minimum or the maximum element of a vector; NaN if one is NaN."""
        name = "min" if smallest else "max"
        return self.reduce_lanes(f"{name}imumf" if self.is_float else name + ("si" if self.signed else "ui"))

    def reduce_lanes(self, kind: str) -> KernelValue:
        """Reduce all elements of a vector by `kind`, a combining kind of the vector dialect such as `add` or `minsi`."""
        properties = {
            "kind": vector.CombiningKindAttr(vector.CombiningKindFlag(kind)),
            "fastmath": arith.FastMathFlagsAttr("none"),
        }
        t = element_of(self.type)
        reduction = vector.ReductionOp.create(operands=[self.ssa], result_types=[t], properties=properties)
        return self.builder.op(reduction, signed=self.signed)


Operand: TypeAlias = "KernelValue | float"
Index: TypeAlias = "KernelValue | int"


def ssa(i: Index) -> Any:
    """Return an index as an `OpBuilder` expects it: an int, or an SSA value."""
    return i.ssa if isinstance(i, KernelValue) else i


def math_op(op: type[Operation], x: KernelValue, *others: KernelValue) -> KernelValue:
    """Apply an elementwise op of the `math` dialect."""
    properties = {"fastmath": arith.FastMathFlagsAttr("none")}
    operands = [v.ssa for v in (x, *others)]
    return x.builder.op(op.create(operands=operands, result_types=[x.type], properties=properties))


def fma(a: KernelValue, b: KernelValue, c: KernelValue) -> KernelValue:
    """Return a·b + c, rounded once if the target has FMA instructions; the result has the type of c."""
    kind = vector.FMAOp if shape_of_vector(c.type) else math.FmaOp
    return c.builder.op(kind.create(operands=[c.like(a).ssa, c.like(b).ssa, c.ssa], result_types=[c.type]))


def select(condition: KernelValue, x: Operand, y: Operand) -> KernelValue:
    """Return `x` if the condition holds, else `y`; one of them has the type of the result."""
    typed_operand = x if isinstance(x, KernelValue) and (not isinstance(y, KernelValue) or shape_of_vector(x.type)) else y
    assert isinstance(typed_operand, KernelValue)
    return typed_operand.builder.op(
        arith.SelectOp(condition.ssa, typed_operand.like(x).ssa, typed_operand.like(y).ssa), signed=typed_operand.signed
    )


def maximum(x: KernelValue, y: KernelValue) -> KernelValue:
    """Return the larger value; NaN if one is NaN."""
    if x.is_float:
        return x.builder.op(arith.MaximumfOp(x.ssa, y.ssa))
    return x.builder.op((arith.MaxSIOp if x.signed else arith.MaxUIOp)(x.ssa, y.ssa), signed=x.signed)


def minimum(x: KernelValue, y: KernelValue) -> KernelValue:
    """Return the smaller value; NaN if one is NaN."""
    if x.is_float:
        return x.builder.op(arith.MinimumfOp(x.ssa, y.ssa))
    return x.builder.op((arith.MinSIOp if x.signed else arith.MinUIOp)(x.ssa, y.ssa), signed=x.signed)
