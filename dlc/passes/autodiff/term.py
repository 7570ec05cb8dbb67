"""Values with overloaded operators, so that rules read like formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, PropertyValue, element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.scalar import wide_float
from dlc.ir import Attribute, SSAValue
from dlc.shapes.dims import Size

Number: TypeAlias = "int | float"


@dataclass(frozen=True)
class Term:
    """A value in a formula; an operator inserts the `dl` op of the same name with builder `build`."""

    build: DlBuilder
    value: SSAValue

    @property
    def shape(self) -> tuple[Size, ...]:
        return shape_of(self.value)

    @property
    def is_bool(self) -> bool:
        return is_bool(element_type_of(self.value))

    def op(self, op_class: type[DlOp], *operands: Term | Number, **properties: PropertyValue | None) -> Term:
        """Return the result of an op on this value and others; a Python number becomes a constant of this value's type."""
        values = [o.value if isinstance(o, Term) else self.build.scalar(o, like=self.value) for o in operands]
        return Term(self.build, self.build(op_class, self.value, *values, **properties))

    def __add__(self, other: Term | Number) -> Term:
        return self.op(dl.AddOp, other)

    def __sub__(self, other: Term | Number) -> Term:
        return self.op(dl.SubOp, other)

    def __mul__(self, other: Term | Number) -> Term:
        return self.op(dl.MulOp, other)

    def __truediv__(self, other: Term | Number) -> Term:
        return self.op(dl.DivOp, other)

    def __pow__(self, other: Term | Number) -> Term:
        return self.op(dl.PowOp, other)

    def __radd__(self, other: Number) -> Term:
        return self + other

    def __rsub__(self, other: Number) -> Term:
        return self.like(other) - self

    def __rmul__(self, other: Number) -> Term:
        return self * other

    def __rtruediv__(self, other: Number) -> Term:
        return self.like(other) / self

    def __neg__(self) -> Term:
        return self.op(dl.NegOp)

    def __gt__(self, other: Term | Number) -> Term:
        return self.op(dl.GreaterOp, other)

    def __lt__(self, other: Term | Number) -> Term:
        return self.op(dl.LessOp, other)

    def __and__(self, other: Term) -> Term:
        return self.op(dl.AndOp, other)

    def __or__(self, other: Term) -> Term:
        return self.op(dl.OrOp, other)

    def __invert__(self) -> Term:
        return self.op(dl.NotOp)

    def cast(self, element_type: Attribute) -> Term:
        """Convert the elements; return itself if they have that type."""
        return self if element_type_of(self.value) == element_type else self.op(dl.CastOp, to=element_type)

    def widened(self) -> Term:
        """Convert 16-bit floats to f32, in which sums and counts do not overflow; return other values themselves."""
        return self.cast(wide_float(element_type_of(self.value)))

    def equals(self, other: Term | Number) -> Term:
        """Return the elementwise comparison with another value."""
        return self.op(dl.EqualOp, other)

    def like(self, value: Number) -> Term:
        """Return a constant of this value's type."""
        return Term(self.build, self.build.scalar(value, like=self.value))

    def sum(self, *axes: int) -> Term:
        """Sum along axes, which stay with size 1 (keepdims)."""
        return self.op(dl.ReduceSumOp, axes=axes, keepdims=True) if axes else self

    def reshape(self, *shape: Size) -> Term:
        """Reshape; return itself if it has that shape."""
        return self if self.shape == shape else self.op(dl.ReshapeOp, shape=shape)

    def transpose(self, *axes: int) -> Term:
        """Permute the axes; return itself for the identity."""
        return self if axes == tuple(range(len(axes))) else self.op(dl.TransposeOp, permutation=axes)

    def matrix_transpose(self) -> Term:
        """Exchange the last two axes."""
        *leading, rows, columns = range(len(self.shape))
        return self.transpose(*leading, columns, rows)

    def broadcast(self, *shape: Size) -> Term:
        """Broadcast to a shape; return itself if it has that shape."""
        return self if self.shape == shape else self.op(dl.BroadcastToOp, shape=shape)


def where(condition: Term, x: Term | Number, y: Term | Number) -> Term:
    """Select `x` where the condition holds, else `y`; at least one of them is a term."""
    like = x if isinstance(x, Term) else y
    assert isinstance(like, Term)
    operands = [v if isinstance(v, Term) else like.like(v) for v in (x, y)]
    return condition.op(dl.SelectOp, *operands)


def _function(op_class: type[DlOp]) -> Callable[[Term], Term]:
    return lambda x: x.op(op_class)


exp, log, sin, cos, sinh, cosh, tanh, erf, sqrt, rsqrt, sign, floor, trunc = map(
    _function,
    (
        dl.ExpOp,
        dl.LogOp,
        dl.SinOp,
        dl.CosOp,
        dl.SinhOp,
        dl.CoshOp,
        dl.TanhOp,
        dl.ErfOp,
        dl.SqrtOp,
        dl.RsqrtOp,
        dl.SignOp,
        dl.FloorOp,
        dl.TruncOp,
    ),
)
