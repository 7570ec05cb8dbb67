"""Creation: tensors from nothing but properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlc.dialects.dl.base import Array, DlOp, Tensor
from dlc.dialects.dl.dtypes import array_of
from dlc.errors import DlcError
from dlc.ir import (
    DenseIntOrFPElementsAttr,
    SymbolRefAttr,
    TensorType,
    irdl_op_definition,
    prop_def,
    result_def,
)


@irdl_op_definition
class ConstantOp(DlOp):
    """A small literal tensor: scalars, shapes, bounds. Anything larger is a weight.

    (C1) the result type is the literal's.
    """

    name = "dl.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [cast(Tensor, self.value.type)]

    def reference(self, *operands: Array) -> Array:
        return array_of(self.value)


@irdl_op_definition
class WeightOp(DlOp):
    """An array of the weights store, by name: `dl.weight {symbol = @w7, type = tensor<64xf32>}`.

    (C1) the result type is `type`, static.
    """

    name = "dl.weight"
    symbol = prop_def(SymbolRefAttr)
    type = prop_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [self.type]

    def reference(self, *operands: Array) -> Array:
        raise DlcError(f"dl.weight {self.symbol}: its value is in the weights store, not in the IR")
