"""Partition of rows around an element of given rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, Tensor, element_type_of, number, rank_of, shape_of, tensor_type
from dlc.dialects.dl.interfaces import RowwiseKernel
from dlc.dialects.dl.library_kernels.row_sorting import from_ordered_keys, has_permutable_keys, to_ordered_keys
from dlc.errors import DTypeError, ShapeError
from dlc.ir import IntegerAttr, TensorType, irdl_op_definition, operand_def, prop_def, result_def
from dlc.shapes.dims import is_known_less

# The size of the vectors that `vector.compress` compresses.
PARTITION_VECTOR_BYTES = 32


@irdl_op_definition
class PartitionOp(RowwiseKernel):
    """The rows of `x` [a, n]: first the elements below that of rank `kth`, then the equal ones, then the larger ones.

    Elements of each part keep their order. NaN counts as the largest, -0 as below 0: see Note [Sorting integers]. Quickselect:
    a sample of a long row bounds the element of rank `kth`, and few elements are within the bounds.
    (C1) `x` has rank 2 and a signed integer or float type of 32 or 64 bits; (C2) `kth` is an index of a row, which has at least
    32 bytes and a static size in a kernel.
    """

    name = "dl.partition"
    x = operand_def(TensorType)
    kth = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        element, shape, kth = element_type_of(self.x), shape_of(self.x), number(self.kth)
        if not has_permutable_keys(element):
            raise DTypeError(f"{self.name}: x of {element}; expected signed integers or floats of 32 or 64 bits (C1)")
        if rank_of(self.x) != 2 or is_known_less(shape[1] * scalar.bits(element), 8 * PARTITION_VECTOR_BYTES):
            raise ShapeError(f"{self.name}: x of shape {shape}; expected rank 2 and rows of at least 32 bytes (C1, C2)")
        if kth < 0 or is_known_less(shape[1], kth + 1):
            raise ShapeError(f"{self.name}: kth {kth} for rows of {shape[1]} elements (C2)")
        return [tensor_type(shape, element)]

    def reference(self, *operands: Array) -> Array:
        keys = to_ordered_keys(operands[0])
        pivots = np.sort(keys, axis=1)[:, [number(self.kth)]]
        order = np.argsort((keys > pivots).astype(np.int8) - (keys < pivots), axis=1, kind="stable")
        return from_ordered_keys(np.take_along_axis(keys, order, 1), operands[0].dtype)
