"""Greatest common divisors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import DivOp, ModOp, MulOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import TruncOp
from dlc.dialects.dl.arithmetic.logic import AndOp, GreaterOp
from dlc.dialects.dl.arithmetic.pointwise import common_element_type
from dlc.dialects.dl.base import Array, Tensor, broadcast_shapes, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Composite, is_unsigned
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp
from dlc.dialects.dl.programs.control import WhileOp
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dialects.dl.reductions.reduction import ReduceAnyOp
from dlc.errors import DTypeError
from dlc.ir import Attribute, Block, SSAValue, TensorType, f32, f64, irdl_op_definition, operand_def, result_def
from dlc.shapes.dims import product


@irdl_op_definition
class GcdOp(Composite):
    """The greatest common divisor of unsigned integers, by Euclid's algorithm; gcd(0, 0) is 0. Operands broadcast.

    (C1) the operands have one element type, an unsigned integer other than bool; (C2) their shapes broadcast.
    """

    name = "dl.gcd"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element = common_element_type(self, self.operands, ("integer",))
        if not is_unsigned(element):
            raise DTypeError(f"{self.name}: element type {element}; expected an unsigned integer (C1)")
        return [tensor_type(broadcast_shapes(self.name, *map(shape_of, self.operands)), element)]

    def reference(self, *operands: Array) -> Array:
        return np.asarray(np.gcd(*operands))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Emit a loop over all elements at once, in the form of Note [Lanes of while loops]."""
        build, element = DlBuilder(self), element_type_of(self.x)
        shape = broadcast_shapes(self.name, *map(shape_of, operands))
        computed_type = _exact_type(element)
        a, b = (
            cast_to(build, build(ReshapeOp, build(BroadcastToOp, v, shape=shape), shape=(product(shape),)), computed_type)
            for v in operands
        )
        is_running = build(GreaterOp, b, build.scalar(0, like=b))
        body = Block(arg_types=[is_running.type, a.type, b.type])
        inner, (running, dividend, divisor) = DlBuilder(body, build.location), body.args
        # A divisor of 0 ends the loop of an element: its remainder is unused.
        remainder = _remainder(inner, dividend, divisor)
        next_running = inner(AndOp, running, inner(GreaterOp, remainder, inner.scalar(0, like=remainder)))
        next_states = (inner(SelectOp, running, divisor, dividend), inner(SelectOp, running, remainder, divisor))
        body.add_op(YieldOp([inner(ReduceAnyOp, next_running, axes=(0,), keepdims=False), next_running, *next_states]))
        condition = build(ReduceAnyOp, is_running, axes=(0,), keepdims=False)
        _, divisors, _ = build.insert(WhileOp.of(condition, [is_running, a, b], body)).results
        return [build(ReshapeOp, cast_to(build, divisors, element), shape=shape)]


def _exact_type(element: Attribute) -> Attribute:
    """Return a type that represents the integers of a type: a float, which vectors divide, if it has enough mantissa bits."""
    bits = scalar.bits(element)
    return f32 if bits <= 16 else f64 if bits <= 32 else element


def _remainder(build: DlBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """Return the remainder of integers, which floats may represent.

    The truncated quotient of floats is exact: another quotient than an integer is below the next one by at least 1/y, and the
    float has enough mantissa bits that it does not round up.
    """
    if element_type_of(x) not in (f32, f64):
        return build(ModOp, x, y)
    return build(SubOp, x, build(MulOp, build(TruncOp, build(DivOp, x, y)), y))
