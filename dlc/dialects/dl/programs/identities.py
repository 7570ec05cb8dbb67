"""Identity ops: they return their operand and give the compiler information about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc.dialects.dl.arithmetic.pointwise import Unary
from dlc.dialects.dl.base import Array, DlOp, Tensor, tensor_of
from dlc.dialects.dl.interfaces import Body
from dlc.ir import SSAValue, TensorType, irdl_op_definition, operand_def, result_def


@irdl_op_definition
class StopGradientOp(Unary):
    """`x`, treated as a constant by differentiation."""

    name = "dl.stop_gradient"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool", "storage-only")

    def numpy(self, x: Array) -> Array:
        return x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return x


@irdl_op_definition
class AddDependencyOp(DlOp):
    """`x`, ordered after `y`: ops that read the result run after the op that computes `y`.

    Two such ops are equal only if both operands are, so that CSE does not replace ops that recompute values from the result.
    The result is a view of the buffer of `x`. `y` may have any type.
    """

    name = "dl.add_dependency"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_of(self.x)]

    def reference(self, *operands: Array) -> Array:
        return operands[0]
