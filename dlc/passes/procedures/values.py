"""Values of loops that are written by hand: Python's operators on scalars and vectors insert `arith`, `math` and `vector` ops.

    x * y + 1.0                                →        %p = arith.mulf %x, %y;  arith.addf %p, %one

A number beside a value is one of its type; a scalar beside a vector is in each of its lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    i64,
    index,
    math,
    vector,
)
from dlc.passes.structured import Place
from dlc.passes.types import vector_type

# What holds where a relation does not, which with NaN is always.
_FAILURES = {
    "lt": ("uge", "sge", "uge"), "le": ("ugt", "sgt", "ugt"),
    "gt": ("ule", "sle", "ule"), "ge": ("ult", "slt", "ult"),
}  # fmt: skip


def element_of(t: Attribute) -> Attribute:
    """The type of the elements of a vector; of a scalar, its own."""
    return cast(Any, t).element_type if isinstance(t, VectorType) else t


def shape_of_vector(t: Attribute) -> tuple[int, ...]:
    """The shape of a vector type, () for a scalar's."""
    return t.get_shape() if isinstance(t, VectorType) else ()


def of_element(t: Attribute, element: Attribute) -> Attribute:
    """The type of as many elements of another type."""
    return vector_type(shape, element) if (shape := shape_of_vector(t)) else element


class Writing:
    """Where ops go: the end of the innermost block that is open."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def op(self, made: Operation, *, signed: bool = True) -> Value:
        return Value(self, self.place.op(made), signed)

    def constant(self, value: float, t: Attribute, *, signed: bool = True) -> Value:
        """A number in every element of a type; integers wrap around."""
        e = element_of(t)
        attribute: Any
        if is_float(e):
            attribute = FloatAttr(value, cast(Any, e))
        else:
            bits = cast(IntegerType, e).width.data if isinstance(e, IntegerType) else 64
            attribute = IntegerAttr(_wrapped(int(value), bits), cast(Any, e))
        if shape_of_vector(t):
            attribute = DenseIntOrFPElementsAttr.from_list(cast(Any, t), [attribute.value.data])
        return Value(self, self.place.constants.get(attribute, t), signed)


def _wrapped(value: int, bits: int) -> int:
    """An integer as so many bits hold it."""
    return (value + (1 << bits >> 1)) % (1 << bits) - (1 << bits >> 1) if bits > 1 else value % 2


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar or a vector of floats, integers, indices or truth values; `signed` says what integers are."""

    code: Writing
    ssa: SSAValue
    signed: bool = True

    @property
    def type(self) -> Attribute:
        return self.ssa.type

    @property
    def is_float(self) -> bool:
        return is_float(element_of(self.type))

    @property
    def unsigned(self) -> Value:
        """The same bits as a number that is not negative."""
        return replace(self, signed=False)

    def like(self, other: Operand) -> Value:
        """A number, or a scalar, as a value of this one's type."""
        if not isinstance(other, Value):
            return self.code.constant(other, self.type, signed=self.signed)
        if shape_of_vector(self.type) and not shape_of_vector(other.type):
            return other.spread(shape_of_vector(self.type))
        return other

    def spread(self, shape: tuple[int, ...]) -> Value:
        """A scalar in every lane of a vector."""
        return Value(self.code, self.code.place.splat(self.ssa, shape), self.signed)

    def _binary(self, other: Operand, floats: Any, integers: Any) -> Value:
        a, b = self._matched(other)
        return self.code.op((floats if self.is_float else integers)(a.ssa, b.ssa), signed=self.signed)

    def _matched(self, other: Operand) -> tuple[Value, Value]:
        if isinstance(other, Value) and shape_of_vector(other.type) and not shape_of_vector(self.type):
            return other.like(self), other
        return self, self.like(other)

    def __add__(self, other: Operand) -> Value:
        return self._binary(other, arith.AddfOp, arith.AddiOp)

    def __sub__(self, other: Operand) -> Value:
        return self._binary(other, arith.SubfOp, arith.SubiOp)

    def __mul__(self, other: Operand) -> Value:
        return self._binary(other, arith.MulfOp, arith.MuliOp)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary(other, arith.DivfOp, None)

    def __floordiv__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.DivUIOp)

    def __mod__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.RemUIOp)

    def __rshift__(self, other: Operand) -> Value:
        """Bits moved down; zeros follow."""
        return self._binary(other, None, arith.ShRUIOp)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.ShLIOp)

    def __and__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.AndIOp)

    def __or__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.OrIOp)

    def __xor__(self, other: Operand) -> Value:
        return self._binary(other, None, arith.XOrIOp)

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    def __rtruediv__(self, other: float) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        return self.code.op(arith.NegfOp(self.ssa))

    def _compare(self, other: Operand, predicates: tuple[str, str, str]) -> Value:
        a, b = self._matched(other)
        floats, with_sign, without = predicates
        if self.is_float:
            return self.code.op(arith.CmpfOp(a.ssa, b.ssa, floats))
        return self.code.op(arith.CmpiOp(a.ssa, b.ssa, with_sign if self.signed else without))

    def __lt__(self, other: Operand) -> Value:
        return self._compare(other, PREDICATES["lt"])

    def __le__(self, other: Operand) -> Value:
        return self._compare(other, PREDICATES["le"])

    def __gt__(self, other: Operand) -> Value:
        return self._compare(other, PREDICATES["gt"])

    def __ge__(self, other: Operand) -> Value:
        return self._compare(other, PREDICATES["ge"])

    def equals(self, other: Operand) -> Value:
        return self._compare(other, PREDICATES["eq"])

    def differs(self, other: Operand) -> Value:
        return self._compare(other, PREDICATES["ne"])

    def fails(self, relation: str, other: Operand) -> Value:
        """Whether it is not true that this is `lt`, `le`, `gt` or `ge` the other, as it is never of NaN."""
        return self._compare(other, _FAILURES[relation])

    def as_integer(self, element: Attribute = i64) -> Value:
        """An index as an integer."""
        return self.code.op(arith.IndexCastOp(self.ssa, element))

    def as_index(self) -> Value:
        """An integer as an index."""
        return self.code.op(arith.IndexCastOp((self if self.signed else self.widened(i64)).ssa, index))

    def widened(self, element: Attribute) -> Value:
        """An integer in a type of at least as many bits."""
        t = of_element(self.type, element)
        if t == self.type:
            return self
        widen = arith.ExtSIOp if self.signed else arith.ExtUIOp
        return self.code.op(widen.create(operands=[self.ssa], result_types=[t]), signed=self.signed)

    def bits_as(self, element: Attribute) -> Value:
        """The bits of each element as another type, which has as many."""
        return self.code.op(arith.BitcastOp(self.ssa, of_element(self.type, element)))

    def extreme(self, *, smallest: bool) -> Value:
        """The smallest or the largest element of a vector; NaN if one is."""
        name = "min" if smallest else "max"
        return self.combined(f"{name}imumf" if self.is_float else name + ("si" if self.signed else "ui"))

    def combined(self, kind: str) -> Value:
        """All elements of a vector, combined: `add`, or an extremum as `vector.kind` names it."""
        properties = {
            "kind": vector.CombiningKindAttr(vector.CombiningKindFlag(kind)),
            "fastmath": arith.FastMathFlagsAttr("none"),
        }
        t = element_of(self.type)
        made = vector.ReductionOp.create(operands=[self.ssa], result_types=[t], properties=properties)
        return self.code.op(made, signed=self.signed)


