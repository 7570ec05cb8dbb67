"""Conversions between element types: by value (`dl.cast`) and by bits (`dl.bitcast`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic import storage_formats
from dlc.dialects.dl.arithmetic.storage_formats import STORAGE_ONLY_FLOATS, decode_array, encode_array
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, is_storage_only, shape_of, tensor_type
from dlc.dialects.dl.dtypes import is_bool, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Elementwise
from dlc.errors import DTypeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    SSAValue,
    TensorType,
    f32,
    i8,
    i32,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)


@irdl_op_definition
class CastOp(Elementwise):
    """`x` with the element type `to`.

    Float to float rounds to nearest even. Float to integer truncates and saturates, NaN becomes 0. Integer to integer wraps
    around. To bool: true unless `x` is 0 (NaN is true). From bool: 0 or 1.

    To a storage-only float: infinity, and a value that rounds to more than the largest magnitude, becomes infinity. It becomes
    NaN if the format has no infinity, and the largest magnitude if the format has neither or `saturate` is set. NaN becomes
    NaN, or -0 if the format has none. To a storage-only integer: the lowest bits of the conversion to i32. To f8E8M0FNU, by way
    of f32: the power of two nearest to the magnitude, the larger one in a tie. Infinity becomes NaN, and so do magnitudes out
    of range unless `saturate` is set.

    (C1) the result has the shape of `x` and the element type `to`.
    """

    name = "dl.cast"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    saturate = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        numpy_dtype(self.to)
        return [tensor_type(shape_of(self.x), self.to)]

    def reference(self, *operands: Array) -> Array:
        (x,), source = operands, element_type_of(self.x)
        with np.errstate(all="ignore"):
            if is_storage_only(source):
                x, source = decode_array(x, source), f32 if source in STORAGE_ONLY_FLOATS else i8
            if self.to in STORAGE_ONLY_FLOATS:
                return encode_array(x, self.to, flag(self.saturate))
            if is_storage_only(self.to):
                return _convert_array(x, source, i32).astype(np.int8).astype(numpy_dtype(self.to))
            return _convert_array(x, source, self.to)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        source = element_type_of(self.x)
        if is_storage_only(source) or is_storage_only(self.to):
            return storage_formats.convert(body, elements[0], source, self.to, flag(self.saturate))
        return scalar.convert(body, elements[0], source, self.to)


def _convert_array(x: Array, source: Attribute, to: Attribute) -> Array:
    dtype = numpy_dtype(to)
    if is_bool(to):
        return x != 0
    if not is_float(source) or not is_integer(to):
        return x.astype(dtype)
    low, high = scalar.limits(to)
    wide = x.astype(np.float64)
    too_large, too_small = wide >= float(high + 1), wide < float(low)
    safe = np.where(np.isnan(wide) | too_large | too_small, 0.0, wide).astype(dtype)
    return np.where(too_large, dtype.type(high), np.where(too_small, dtype.type(low), safe))


@irdl_op_definition
class BitcastOp(Elementwise):
    """The bits of `x` as element type `to`: NumPy's `x.view(to)`.

    (C1) the result has the shape of `x` and the element type `to`; (C2) both element types have the same width and are not
    bool.
    """

    name = "dl.bitcast"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        source = element_type_of(self.x)
        if is_bool(source) or is_bool(self.to) or scalar.bits(source) != scalar.bits(self.to):
            raise DTypeError(f"dl.bitcast: from {source} to {self.to}; expected element types of one width, not bool (C2)")
        return [tensor_type(shape_of(self.x), self.to)]

    def reference(self, *operands: Array) -> Array:
        return np.ascontiguousarray(operands[0]).view(numpy_dtype(self.to)).reshape(operands[0].shape)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return scalar.bitcast(body, elements[0], self.to)
