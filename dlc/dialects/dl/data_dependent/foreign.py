"""Calls of user functions, in Python or native code (`dlc.pure_callback`, `dlc.ffi`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dlc.dialects.dl.base import Tensor, number, rank_of
from dlc.dialects.dl.interfaces import DataDependent
from dlc.errors import ShapeError
from dlc.ir import (
    ArrayAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    var_operand_def,
    var_result_def,
)
from dlc.runtime.python_ops.foreign_functions import label_of
from dlc.runtime.python_ops.registry import OpSetting


@irdl_op_definition
class ForeignCallOp(DataDependent):
    """A call of a pure user function: the results, of `types`, for each entry of the leading `batch_axes` of `arguments`.

    `function` is its name in a table of this process (`dlc/runtime/python_ops/foreign_functions.py`), so that a program that
    contains it cannot be saved. Operands and results have the same batch.
    (C1) operands have at least `batch_axes` axes; (C2) with `batch_axes` there is an operand.
    """

    name = "dl.foreign_call"
    arguments = var_operand_def(TensorType)
    function = prop_def(StringAttr)
    types = prop_def(ArrayAttr)
    batch_axes = opt_prop_def(IntegerAttr)
    outputs = var_result_def(TensorType)

    @property
    def batch_rank(self) -> int:
        """The number of leading batch axes."""
        return 0 if self.batch_axes is None else number(self.batch_axes)

    @property
    def label(self) -> str:
        """The call in messages, such as `dlc.pure_callback(f)`."""
        return label_of(self.function.data)

    def infer(self) -> Sequence[Tensor]:
        if self.batch_rank and not all(rank_of(v) >= self.batch_rank for v in self.operands):
            ranks = [rank_of(v) for v in self.operands]
            raise ShapeError(f"{self.name}: operands of ranks {ranks}; expected {self.batch_rank} batch axes (C1)")
        if self.batch_rank and not self.operands:
            raise ShapeError(f"{self.name}: a batch without operands (C2)")
        return [cast(Tensor, t) for t in self.types.data]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"function": self.function.data, "batch_axes": self.batch_rank}
