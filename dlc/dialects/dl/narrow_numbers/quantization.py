"""Quantisation: floats as small integers with a scale and a zero point, as ONNX defines it.

The quotient is rounded half to even, the zero point added, the sum saturated to the integer type; 16-bit floats are
computed in f32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc.dialects.dl.arithmetic.activation import casted, widened
from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MaximumOp, MinimumOp, MulOp, NegOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import RoundOp
from dlc.dialects.dl.arithmetic.logic import EqualOp
from dlc.dialects.dl.arithmetic.narrow import FORMATS, narrowed
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    element_type_of,
    is_narrow,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.contraction import differ
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, is_integer, numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.reductions.normalization import along_axis
from dlc.dialects.dl.reductions.reduction import ReduceMaxOp, ReduceMinOp
from dlc.dialects.dl.scalar import limits, wide_float
from dlc.dims import Size
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

_UI8 = ELEMENT_TYPES["uint8"]
_STORED = {ELEMENT_TYPES[f"{sign}int{width}"] for sign in ("", "u") for width in (2, 4, 8, 16)} | FORMATS.keys()


def _saturate(value: Array, to: Attribute) -> Array:
    return np.nan_to_num(np.clip(value, *limits(to))).astype(numpy_dtype(to))


def _is_zero(zero_point: SSAValue) -> bool:
    """Whether a zero point is known to be 0."""
    return isinstance(zero_point.owner, ConstantOp) and not zero_point.owner.reference().any()


def _holds(to: Attribute, stored: Attribute) -> bool:
    """Whether a type has all integers of another."""
    if not is_integer(stored):
        return False
    (low, high), (lowest, highest) = limits(stored), limits(to)
    return lowest <= low and high <= highest


class Scaled(Composite):
    """An op on `x` with a scale and a zero point, each of rank 0 or with one entry per place of `axis`.

    Of the rank of `x` they have one entry per block: their sizes are those of `x`, but that of `axis`, which divides it.
    """

    TAKES_NARROW: ClassVar[bool] = True

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def check_parameters(self) -> None:
        """Raises unless scale and zero point are rank-0 or fit `axis`."""
        if not is_float(element_type_of(self.scale)):
            raise DTypeError(f"{self.name}: scale of {element_type_of(self.scale)}; expected floats")
        x, axis = shape_of(self.x), self.channel_axis
        for v in (self.scale, self.zero_point):
            match shape_of(v):
                case () | (1,):
                    continue
                case (size,) if x and not differ(size, x[axis]):
                    continue
                case shape if _are_blocks(shape, x, axis):
                    continue
                case shape:
                    raise ShapeError(
                        f"{self.name}: scale or zero point of shape {shape} for axis {axis} of {x}; "
                        "expected rank 0, the size of that axis, or an entry for each block along it"
                    )
        if len({shape_of(v) for v in (self.scale, self.zero_point) if self._in_blocks(v)}) > 1:
            raise ShapeError(f"{self.name}: scale {shape_of(self.scale)} and zero point {shape_of(self.zero_point)} differ")

    @property
    def channel_axis(self) -> int:
        return normalized_axes(self.name, (number(self.axis),), rank_of(self.x))[0] if rank_of(self.x) else 0

    @property
    def block_count(self) -> int | None:
        """How many blocks a parameter has an entry for along `axis`; None where none has."""
        return next((int(shape_of(v)[self.channel_axis]) for v in (self.scale, self.zero_point) if self._in_blocks(v)), None)

    def _in_blocks(self, parameter: SSAValue) -> bool:
        return shape_of(parameter) != (1,) and _are_blocks(shape_of(parameter), shape_of(self.x), self.channel_axis)

    def trailing(self, parameter: Array, rank: int) -> Array:
        """A parameter's values as they broadcast along the axis."""
        apart = rank > 1 or parameter.shape != (1,)
        if parameter.ndim == rank > 0 and apart and self.block_count is not None:
            size = int(shape_of(self.x)[self.channel_axis])
            return parameter.repeat(size // parameter.shape[self.channel_axis], self.channel_axis)
        return parameter.reshape(-1, *(1,) * (rank - 1 - self.channel_axis)) if parameter.ndim else parameter

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """With an axis for the places of a block beside that of the blocks, if there are any."""
        b, (x, *parameters), axis = Build(self), operands, self.channel_axis
        if self.block_count is None:
            return [self.computed(b, x, *(along_axis(b, v, axis, rank_of(x)) for v in parameters))]
        shape = shape_of(x)
        split = (*shape[:axis], self.block_count, int(shape[axis]) // self.block_count, *shape[axis + 1 :])
        for k, v in enumerate(parameters):
            if self._in_blocks(v):
                parameters[k] = b(ReshapeOp, v, shape=(*shape[:axis], self.block_count, 1, *shape[axis + 1 :]))
        return [b(ReshapeOp, self.computed(b, b(ReshapeOp, x, shape=split), *parameters), shape=shape)]

    @abstractmethod
    def computed(self, b: Build, x: SSAValue, scale: SSAValue, zero_point: SSAValue) -> SSAValue:
        """The result, of parameters that broadcast with `x`."""


def _are_blocks(shape: Sequence[Size], x: Sequence[Size], axis: int) -> bool:
    """Whether a parameter has an entry per block of `x` along `axis`."""
    if len(shape) != len(x) or not x or any(s != t for a, (s, t) in enumerate(zip(shape, x, strict=True)) if a != axis):
        return False
    count, size = shape[axis], x[axis]
    # One entry per place of the only axis is the other form.
    apart = len(x) > 1 or count != size
    return isinstance(count, int) and isinstance(size, int) and apart and count > 0 and size % count == 0


@irdl_op_definition
class QuantizeOp(Scaled):
    """`y = saturate(round(x / scale) + zero_point)`, in the zero point's type; without zero point if that is a narrow float.

    `to` is another type to hold it, of integers. (C1) `x` and `scale` are of one float type; (C2) `zero_point` is of integers
    of at most 16 bits or narrow floats; (C3) scale and zero point have rank 0, one entry per place of `axis`, or the rank of
    `x` and one entry per block along it; (C4) `to` has all integers of the zero point's type. NaN gives 0, in a narrow float
    what `dl.cast` says.
    """

    name = "dl.quantize"
    to = opt_prop_def(Attribute)

    @property
    def held(self) -> Attribute:
        """The element type of the result."""
        return self.to or element_type_of(self.zero_point)

    def infer(self) -> Sequence[Tensor]:
        self.check_parameters()
        x, stored = element_type_of(self.x), element_type_of(self.zero_point)
        if x != element_type_of(self.scale) or stored not in _STORED:
            raise DTypeError(f"dl.quantize: x {x}, scale {element_type_of(self.scale)}, zero point {stored}; see (C1) and (C2)")
        if self.to is not None and not (is_integer(self.to) and _holds(self.to, stored)):
            raise DTypeError(f"dl.quantize: {self.to} does not have all of {stored} (C4)")
        return [tensor_type(shape_of(self.x), self.held)]

    def reference(self, *operands: Array) -> Array:
        x, scale, zero = operands
        wide = numpy_dtype(wide_float(element_type_of(self.x)))
        with np.errstate(all="ignore"):
            ratio = x.astype(wide) / self.trailing(scale, x.ndim).astype(wide)
            if element_type_of(self.zero_point) in FORMATS:
                return narrowed(ratio, element_type_of(self.zero_point), saturate=True)
            steps = np.rint(ratio)
            number = _saturate(steps + self.trailing(zero, x.ndim).astype(wide), element_type_of(self.zero_point))
            return number.astype(numpy_dtype(self.held))

    def computed(self, b: Build, x: SSAValue, scale: SSAValue, zero_point: SSAValue) -> SSAValue:
        x, stored = widened(b, x), element_type_of(zero_point)
        ratio = b(DivOp, x, widened(b, scale))
        if stored in FORMATS:
            return b(CastOp, ratio, to=stored, saturate=True)
        shifted = b(RoundOp, ratio)
        if not _is_zero(self.zero_point):
            shifted = b(AddOp, shifted, casted(b, zero_point, element_type_of(x)))
        if is_narrow(stored):
            # Casts to these wrap around; to others they saturate.
            low, high = (b.scalar(limit, like=shifted) for limit in limits(stored))
            shifted = b(MinimumOp, b(MaximumOp, shifted, low), high)
        return casted(b, casted(b, shifted, stored), self.held)


@irdl_op_definition
class DequantizeOp(Scaled):
    """`y = (x - zero_point) · scale`, in the scale's type.

    (C1) `x` and `zero_point` are of one integer type of at most 32 bits or one narrow float; (C2) `scale` is of floats; (C3)
    scale and zero point have rank 0, one entry per place of `axis`, or the rank of `x` and one entry per block along it. The
    difference is exact for at most 16 bits and wraps for 32; of narrow floats it rounds as f32.
    """

    name = "dl.dequantize"

    @property
    def _steps_in(self) -> Attribute:
        return f32 if element_type_of(self.x) in FORMATS else i32

    def infer(self) -> Sequence[Tensor]:
        self.check_parameters()
        x, zero = element_type_of(self.x), element_type_of(self.zero_point)
        if x != zero or not (x in _STORED or x == i32):
            raise DTypeError(f"dl.dequantize: x {x}, zero point {zero}; expected one type, as (C1) says")
        return [tensor_type(shape_of(self.x), element_type_of(self.scale))]

    def reference(self, *operands: Array) -> Array:
        x, scale, zero = operands
        steps_in = numpy_dtype(self._steps_in)
        steps = x.astype(steps_in) - self.trailing(zero, x.ndim).astype(steps_in)
        wide = numpy_dtype(wide_float(element_type_of(self.scale)))
        return (steps.astype(wide) * self.trailing(scale, x.ndim).astype(wide)).astype(scale.dtype)

    def computed(self, b: Build, x: SSAValue, scale: SSAValue, zero_point: SSAValue) -> SSAValue:
        wide = widened(b, scale)
        steps = b(SubOp, casted(b, x, self._steps_in), casted(b, zero_point, self._steps_in))
        return casted(b, b(MulOp, casted(b, steps, element_type_of(wide)), wide), element_type_of(scale))


@irdl_op_definition
class DynamicQuantizeLinearOp(Composite):
    """`x` as ui8 with the scale and zero point that fit its range: results `y`, `scale` (f32), `zero_point` (ui8).

    `scale = (max(x, 0) - min(x, 0)) / 255`, 1 where that is 0; `zero_point = saturate(round(-min(x, 0) / scale))`;
    `y = saturate(round(x / scale) + zero_point)`. (C1) `x` is of f32.
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
        b, (x,) = Build(self), operands
        zero, one, axes = b.scalar(0.0, like=x), b.scalar(1.0, like=x), tuple(range(rank_of(x)))
        low = b(MinimumOp, b(ReduceMinOp, x, axes=axes, keepdims=False), zero)
        high = b(MaximumOp, b(ReduceMaxOp, x, axes=axes, keepdims=False), zero)
        span = b(DivOp, b(SubOp, high, low), b.scalar(255.0, like=x))
        scale = b(SelectOp, b(EqualOp, span, zero), one, span)
        steps = casted(b, b(RoundOp, b(DivOp, b(NegOp, low), scale)), _UI8)
        return [b(QuantizeOp, x, scale, steps, axis=0), scale, steps]
