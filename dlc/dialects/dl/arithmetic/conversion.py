"""Conversion: elements as another element type, by value or by their bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic import narrow
from dlc.dialects.dl.arithmetic.narrow import FLOATS, narrowed, widened
from dlc.dialects.dl.base import Array, Tensor, element_type_of, flag, is_narrow, shape_of, tensor_type
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
    """`x` as element type `to`.

    Float to float rounds to nearest even. Float to integer truncates and saturates, NaN becomes 0. Integer to integer
    wraps around. To bool: whether `x` is not 0 (NaN is not). From bool: 0 or 1.
    To a narrow float, what rounds to more than the largest magnitude, infinity too, becomes infinity, NaN where there is
    none, the largest where there is neither or if `saturate`. NaN becomes NaN, -0 where there is none. To a narrow integer:
    the lowest bits of the i32 that it would be. To f8E8M0FNU, by way of f32: the nearest power of two, the larger of two, of
    the magnitude; infinity becomes NaN, and so does what is beyond unless `saturate`.
    (C1) the result has the shape of `x` and the element type `to`.
    """

    name = "dl.cast"
    TAKES_NARROW: ClassVar[bool] = True
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
            if is_narrow(source):
                x, source = widened(x, source), f32 if source in FLOATS else i8
            if self.to in FLOATS:
                return narrowed(x, self.to, flag(self.saturate))
            if is_narrow(self.to):
                return _converted(x, source, i32).astype(np.int8).astype(numpy_dtype(self.to))
            return _converted(x, source, self.to)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        source = element_type_of(self.x)
        if is_narrow(source) or is_narrow(self.to):
            return narrow.convert(body, elements[0], source, self.to, flag(self.saturate))
        return scalar.convert(body, elements[0], source, self.to)


def _converted(x: Array, source: Attribute, to: Attribute) -> Array:
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

    (C1) the result has the shape of `x` and the element type `to`; (C2) both element types have as many bits, neither is bool.
    """

    name = "dl.bitcast"
    TAKES_NARROW: ClassVar[bool] = True
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        source = element_type_of(self.x)
        if is_bool(source) or is_bool(self.to) or scalar.bits(source) != scalar.bits(self.to):
            raise DTypeError(f"dl.bitcast: the bits of {source} as {self.to}; expected numbers of one width (C2)")
        return [tensor_type(shape_of(self.x), self.to)]

    def reference(self, *operands: Array) -> Array:
        return np.ascontiguousarray(operands[0]).view(numpy_dtype(self.to)).reshape(operands[0].shape)

    def scalar(self, body: Body, *elements: SSAValue) -> SSAValue:
        return scalar.same_bits(body, elements[0], self.to)
