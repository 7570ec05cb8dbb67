"""Selection: results whose number of entries is data-dependent, such as the indices of nonzero elements.

The result types of these ops contain a new symbolic size, the property `size`. Kernels count the entries, and `dl.bind_size`
makes the count a size of the program (`dlc/compiler/segment_linker.py`). The functions of the same names in
`dlc/runtime/python_ops/registry.py` define the ops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import DivOp, MaximumOp, MulOp, SubOp
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    element_type_of,
    flag,
    rank_of,
    shape_of,
    sizes,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.interfaces import DataDependent, RowwiseKernel
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.errors import DTypeError
from dlc.ir import (
    BoolAttr,
    DenseArrayBase,
    IRDLOperation,
    ParsePropInAttrDict,
    SSAValue,
    TensorType,
    VerifyException,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.runtime.python_ops.registry import OpSetting
from dlc.shapes.dims import Size, product


class SelectionOp(DataDependent, ABC):
    """A data-dependent op whose results all have the data-dependent size `size`, a symbol or a static size."""

    size = prop_def(DenseArrayBase | DimsAttr)

    @property
    def count(self) -> Size:
        """The data-dependent size."""
        return sizes(self.size)[0]

    @property
    @abstractmethod
    def max_size(self) -> Size | None:
        """The upper bound of `size`; None if there is none."""

    @abstractmethod
    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Return the same results computed by ops that kernels support, and bind the size with `dl.bind_size`."""


@irdl_op_definition
class BindSizeOp(IRDLOperation):
    """Binds the symbol `size` to the value of `count`, a rank-0 i64: ops that follow may use the size.

        dl.bind_size %count {size = #dl.dims<"k">} : tensor<i64>

    It divides a program: no kernel contains ops from both sides of it.
    """

    name = "dl.bind_size"
    count = operand_def(TensorType)
    size = prop_def(DimsAttr)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$count attr-dict `:` type($count)"

    def __init__(self, count: SSAValue, size: Size) -> None:
        super().__init__(operands=[count], properties={"size": DimsAttr.of((size,))})

    @property
    def symbol(self) -> str:
        """The name of the size."""
        return str(self.size.sizes[0])

    def verify_(self) -> None:
        if self.count.type != tensor_type((), i64):
            raise VerifyException(f"dl.bind_size: count of type {self.count.type}; expected a rank-0 i64")


@irdl_op_definition
class TrueIndicesOp(RowwiseKernel):
    """The indices of the true elements in each row of `x` [a, n], ascending, as i64 [a, `size` + 1], followed by n as padding.

    If a row has more than `size` true elements, the first ones are returned. (C1) `x` is bool of rank 2.
    """

    name = "dl.true_indices"
    x = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if element_type_of(self.x) != i1 or rank_of(self.x) != 2:
            raise DTypeError(f"dl.true_indices: x of type {self.x.type}; expected bool of rank 2 (C1)")
        return [tensor_type((shape_of(self.x)[0], sizes(self.size)[0] + 1), i64)]

    def reference(self, *operands: Array) -> Array:
        (x,), size = operands, int(sizes(self.size)[0])
        result = np.full((len(x), size + 1), x.shape[1], np.int64)
        for indices, row in zip(result, x, strict=True):
            row_indices = np.flatnonzero(row)[:size]
            indices[: len(row_indices)] = row_indices
        return result


def true_indices(build_op: DlBuilder, flags: SSAValue, size: Size) -> SSAValue:
    """Return the indices of the true elements of a vector, followed by its length; bind `size` to their count."""
    count = build_op(ReduceSumOp, cast_to(build_op, flags, i64), axes=(0,))
    build_op.insert(BindSizeOp(count, size))
    indices = build_op(TrueIndicesOp, build_op(ReshapeOp, flags, shape=(1, *shape_of(flags))), size=(size,))
    return build_op(ReshapeOp, indices, shape=(size + 1,))


@irdl_op_definition
class NonzeroOp(SelectionOp):
    """The coordinates of the true elements of `x` in row-major order, one column each: NumPy's `stack(nonzero(x))`, as i64.

    (C1) `x` is bool; (C2) the result has the shape (rank of `x`, `size`). A rank-0 `x` that is true gives one column without
    coordinates.
    """

    name = "dl.nonzero"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if element_type_of(self.x) != i1:
            raise DTypeError(f"dl.nonzero: element type {element_type_of(self.x)}; expected bool, compare with 0 first (C1)")
        return [tensor_type((rank_of(self.x), self.count), i64)]

    @property
    def max_size(self) -> Size:
        return product(shape_of(self.x))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x,) = DlBuilder(self), operands
        shape, size = shape_of(x), self.count
        indices = true_indices(build, build(ReshapeOp, x, shape=(product(shape),)), size)
        remainder = build(SliceOp, indices, starts=(0,), limits=(size,), strides=(1,))
        rows: list[SSAValue] = []
        # Unravel row-major indices: for i·n + j, with n elements per step of the axis, first i, then j.
        for axis in range(1, len(shape)):
            step = build.size(product(shape[axis:]), like=remainder)
            rows.append(build(DivOp, remainder, step))
            remainder = build(SubOp, remainder, build(MulOp, rows[-1], step))
        if not shape:
            return [build(BroadcastToOp, build.scalar(0, like=remainder), shape=(0, size))]
        return [build(ConcatOp, *(build(ReshapeOp, row, shape=(1, size)) for row in (*rows, remainder)), axis=0)]


@irdl_op_definition
class DynamicIotaOp(SelectionOp):
    """The vector 0, 1, …, `number` - 1 as i64, which makes a data-dependent value a size.

    It is empty if `number` is negative. (C1) `number` is a rank-0 i64; (C2) the result is i64 [`size`]; (C3) `number` is at
    most `max_number`, if that is given.
    """

    name = "dl.dynamic_iota"
    number = operand_def(TensorType)
    max_number = opt_prop_def(DenseArrayBase | DimsAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if self.number.type != tensor_type((), i64):
            raise DTypeError(f"{self.name}: number of type {self.number.type}; expected a rank-0 i64 (C1)")
        return [tensor_type((self.count,), i64)]

    @property
    def max_size(self) -> Size | None:
        return None if self.max_number is None else sizes(self.max_number)[0]

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (size_value,) = DlBuilder(self), operands
        build.insert(BindSizeOp(build(MaximumOp, size_value, build.scalar(0, like=size_value)), self.count))
        return [build(IotaOp, size=(self.count,), to=i64, start=0, step=1)]


@irdl_op_definition
class DecodeImageOp(DataDependent):
    """Decodes an image file: `result[y, x, c]` are the pixels, RGB or gray.

    The bytes identify the format (PNG, JPEG, WebP, BMP, TIFF, PNM, …); transparency is dropped.
    (C1) `data` is ui8 of rank 1; (C2) the result is ui8 of the shape (`size`, 3), or (`size`, 1) if `gray`: `size` are the
    height and the width. Bytes in an unknown format and an empty `data` are errors.
    """

    name = "dl.decode_image"
    data = operand_def(TensorType)
    size = prop_def(DenseArrayBase | DimsAttr)
    gray = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        byte = element_type("uint8")
        if element_type_of(self.data) != byte or rank_of(self.data) != 1:
            raise DTypeError(f"{self.name}: data of type {self.data.type}; expected ui8 of rank 1 (C1)")
        return [tensor_type((*sizes(self.size), 1 if flag(self.gray) else 3), byte)]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"gray": flag(self.gray)}
