"""Creation: tensors that are computed from properties only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, cast

import numpy as np

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import Array, DlOp, Tensor, number, sizes, tensor_type
from dlc.dialects.dl.dtypes import array_of, is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, GatherLike
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    SSAValue,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    arith,
    i64,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes import dims
from dlc.shapes.polynomials import degree

_MAX_I64_SIZE = (1 << 63) - 1


@irdl_op_definition
class ConstantOp(DlOp):
    """A small literal tensor: scalars, shapes, bounds. Larger arrays are `dl.weight`.

    `unspecified`: no result of the program depends on the elements, so that buffers for them are not initialized.

    (C1) the result type is the type of the literal.
    """

    name = "dl.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    unspecified = opt_prop_def(UnitAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [cast(Tensor, self.value.type)]

    def reference(self, *operands: Array) -> Array:
        return array_of(self.value)


@irdl_op_definition
class WeightOp(DlOp):
    """An array of the weights store, by name: `dl.weight {symbol = @w7, type = tensor<64xf32>}`.

    `interval` is the minimum and the maximum of its elements, for 8-bit integers.

    (C1) the result type is `type`, which is static.
    """

    name = "dl.weight"
    symbol = prop_def(SymbolRefAttr)
    type = prop_def(TensorType)
    interval = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)

    @classmethod
    def of(cls, symbol: str, array: Array, type: Tensor) -> Self:
        """Return the op for an array of the weights store."""
        has_interval = array.dtype.name in ("int8", "uint8") and array.size > 0
        interval = (int(array.min()), int(array.max())) if has_interval else None
        return cls.make(symbol=SymbolRefAttr(symbol), type=type, interval=interval)

    def infer(self) -> Sequence[Tensor]:
        return [self.type]

    def reference(self, *operands: Array) -> Array:
        raise DlcError(f"dl.weight {self.symbol}: its value is in the weights store, not in the IR")


@irdl_op_definition
class SizeOp(GatherLike):
    """A size, static or symbolic, as a rank-0 tensor.

    Integers wrap around; floats round once. (C1) `size` is one size; (C2) `to` is an integer or float element type.
    """

    name = "dl.size"
    size = prop_def(DenseArrayBase | DimsAttr)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        size = sizes(self.size)
        if len(size) != 1:
            raise ShapeError(f"dl.size: size {size}, expected one size (C1)")
        # Axes have fewer than 2^31 elements, so that the product of two sizes fits.
        if degree(size[0]) > 2 and dims.is_known_less(_MAX_I64_SIZE, size[0]):
            raise ShapeError(f"dl.size: the size {size[0]} exceeds 64 bits")
        numpy_dtype(self.to)
        if is_bool(self.to):
            raise DTypeError("dl.size: element type i1; expected an integer or float type (C2)")
        return [tensor_type((), self.to)]

    def reference(self, *operands: Array) -> Array:
        (size,) = sizes(self.size)
        if not dims.is_static([size]):
            raise ShapeError(f"dl.size: the size {size} is symbolic; bind it to evaluate the op")
        return np.asarray(int(size), np.int64).astype(numpy_dtype(self.to))

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        return scalar.convert(body, scalar.as_i64(body, sizes(self.size)[0]), i64, self.to)


@irdl_op_definition
class IotaOp(GatherLike):
    """The vector `start, start + step, …`: element `i` is `start + i·step`.

    Integers wrap around; 16-bit floats compute in f32 and round once.
    (C1) `size` is one size; (C2) `to` is an integer or float element type; (C3) `start` and `step` are integers if `to` is one.
    """

    name = "dl.iota"
    size = prop_def(DenseArrayBase | DimsAttr)
    to = prop_def(Attribute)
    start = prop_def(IntegerAttr | FloatAttr)
    step = prop_def(IntegerAttr | FloatAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        size = sizes(self.size)
        if len(size) != 1:
            raise ShapeError(f"dl.iota: size {size}, expected one size (C1)")
        if dims.is_known_less(size[0], 0):
            raise ShapeError(f"dl.iota: negative size {size[0]} (C1)")
        numpy_dtype(self.to)
        if is_bool(self.to):
            raise DTypeError("dl.iota: element type i1; expected an integer or float type (C2)")
        if not is_float(self.to) and (isinstance(self.start, FloatAttr) or isinstance(self.step, FloatAttr)):
            raise DTypeError(f"dl.iota: start and step must be integers for {self.to} (C3)")
        return [tensor_type(size, self.to)]

    def reference(self, *operands: Array) -> Array:
        (size,) = sizes(self.size)
        if not dims.is_static([size]):
            raise ShapeError(f"dl.iota: the size {size} is symbolic; bind it to evaluate the op")
        dtype = numpy_dtype(self.to)
        wide = numpy_dtype(scalar.wide_float(self.to) if is_float(self.to) else i64)
        with np.errstate(all="ignore"):
            steps = np.arange(int(size)).astype(wide) * wide.type(number(self.step))
            return (steps + wide.type(number(self.start))).astype(dtype)

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        wide = scalar.wide_float(self.to) if is_float(self.to) else i64
        i = scalar.convert(body, body(arith.IndexCastOp(indices[0], i64)), i64, wide)
        steps = scalar.multiply(body, i, scalar.constant(body, number(self.step), wide))
        value = scalar.add(body, steps, scalar.constant(body, number(self.start), wide))
        return scalar.convert(body, value, wide, self.to)
