"""Reductions that decompose to simpler ops; 16-bit floats are computed in f32 and rounded once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf, prod

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, AddOp, DivOp, MaximumOp, MinimumOp, MulOp, SubOp
from dlc.dialects.dl.arithmetic.functions import ExpOp, LogOp, SqrtOp
from dlc.dialects.dl.base import (
    Array,
    DlOp,
    Tensor,
    element_type_of,
    flag,
    ints,
    normalized_axes,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Composite, is_unsigned
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceSumOp, reduced_shape
from dlc.dialects.dl.scalar import wide_float
from dlc.errors import DTypeError
from dlc.ir import (
    BoolAttr,
    DenseArrayBase,
    SSAValue,
    TensorType,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import product


def in_wide_type(op: DlOp, compute: Callable[..., Array], operands: Sequence[Array]) -> Array:
    """Apply `compute` to the operands, with 16-bit floats as f32, and round once to the result's type."""
    wide = (x.astype(numpy_dtype(wide_float(element_type_of(v)))) for x, v in zip(operands, op.operands, strict=True))
    with np.errstate(all="ignore"):
        return compute(*wide).astype(numpy_dtype(element_type_of(op.results[0])))


def require_one_float_type(op: DlOp, *operands: SSAValue) -> None:
    """Raise DTypeError unless all operands have the same float type."""
    elements = [element_type_of(v) for v in operands]
    if not is_float(elements[0]) or any(e != elements[0] for e in elements):
        raise DTypeError(f"{op.name}: element types {', '.join(map(str, elements))}; expected one float type, cast the others")


def element_count(build: DlBuilder, x: SSAValue, axes: Sequence[int], like: SSAValue) -> SSAValue:
    """Return the number of elements that `axes` of `x` span, with the element type of `like`."""
    return build.size(product(shape_of(x)[a] for a in axes), like)


def mean(build: DlBuilder, x: SSAValue, axes: Sequence[int], keepdims: bool = True) -> SSAValue:
    """Return the mean of floats over axes; NaN of no elements."""
    total, count = build(ReduceSumOp, x, axes=tuple(axes), keepdims=keepdims), product(shape_of(x)[a] for a in axes)
    if not isinstance(count, int):
        return build(DivOp, total, element_count(build, x, axes, total))
    # The mean of no elements is NaN: zero times infinity.
    return build(MulOp, total, build.scalar(1 / count if count else inf, like=total))


def mean_of(x: Array, axes: Sequence[int], keepdims: bool = True) -> Array:
    """Compute the mean of floats over axes with NumPy; NaN of no elements, without the warning of `numpy.mean`."""
    return x.sum(tuple(axes), keepdims=keepdims) / x.dtype.type(prod(x.shape[a] for a in axes))


