"""Normalizations: softmax, layer norm, RMS norm, batch norm, LRN; 16-bit floats are computed in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MulOp, PowOp, SubOp
from dlc.dialects.dl.arithmetic.functions import ExpOp, LogOp, RsqrtOp, SqrtOp
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    broadcasts_to,
    compatible,
    element_type_of,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Composite, RowComposite
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.reductions.composite import in_wide_type, mean, mean_of, require_one_float_type
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceSumOp
from dlc.dialects.dl.reductions.window import SumPoolOp
from dlc.errors import ShapeError
from dlc.ir import (
    FloatAttr,
    IntegerAttr,
    SSAValue,
    TensorType,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, product


def along_axis(build: DlBuilder, vector: SSAValue, axis: int, rank: int) -> SSAValue:
    """Return a rank-1 tensor reshaped to broadcast along `axis` of a tensor of `rank`; other ranks unchanged."""
    if rank_of(vector) != 1 or axis == rank - 1:
        return vector
    return build(ReshapeOp, vector, shape=(*shape_of(vector), *(1,) * (rank - 1 - axis)))


class SoftmaxLike(RowComposite):
    """A function of the rows along `axis` whose result has the shape of its operand."""

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def row_axes(self) -> tuple[int, ...]:
        return normalized_axes(self.name, (number(self.axis),), rank_of(self.x))

    def infer(self) -> Sequence[Tensor]:
        require_one_float_type(self, self.x)
        assert self.row_axes
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def subtract_maximum(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        """Return `x` minus its maximum, in a wide type: exp overflows f32 above 88."""
        x = widen_floats(build, x)
        return build(SubOp, x, build(ReduceMaxOp, x, axes=self.row_axes, keepdims=True))


@irdl_op_definition
class SoftmaxOp(SoftmaxLike):
    """`y = exp(x) / Σ exp(x)` along `axis`, without overflow.

    (C1) `x` has a float type; (C2) `axis` is one of its axes. A row with NaN or +inf, or of -inf only, becomes NaN.
    """

    name = "dl.softmax"

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array) -> Array:
            e = np.exp(x - x.max(self.row_axes, keepdims=True, initial=-np.inf))
            return e / e.sum(self.row_axes, keepdims=True)

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        e = build(ExpOp, self.subtract_maximum(build, operands[0]), at_most_zero=True)
        # The sum is at least 1, so that one division per row and a product per element are accurate.
        total = build(ReduceSumOp, e, axes=self.row_axes, keepdims=True)
        return [cast_to(build, build(MulOp, e, build(DivOp, build.scalar(1.0, like=e), total)), element_type_of(operands[0]))]


@irdl_op_definition
class LogSoftmaxOp(SoftmaxLike):
    """`y = x - log(Σ exp(x))` along `axis`, without overflow. (C1), (C2) and special values as in `dl.softmax`."""

    name = "dl.log_softmax"

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array) -> Array:
            # f64, so that a large offset common to a row does not cancel the digits of the result.
            x = x.astype(np.float64)
            maximum = x.max(self.row_axes, keepdims=True, initial=-np.inf)
            x = x - np.where(maximum == -np.inf, 0, maximum)
            return x - np.logaddexp.reduce(x, self.row_axes[0], keepdims=True)

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        x = self.subtract_maximum(build, operands[0])
        total = build(ReduceSumOp, build(ExpOp, x, at_most_zero=True), axes=self.row_axes, keepdims=True)
        return [cast_to(build, build(SubOp, x, build(LogOp, total)), element_type_of(operands[0]))]


class TrailingNorm(RowComposite):
    """A normalization of the first operand over its trailing axes, from the property `axis` on, followed by scale and bias."""

    @property
    def row_axes(self) -> tuple[int, ...]:
        rank = rank_of(self.operands[0])
        (first,) = normalized_axes(self.name, (number(self.properties["axis"]),), rank)
        return tuple(range(first, rank))

    def inverse_root(self, build: DlBuilder, mean_square: SSAValue) -> SSAValue:
        """Return `1 / √(mean_square + epsilon)`."""
        return build(RsqrtOp, build(AddOp, mean_square, build.scalar(self.epsilon_value, like=mean_square)))

    @property
    def epsilon_value(self) -> float:
        return number(self.properties["epsilon"])

    def infer(self) -> Sequence[Tensor]:
        require_one_float_type(self, *self.operands)
        x = shape_of(self.operands[0])
        row_shape = x[self.row_axes[0] :]
        for v in self.operands[1:]:
            if not broadcasts_to(self.name, shape_of(v), row_shape):
                raise ShapeError(
                    f"{self.name}: scale or bias {shape_of(v)} does not broadcast to the normalized axes {row_shape}"
                )
        return [tensor_type(x, element_type_of(self.operands[0]))]

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        row_shape = shape_of(self.operands[0])[self.row_axes[0] :]
        return [(shape_of(v), row_shape) for v in self.operands[1:]]


@irdl_op_definition
class LayerNormOp(TrailingNorm):
    """`y = (x - mean) / √(variance + epsilon) · scale + bias`, mean and variance over the axes from `axis` on.

    (C1) operands have the same float type; (C2) scale and bias, if given, broadcast to the normalized axes.
    """

    name = "dl.layer_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array, scale: Array, bias: Array | float = 0.0) -> Array:
            centered = x - mean_of(x, self.row_axes)
            variance = mean_of(np.square(centered), self.row_axes)
            return centered / np.sqrt(variance + self.epsilon_value) * scale + bias

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        x, scale, *bias = (widen_floats(build, v) for v in operands)
        centered = build(SubOp, x, mean(build, x, self.row_axes))
        variance = mean(build, build(MulOp, centered, centered), self.row_axes)
        y = build(MulOp, build(MulOp, centered, self.inverse_root(build, variance)), scale)
        return [cast_to(build, build(AddOp, y, bias[0]) if bias else y, element_type_of(operands[0]))]


@irdl_op_definition
class RmsNormOp(TrailingNorm):
    """`y = x / √(mean(x²) + epsilon) · scale`, the mean over the axes from `axis` on.

    (C1) operands have the same float type; (C2) scale broadcasts to the normalized axes.
    """

    name = "dl.rms_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array, scale: Array) -> Array:
            return x / np.sqrt(mean_of(np.square(x), self.row_axes) + self.epsilon_value) * scale

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        x, scale = (widen_floats(build, v) for v in operands)
        square = mean(build, build(MulOp, x, x), self.row_axes)
        return [
            cast_to(build, build(MulOp, build(MulOp, x, self.inverse_root(build, square)), scale), element_type_of(operands[0]))
        ]


@irdl_op_definition
class BatchNormOp(Composite):
    """`y = (x - mean) / √(variance + epsilon) · scale + bias`, with given statistics per index of `axis`.

    (C1) operands have the same float type; (C2) scale, bias, mean and variance have the size of `axis`. It decomposes to one
    product and one sum with expressions of the statistics: an infinity among the statistics may give NaN where the formula does
    not.
    """

    name = "dl.batch_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    @property
    def channel_axis(self) -> int:
        return normalized_axes(self.name, (number(self.axis),), rank_of(self.x))[0]

    def infer(self) -> Sequence[Tensor]:
        require_one_float_type(self, *self.operands)
        x = shape_of(self.x)
        for v in self.operands[1:]:
            if not compatible(shape_of(v), (x[self.channel_axis],)):
                raise ShapeError(
                    f"dl.batch_norm: statistics {shape_of(v)} for axis {self.channel_axis} of x {x}; expected its size"
                )
        return [tensor_type(x, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array, *statistics: Array) -> Array:
            trailing = (-1, *(1,) * (x.ndim - 1 - self.channel_axis))
            scale, bias, mean_value, variance = (v.reshape(trailing) for v in statistics)
            return (x - mean_value) / np.sqrt(variance + number(self.epsilon)) * scale + bias

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        x, scale, bias, mean_value, variance = (widen_floats(build, v) for v in operands)
        deviation = build(SqrtOp, build(AddOp, variance, build.scalar(number(self.epsilon), like=variance)))
        factor = build(DivOp, scale, deviation)
        offset = build(SubOp, bias, build(MulOp, mean_value, factor))
        factor, offset = (along_axis(build, v, self.channel_axis, rank_of(x)) for v in (factor, offset))
        return [cast_to(build, build(AddOp, build(MulOp, x, factor), offset), element_type_of(operands[0]))]


@irdl_op_definition
class LrnOp(Composite):
    """`y = x / (bias + alpha/size · Σ x²)^beta`, the sum over a window of `size` indices of `axis`.

    The window of an index begins ⌊(size - 1)/2⌋ before it.
    (C1) `x` has a float type; (C2) `size` is positive. Indices out of bounds count as 0.
    """

    name = "dl.lrn"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    alpha = prop_def(FloatAttr)
    beta = prop_def(FloatAttr)
    bias = prop_def(FloatAttr)
    result = result_def(TensorType)

    @property
    def channel_axis(self) -> int:
        return normalized_axes(self.name, (number(self.axis),), rank_of(self.x))[0]

    @property
    def halo(self) -> tuple[int, int]:
        low = (number(self.size) - 1) // 2
        return low, number(self.size) - 1 - low

    def infer(self) -> Sequence[Tensor]:
        require_one_float_type(self, self.x)
        if number(self.size) < 1:
            raise ShapeError(f"dl.lrn: size {number(self.size)} along axis {self.channel_axis}; expected a positive size (C2)")
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        def compute(x: Array) -> Array:
            axis, size = self.channel_axis, number(self.size)
            padded = np.pad(np.square(x), [self.halo if a == axis else (0, 0) for a in range(x.ndim)])
            # A sum of shifted slices, since an axis without elements has no windows.
            sums = sum(padded.take(range(k, k + x.shape[axis]), axis) for k in range(size))
            return x / (number(self.bias) + number(self.alpha) / size * sums) ** number(self.beta)

        return in_wide_type(self, compute, operands)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, axis, size = DlBuilder(self), self.channel_axis, number(self.size)
        x = widen_floats(build, operands[0])
        shape = shape_of(x)
        if 0 in shape:
            return [operands[0]]
        # Pooling along one axis of any tensor is pooling of its reshape [before, axis, after].
        row_shape: tuple[Size, ...] = (product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))
        square = build(ReshapeOp, build(MulOp, x, x), shape=row_shape)
        low, high = self.halo
        square = build(PadOp, square, build.scalar(0.0, like=x), low=(0, low, 0), high=(0, high, 0))
        sums = build(SumPoolOp, square, kernel=(size,), strides=(1,), dilations=(1,))
        scaled = build(MulOp, build(ReshapeOp, sums, shape=shape), build.scalar(number(self.alpha) / size, like=x))
        divisor = build(
            PowOp, build(AddOp, scaled, build.scalar(number(self.bias), like=x)), build.scalar(number(self.beta), like=x)
        )
        return [cast_to(build, build(DivOp, x, divisor), element_type_of(operands[0]))]
