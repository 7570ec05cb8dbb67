"""Identities: values as they are, with a word to the compiler about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc.dialects.dl.arithmetic.pointwise import Unary
from dlc.dialects.dl.base import Array, DlOp, Tensor, tensor_of
from dlc.dialects.dl.interfaces import Body
from dlc.ir import SSAValue, TensorType, irdl_op_definition, operand_def, result_def


@irdl_op_definition
class StopGradientOp(Unary):
    """`x`, a constant to whoever differentiates."""

    name = "dl.stop_gradient"
    TAKES_NARROW: ClassVar[bool] = True
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool", "narrow")

    def numpy(self, x: Array) -> Array:
        return x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return x


@irdl_op_definition
class AfterOp(DlOp):
    """`x`, but not before `y` is there: what reads the result runs after what makes `y`.

    Two of them are the same value only if both operands are, so that what is computed anew from the result is not found to
    be there already. It is a name for the buffer of `x`, and copies nothing. `y` may be of any type.
    """

    name = "dl.after"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_of(self.x)]

    def reference(self, *operands: Array) -> Array:
        return operands[0]
