"""Places of extrema along an axis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.pointwise import common_element_type, widened
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
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.indexing import GatherElementsOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.procedures.walks import ExtremePlaceOp
from dlc.dialects.dl.reductions.reduction import reduced_shape
from dlc.dims import Size, is_static, product
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

# Elements of a stretch, and the rows from which on there are enough tasks.
_STRETCH, _ROWS = 1 << 16, 16


class ArgExtremum(Composite, ABC):
    """The place of the extremum along `axis`, as i64: the first one, the last if `select_last` is set; NaN is extreme.

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
        found = reduced_shape(shape, (self.reduction_axis,), flag(self.keepdims))
        if shape[self.reduction_axis] == 0 and 0 not in found:
            raise ShapeError(f"{self.name}: axis {self.reduction_axis} of {shape} has no elements (C2)")
        return [tensor_type(found, i64)]

    @abstractmethod
    def place(self, x: Array, axis: int) -> Array:
        """The first place of the extremum, in NumPy."""

    def reference(self, *operands: Array) -> Array:
        (x,), axis = operands, self.reduction_axis
        if not x.size:
            # NumPy looks for a place in nothing, even where there is nowhere to put it.
            return np.zeros([int(s) for s in reduced_shape(x.shape, (axis,), flag(self.keepdims))], np.int64)
        x = widened(x)
        found = self.place(np.flip(x, axis) if flag(self.select_last) else x, axis)
        found = x.shape[axis] - 1 - found if flag(self.select_last) else found
        return np.expand_dims(found, axis) if flag(self.keepdims) else found

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        (x,), axis, b = operands, self.reduction_axis, Build(self)
        shape, element = shape_of(x), element_type_of(x)
        if is_bool(element) or element != scalar.wide_float(element):
            x = b(CastOp, x, to=i8 if is_bool(element) else f32)
        before, behind = product(shape[:axis]), product(shape[axis + 1 :])
        rows = b(ReshapeOp, x, shape=(before, shape[axis], behind))
        settings = {"smallest": self.SMALLEST, "last": flag(self.select_last)}
        stretches = _stretches(before, shape[axis], behind)
        if stretches > 1:
            # The best of the best, in their order; a stretch is a task.
            each = b(ExtremePlaceOp, rows, parts=stretches, **settings)
            best = b(ExtremePlaceOp, b(GatherElementsOp, rows, each, axis=1), **settings)
            places = b(GatherElementsOp, each, b(ReshapeOp, best, shape=(before, 1, behind)), axis=1)
        else:
            places = b(ExtremePlaceOp, rows, **settings)
        return [b(ReshapeOp, places, shape=reduced_shape(shape, (axis,), flag(self.keepdims)))]


@irdl_op_definition
class ArgmaxOp(ArgExtremum):
    """The place of the largest element along `axis`; NaN counts as largest."""

    name = "dl.argmax"
    SMALLEST: ClassVar[bool] = False

    def place(self, x: Array, axis: int) -> Array:
        return np.argmax(x, axis)


@irdl_op_definition
class ArgminOp(ArgExtremum):
    """The place of the smallest element along `axis`; NaN counts as smallest."""

    name = "dl.argmin"
    SMALLEST: ClassVar[bool] = True

    def place(self, x: Array, axis: int) -> Array:
        return np.argmin(x, axis)


def _stretches(before: Size, n: Size, behind: Size) -> int:
    """Of how many stretches extreme places are looked for apart: of a few long rows, so that they are shared out."""
    if not is_static((before, n, behind)) or int(before * behind) >= _ROWS:
        return 1
    return int(n) // (_STRETCH // max(1, int(behind)))