class CompositeReduction(Composite):
    """A reduction over `axes` that decomposes to simpler ops; reduced axes stay with size 1 if `keepdims`."""

    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    keepdims = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    @abstractmethod
    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """Compute the result with NumPy."""

    @abstractmethod
    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        """Return the result computed by simpler ops."""

    @property
    def reduction_axes(self) -> tuple[int, ...]:
        return tuple(sorted(normalized_axes(self.name, ints(self.axes), rank_of(self.x))))

    @property
    def keeps_reduced_axes(self) -> bool:
        return flag(self.keepdims)

    def infer(self) -> Sequence[Tensor]:
        if is_bool(element_type_of(self.x)):
            raise DTypeError(f"{self.name}: element type i1; expected integers or floats, cast the operand")
        shape = reduced_shape(shape_of(self.x), self.reduction_axes, self.keeps_reduced_axes)
        return [tensor_type(shape, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array) -> Array:
            return self.compute(x, self.reduction_axes, self.keeps_reduced_axes)

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        return [cast_to(build, self.expand(build, widen_floats(build, operands[0])), element_type_of(self.x))]

    def sum(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        """Return Σ `x` over the op's axes."""
        return build(ReduceSumOp, x, axes=self.reduction_axes, keepdims=self.keeps_reduced_axes)


@irdl_op_definition
class ReduceMeanOp(CompositeReduction):
    """`y = Σ x / n` over `axes`, n the number of elements; integers are summed in 64 bits, and the division truncates.

    (C1) `axes` are distinct axes of `x`, which has a float or integer type. The mean of no elements is NaN, of integers 0.
    """

    name = "dl.reduce_mean"

    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        if x.dtype.kind == "f":
            return mean_of(x, axes, keepdims)
        total, n = x.sum(axes, keepdims=keepdims, dtype=f"{x.dtype.kind}8"), prod(x.shape[a] for a in axes)
        count = total.dtype.type(n)
        floored = np.floor_divide(total, count)
        return floored + ((total < 0) & (floored * count != total) & (count != 0))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        if is_float(element_type_of(x)):
            return mean(build, x, self.reduction_axes, self.keeps_reduced_axes)
        # 64 bits hold every sum and every number of elements.
        wide = ELEMENT_TYPES["uint64"] if is_unsigned(element_type_of(x)) else ELEMENT_TYPES["int64"]
        total = self.sum(build, cast_to(build, x, wide))
        return build(DivOp, total, element_count(build, x, self.reduction_axes, total))


@irdl_op_definition
class ReduceL1Op(CompositeReduction):
    """`y = Σ |x|` over `axes`. (C1) `axes` are distinct axes of `x`, which has a float or integer type. An empty sum is 0."""

    name = "dl.reduce_l1"

    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.abs(x).sum(axes, keepdims=keepdims, dtype=x.dtype)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return self.sum(build, build(AbsOp, x))


@irdl_op_definition
class ReduceSumSquareOp(CompositeReduction):
    """`y = Σ x²` over `axes`. (C1) `axes` are distinct axes of `x`, which has a float or integer type. An empty sum is 0."""

    name = "dl.reduce_sum_square"

    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.square(x).sum(axes, keepdims=keepdims, dtype=x.dtype)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return self.sum(build, build(MulOp, x, x))


class FloatReduction(CompositeReduction):
    """A composite reduction of floats only."""

    def infer(self) -> Sequence[Tensor]:
        require_one_float_type(self, self.x)
        return super().infer()


@irdl_op_definition
class ReduceL2Op(FloatReduction):
    """`y = √(Σ x²)` over `axes`. (C1) `axes` are distinct axes of `x`, which has a float type. An empty sum is 0."""

    name = "dl.reduce_l2"

    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.sqrt(np.square(x).sum(axes, keepdims=keepdims))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(SqrtOp, self.sum(build, build(MulOp, x, x)))


@irdl_op_definition
class ReduceLogSumOp(FloatReduction):
    """`y = log(Σ x)` over `axes`. (C1) `axes` are distinct axes of `x`, which has a float type. An empty sum gives -inf."""

    name = "dl.reduce_log_sum"

    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.log(x.sum(axes, keepdims=keepdims))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(LogOp, self.sum(build, x))


@irdl_op_definition
class ReduceLogSumExpOp(FloatReduction):
    """`y = log(Σ exp(x))` over `axes`, without overflow.

    (C1) `axes` are distinct axes of `x`, which has a float type. An element of +inf gives +inf; only elements of -inf, or none,
    give -inf; NaN stays NaN.
    """

    name = "dl.reduce_log_sum_exp"

    def compute(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        for axis in reversed(axes):
            x = np.logaddexp.reduce(x, axis, keepdims=keepdims)
        return x

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        largest = float(np.finfo(numpy_dtype(element_type_of(x))).max)
        # The shift is finite, since inf - inf would be NaN.
        maximum = build(ReduceMaxOp, x, axes=self.reduction_axes, keepdims=True)
        maximum = build(MinimumOp, build(MaximumOp, maximum, build.scalar(-largest, like=x)), build.scalar(largest, like=x))
        total = build(LogOp, self.sum(build, build(ExpOp, build(SubOp, x, maximum))))
        return build(
            AddOp, total, build(ReshapeOp, maximum, shape=shape_of(total)) if shape_of(total) != shape_of(maximum) else maximum
        )
