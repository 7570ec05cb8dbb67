"""Pooling: reductions over sliding windows of a channels-last tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, ints, shape_of, tensor_type
from dlc.dialects.dl.contractions.contraction import iteration_space
from dlc.dialects.dl.contractions.convolution import window_sizes, windows_of
from dlc.dialects.dl.dtypes import is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Structure, Window
from dlc.dialects.dl.scalar import add, limits, maximum, wide_float
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    AffineExpr,
    DenseArrayBase,
    SSAValue,
    TensorType,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)


class Pool(Window):
    """`y[n, s, c]` combines `x[n, s·stride + k·dilation, c]` over the window offsets k; `x` is [N, *S, C], without padding."""

    x = operand_def(TensorType)
    kernel = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    UFUNC: ClassVar[np.ufunc]

    def infer(self) -> Sequence[Tensor]:
        x, kernel = shape_of(self.x), ints(self.kernel)
        if len(x) < 3 or min(kernel, default=0) < 1:
            raise ShapeError(f"{self.name}: x {x} must be [N, *spatial, C] and the kernel {kernel} positive")
        if is_bool(element_type_of(self.x)):
            raise DTypeError(f"{self.name}: element type i1; expected integers or floats, cast the operand (C1)")
        spatial = window_sizes(self, x[1:-1], kernel, ints(self.strides), ints(self.dilations))
        return [tensor_type((x[0], *spatial, x[-1]), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        x = operands[0]
        wide = x.astype(numpy_dtype(wide_float(element_type_of(self.x))), copy=False)
        kernel = ints(self.kernel)
        windows = windows_of(wide, kernel, ints(self.strides), ints(self.dilations))
        taps = (windows[(..., *tap)] for tap in np.ndindex(*kernel))
        return reduce(self.UFUNC, taps).astype(x.dtype)

    def structure(self) -> Structure:
        x, y = map(shape_of, (self.x, self.result))
        spatial = len(x) - 2

        def indices(*iterators: AffineExpr) -> Sequence[Sequence[AffineExpr]]:
            n, s, c, k = iterators[0], iterators[1 : spatial + 1], iterators[spatial + 1], iterators[spatial + 2 :]
            positions = [
                a * stride + tap * dilation
                for a, tap, stride, dilation in zip(s, k, ints(self.strides), ints(self.dilations), strict=True)
            ]
            return [n, *positions, c], [n, *s, c]

        return iteration_space(y, ints(self.kernel), (x, y), indices)


@irdl_op_definition
class MaxPoolOp(Pool):
    """`y[n, s, c] = maxₖ x[n, s·stride + k·dilation, c]`; NaN if the window contains NaN.

    (C1) `x` is [N, *S, C] of integers or floats; (C2) `kernel`, `strides` and `dilations` have a positive entry per spatial
    axis; (C3) the dilated window fits. Padding is a `dl.pad` with the lowest value before it.

        >>> build(MaxPoolOp, x, kernel=(2, 2), strides=(2, 2), dilations=(1, 1))   # [1, 8, 8, 3] → [1, 4, 4, 3]
    """

    name = "dl.max_pool"
    UFUNC: ClassVar[np.ufunc] = np.maximum

    def identity(self) -> int | float:
        return limits(element_type_of(self.x))[0]

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return maximum(body, accumulator, element, element_type_of(self.x))


@irdl_op_definition
class SumPoolOp(Pool):
    """`y[n, s, c] = Σₖ x[n, s·stride + k·dilation, c]`; 16-bit floats are summed in f32, integers wrap around.

    (C1) `x` is [N, *S, C] of integers or floats; (C2) `kernel`, `strides` and `dilations` have a positive entry per spatial
    axis; (C3) the dilated window fits. An average is the sum divided by the number of elements.
    """

    name = "dl.sum_pool"
    UFUNC: ClassVar[np.ufunc] = np.add

    def identity(self) -> int | float:
        return 0.0 if is_float(element_type_of(self.x)) else 0

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return add(body, accumulator, element)