Operand: TypeAlias = "Value | float"
Index: TypeAlias = "Value | int"


def ssa(i: Index) -> Any:
    """An index as ops take it that fold numbers."""
    return i.ssa if isinstance(i, Value) else i


def fma(a: Value, b: Value, c: Value) -> Value:
    """a·b + c, rounded once where the target has such an instruction; c has the type of the result."""
    kind = vector.FMAOp if shape_of_vector(c.type) else math.FmaOp
    return c.code.op(kind.create(operands=[c.like(a).ssa, c.like(b).ssa, c.ssa], result_types=[c.type]))


def select(condition: Value, x: Operand, y: Operand) -> Value:
    """`x` where the condition holds, else `y`; one of them has the type of the result."""
    like = x if isinstance(x, Value) and (not isinstance(y, Value) or shape_of_vector(x.type)) else y
    assert isinstance(like, Value)
    return like.code.op(arith.SelectOp(condition.ssa, like.like(x).ssa, like.like(y).ssa), signed=like.signed)


def maximum(x: Value, y: Value) -> Value:
    """The larger; NaN if one is."""
    if x.is_float:
        return x.code.op(arith.MaximumfOp(x.ssa, y.ssa))
    return x.code.op((arith.MaxSIOp if x.signed else arith.MaxUIOp)(x.ssa, y.ssa), signed=x.signed)


def minimum(x: Value, y: Value) -> Value:
    """The smaller; NaN if one is."""
    if x.is_float:
        return x.code.op(arith.MinimumfOp(x.ssa, y.ssa))
    return x.code.op((arith.MinSIOp if x.signed else arith.MinUIOp)(x.ssa, y.ssa), signed=x.signed)


def sqrt(x: Value) -> Value:
    return x.code.op(math.SqrtOp(x.ssa))


def absolute(x: Value) -> Value:
    return x.code.op(math.AbsFOp(x.ssa))


def with_sign_of(x: Value, sign: Value) -> Value:
    """The size of x with the sign of another number."""
    return x.code.op(math.CopySignOp(x.ssa, sign.ssa))
