"""`vector.shape_cast`, which MLIR has and xDSL lacks: a vector reshaped in row-major order."""

from __future__ import annotations

from dlc.ir import IRDLOperation, VectorType, irdl_op_definition, operand_def, result_def


@irdl_op_definition
class ShapeCastOp(IRDLOperation):
    """`source` as a vector of another shape with the same number of elements of the same type."""

    name = "vector.shape_cast"
    source = operand_def(VectorType)
    result = result_def(VectorType)
    assembly_format = "$source attr-dict `:` type($source) `to` type($result)"
