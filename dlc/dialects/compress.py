"""`vector.compress`: the selected elements of a vector, which MLIR can only store (`vector.compressstore`)."""

from __future__ import annotations

from typing import cast

from dlc.ir import (
    Attribute,
    IndexType,
    IRDLOperation,
    VectorType,
    VerifyException,
    i1,
    irdl_op_definition,
    operand_def,
    result_def,
)


@irdl_op_definition
class CompressOp(IRDLOperation):
    """The elements of `source` whose lanes are true in `mask`, first and in order, and their number.

    The other lanes of the result have unspecified values.
    (C1) `source` has rank 1; (C2) `mask` has the same shape and elements of i1.
    """

    name = "vector.compress"
    mask = operand_def(VectorType)
    source = operand_def(VectorType)
    result = result_def(VectorType)
    count = result_def(IndexType)

    def verify_(self) -> None:
        mask, source = cast("VectorType[Attribute]", self.mask.type), cast("VectorType[Attribute]", self.source.type)
        if len(source.get_shape()) != 1 or mask.element_type != i1 or mask.get_shape() != source.get_shape():
            raise VerifyException(
                f"vector.compress: mask {mask} of {source}; expected a vector of rank 1, and elements of i1 of the same shape"
            )
        if self.result.type != source:
            raise VerifyException(f"vector.compress: result {self.result.type}; expected {source}")
