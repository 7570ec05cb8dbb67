"""Reductions: one operand combined along axes.

All take `axes` (an empty list: none) and `keepdims`, which leaves the reduced axes with size 1. Sums and products are
reassociated; 16-bit floats accumulate in f32 and round once. A reduction over no elements is the identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import nan
from typing import Any, ClassVar, cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.pointwise import common_element_type, widened
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    element_type_of,
    flag,
    ints,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import is_bool
from dlc.dialects.dl.interfaces import Body, Composite, Reduction
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.procedures.walks import ExtremePlaceOp
from dlc.dims import Size, product
from dlc.errors import ShapeError
from dlc.ir import (
    Attribute,
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    SSAValue,
    TensorType,
    arith,
    f32,
    i8,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)


def reduced_shape(shape: Sequence[Size], axes: Sequence[int], keepdims: bool) -> tuple[Size, ...]:
    """A shape without the reduced axes, or with size 1 there."""
    return tuple(1 if a in axes else s for a, s in enumerate(shape) if keepdims or a not in axes)


class AxisReduction(Reduction, ABC):
    """A reduction of one operand along `axes`.

    (C1) `axes` are distinct axes of `x`; (C2) the element type is of the kinds that the op takes and stays;
    (C3) the result has the shape of `x` without `axes`, or with size 1 there if `keepdims` is set.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer")
    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    keepdims = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @property
    def element(self) -> Attribute:
        return element_type_of(self.x)

    @property
    def reduction_axes(self) -> tuple[int, ...]:
        return tuple(sorted(normalized_axes(self.name, ints(self.axes), rank_of(self.x))))

    @property
    def keeps_axes(self) -> bool:
        return flag(self.keepdims)

    def infer(self) -> Sequence[Tensor]:
        element = common_element_type(self, [self.x], self.KINDS)
        return [tensor_type(reduced_shape(shape_of(self.x), self.reduction_axes, self.keeps_axes), element)]

    @abstractmethod
    def ufunc(self) -> np.ufunc:
        """What combines two elements, in NumPy."""

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        wide = widened(x)
        with np.errstate(all="ignore"):
            # NumPy's stubs know neither several axes nor an initial value.
            reduced: Array = cast(Any, self.ufunc()).reduce(
                wide,
                axis=self.reduction_axes,
                dtype=wide.dtype,
                keepdims=self.keeps_axes,
                initial=wide.dtype.type(self.identity()),
            )
        return np.asarray(reduced).astype(x.dtype)


@irdl_op_definition
class ReduceSumOp(AxisReduction):
    """`Σ x` over `axes`; integers wrap around."""

    name = "dl.reduce_sum"

    def ufunc(self) -> np.ufunc:
        return np.add

    def identity(self) -> int | float:
        return 0

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.add(body, accumulator, element)


@irdl_op_definition
class ReduceProdOp(AxisReduction):
    """`Π x` over `axes`; integers wrap around."""

    name = "dl.reduce_prod"

    def ufunc(self) -> np.ufunc:
        return np.multiply

    def identity(self) -> int | float:
        return 1

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.multiply(body, accumulator, element)


@irdl_op_definition
class ReduceMaxOp(AxisReduction):
    """The largest element over `axes`, NaN if one is; of none, the smallest value of the type (-inf)."""

    name = "dl.reduce_max"
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool")

    def ufunc(self) -> np.ufunc:
        return np.maximum

    def identity(self) -> int | float:
        return scalar.limits(self.element)[0]

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.maximum(body, accumulator, element, self.element)


@irdl_op_definition
class ReduceMinOp(AxisReduction):
    """The smallest element over `axes`, NaN if one is; of none, the largest value of the type (inf)."""

    name = "dl.reduce_min"
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool")

    def ufunc(self) -> np.ufunc:
        return np.minimum

    def identity(self) -> int | float:
        return scalar.limits(self.element)[1]

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.minimum(body, accumulator, element, self.element)


class NumbersOnly(AxisReduction, ABC):
    """A reduction of floats for which NaN is no element: of nothing but NaN, and of none, it is NaN."""

    KINDS: ClassVar[tuple[str, ...]] = ("float",)

    def identity(self) -> int | float:
        return nan


@irdl_op_definition
class ReduceNanmaxOp(NumbersOnly):
    """The largest element over `axes` that is not NaN; NaN if there is none."""

    name = "dl.reduce_nanmax"

    def ufunc(self) -> np.ufunc:
        return np.fmax

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return body(arith.MaxnumfOp(accumulator, element))


@irdl_op_definition
class ReduceNanminOp(NumbersOnly):
    """The smallest element over `axes` that is not NaN; NaN if there is none."""

    name = "dl.reduce_nanmin"

    def ufunc(self) -> np.ufunc:
        return np.fmin

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return body(arith.MinnumfOp(accumulator, element))


@irdl_op_definition
class ReduceAnyOp(AxisReduction):
    """Whether any element over `axes` is true; of none, false."""

    name = "dl.reduce_any"
    KINDS: ClassVar[tuple[str, ...]] = ("bool",)

    def ufunc(self) -> np.ufunc:
        return np.logical_or

    def identity(self) -> int | float:
        return 0

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.either(body, accumulator, element)


@irdl_op_definition
class ReduceAllOp(AxisReduction):
    """Whether every element over `axes` is true; of none, true."""

    name = "dl.reduce_all"
    KINDS: ClassVar[tuple[str, ...]] = ("bool",)

    def ufunc(self) -> np.ufunc:
        return np.logical_and

    def identity(self) -> int | float:
        return 1

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.both(body, accumulator, element)


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
        places = b(ExtremePlaceOp, rows, smallest=self.SMALLEST, last=flag(self.select_last))
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
