"""Quantization: floats as small integers with a scale and a zero point, as ONNX defines it.

The quotient is rounded half to even, the zero point added, the sum saturated to the integer type; 16-bit floats are
computed in f32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to, widen_floats
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MaximumOp, MinimumOp, MulOp, NegOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import RoundOp
from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.arithmetic.storage_formats import FLOAT_FORMATS, encode_array
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    compatible,
    element_type_of,
    is_storage_only,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.reductions.normalization import along_axis
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceMinOp
from dlc.dialects.dl.scalar import bits, limits, wide_float
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    Attribute,
    IntegerAttr,
    SSAValue,
    TensorType,
    f32,
    i32,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from dlc.shapes.dims import Size, is_known_different, is_same

_UI8 = ELEMENT_TYPES["uint8"]
_QUANTIZED_TYPES = {ELEMENT_TYPES[f"{sign}int{width}"] for sign in ("", "u") for width in (2, 4, 8, 16)} | FLOAT_FORMATS.keys()


def _saturate(value: Array, to: Attribute) -> Array:
    return np.nan_to_num(np.clip(value, *limits(to))).astype(numpy_dtype(to))


def _is_zero(zero_point: SSAValue) -> bool:
    """Return whether a zero point is a constant 0."""
    return isinstance(zero_point.owner, ConstantOp) and not zero_point.owner.reference().any()


def _represents_all(to: Attribute, quantized: Attribute) -> bool:
    """Return whether the integer type `to` represents all values of `quantized`."""
    if not is_integer(quantized):
        return False
    (low, high), (lowest, highest) = limits(quantized), limits(to)
    return lowest <= low and high <= highest


class QuantizationOp(Composite):
    """An op on `x` with a scale and a zero point, each of rank 0, with one entry per index of `axis`, or one entry per block.

    Block-wise parameters have the rank of `x`; their sizes are those of `x`, except along `axis`, where their size divides that
    of `x`.
    """

    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def check_parameters(self) -> None:
        """Raise DTypeError or ShapeError unless scale and zero point are rank-0 or fit `axis`."""
        if not is_float(element_type_of(self.scale)):
            raise DTypeError(f"{self.name}: scale of {element_type_of(self.scale)}; expected floats")
        x, axis, parameters = shape_of(self.x), self.channel_axis, (self.scale, self.zero_point)
        for v in parameters:
            match shape_of(v):
                case ():
                    continue
                case (size,) if is_same(size, 1) or (x and not is_known_different(size, x[axis])):
                    continue
                case shape if _are_blocks(shape, x, axis):
                    continue
                case shape:
                    raise ShapeError(
                        f"{self.name}: scale or zero point of shape {shape} for axis {axis} of {x}; "
                        "expected rank 0, the size of that axis, or an entry per block along it"
                    )
        if all(map(self._is_blockwise, parameters)) and not compatible(*map(shape_of, parameters)):
            raise ShapeError(f"{self.name}: scale {shape_of(self.scale)} and zero point {shape_of(self.zero_point)} differ")

    @property
    def channel_axis(self) -> int:
        return normalized_axes(self.name, (number(self.axis),), rank_of(self.x))[0] if rank_of(self.x) else 0

    @property
    def block_count(self) -> int | None:
        """The number of blocks along `axis`; None if no parameter is block-wise."""
        return next((int(shape_of(v)[self.channel_axis]) for v in (self.scale, self.zero_point) if self._is_blockwise(v)), None)

    def _is_blockwise(self, parameter: SSAValue) -> bool:
        return _are_blocks(shape_of(parameter), shape_of(self.x), self.channel_axis)

    def expand_parameter(self, parameter: Array, rank: int) -> Array:
        """Return a parameter in a shape that broadcasts with an `x` of rank `rank`."""
        may_be_blocks = rank > 1 or parameter.shape != (1,)
        if parameter.ndim == rank > 0 and may_be_blocks and self.block_count is not None:
            size = int(shape_of(self.x)[self.channel_axis])
            return parameter.repeat(size // parameter.shape[self.channel_axis], self.channel_axis)
        return parameter.reshape(-1, *(1,) * (rank - 1 - self.channel_axis)) if parameter.ndim else parameter

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Compute the op with broadcast parameters; block-wise ones split `axis` into blocks and indices within a block."""
        build, (x, *parameters), axis = DlBuilder(self), operands, self.channel_axis
        if self.block_count is None:
            return [self.compute_result(build, x, *(along_axis(build, v, axis, rank_of(x)) for v in parameters))]
        shape = shape_of(x)
        split = (*shape[:axis], self.block_count, int(shape[axis]) // self.block_count, *shape[axis + 1 :])
        for k, v in enumerate(parameters):
            if self._is_blockwise(v):
                parameters[k] = build(ReshapeOp, v, shape=(*shape[:axis], self.block_count, 1, *shape[axis + 1 :]))
        return [build(ReshapeOp, self.compute_result(build, build(ReshapeOp, x, shape=split), *parameters), shape=shape)]

    @abstractmethod
    def compute_result(self, build: DlBuilder, x: SSAValue, scale: SSAValue, zero_point: SSAValue) -> SSAValue:
        """Return the result for parameters that broadcast with `x`."""


def _are_blocks(shape: Sequence[Size], x: Sequence[Size], axis: int) -> bool:
    """Return whether a parameter has an entry per block of `x` along `axis`."""
    if len(shape) != len(x) or not x:
        return False
    count, size = shape[axis], x[axis]
    if not isinstance(count, int) or not isinstance(size, int) or count <= 0 or size % count:
        return False
    # For one axis, a single entry has rank 0, and an entry per index is a per-axis parameter.
    is_blockwise = len(x) > 1 or 1 < count < size
    return is_blockwise and compatible((*shape[:axis], *shape[axis + 1 :]), (*x[:axis], *x[axis + 1 :]))


@irdl_op_definition
class QuantizeOp(QuantizationOp):
    """`y = saturate(round(x / scale) + zero_point)`, in the zero point's type; a storage-only float has no zero point.

    `to` is a wider integer type for the result. (C1) `x` and `scale` have the same float type; (C2) `zero_point` has an integer
    type of at most 16 bits or a storage-only float type; (C3) scale and zero point have rank 0, one entry per index of `axis`,
    or the rank of `x` and one entry per block along it; (C4) `to` represents all values of the zero point's type. NaN gives 0,
    in a storage-only float the result of `dl.cast`.
    """

    name = "dl.quantize"
    to = opt_prop_def(Attribute)

    @property
    def result_element(self) -> Attribute:
        """The element type of the result."""
        return self.to or element_type_of(self.zero_point)

    def infer(self) -> Sequence[Tensor]:
        self.check_parameters()
        x, quantized_type = element_type_of(self.x), element_type_of(self.zero_point)
        if x != element_type_of(self.scale) or quantized_type not in _QUANTIZED_TYPES:
            got = f"x {x}, scale {element_type_of(self.scale)}, zero point {quantized_type}"
            raise DTypeError(f"dl.quantize: {got}; expected equal floats, and integers of at most 16 bits (C1, C2)")
        if self.to is not None and not (is_integer(self.to) and _represents_all(self.to, quantized_type)):
            raise DTypeError(f"dl.quantize: to {self.to} does not represent all values of {quantized_type} (C4)")
        return [tensor_type(shape_of(self.x), self.result_element)]

    def reference(self, *operands: Array) -> Array:
        x, scale, zero = operands
        wide = numpy_dtype(wide_float(element_type_of(self.x)))
        with np.errstate(all="ignore"):
            ratio = x.astype(wide) / self.expand_parameter(scale, x.ndim).astype(wide)
            if element_type_of(self.zero_point) in FLOAT_FORMATS:
                return encode_array(ratio, element_type_of(self.zero_point), saturate=True)
            steps = np.rint(ratio)
            quantized = _saturate(steps + self.expand_parameter(zero, x.ndim).astype(wide), element_type_of(self.zero_point))
            return quantized.astype(numpy_dtype(self.result_element))

    def compute_result(self, build: DlBuilder, x: SSAValue, scale: SSAValue, zero_point: SSAValue) -> SSAValue:
        x, quantized_type = widen_floats(build, x), element_type_of(zero_point)
        ratio = build(DivOp, x, widen_floats(build, scale))
        if quantized_type in FLOAT_FORMATS:
            return build(CastOp, ratio, to=quantized_type, saturate=True)
        rounded_steps = build(RoundOp, ratio)
        if not _is_zero(self.zero_point):
            rounded_steps = build(AddOp, rounded_steps, cast_to(build, zero_point, element_type_of(x)))
        if is_storage_only(quantized_type):
            # Casts to storage-only integers wrap around; other casts saturate.
            low, high = (build.scalar(limit, like=rounded_steps) for limit in limits(quantized_type))
            rounded_steps = build(MinimumOp, build(MaximumOp, rounded_steps, low), high)
        return cast_to(build, cast_to(build, rounded_steps, quantized_type), self.result_element)


@irdl_op_definition
class DequantizeOp(QuantizationOp):
    """`y = (x - zero_point) · scale`, in the scale's type.

    (C1) `x` and `zero_point` have the same type, an integer of at most 32 bits or a storage-only float, or `x` has an integer
    type of at most 8 bits and `zero_point` is f32; (C2) `scale` has a float type; (C3) scale and zero point have rank 0, one
    entry per index of `axis`, or the rank of `x` and one entry per block along it.

    The difference is exact for at most 16 bits and wraps for 32; of storage-only floats and f32 it rounds as f32.
    """

    name = "dl.dequantize"

    @property
    def _step_type(self) -> Attribute:
        return f32 if is_float(element_type_of(self.zero_point)) or element_type_of(self.x) in FLOAT_FORMATS else i32

    def infer(self) -> Sequence[Tensor]:
        self.check_parameters()
        x, zero = element_type_of(self.x), element_type_of(self.zero_point)
        has_float_zero = zero == f32 and x in _QUANTIZED_TYPES - FLOAT_FORMATS.keys() and bits(x) <= 8
        if not has_float_zero and (x != zero or not (x in _QUANTIZED_TYPES or x == i32)):
            expected = "one integer type of at most 32 bits or one storage-only float, or integers of 8 bits and f32"
            raise DTypeError(f"dl.dequantize: x {x}, zero point {zero}; expected {expected} (C1)")
        return [tensor_type(shape_of(self.x), element_type_of(self.scale))]

    def reference(self, *operands: Array) -> Array:
        x, scale, zero = operands
        step_type = numpy_dtype(self._step_type)
        steps = x.astype(step_type) - self.expand_parameter(zero, x.ndim).astype(step_type)
        wide = numpy_dtype(wide_float(element_type_of(self.scale)))
        return (steps.astype(wide) * self.expand_parameter(scale, x.ndim).astype(wide)).astype(scale.dtype)

    def compute_result(self, build: DlBuilder, x: SSAValue, scale: SSAValue, zero_point: SSAValue) -> SSAValue:
        wide = widen_floats(build, scale)
        steps = build(SubOp, cast_to(build, x, self._step_type), cast_to(build, zero_point, self._step_type))
        return cast_to(build, build(MulOp, cast_to(build, steps, element_type_of(wide)), wide), element_type_of(scale))


@irdl_op_definition
class DynamicQuantizeLinearOp(Composite):
    """Quantizes `x` to ui8 with the scale and zero point of its range: results `y`, `scale` (f32), `zero_point` (ui8).

    `scale = (max(x, 0) - min(x, 0)) / 255`, 1 where that is 0; `zero_point = saturate(round(-min(x, 0) / scale))`;
    `y = saturate(round(x / scale) + zero_point)`. (C1) `x` is f32.
    """

    name = "dl.dynamic_quantize_linear"
    x = operand_def(TensorType)
    y = result_def(TensorType)
    scale = result_def(TensorType)
    zero_point = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        if element_type_of(self.x) != f32:
            raise DTypeError(f"dl.dynamic_quantize_linear: element type {element_type_of(self.x)}; expected f32")
        return [tensor_type(shape_of(self.x), _UI8), tensor_type((), f32), tensor_type((), _UI8)]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        low, high = (np.float32(f(x, initial=0)) for f in (np.min, np.max))
        scale = (high - low) / np.float32(255) or np.float32(1)
        zero = _saturate(np.rint(-low / scale), _UI8)
        return _saturate(np.rint(x / scale) + zero, _UI8), np.asarray(scale), np.asarray(zero)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x,) = DlBuilder(self), operands
        zero, one, axes = build.scalar(0.0, like=x), build.scalar(1.0, like=x), tuple(range(rank_of(x)))
        low = build(MinimumOp, build(ReduceMinOp, x, axes=axes, keepdims=False), zero)
        high = build(MaximumOp, build(ReduceMaxOp, x, axes=axes, keepdims=False), zero)
        step_size = build(DivOp, build(SubOp, high, low), build.scalar(255.0, like=x))
        scale = build(SelectOp, build(EqualOp, step_size, zero), one, step_size)
        zero_point = cast_to(build, build(RoundOp, build(DivOp, build(NegOp, low), scale)), _UI8)
        return [build(QuantizeOp, x, scale, zero_point, axis=0), scale, zero_point]
