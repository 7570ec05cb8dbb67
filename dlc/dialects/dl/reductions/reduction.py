"""Reductions of one operand along axes.

All ops have `axes` (an empty list reduces nothing) and `keepdims`, which keeps the reduced axes with size 1. Sums and products
are reassociated; 16-bit floats accumulate in f32 and round once. A reduction of no elements is the identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import nan
from typing import Any, ClassVar, cast

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import common_element_type, widen_array
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    element_type_of,
    flag,
    ints,
    normalized_axes,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.interfaces import Body, Reduction
from dlc.ir import (
    Attribute,
    BoolAttr,
    DenseArrayBase,
    SSAValue,
    TensorType,
    arith,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size


def reduced_shape(shape: Sequence[Size], axes: Sequence[int], keepdims: bool) -> tuple[Size, ...]:
    """Return a shape without the reduced axes, or with size 1 there."""
    return tuple(1 if a in axes else s for a, s in enumerate(shape) if keepdims or a not in axes)


class AxisReduction(Reduction, ABC):
    """A reduction of one operand along `axes`.

    (C1) `axes` are distinct axes of `x`; (C2) the element type is of a kind that the op accepts, and is that of the result;
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
    def keeps_reduced_axes(self) -> bool:
        return flag(self.keepdims)

    def infer(self) -> Sequence[Tensor]:
        element = common_element_type(self, [self.x], self.KINDS)
        return [tensor_type(reduced_shape(shape_of(self.x), self.reduction_axes, self.keeps_reduced_axes), element)]

    @abstractmethod
    def ufunc(self) -> np.ufunc:
        """Return the NumPy ufunc that combines two elements."""

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        wide = widen_array(x)
        with np.errstate(all="ignore"):
            # NumPy's type stubs allow neither several axes nor an initial value.
            reduced: Array = cast(Any, self.ufunc()).reduce(
                wide,
                axis=self.reduction_axes,
                dtype=wide.dtype,
                keepdims=self.keeps_reduced_axes,
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
    """The largest element over `axes`, NaN if one is NaN; the smallest value of the type (-inf) if there are no elements."""

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
    """The smallest element over `axes`, NaN if one is NaN; the largest value of the type (inf) if there are no elements."""

    name = "dl.reduce_min"
    KINDS: ClassVar[tuple[str, ...]] = ("float", "integer", "bool")

    def ufunc(self) -> np.ufunc:
        return np.minimum

    def identity(self) -> int | float:
        return scalar.limits(self.element)[1]

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.minimum(body, accumulator, element, self.element)


class NanIgnoringReduction(AxisReduction, ABC):
    """A reduction of floats that ignores NaN; it is NaN if all elements are, or if there are none."""

    KINDS: ClassVar[tuple[str, ...]] = ("float",)

    def identity(self) -> int | float:
        return nan


@irdl_op_definition
class ReduceNanmaxOp(NanIgnoringReduction):
    """The largest element over `axes` that is not NaN; NaN if there is none."""

    name = "dl.reduce_nanmax"

    def ufunc(self) -> np.ufunc:
        return np.fmax

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return body(arith.MaxnumfOp(accumulator, element))


@irdl_op_definition
class ReduceNanminOp(NanIgnoringReduction):
    """The smallest element over `axes` that is not NaN; NaN if there is none."""

    name = "dl.reduce_nanmin"

    def ufunc(self) -> np.ufunc:
        return np.fmin

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return body(arith.MinnumfOp(accumulator, element))


@irdl_op_definition
class ReduceAnyOp(AxisReduction):
    """Logical or over `axes`; false if there are no elements."""

    name = "dl.reduce_any"
    KINDS: ClassVar[tuple[str, ...]] = ("bool",)

    def ufunc(self) -> np.ufunc:
        return np.logical_or

    def identity(self) -> int | float:
        return 0

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.bit_or(body, accumulator, element)


@irdl_op_definition
class ReduceAllOp(AxisReduction):
    """Logical and over `axes`; true if there are no elements."""

    name = "dl.reduce_all"
    KINDS: ClassVar[tuple[str, ...]] = ("bool",)

    def ufunc(self) -> np.ufunc:
        return np.logical_and

    def identity(self) -> int | float:
        return 1

    def combine(self, body: Body, accumulator: SSAValue, element: SSAValue) -> SSAValue:
        return scalar.bit_and(body, accumulator, element)
