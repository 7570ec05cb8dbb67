"""Argmax and argmin along an axis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.pointwise import common_element_type, widen_array
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    element_type_of,
    flag,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.library_kernels.axis_scans import ArgExtremumOp
from dlc.dialects.dl.movement.indexing import GatherElementsOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.reductions.reduction import reduced_shape
from dlc.errors import ShapeError
from dlc.ir import (
    BoolAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    f32,
    i8,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_less, is_static, product

# Number of elements of a segment; minimum number of rows that give enough parallel tasks without segments.
_SEGMENT_ELEMENTS, _MIN_UNSEGMENTED_ROWS = 1 << 16, 16


class ArgReduction(Composite, ABC):
    """The index of the extremum along `axis`, as i64: the first one, or the last if `select_last` is set; NaN is extreme.

    (C1) `axis` is an axis of `x`; (C2) its size is not 0, unless the result has no elements; (C3) the result has the shape
    of `x` without `axis`, or with size 1 there if `keepdims` is set.
    """

    SMALLEST: ClassVar[bool]
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    keepdims = opt_prop_def(BoolAttr)
    select_last = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def reduction_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    def infer(self) -> Sequence[Tensor]:
        common_element_type(self, [self.x], ("float", "integer", "bool"))
        shape = shape_of(self.x)
        result_shape = reduced_shape(shape, (self.reduction_axis,), flag(self.keepdims))
        # Negative if the axis has no elements, but there are rows.
        if is_known_less(product(result_shape) * (shape[self.reduction_axis] - 1), 0):
            raise ShapeError(f"{self.name}: axis {self.reduction_axis} of {shape} has no elements (C2)")
        return [tensor_type(result_shape, i64)]

    @abstractmethod
    def first_extremum(self, x: Array, axis: int) -> Array:
        """Return the first index of the extremum with NumPy."""

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.reduction_axis
        if not x.size:
            # NumPy raises for an empty axis even if the result is empty.
            return np.zeros([int(s) for s in reduced_shape(x.shape, (axis,), flag(self.keepdims))], np.int64)
        x = widen_array(x)
        positions = self.first_extremum(np.flip(x, axis) if flag(self.select_last) else x, axis)
        positions = x.shape[axis] - 1 - positions if flag(self.select_last) else positions
        return np.expand_dims(positions, axis) if flag(self.keepdims) else positions

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        (x,), axis, build = operands, self.reduction_axis, DlBuilder(self)
        shape, element = shape_of(x), element_type_of(x)
        if is_bool(element) or element != scalar.wide_float(element):
            x = build(CastOp, x, to=i8 if is_bool(element) else f32)
        outer_size, inner_size = product(shape[:axis]), product(shape[axis + 1 :])
        rows = build(ReshapeOp, x, shape=(outer_size, shape[axis], inner_size))
        settings = {"smallest": self.SMALLEST, "last": flag(self.select_last)}
        num_segments = _num_segments(outer_size, shape[axis], inner_size)
        if num_segments > 1:
            # The extremum of the extrema of all segments, which are parallel tasks.
            segment_results = build(ArgExtremumOp, rows, segments=num_segments, **settings)
            best = build(ArgExtremumOp, build(GatherElementsOp, rows, segment_results, axis=1), **settings)
            indices = build(
                GatherElementsOp, segment_results, build(ReshapeOp, best, shape=(outer_size, 1, inner_size)), axis=1
            )
        else:
            indices = build(ArgExtremumOp, rows, **settings)
        return [build(ReshapeOp, indices, shape=reduced_shape(shape, (axis,), flag(self.keepdims)))]


@irdl_op_definition
class ArgmaxOp(ArgReduction):
    """The index of the largest element along `axis`; NaN counts as largest."""

    name = "dl.argmax"
    SMALLEST: ClassVar[bool] = False

    def first_extremum(self, x: Array, axis: int) -> Array:
        return np.argmax(x, axis)


@irdl_op_definition
class ArgminOp(ArgReduction):
    """The index of the smallest element along `axis`; NaN counts as smallest."""

    name = "dl.argmin"
    SMALLEST: ClassVar[bool] = True

    def first_extremum(self, x: Array, axis: int) -> Array:
        return np.argmin(x, axis)


def _num_segments(outer_size: Size, n: Size, inner_size: Size) -> int:
    """Return the number of segments that a few long rows are divided into, so that threads share them; 1 for many rows."""
    if not is_static((outer_size, n, inner_size)) or int(outer_size * inner_size) >= _MIN_UNSEGMENTED_ROWS:
        return 1
    return int(n) // (_SEGMENT_ELEMENTS // max(1, int(inner_size)))
